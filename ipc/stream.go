package ipc

import "github.com/agentsched/agentsched/job"

// Methods about a run that streams: its worker and the log of its pipeline are
// joined by them, as if by two pipes.
const (
	MethodStreamLines = "stream_lines" // StreamLines → StreamResult; the core calls it: from the worker's standard output
	MethodStreamWrite = "stream_write" // StreamWrite → StreamResult; the scheduler calls it: to the worker's standard input
)

// MaxStream is how many bytes one call carries at most; a longer line is carried
// by several. As base64 it stays below the frame limit.
const MaxStream = 512 << 10

// Stream says which stage of a pipeline a run is the worker of.
type Stream struct {
	Pipeline job.Name `json:"pipeline"`
	Stage    job.Name `json:"stage"`
}

// StreamLines carries what a worker has printed about the stream: lines with their
// ends. The next call follows the answer, so they come in order, and the worker's
// output is not read meanwhile.
type StreamLines struct {
	Job     job.ID `json:"job"`
	Attempt int    `json:"attempt"`
	Data    []byte `json:"data"`
}

// StreamWrite carries lines for a worker, with their ends. The next call follows
// the answer, so they come in order. It may come before the worker is started.
type StreamWrite struct {
	Job     job.ID `json:"job"`
	Attempt int    `json:"attempt"`
	Data    []byte `json:"data"`
}

// StreamResult answers both. An error of the call means that nobody takes anything
// any more.
type StreamResult struct {
	// Full says that there was no room and nothing was taken: the same is to be sent
	// again a little later.
	Full bool `json:"full,omitempty"`
}
