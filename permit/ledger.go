package permit

import (
	"slices"
	"time"

	"github.com/agentsched/agentsched/job"
)

// ledger is the gate's own record of what each job has used, so that limits hold whatever
// a Request claims. It is lost with the gate; then only the claim counts. Guarded by
// Gate.mu.
type ledger struct {
	jobs  map[job.ID]*account
	order []job.ID // by first use, to forget the oldest
}

// ledgerSize is how many jobs the record holds, which bounds its memory. The job that began
// first is forgotten first; then only the claim about it counts.
const ledgerSize = 100_000

type account struct {
	begun []int         // the attempts that were used and count, the one under way included
	spent job.Usage     // charged, of all attempts
	wall  time.Duration // from grant to end, of the attempts that have ended
}

func newLedger() ledger { return ledger{jobs: map[job.ID]*account{}} }

func (l *ledger) of(id job.ID) account {
	if a := l.jobs[id]; a != nil {
		return *a
	}
	return account{}
}

func (l *ledger) begin(id job.ID, attempt int) {
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
	a.begun = append(a.begun, attempt)
}

func (l *ledger) charge(id job.ID, u job.Usage) {
	if a := l.jobs[id]; a != nil {
		a.spent = a.spent.Add(u)
	}
}

func (l *ledger) end(id job.ID, wall time.Duration) {
	if a := l.jobs[id]; a != nil {
		a.wall += wall
	}
}

// uncount takes an attempt back that does not count after all.
func (l *ledger) uncount(id job.ID, attempt int) {
	if a := l.jobs[id]; a != nil {
		a.begun = slices.DeleteFunc(a.begun, func(n int) bool { return n == attempt })
	}
}
