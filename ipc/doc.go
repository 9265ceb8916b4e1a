// Package ipc is what the scheduler and the agentcore say to each other, and
// how: message.go is the specification of the messages, frame.go of the lines
// that carry them, peer.go plays JSON-RPC 2.0 over those lines.
//
// The scheduler starts the agentcore as its child; requests and answers are
// JSON objects, one a line, over the child's standard input and output, in
// both directions. The child's standard error is its log. The scheduler
// speaks first, with hello.
//
// What goes in comes out on the other side in the same order. Answers and
// notifications are never dropped; progress events may be, the oldest first,
// and the next event of that run says how many. A peer that floods, tears or
// stops reading the stream is reported as broken, never waited for; only a core
// whose permits lapse waits for a scheduler that does not read.
package ipc
