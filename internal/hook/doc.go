// Package hook tells the world outside of an escalation: a command, a webhook,
// or both.
//
// In come payloads, from callers that never wait; out they go as JSON, on the
// command's standard input and as the webhook's POST body. It promises that a
// target that hangs, fails or is not there costs a line in the log and nothing
// else: each has a bounded queue of its own, whose oldest entry makes room, and
// a time limit, and what failed is tried once more and then given up.
package hook
