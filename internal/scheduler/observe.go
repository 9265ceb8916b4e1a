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
	// MomentEvents: Events of an attempt are about to be stored. After a crash of
	// the scheduler they may come again.
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
func (s *Scheduler) observe(m Moment) {
	if s.cfg.Observer != nil {
		if m.At.IsZero() {
			m.At = now()
		}
		s.cfg.Observer.Observe(m)
	}
}

// maxEnded is of how many jobs it is known that their end was observed.
const maxEnded = 8192

// observeEnd tells the observer of a job's end, once.
func (s *Scheduler) observeEnd(e *queue.Entry) {
	if s.cfg.Observer == nil {
		return
	}
	s.ends.Lock()
	known := s.ended[e.ID]
	if !known {
		s.ended[e.ID] = true
		if s.endedOrder = append(s.endedOrder, e.ID); len(s.endedOrder) > maxEnded {
			delete(s.ended, s.endedOrder[0])
			s.endedOrder = s.endedOrder[1:]
		}
	}
	s.ends.Unlock()
	if !known {
		s.observe(Moment{Kind: MomentEnded, Entry: e, Attempt: e.Attempts})
	}
}

// taken are events of one flight that are about to be stored.
type taken struct {
	entry   queue.Entry
	attempt int
	choice  job.Choice
	events  []job.Event
}

func (s *Scheduler) observeEvents(list []taken) {
	for i := range list {
		t := &list[i]
		s.observe(Moment{Kind: MomentEvents, Entry: &t.entry, Attempt: t.attempt, Choice: t.choice, Events: t.events})
	}
}
