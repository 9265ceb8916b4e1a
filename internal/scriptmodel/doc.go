// Package scriptmodel is a model server on loopback that plays scripts instead of thinking.
//
// It speaks the three APIs that coding CLIs use (OpenAI Responses, OpenAI chat completions, Anthropic Messages), streamed or
// whole, so that real CLIs run without network, account or cost: in tests, in a demonstration, and to make a worker behave
// badly on purpose (401, 429, 500, a hang, half an event, a tool call that sleeps, daemonises or floods).
//
// A request holds its whole conversation, and the answer is the turn of the script that the conversation has reached. The
// server keeps no state of a conversation, so a session resumed after a crash, even against another server,
// goes on where it was. The one exception is Script.FailFirst, which counts. Close ends every request in flight and waits.
package scriptmodel
