package permit

import (
	"time"

	"github.com/agentsched/agentsched/job"
)

// ledger is the core's own record of what each job has used, so that limits
// hold whatever the scheduler claims. It is lost with the core; the
// scheduler's claim then stands alone. Guarded by Gate.mu.
type ledger struct {
	jobs  map[job.ID]*account
	order []job.ID // by first use, to forget the oldest
}

// ledgerSize bounds the record: a job that was forgotten is still bounded by
// what the scheduler claims about it.
const ledgerSize = 100_000

type account struct {
	begun int // attempts begun and not lost
	spent job.Usage
	wall  time.Duration
}

func newLedger() ledger { return ledger{jobs: map[job.ID]*account{}} }

func (l *ledger) of(id job.ID) account {
	if a := l.jobs[id]; a != nil {
		return *a
	}
	return account{}
}

func (l *ledger) begin(id job.ID) {
	a := l.jobs[id]
	if a == nil {
		if len(l.order) >= ledgerSize {
			delete(l.jobs, l.order[0])
			l.order = l.order[1:]
		}
		a = &account{}
		l.jobs[id] = a
		l.order = append(l.order, id)
	}
	a.begun++
}

func (l *ledger) charge(id job.ID, u job.Usage) {
	if a := l.jobs[id]; a != nil {
		a.spent = a.spent.Add(u)
	}
}

func (l *ledger) end(id job.ID, wall time.Duration, lost bool) {
	a := l.jobs[id]
	if a == nil {
		return
	}
	a.wall += wall
	if lost {
		a.begun--
	}
}
