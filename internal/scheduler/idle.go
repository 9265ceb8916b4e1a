package scheduler

import (
	"context"
	"slices"
	"time"

	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/internal/supervisor"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// Idle returns a scheduler that never runs: it tells how the jobs of a store stand
// on which no scheduler works. Whoever holds the state directory may have it change
// what is stored, in the store and in the isolations, which keep writes.
func Idle(store queue.Store, isolations *isolation.Book, keep *statedir.SoleWriter) *Scheduler {
	return New(Config{Store: store, Isolations: isolations, KeepIsolations: keep, Supervise: func(supervisor.Handler) Cores { return noCores{} }, idle: true})
}

// Standby returns a scheduler that never runs, on a copy of the store of one that does:
// it tells how jobs stand as far as the store tells. What only the one that runs knows,
// such as which limit keeps a job from running, it does not say.
func Standby(store queue.Store) *Scheduler {
	return New(Config{Store: store, Isolations: &isolation.Book{}, Supervise: func(supervisor.Handler) Cores { return noCores{} }, idle: true, standby: true})
}

// noCores are the cores of a scheduler that never runs. Only these methods are called.
type noCores struct{ *supervisor.Supervisor }

func (noCores) Cores() []supervisor.Status { return nil }
func (noCores) Resume(int) bool            { return false }

// outlasts are what a job waits for although a scheduler is started.
var outlasts = []job.WaitingReason{job.WaitScheduler, job.WaitCommand, job.WaitProgram}

// standbyStatus returns how a job stands while another scheduler works on its store.
func standbyStatus(ctx context.Context, store queue.Reader, e *queue.Entry, at time.Time) job.Status {
	st := StatusOf(e, at)
	st.Worker = LatestWorker(ctx, store, e)
	return st
}

// idleStatus returns how a job stands while no scheduler runs.
func idleStatus(ctx context.Context, store queue.Store, e *queue.Entry, at time.Time) job.Status {
	st := StatusOf(e, at)
	st.Worker = LatestWorker(ctx, store, e)
	switch w := st.Waiting; {
	case e.State == job.Dispatched:
		st.Note = "as last known: no scheduler is running"
	case w != nil && e.Held == "" && e.WaitsFor == "" && !e.RunnableAt.After(at) && !slices.Contains(outlasts, w.Reason):
		st.Waiting = &job.Waiting{Reason: job.WaitScheduler, Text: "none is running"}
	}
	return st
}
