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
	index   int    // of choice among the entry's; it differs from the entry's own where the core asked for another
	because string // why it did
	attempt int    // the attempt that this claim makes, begun or not

	core         *supervisor.Core // that it was given to
	held         bool             // a permit was asked for or is held: it counts elsewhere
	told         []*member        // to which its request for a permit counts, but for its own core
	lockWait     time.Duration    // how long it waited for its workspace
	checkpointed bool             // it has stopped at a step's boundary
	parked       bool             // an isolation has refused it
	preempted    bool             // it was asked to, for a job that is more urgent
	cancelled    bool             // somebody asked to cancel the job
	events       []job.Event      // not stored yet
	usage        job.Usage        // seen in events: what a dead core cannot report any more
	session      string           // likewise
	charged      float64          // US dollars of the attempt that are booked
	touched      bool             // its workspace is made: the worker begins
	running      bool             // the attempt's move to Running is recorded, or about to be
	began        time.Time        // when the attempt was recorded to begin
	used         job.Usage        // of the attempt, when it has ended
	over         bool             // the job has ended with the attempt
	settled      bool             // done has its value
	recording    bool             // its end is being recorded, or was: the claim ends with that

	stream *streaming // what joins it to a pipeline; nil if its job is not a stage that streams

	landed chan struct{} // closed when the claim is over

	// done gets the attempt's end, once: from the core, or when the core is
	// dead and everything that it left is gone.
	done chan ending
}

// ending is how an attempt ended.
type ending struct {
	outcome job.Outcome
	died    error // the core died; outcome is then empty
	late    bool  // the core did not know the permit any more
}

func newFlight(e queue.Entry) *flight {
	return &flight{entry: e, choice: e.Spec.Choices()[e.Choice], index: e.Choice, attempt: e.Attempts + 1, landed: make(chan struct{}), done: make(chan ending, 1)}
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

// goesOnWith returns the session, and whose it is, for the next attempt of a job
// whose attempt was cut short, having told the session of its own, or "". Then the
// one that it was to resume stands, and so does that of another worker as long as
// the attempt has not touched the workspace.
func (f *flight) goesOnWith(told string, touched bool) (session string, worker job.WorkerKind) {
	switch {
	case told != "":
		return told, f.choice.Worker
	case f.resume() != "" || !touched:
		return f.entry.Session, f.entry.SessionWorker
	}
	return "", ""
}

// smaller says, for the user, on what the attempt runs instead of its job's own
// choice; "" if it does not.
func (f *flight) smaller() string {
	if f.index == f.entry.Choice {
		return ""
	}
	name := string(f.choice.Worker)
	if f.choice.Model != "" {
		name += ":" + f.choice.Model
	}
	return "on " + name + " instead, since " + f.because
}
