package agentcore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// streaming is the part of an execution that joins its worker to the log of a
// pipeline, which the scheduler keeps.
type streaming struct {
	peer    *ipc.Peer
	job     job.ID
	attempt int

	mu    sync.Mutex // guards what follows
	stdin io.Writer  // nil before the worker was started
	early []byte     // for it, until then
}

// join returns the run's worker.Run.Stream.
func (s *streaming) join() *worker.Stream {
	if s == nil {
		return nil
	}
	return &worker.Stream{Attach: s.attach, Take: s.take}
}

// attach gives the worker what came before it was there.
func (s *streaming) attach(stdin io.Writer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stdin = stdin
	_, _ = stdin.Write(s.early) // it fits, and a program that has ended already needs nothing
	s.early = nil
}

// take brings a line to the scheduler, in pieces if it is long.
func (s *streaming) take(ctx context.Context, line []byte) error {
	for piece := range slices.Chunk(line, ipc.MaxStream) {
		for full := true; full; {
			var r ipc.StreamResult
			err := s.send(ctx, ipc.StreamLines{Job: s.job, Attempt: s.attempt, Data: piece}, &r)
			if err != nil {
				return fmt.Errorf("send %d bytes to the stream: %w", len(line), err)
			}
			full = r.Full
		}
	}
	return nil
}

func (s *streaming) send(ctx context.Context, lines ipc.StreamLines, r *ipc.StreamResult) error {
	ctx, cancel := context.WithTimeoutCause(ctx, stepTime, fmt.Errorf("no answer within %s", stepTime))
	defer cancel()
	return s.peer.Call(ctx, ipc.MethodStreamLines, lines, r)
}

// maxEarly bounds what waits for a worker that is not started yet, in bytes; it is
// below what a worker may leave unread.
const maxEarly = 2 << 20

// write queues lines for the worker, all or none.
func (s *streaming) write(data []byte) (full bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stdin == nil {
		if len(s.early) > 0 && len(s.early)+len(data) > maxEarly {
			return true, nil
		}
		s.early = append(s.early, data...)
		return false, nil
	}
	_, err = s.stdin.Write(data)
	if errors.Is(err, worker.ErrUnread) {
		return true, nil
	}
	return false, err
}

func (c *Core) streamWrite(_ context.Context, r ipc.StreamWrite) (ipc.StreamResult, error) {
	s, _, err := c.ready()
	if err != nil {
		return ipc.StreamResult{}, err
	}
	c.mu.Lock()
	e := c.live[job.RunTag(s.instance, r.Job, r.Attempt)]
	c.mu.Unlock()
	if e == nil || e.stream == nil {
		return ipc.StreamResult{}, fmt.Errorf("attempt %d of job %s does not stream", r.Attempt, r.Job)
	}
	full, err := e.stream.write(r.Data)
	return ipc.StreamResult{Full: full}, err
}

// cannotStream says why a stage's worker cannot be what it is.
func cannotStream(r ipc.SubmitJob) error {
	return &worker.Failure{
		Class:   job.Config,
		Message: fmt.Sprintf("stage %q of pipeline %q streams; worker %s cannot stream", r.Stream.Stage, r.Stream.Pipeline, r.Choice.Worker),
		Hint:    "give the stage's job a worker of the adapter exec, or remove streams from the stage",
	}
}
