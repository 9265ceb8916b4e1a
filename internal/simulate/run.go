package simulate

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/policy"
)

// New makes a policy; policy.New is one.
type New func(policy.Config) (policy.Policy, error)

// Run tries a policy on the workload: the one that is called name, or the
// workload's own if name is "".
//
// make is called twice: the first policy is only asked what it aims at. It
// fails if the policy cannot be made or breaks its contract, and if more
// jobs arrive than fit a simulation.
func (w *Workload) Run(name string, make New) (*Result, error) {
	c := w.Policy
	if name != "" {
		c.Name = name
	}
	asked, err := make(c)
	if err != nil {
		return nil, fmt.Errorf("set up policy %s for %s: %w", c.Name, w.Name, err)
	}
	ranks, own := aim(asked, w, c)
	p, err := make(c)
	if err != nil {
		return nil, fmt.Errorf("set up policy %s for %s: %w", c.Name, w.Name, err)
	}
	r := newRun(w, p)
	if err := r.loop(); err != nil {
		return nil, fmt.Errorf("simulate %s under policy %s: %w", w.Name, c.Name, err)
	}
	res := r.result(c, ranks)
	res.OwnTargets = own
	return res, nil
}

// start is the moment at which every simulation begins.
func start() time.Time { return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) }

// maxIdleWakes bounds how often in a row a policy may ask to be woken for
// nothing.
const maxIdleWakes = 1_000_000

// run is a simulation on its way.
type run struct {
	w       *Workload
	policy  policy.Policy
	streams []*stream
	events  heap
	jobs    []record
	lanes   map[job.Lane]*lane
	service []service // by tenant

	now                    time.Duration
	free                   int
	waiting, running, done int
	idleWakes              int
}

// lane holds the jobs that wait in a lane of the queue, as indices of run.jobs,
// the head at position first.
type lane struct {
	jobs  []int32
	first int
}

func newRun(w *Workload, p policy.Policy) *run {
	r := &run{w: w, policy: p, free: w.Slots, lanes: map[job.Lane]*lane{}, service: make([]service, len(w.tenants))}
	for i := range w.tenants {
		for n := range w.tenants[i].Arrivals {
			s := newStream(w.Seed, int32(i), &w.tenants[i], n)
			r.schedule(s, int32(len(r.streams)))
			r.streams = append(r.streams, s)
		}
	}
	return r
}

var errTooMany = fmt.Errorf("more than %d jobs arrive; lower the rates, or end it sooner (duration, jobs)", maxJobs)

// loop plays the events in order: all of a moment, then what can begin at it.
func (r *run) loop() error {
	for {
		wake, err := r.dispatch()
		if err != nil {
			return err
		}
		if r.w.Jobs > 0 && r.done >= r.w.Jobs {
			return nil
		}
		next := min(wake, r.events.next())
		if r.w.Duration > 0 && next > r.w.Duration {
			r.now = r.w.Duration
			return nil
		}
		if next == never {
			return nil // nothing will ever happen again, and there is no other end
		}
		if r.idleWakes++; r.events.next() <= next {
			r.idleWakes = 0
		} else if r.idleWakes > maxIdleWakes {
			return fmt.Errorf("the policy asked %d times in a row to be woken and let nothing run (after %s)", maxIdleWakes, r.now)
		}
		r.now = next
		for r.events.next() == r.now {
			if err := r.happen(r.events.pop()); err != nil {
				return err
			}
		}
		if r.w.Duration > 0 && r.now == r.w.Duration {
			return nil // the end: what would begin now has no time
		}
	}
}

func (r *run) happen(e event) error {
	if e.kind == ends {
		r.end(e.index)
		return nil
	}
	s := r.streams[e.index]
	for range s.take() {
		if err := r.arrive(s, e.index); err != nil {
			return err
		}
	}
	r.schedule(s, e.index)
	return nil
}

func (r *run) schedule(s *stream, index int32) {
	if s.next < never && (r.w.Duration == 0 || s.next < r.w.Duration) {
		r.events.push(event{at: s.next, kind: arrives, index: index})
	}
}

