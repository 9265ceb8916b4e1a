// Package gateway serves model endpoints to runs, in place of the providers.
//
// A run talks to its [Session] as it would to a provider (OpenAI Responses and chat completions, Anthropic Messages) with a
// key that is worth something only to that run and only until [Session.Close]. The provider's key, or the token of a
// subscription login, is put in here and never comes back: not in a header, not in a stream, not in an error text.
//
// Each request reserves the most that it can cost in the budgets of the run's permit ([permit.Permit.Reserve]) before it is
// sent, is told to answer with no more than that leaves, and is charged as its answer comes. What does not fit waits or runs
// alone, and what would begin beyond a budget is refused. So a budget is exceeded by no more than what responses said beyond
// what they had reserved.
//
// Requests are rewritten, not trusted: the body must be one JSON object without duplicate members, tools that the
// provider would run itself are taken out, sources that the provider would fetch are refused, and only listed headers go
// either way. Streams are passed on as they come. Memory does not grow with their length.
package gateway
