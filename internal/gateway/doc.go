// Package gateway serves model endpoints to runs, in place of the providers.
//
// A run talks to its [Session] as it would to a provider (OpenAI Responses and chat completions, Anthropic Messages) with a
// key that is worth something only to that run and only until [Session.Close]. The provider's key, or the token of a
// subscription login, is put in here and never comes back: not in a header, not in a stream, not in an error text.
//
// Each request is charged against accounts of a [Ledger], such as one of the run, one of its tenant and one of all. It
// reserves the most that it can cost before it is sent. What does not fit runs alone, and what would begin beyond a budget is
// refused. So an account is exceeded by no more than what a response that ran alone, or said more than it had asked for,
// cost beyond its reservation.
//
// Requests are rewritten, not trusted: the body must be one JSON object without duplicate members, tools that the
// provider would run itself are taken out, sources that the provider would fetch are refused, and only listed headers go
// either way. Streams are passed on as they come. Memory does not grow with their length.
package gateway