func (r *run) arrive(s *stream, stream int32) error {
	if len(r.jobs) == maxJobs {
		return errTooMany
	}
	id := int32(len(r.jobs))
	r.jobs = append(r.jobs, s.draw(r.now, stream))
	r.waiting++
	r.count(r.jobs[id].tenant, 1, 0)
	at := r.laneOf(id)
	l := r.lanes[at]
	if l == nil {
		l = &lane{}
		r.lanes[at] = l
	}
	l.jobs = append(l.jobs, id)
	if len(l.jobs)-l.first == 1 {
		r.policy.Add(r.head(at, id))
	}
	return nil
}

func (r *run) laneOf(id int32) job.Lane {
	j := &r.jobs[id]
	return job.Lane{Tenant: r.w.tenants[j.tenant].Name, Priority: int(j.priority)}
}

func (r *run) head(at job.Lane, id int32) policy.Head {
	j := &r.jobs[id]
	return policy.Head{Lane: at, ID: idOf(id), RunnableAt: start().Add(j.arrived), Ask: j.ask()}
}

// idOf returns an id whose order is that of arrival, as in the queue.
func idOf(id int32) job.ID {
	const digits = 7 // of maxJobs
	text := strconv.Itoa(int(id))
	return job.ID("0000000"[:digits-min(digits, len(text))] + text)
}

func (j *record) ask() policy.Demand {
	return policy.Demand{Tokens: j.tokens * j.declared, CostUSD: j.cost * j.declared, Slots: 1}
}

func (j *record) used() policy.Demand {
	return policy.Demand{Tokens: j.tokens, CostUSD: j.cost, Slots: 1}
}

var errUnknownHead = errors.New("the policy chose what is not the head of a lane")

// dispatch lets begin what the policy chooses while a slot is free, and returns
// when to ask it again although nothing happens.
func (r *run) dispatch() (wake time.Duration, err error) {
	now := start().Add(r.now)
	for r.free > 0 && r.waiting > 0 {
		h, ok := r.policy.Next(now)
		if !ok {
			if at := r.policy.Wake(now); at.After(now) {
				return at.Sub(start()), nil
			}
			return never, nil
		}
		l := r.lanes[h.Lane]
		if l == nil || l.first == len(l.jobs) || idOf(l.jobs[l.first]) != h.ID {
			return never, fmt.Errorf("%w: %s in %+v", errUnknownHead, h.ID, h.Lane)
		}
		if err := r.begin(h.Lane, l, now); err != nil {
			return never, err
		}
	}
	return never, nil
}

func (r *run) begin(at job.Lane, l *lane, now time.Time) error {
	id := l.jobs[l.first]
	j := &r.jobs[id]
	j.began = r.now
	r.idleWakes = 0
	r.free--
	r.waiting--
	r.running++
	r.count(j.tenant, -1, 1)
	r.policy.Start(at.Tenant, j.ask(), now)
	r.events.push(event{at: r.now + j.runs, kind: ends, index: id})
	r.pop(l)
	if s, index := r.streams[j.stream], j.stream; s.refills(r.now) {
		if err := r.arrive(s, index); err != nil {
			return err
		}
	}
	if l.first == len(l.jobs) {
		r.policy.Remove(at)
		return nil
	}
	r.policy.Add(r.head(at, l.jobs[l.first]))
	return nil
}

// pop takes the head off; what was taken is cleared away now and then.
func (r *run) pop(l *lane) {
	l.first++
	if l.first > 64 && l.first > len(l.jobs)/2 {
		l.jobs = slices.Delete(l.jobs, 0, l.first)
		l.first = 0
	}
}

func (r *run) end(id int32) {
	j := &r.jobs[id]
	r.free++
	r.running--
	r.done++
	r.count(j.tenant, 0, -1)
	r.policy.End(r.w.tenants[j.tenant].Name, j.ask(), j.used(), true, start().Add(r.now))
}

// service is how a tenant fares at the moment.
type service struct {
	waiting, running int
	since            time.Duration // when it began to wait for something with nothing running
	longest          time.Duration // for how long that was so at most
}

// unserved reports whether something waits and nothing runs.
func (s *service) unserved() bool { return s.waiting > 0 && s.running == 0 }

// count notes that so many more of a tenant's jobs wait and run.
func (r *run) count(tenant int32, waiting, running int) {
	s := &r.service[tenant]
	was := s.unserved()
	s.waiting += waiting
	s.running += running
	switch is := s.unserved(); {
	case is && !was:
		s.since = r.now
	case was && !is:
		s.longest = max(s.longest, r.now-s.since)
	}
}
