package node

import (
	"slices"
	"sync"

	"github.com/agentsched/agentsched/job"
)

// run names an attempt of a job.
type run struct {
	job     job.ID
	attempt int
}

// ledger is what a node still has to tell of its runs, and which runs it has. What the scheduler
// has settled may leave the spool, from its front.
type ledger struct {
	mu      sync.Mutex // guards what follows
	runs    map[run]*runState
	records []*record // of the spool that are not acknowledged, in order
	taken   uint64    // the last record that the scheduler has read
}

// runState is what is known of a run.
type runState struct {
	place, life int   // the core that has it; place 0: one of an earlier process
	held        bool  // the core has it, as far as we know
	listed      bool  // a scheduler was told so
	ended       bool  // its end is in the spool, or on its way there
	events      int64 // the last one that the scheduler has stored
	over        bool  // the scheduler stores nothing more of it
	notes       int   // notes about it that are in records, or about to be
}

// record is a record of the spool.
type record struct {
	number uint64
	notes  []noted
}

// noted is what has to be settled before a note may be forgotten.
type noted struct {
	run   run   // the zero run: it is settled when the record was taken
	event int64 // its number; 0: the end of the run
}

func newLedger() *ledger { return &ledger{runs: map[run]*runState{}} }

// state returns what is known of a run. l.mu is held.
func (l *ledger) state(r run) *runState {
	s := l.runs[r]
	if s == nil {
		s = &runState{}
		l.runs[r] = s
	}
	return s
}

// begin notes that a core has a run.
func (l *ledger) begin(r run, place, life int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.state(r)
	s.place, s.life, s.held = place, life, true
}

// refused notes that a core has not taken a run. It reports whether a scheduler was told that it
// has: then the end of the run is about to be told, too.
func (l *ledger) refused(r run) (listed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.runs[r]
	if s == nil {
		return false
	}
	listed = s.listed && !s.over
	s.held, s.ended = false, listed
	l.forget(r, s)
	return listed
}

// end notes that a run has ended, which is about to be told.
func (l *ledger) end(r run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.state(r)
	s.held, s.ended = false, true
}

// down notes that a core is dead, and returns what it had.
func (l *ledger) down(place, life int) (had []run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for r, s := range l.runs {
		if s.held && s.place == place && s.life == life {
			had = append(had, r)
		}
	}
	for _, r := range had {
		l.runs[r].held = false
		l.forget(r, l.runs[r])
	}
	return had
}

// on returns the runs that a core has.
func (l *ledger) on(place, life int) (has []run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for r, s := range l.runs {
		if s.held && s.place == place && s.life == life {
			has = append(has, r)
		}
	}
	return has
}

// held returns the runs that cores have, and those whose end has still to be told. The others, whose
// cores have died with them, are given up: a scheduler that hears nothing of them knows that they are lost.
func (l *ledger) held() (list []Held) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for r, s := range l.runs {
		if s.held || s.ended && !s.over {
			s.listed = true
			list = append(list, Held{Job: r.job, Attempt: r.attempt, Place: s.place})
		} else {
			s.over = true
		}
	}
	slices.SortFunc(list, func(a, b Held) int {
		if a.Job != b.Job {
			if a.Job < b.Job {
				return -1
			}
			return 1
		}
		return a.Attempt - b.Attempt
	})
	return list
}

// expect notes what the next record of the spool is about to have: a record that is written may be read, told and settled
// before it is added. A run that is not known is one of an earlier process.
func (l *ledger) expect(notes []noted) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range notes {
		if n.run != (run{}) {
			s := l.state(n.run)
			s.notes++
			s.ended = s.ended || n.event == 0
		}
	}
}

// withdraw takes back what was expected of a record that was not written.
func (l *ledger) withdraw(notes []noted) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop(notes)
}

// add notes a record of the spool, which was expected. It returns the number up to which the spool may be acknowledged;
// 0: nothing new.
func (l *ledger) add(number uint64, notes []noted) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records = append(l.records, &record{number, notes})
	return l.trim()
}

// drop takes notes off their runs. l.mu is held.
func (l *ledger) drop(notes []noted) {
	for _, n := range notes {
		if s := l.runs[n.run]; s != nil {
			s.notes--
			l.forget(n.run, s)
		}
	}
}

// settle takes what the scheduler has dealt with, and returns the number up to which the spool may
// be acknowledged; 0: nothing new.
func (l *ledger) settle(s *Settled) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.taken = max(l.taken, s.Taken)
	for _, x := range s.Runs {
		r := run{x.Job, x.Attempt}
		if st := l.runs[r]; st != nil {
			st.events, st.over = max(st.events, x.Events), st.over || x.Over
			l.forget(r, st)
		}
	}
	return l.trim()
}

// trim drops the records at the front that are settled. l.mu is held.
func (l *ledger) trim() (upTo uint64) {
	for len(l.records) > 0 {
		r := l.records[0]
		if r.number > l.taken || slices.ContainsFunc(r.notes, func(n noted) bool { return !l.settled(n) }) {
			break
		}
		l.drop(r.notes)
		l.records, upTo = l.records[1:], r.number
	}
	return upTo
}

// settled reports whether a note may be forgotten. l.mu is held.
func (l *ledger) settled(n noted) bool {
	if n.run == (run{}) {
		return true
	}
	s := l.runs[n.run]
	return s == nil || s.over || n.event > 0 && n.event <= s.events
}

// needed reports whether a note has to be told still.
func (l *ledger) needed(n noted) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return n.run == (run{}) || !l.settled(n)
}

// forget drops a run of which nothing is left. l.mu is held.
func (l *ledger) forget(r run, s *runState) {
	if !s.held && s.notes == 0 && (s.over || !s.ended) {
		delete(l.runs, r)
	}
}

// unsettled returns the number before the first record that has to be told; 0: from the beginning.
func (l *ledger) unsettled() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.records) == 0 {
		return l.taken
	}
	return l.records[0].number - 1
}
