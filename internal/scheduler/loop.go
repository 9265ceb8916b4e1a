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

// loop owns the machine that decides. Whoever has an event gives it to the machine at
// once (post), in the order in which it happened; what follows is asked for by the
// dispatcher alone (step). Everybody may ask how things stand (ask).
type loop struct {
	wake  chan struct{} // capacity 1: something was posted
	clock wallClock     // gives the machine its times

	mu      sync.Mutex // guards what follows; nothing else is locked, and nothing waited for, while it is held
	machine *schedule.Machine
	stepped *sync.Cond // on mu: a step was made, or draining has changed
	ending  bool       // events are taken whatever is buffered
}

func newLoop(c schedule.Config) *loop {
	l := &loop{wake: make(chan struct{}, 1), clock: wallClock{origin: time.Now()}, machine: schedule.New(c)}
	l.stepped = sync.NewCond(&l.mu)
	return l
}

// poke makes the dispatcher look again.
func (l *loop) poke() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// post gives an event to the machine.
func (l *loop) post(e schedule.Event) {
	l.mu.Lock()
	l.machine.Take(l.clock.now(), e)
	l.mu.Unlock()
	l.poke()
}

// maxPending bounds the events of runs that wait to be stored. Beyond it the cores'
// streams are not read, and a core drops progress, the oldest first.
const maxPending = 20_000

// postEvent gives an event of a run to the machine, once there is room for it.
func (l *loop) postEvent(e schedule.RunEvent) {
	l.mu.Lock()
	for l.machine.Buffered() >= maxPending && !l.ending {
		l.stepped.Wait()
	}
	l.machine.Take(l.clock.now(), e)
	l.mu.Unlock()
	l.poke()
}

// step returns what follows from what was posted.
func (l *loop) step(events ...schedule.Event) schedule.Ready {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stepped.Broadcast()
	return l.machine.Step(l.clock.now(), events...)
}

// end lets nobody wait for room any more.
func (l *loop) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ending = true
	l.machine.Take(l.clock.now(), schedule.Stopping)
	l.stepped.Broadcast()
	l.poke()
}

// ask has f look at the machine.
func (l *loop) ask(f func(m *schedule.Machine)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f(l.machine)
}

// slots returns how many more jobs may start, and if none may, what they wait for.
func (l *loop) slots() (n int, why job.Waiting) {
	l.ask(func(m *schedule.Machine) { n, why = m.Slots(time.Now()) })
	return n, why
}

// shares returns how the tenants stand.
func (l *loop) shares() (list []policy.Share) {
	l.ask(func(m *schedule.Machine) { list = m.Shares(now()) })
	return list
}

// refuses returns what a queued job would wait for if it were to start now.
func (l *loop) refuses(e *queue.Entry, folder string, known bool) (w job.Waiting, refused bool) {
	l.ask(func(m *schedule.Machine) {
		w, refused = m.Refuses(time.Now(), e.Spec.Tenant, queue.HeadOf(e), folder, known)
	})
	return w, refused
}

// inFlight returns how many jobs are claimed or being claimed.
func (l *loop) inFlight() (n int) {
	l.ask(func(m *schedule.Machine) { n = m.InFlight() })
	return n
}

// runs returns what is in flight, by job.
func (l *loop) runs() (list []*schedule.Run) {
	l.ask(func(m *schedule.Machine) { list = m.Runs() })
	return list
}

// run returns what a job in flight does; nil if it is not in flight.
func (l *loop) run(id job.ID) (r *schedule.Run) {
	l.ask(func(m *schedule.Machine) { r = m.Lookup(id) })
	return r
}

// boundsOf returns the limits that what is started has to keep.
func boundsOf(c *ipc.Configure) schedule.Bounds {
	b := schedule.Bounds{Slots: c.MaxConcurrent, Workers: map[job.WorkerKind]int{}, Limits: c.Limits}
	for kind, w := range c.Workers {
		b.Workers[kind] = w.MaxConcurrent
	}
	return b
}
