package scheduler

import (
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// Observer hears of what happens to jobs, each moment once, from many goroutines
// and in the order in which it happens to each job. It must not wait, ask
// the scheduler anything, or keep or change what a Moment points to. Unlike a listener (Subscribe) it misses nothing.
type Observer interface {
	Observe(m Moment)
}

// MomentKind names a moment.
type MomentKind string

const (
	// MomentSubmitted: the job, Entry, is durable.
	MomentSubmitted MomentKind = "submitted"
	// MomentPermit: a core was asked whether an attempt may run. Reason says why
	// not; "" is a permit. Took is how long the answer took.
	MomentPermit MomentKind = "permit"
	// MomentBegun: an attempt was given to a core. Took is how long the job had
	// waited since it could run.
	MomentBegun MomentKind = "begun"
	// MomentEvents: Events of an attempt are stored. After a crash of the scheduler
	// they may not have been told.
	MomentEvents MomentKind = "events"
	// MomentAttemptEnded: an attempt's Outcome is durable.
	MomentAttemptEnded MomentKind = "attempt_ended"
	// MomentEnded: the job, Entry, has reached a terminal state, which is durable.
	MomentEnded MomentKind = "ended"
	// MomentAnswered: nobody answered about the job, Entry, in time, and its default
	// was taken for the answer; Text says which.
	MomentAnswered MomentKind = "answered"
	// MomentCoreUp and MomentCoreDown: Core came up, died or was replaced; Text says why.
	MomentCoreUp   MomentKind = "core_up"
	MomentCoreDown MomentKind = "core_down"
)

// Moment is something that has happened.
type Moment struct {
	Kind MomentKind
	At   time.Time

	Entry   *queue.Entry // of moments of jobs, as it was known then
	Attempt int
	Choice  job.Choice
	Reason  job.Reason
	Took    time.Duration
	Events  []job.Event
	Outcome *job.Outcome

	Core int // from 1
	Text string
}

// observe tells the observer of a moment.
func (f *Feed) observe(m Moment) {
	if f.observer != nil {
		if m.At.IsZero() {
			m.At = now()
		}
		f.observer.Observe(m)
	}
}

// maxEnded is of how many jobs it is known that their end was observed.
const maxEnded = 8192

// observeEnd tells the observer of a job's end, once.
func (f *Feed) observeEnd(e *queue.Entry) {
	if f.observer == nil {
		return
	}
	f.mu.Lock()
	known := f.ended[e.ID]
	if !known {
		if f.ended == nil {
			f.ended = map[job.ID]bool{}
		}
		f.ended[e.ID] = true
		if f.endedOrder = append(f.endedOrder, e.ID); len(f.endedOrder) > maxEnded {
			delete(f.ended, f.endedOrder[0])
			f.endedOrder = f.endedOrder[1:]
		}
	}
	f.mu.Unlock()
	if !known {
		f.observe(Moment{Kind: MomentEnded, Entry: e, Attempt: e.Attempts})
	}
}
