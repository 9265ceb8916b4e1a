package scheduler

import (
	"sync"
	"time"

	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/policy"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/schedule"
)

// turns owns the machine that decides who is next. The dispatcher alone steps it; others
// leave events for the next step, and may ask how things stand.
type turns struct {
	posting sync.Mutex // guards posted
	posted  []schedule.Event

	mu      sync.Mutex // guards what follows
	machine *schedule.Machine
}

// post leaves an event for the dispatcher. Events are taken in the order in which they
// were left.
func (s *Scheduler) post(e schedule.Event) {
	s.turns.posting.Lock()
	s.turns.posted = append(s.turns.posted, e)
	s.turns.posting.Unlock()
	s.poke()
}

// taken returns what was left since the last call.
func (t *turns) taken() []schedule.Event {
	t.posting.Lock()
	defer t.posting.Unlock()
	events := t.posted
	t.posted = nil
	return events
}

func (t *turns) step(events ...schedule.Event) schedule.Ready {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.machine.Step(time.Now(), events...)
}

// slots returns how many more jobs may start, and if none may, what they wait for.
func (t *turns) slots() (int, job.Waiting) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.machine.Slots(time.Now())
}

// shares returns how the tenants stand.
func (t *turns) shares() []policy.Share {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.machine.Shares(now())
}

// urgent returns, of each tenant that has a job to run, the highest priority of these.
func (t *turns) urgent() map[job.Tenant]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.machine.Urgent(now())
}

// refuses returns what a queued job would wait for if it were to start now.
func (t *turns) refuses(e *queue.Entry, folder string, known bool) (job.Waiting, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.machine.Refuses(time.Now(), e.Spec.Tenant, queue.HeadOf(e), folder, known)
}

// boundsOf returns the limits that what is started has to keep.
func boundsOf(c *ipc.Configure) schedule.Bounds {
	b := schedule.Bounds{Slots: c.MaxConcurrent, Workers: map[job.WorkerKind]int{}, Limits: c.Limits}
	for kind, w := range c.Workers {
		b.Workers[kind] = w.MaxConcurrent
	}
	return b
}

// postCores tells the machine which cores are up. Called with s.mu held.
func (s *Scheduler) postCores() {
	var list schedule.Cores
	for _, m := range s.cores {
		list = append(list, schedule.Core{Takes: !m.draining && !m.audience.behind.Load(), Concurrency: m.metrics.Concurrency})
	}
	s.post(list)
}
