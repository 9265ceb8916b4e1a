// Package ipc is the wire between the scheduler and the agentcore.
//
// Its message types are the specification of what the two say: message.go has the methods
// and what opens, keeps and ends the conversation, configure.go what the core enforces,
// attempt.go the messages of one attempt, report.go what both sides report besides,
// steps.go durable steps, stream.go streams, errors.go the error codes. docs/protocol.md
// describes the lines and the order of a conversation.
//
// The scheduler starts the agentcore as its child. Requests, answers and notifications are
// JSON-RPC 2.0 objects, one a line (Decoder, Encoder), over the child's standard input and
// output, in both directions. The child's standard error is its log. A Peer is one end of
// the conversation.
//
// Frames arrive in the order in which they were sent. Answers and notifications are never
// dropped, except progress events: the oldest one is dropped when the send queue is full,
// and the next event of that run says how many are missing. A peer that floods the stream,
// tears a frame or stops reading is reported as broken. Nothing waits for it without end,
// except a core whose permits lapse: it waits for a scheduler that does not read.
package ipc
