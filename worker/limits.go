package worker

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/agentsched/agentsched/internal/proc"
	"github.com/agentsched/agentsched/job"
)

// A run's limits on memory, processes and CPU are the kernel's to enforce (see
// proc.Limits). Where it refuses or kills, the program often says something else, or
// goes on without a part of itself; so the counters decide what the run amounts to.

// limitsTime is how often a run is asked whether it has met a limit. The kernel
// enforces the limit at once; this only ends what is left of the run.
const limitsTime = 250 * time.Millisecond

// watchLimits cancels the run when its tree has met a limit, until the returned
// function is called.
func watchLimits(tree *proc.Tree, cancel context.CancelCauseFunc) (stop func()) {
	ctx, done := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() {
		tick := time.NewTicker(limitsTime)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if x := tree.Exceeded(); x != nil {
					cancel(exceeded(x))
					return
				}
			}
		}
	})
	return func() { done(); watching.Wait() }
}

// exceeded is how a run ends that has met a limit: at once and as a whole, since
// the purpose of the process that the kernel ended or refused is unknown.
func exceeded(x *proc.Exceeded) *Stop {
	s := &Stop{Class: job.ResourceExhausted, Now: true, ours: true}
	switch memory := x.Controller == proc.MemoryController; {
	case memory && x.Own:
		s.Message = fmt.Sprintf("the run exceeded its memory limit of %s", proc.Bytes(x.Limit))
		s.Hint = "raise limits.memory of the job, or let it use less memory"
	case memory && x.Total > 0:
		s.Message = fmt.Sprintf("memory ran out: the limit of all runs together is %s, and the host may have had less", proc.Bytes(x.Total))
		s.Hint = "run fewer jobs at once, or give the large ones a limits.memory of their own"
	case memory:
		s.Message = "the host's memory ran out"
		s.Hint = "run fewer jobs at once, or set limits.total.memory in the configuration"
	case x.Own:
		s.Message = fmt.Sprintf("the run exceeded its limit of %d processes and threads", x.Limit)
		s.Hint = "raise limits.processes of the job, or let it start fewer at once"
	default:
		s.Message = fmt.Sprintf("processes ran out: all runs together may have %d processes and threads", x.Total)
		s.Hint = "run fewer jobs at once, or raise limits.total.processes in the configuration"
	}
	return s
}
