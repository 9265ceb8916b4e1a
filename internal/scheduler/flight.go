package scheduler

import (
	"time"

	"github.com/agentsched/agentsched/internal/supervisor"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// flight is a claimed job on its way. Its fields below entry are guarded by
// Scheduler.mu, but for done.
type flight struct {
	entry   queue.Entry
	choice  job.Choice
	attempt int // the attempt that this claim makes, begun or not

	core      *supervisor.Core // that was asked for a permit
	cancelled bool             // somebody asked to cancel the job
	events    []job.Event      // not stored yet
	usage     job.Usage        // seen in events: what a dead core cannot report any more
	session   string           // likewise
	running   bool             // the attempt's move to Running is recorded, or about to be
	began     time.Time        // when the attempt was recorded to begin
	settled   bool             // done has its value
	recording bool             // its end is being recorded, or was: the claim ends with that

	// done gets the attempt's end, once: from the core, or when the core is
	// dead and everything that it left is gone.
	done chan ending
}

// ending is how an attempt ended.
type ending struct {
	outcome job.Outcome
	died    error // the core died; outcome is then empty
}

func newFlight(e queue.Entry) *flight {
	return &flight{entry: e, choice: e.Spec.Choices()[e.Choice], attempt: e.Attempts + 1, done: make(chan ending, 1)}
}

// settle gives the flight its end; the first one counts. Called with
// Scheduler.mu held.
func (f *flight) settle(e ending) {
	if !f.settled {
		f.settled = true
		f.done <- e
	}
}

// resume returns the session that the attempt goes on with, or "".
func (f *flight) resume() string {
	if f.entry.SessionWorker == f.choice.Worker {
		return f.entry.Session
	}
	return ""
}
