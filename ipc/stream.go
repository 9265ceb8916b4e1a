package ipc

import "github.com/agentsched/agentsched/job"

// Methods about a run that streams. They join its worker to the log of its pipeline, which
// the scheduler keeps, like two pipes: at most one call of each is under way for a run, so
// that the lines keep their order.
const (
	MethodStreamLines = "stream_lines" // StreamLines → StreamResult; the core calls it on the scheduler
	MethodStreamWrite = "stream_write" // StreamWrite → StreamResult; the scheduler calls it on the core
)

// MaxStream is how many bytes one call carries at most; a longer line is carried
// by several. As base64 it stays below MaxFrame.
const MaxStream = 512 << 10

// Stream says which stage of a pipeline a run is the worker of.
type Stream struct {
	Pipeline job.Name `json:"pipeline"`
	Stage    job.Name `json:"stage"`
}

// StreamLines carries what a worker has printed about the stream. The core reads no
// further output of the worker until the call is answered, so that a log without room
// makes the worker wait. The scheduler waits a second for room, then it answers Full.
// The core waits 30 seconds for an answer.
type StreamLines struct {
	Job     job.ID `json:"job"`
	Attempt int    `json:"attempt"`
	Data    []byte `json:"data"` // whole lines with their ends, or a piece of one long line
}

// StreamWrite carries lines for the worker's standard input. It may come before the worker
// is started: the core keeps up to 2 MiB for it. A worker that has 4 MiB unread is full.
type StreamWrite struct {
	Job     job.ID `json:"job"`
	Attempt int    `json:"attempt"`
	Data    []byte `json:"data"` // whole lines with their ends, or a piece of one long line
}

// StreamResult answers both. The data is taken as a whole or not at all. A call fails if
// the attempt does not run or does not stream, or if the other end was closed: nothing can
// be sent any more then. A call without an answer is not repeated, since a line that
// arrives twice would be processed twice; the caller ends the stream.
type StreamResult struct {
	// Full says that there was no room: the sender sends the same data again, the core at
	// once and the scheduler after 50 ms.
	Full bool `json:"full,omitempty"`
}
