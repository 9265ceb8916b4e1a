package terminal

import (
	"strings"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
)

// phase is how a job stands, in the words of the screen.
type phase int

const (
	waiting phase = iota
	starting
	running
	approval
	checkpointed
	done
	failed
	cancelled
	skipped
)

// phaseNames are the states of a run: one that is skipped was cancelled, and says so.
var phaseNames = [...]job.RunState{job.Pending, job.Pending, job.Running, job.WaitingApproval, job.Checkpointed, job.RunCompleted, job.RunFailed, job.RunCancelled, job.RunCancelled}
var phaseStyles = [...]style{faint, cyan, cyan, yellow, yellow, green, red, yellow, faint}

func (p phase) String() string { return string(phaseNames[p]) }
func (p phase) style() style   { return phaseStyles[p] }
func (p phase) ended() bool    { return p >= done }
func (p phase) live() bool     { return p > waiting && p < done }

// phaseOf returns the phase of a state; an attempt that is pending has been
// claimed if its entry is dispatched, and waits otherwise.
func phaseOf(s job.RunState, e job.EntryState) phase {
	switch s {
	case job.Running:
		return running
	case job.WaitingApproval:
		return approval
	case job.Checkpointed:
		return checkpointed
	case job.RunCompleted:
		return done
	case job.RunFailed:
		return failed
	case job.RunCancelled:
		return cancelled
	}
	if e == job.Dispatched {
		return starting
	}
	return waiting
}

// card is what is known of one job.
type card struct {
	Job
	phase   phase
	attempt int
	began   time.Time // of its first attempt that was seen; zero: none
	ended   time.Time // zero: not yet
	usage   job.Usage
	why     string     // it waits, or how it ended; foreign text
	last    *job.Event // that is worth showing, shortened; nil none
	order   int        // when its phase changed last: grows over the board
}

// elapsed is the time since the first attempt, up to the end.
func (c *card) elapsed(now time.Time) time.Duration {
	switch {
	case c.began.IsZero():
		return 0
	case c.ended.IsZero():
		return now.Sub(c.began)
	}
	return c.ended.Sub(c.began)
}

// board is how all jobs stand. It has no lock and no clock.
type board struct {
	cards  map[job.ID]*card
	list   []*card // in the order of submission
	began  time.Time
	order  int
	missed int // updates that were dropped before they came here
}

func newBoard(jobs []Job, now time.Time) *board {
	b := &board{cards: map[job.ID]*card{}, began: now}
	for _, j := range jobs {
		b.add(j)
	}
	return b
}

func (b *board) add(j Job) *card {
	c := &card{Job: j}
	b.cards[j.ID] = c
	b.list = append(b.list, c)
	return c
}

// apply notes an update and returns the card that it was about, nil if none,
// and that card as it stood before.
func (b *board) apply(u api.Update) (c *card, before card) {
	b.missed += u.Missed
	c = b.cards[u.Job]
	if u.Kind == api.UpdateWaiting {
		return b.wait(c, u)
	}
	if u.Job == "" || u.Kind != api.UpdateJob && u.Kind != api.UpdateEvent {
		return nil, card{}
	}
	if c == nil {
		c = b.add(Job{ID: u.Job, Name: u.Name, Worker: u.Worker})
	}
	before = *c
	if u.Worker != "" {
		c.Worker = u.Worker
	}
	if u.Usage != nil {
		c.usage = *u.Usage
	}
	if u.Kind == api.UpdateEvent {
		if u.Event != nil && notable(u.Event) {
			c.last = shorten(u.Event)
		}
		// An event is of a run, though the update about its start may have been
		// dropped; one that comes after the end changes nothing.
		if c.phase.ended() || c.phase == waiting && u.Attempt <= c.attempt {
			return c, before
		}
	}
	c.attempt = max(c.attempt, u.Attempt)
	if u.Kind == api.UpdateJob {
		if c.why = head(u.Text); u.Waiting != nil && *u.Waiting == (job.Waiting{Reason: job.WaitTurn}) {
			c.why = "" // so does every job before it begins
		}
	}
	to := phaseOf(u.State, u.Entry)
	if u.Skipped {
		to = skipped
	}
	b.move(c, to, u.Time)
	return c, before
}

// wait notes what a job waits for that was looked at: it may not wait any more.
func (b *board) wait(c *card, u api.Update) (*card, card) {
	if c == nil || c.phase != waiting {
		return nil, card{}
	}
	before := *c
	if c.why = head(u.Text); u.Waiting != nil && u.Waiting.Reason == job.WaitTurn {
		c.why = ""
	}
	return c, before
}

func (b *board) move(c *card, to phase, at time.Time) {
	if to != waiting && to != cancelled && to != skipped && c.began.IsZero() {
		c.began = at
	}
	switch {
	case !to.ended():
		c.ended = time.Time{}
	case c.ended.IsZero():
		c.ended = at
	}
	if to != c.phase {
		b.order++
		c.order = b.order
		if to == starting {
			c.last = nil
		}
	}
	c.phase = to
}

// notable reports whether the event is worth being the last thing on screen.
func notable(e *job.Event) bool {
	switch e.Kind {
	case job.EventText:
		return e.Text != ""
	case job.EventCommand, job.EventFile, job.EventTool, job.EventRetry, job.EventError:
		return true
	case job.EventWarning:
		return e.Refusal == nil
	case job.EventStep:
		return e.Step != ""
	}
	return false
}

// shorten returns a copy without the 64 KiB that an event may carry.
func shorten(e *job.Event) *job.Event {
	s := *e
	s.Text, s.Command, s.Path, s.Usage = head(e.Text), head(e.Command), head(e.Path), nil
	return &s
}

func head(text string) string {
	if len(text) <= maxRaw {
		return text
	}
	return strings.Clone(text[:maxRaw])
}

// tally counts the cards by their states, and sums what they used.
type tally struct {
	of    map[job.RunState]int
	usage job.Usage
}

// tallied are the states in the order in which they are counted on screen.
var tallied = []job.RunState{job.Running, job.Pending, job.WaitingApproval, job.Checkpointed, job.RunCompleted, job.RunFailed, job.RunCancelled}

func (b *board) tally() tally {
	t := tally{of: map[job.RunState]int{}}
	for _, c := range b.list {
		t.usage = t.usage.Add(c.usage)
		if c.phase == starting {
			t.of[job.Running]++ // it has its slot
			continue
		}
		t.of[phaseNames[c.phase]]++
	}
	return t
}
