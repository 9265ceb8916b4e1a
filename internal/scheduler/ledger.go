package scheduler

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/agentsched/agentsched/internal/supervisor"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/permit"
	"github.com/agentsched/agentsched/schedule"
)

// Rates bound in time what all cores do together: permits of a kind of worker, permits of a model, requests to a model.
// The keys are as in permit.Limits.
type Rates struct {
	Workers  map[job.WorkerKind]permit.Rate
	Models   map[string]permit.Rate
	Requests map[string]permit.RequestRate
}

// ledger keeps what cores on all hosts have in common: rates and cost windows. It is a gate like those of the cores, which
// has a permit for each of their runs, and their requests to models reserve in it as in one core. So a window is exceeded
// by what responses use beyond what they had reserved, however many hosts there are. It is as old as this scheduler: cores
// tell the next one which requests are under way (ipc.ReserveResult.Ledger).
type ledger struct {
	name string // ipc.ReserveResult.Ledger
	gate *permit.Gate
	// runOn returns the run of a job, if the core has that attempt of it.
	runOn func(c *supervisor.Core, id job.ID, attempt int) (*schedule.Run, error)

	life   context.Context
	end    context.CancelFunc
	waiter sync.WaitGroup // requests that wait

	mu    sync.Mutex // guards what follows
	asked map[*supervisor.Core]int
	runs  map[job.ID]*sharing
}

// sharing is what one attempt has of what is shared. It is guarded by ledger.mu.
type sharing struct {
	permit  *permit.Permit
	of      ipc.SharePermit // as asked; without a worker for a run that another scheduler began
	used    bool
	pledges map[int64]*pledge

	// What the attempt has spent is told twice, when a request ends and when the run reports it, in any order. Both are
	// sums since it began, so what is booked is the higher of them.
	told, settled, booked float64 // US dollars
	heard                 bool    // told is known
}

// pledge is one request to a model. What the gate answered is there when done is closed.
type pledge struct {
	cancel context.CancelFunc
	done   chan struct{}
	got    *permit.Reservation
	err    error
}

const (
	// unusedShare is how long a permit may stay unused that a core was allowed to give out: longer than any core lets it.
	unusedShare = 10 * time.Minute
	// An answer to a request that waits is held back for holdShare, for at most heldShares of a core: it has other
	// questions, too. The others ask again after pauseShare.
	holdShare  = 5 * time.Second
	heldShares = 16
	pauseShare = 250 * time.Millisecond
)

func newLedger(runOn func(c *supervisor.Core, id job.ID, attempt int) (*schedule.Run, error)) *ledger {
	l := &ledger{name: rand.Text(), gate: permit.NewGate(permit.Limits{}), runOn: runOn, asked: map[*supervisor.Core]int{}, runs: map[job.ID]*sharing{}}
	l.life, l.end = context.WithCancel(context.Background())
	return l
}

// close lets nobody wait any more.
func (l *ledger) close() {
	l.keep(nil)
	l.end()
	l.waiter.Wait()
}

// configure sets what is shared, windows with what counts in them; it reports whether there is anything.
func (l *ledger) configure(r Rates, windows []ipc.CostWindow) bool {
	limits := permit.Limits{MaxConcurrent: math.MaxInt32, TTL: unusedShare, KindRates: r.Workers, ModelRates: r.Models, RequestRates: r.Requests}
	for _, w := range windows {
		of := permit.CostWindow{Tenant: w.Tenant, Window: w.Window.Std(), MaxUSD: w.MaxUSD}
		for _, s := range w.Spent {
			of.Spent = append(of.Spent, permit.Spending{Ago: time.Duration(s.AgoMS) * time.Millisecond, USD: s.USD})
		}
		limits.CostWindows = append(limits.CostWindows, of)
	}
	l.gate.Configure(limits)
	return len(r.Workers)+len(r.Models)+len(r.Requests)+len(windows) > 0
}

// admit answers ipc.MethodSharePermit.
func (l *ledger) admit(_ context.Context, c *supervisor.Core, q ipc.SharePermit) (ipc.SharePermitResult, error) {
	r, err := l.runOn(c, q.Job, q.Attempt)
	if err != nil {
		return ipc.SharePermitResult{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.runs[q.Job]; s != nil {
		if s.of == q {
			return ipc.SharePermitResult{}, nil
		}
		l.drop(q.Job, s)
	}
	p, err := l.gate.Request(l.life, permit.Request{
		Job: q.Job, Tenant: r.Entry.Spec.Tenant, Attempt: q.Attempt, Choice: job.Choice{Worker: q.Worker}, Model: q.Model,
	})
	var no *permit.Rejection
	switch {
	case errors.As(err, &no):
		return ipc.SharePermitResult{Rejection: &ipc.Rejection{Reason: no.Reason, RetryAfterMS: no.RetryAfter.Milliseconds(), Message: no.Message, Waiting: no.Waiting}}, nil
	case err != nil:
		return ipc.SharePermitResult{}, err
	}
	l.runs[q.Job] = &sharing{permit: p, of: q, pledges: map[int64]*pledge{}}
	return ipc.SharePermitResult{}, nil
}

// back answers ipc.MethodReturnPermit.
func (l *ledger) back(_ context.Context, _ *supervisor.Core, q ipc.SharePermit) (ipc.Empty, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.runs[q.Job]; s != nil && s.of == q && !s.used {
		l.drop(q.Job, s)
	}
	return ipc.Empty{}, nil
}

// begun notes that a run uses its permit.
func (l *ledger) begun(r *schedule.Run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.runs[r.Entry.ID]; s != nil && s.permit.Attempt == r.Attempt {
		l.use(r.Entry.ID, s)
	}
}

// use takes the permit of a run for good. Called with l.mu held.
func (l *ledger) use(id job.ID, s *sharing) {
	if s.used {
		return
	}
	if _, err := l.gate.Use(s.permit.ID, id, s.permit.Attempt); err != nil {
		delete(l.runs, id) // it has expired
		return
	}
	s.used = true
}

// of returns what a run shares. Called with l.mu held.
func (l *ledger) of(r *schedule.Run) (*sharing, error) {
	id := r.Entry.ID
	if s := l.runs[id]; s != nil && s.permit.Attempt == r.Attempt {
		if l.use(id, s); s.used {
			return s, nil
		}
	} else if s != nil {
		l.drop(id, s)
	}
	p, err := l.gate.Request(l.life, permit.Request{Job: id, Tenant: r.Entry.Spec.Tenant, Attempt: r.Attempt, Choice: r.Choice, Running: true})
	if err != nil {
		return nil, err
	}
	s := &sharing{permit: p, pledges: map[int64]*pledge{}}
	l.runs[id] = s
	l.use(id, s)
	return s, nil
}

// reserve answers ipc.MethodReserve.
func (l *ledger) reserve(ctx context.Context, c *supervisor.Core, q ipc.Reserve) (ipc.ReserveResult, error) {
	out := ipc.ReserveResult{Ledger: l.name}
	d, err := demandOf(&q.Demand)
	if err != nil {
		return out, err
	}
	r, err := l.runOn(c, q.Job, q.Attempt)
	if err != nil {
		out.Refused = err.Error()
		return out, nil
	}
	l.mu.Lock()
	s, err := l.of(r)
	if err != nil {
		l.mu.Unlock()
		return out, err
	}
	p := s.pledges[q.ID]
	switch {
	case p != nil:
	case len(s.pledges) >= ipc.MaxReservations:
		l.mu.Unlock()
		out.Pending, out.WaitMS = true, pauseShare.Milliseconds()
		return out, nil
	case q.Running:
		p = &pledge{cancel: func() {}, done: make(chan struct{}), got: s.permit.Adopt(d)}
		close(p.done)
		s.pledges[q.ID] = p
	default:
		p = l.ask(s.permit, d)
		s.pledges[q.ID] = p
	}
	held := l.asked[c] < heldShares
	if held {
		l.asked[c]++
	}
	l.mu.Unlock()
	if held {
		defer l.answered(c)
		hold := time.NewTimer(holdShare)
		defer hold.Stop()
		select {
		case <-p.done:
		case <-hold.C:
		case <-ctx.Done():
			return out, context.Cause(ctx)
		}
	}
	return p.answer(out, held), nil
}

// answered counts an answer that is held back no more.
func (l *ledger) answered(c *supervisor.Core) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asked[c]--; l.asked[c] == 0 {
		delete(l.asked, c)
	}
}

// ask has a request wait for its turn. Called with l.mu held.
func (l *ledger) ask(of *permit.Permit, d permit.Demand) *pledge {
	ctx, cancel := context.WithCancel(of.Context())
	p := &pledge{cancel: cancel, done: make(chan struct{})}
	l.waiter.Go(func() {
		defer close(p.done)
		p.got, p.err = of.Reserve(ctx, d)
	})
	return p
}

// answer says what became of a request until now.
func (p *pledge) answer(out ipc.ReserveResult, held bool) ipc.ReserveResult {
	select {
	case <-p.done:
	default:
		if out.Pending = true; !held {
			out.WaitMS = pauseShare.Milliseconds()
		}
		return out
	}
	var stop *permit.Stop
	switch {
	case errors.As(p.err, &stop):
		out.Stop = &ipc.ReserveStop{Limit: string(stop.Limit), RetryAfterMS: stop.RetryAfter.Milliseconds(), Message: stop.Message}
	case p.err != nil:
		out.Refused = p.err.Error()
	default:
		out.Output = p.got.Output
	}
	return out
}

// release answers ipc.MethodRelease.
func (l *ledger) release(_ context.Context, c *supervisor.Core, q ipc.Release) (ipc.Empty, error) {
	if _, err := l.runOn(c, q.Job, q.Attempt); err != nil {
		return ipc.Empty{}, nil // it is over: nothing is reserved for it any more
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.runs[q.Job]
	if s == nil || s.permit.Attempt != q.Attempt || s.pledges[q.ID] == nil {
		return ipc.Empty{}, nil
	}
	p := s.pledges[q.ID]
	delete(s.pledges, q.ID)
	s.settled += cost(q.Spent.CostUSD)
	q.Spent.CostUSD = s.due()
	p.finish(q.Spent)
	return ipc.Empty{}, nil
}

// finish ends a request.
func (p *pledge) finish(spent job.Usage) {
	p.cancel()
	<-p.done // at once: the gate waits for nothing else
	if p.got != nil {
		p.got.Charge(spent)
		p.got.End()
	}
}

// charged takes what a run has reported.
func (l *ledger) charged(t *schedule.Charged) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.runs[t.Run.Entry.ID]
	if s == nil || s.permit.Attempt != t.Run.Attempt || !s.used {
		l.gate.Learn(map[job.Tenant]float64{t.Run.Entry.Spec.Tenant: t.USD})
		return
	}
	if !s.heard { // what it had spent before this scheduler knew of it is booked
		before := t.Total - t.USD
		s.heard, s.settled, s.booked = true, s.settled+before, s.booked+before
	}
	s.told = t.Total
	s.permit.Charge(job.Usage{CostUSD: s.due()})
}

// due returns what is to be booked now. Called with ledger.mu held.
func (s *sharing) due() float64 {
	due := max(s.told, s.settled) - s.booked
	if !(due > 0) {
		return 0
	}
	s.booked += due
	return due
}

// keep forgets all but these runs.
func (l *ledger) keep(runs []*schedule.Run) {
	here := make(map[job.ID]int, len(runs))
	for _, r := range runs {
		here[r.Entry.ID] = r.Attempt
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range slices.Collect(maps.Keys(l.runs)) {
		if s := l.runs[id]; here[id] != s.permit.Attempt {
			l.drop(id, s)
		}
	}
}

// drop ends what a run shares. Called with l.mu held.
func (l *ledger) drop(id job.ID, s *sharing) {
	delete(l.runs, id)
	for _, n := range slices.Collect(maps.Keys(s.pledges)) {
		s.pledges[n].finish(job.Usage{})
	}
	if s.used {
		s.permit.Settle(job.Usage{}, true)
	} else {
		s.permit.Revoke(context.Canceled)
	}
}

// demandOf checks what a core says of a request: it may be that of a node.
func demandOf(d *ipc.Demand) (permit.Demand, error) {
	const most = 1 << 40
	for _, of := range []struct {
		field string
		n     int64
	}{{"input", d.Input}, {"estimate", d.Estimate}, {"output", d.Output}, {"beside", d.Beside}, {"least", d.Least}} {
		if of.n < 0 || of.n > most {
			return permit.Demand{}, ipc.InvalidParams(fmt.Errorf("demand.%s is %d, want tokens from 0 to %d", of.field, of.n, int64(most)))
		}
	}
	if d.Price != nil {
		for _, usd := range []*float64{&d.Price.Input, &d.Price.Output, cmp.Or(d.Price.CachedRead, new(float64)), cmp.Or(d.Price.CacheWrite, new(float64))} {
			if !(*usd >= 0) || math.IsInf(*usd, 0) {
				return permit.Demand{}, ipc.InvalidParams(fmt.Errorf("demand.price has %g, want US dollars per million tokens, 0 or more", *usd))
			}
		}
	}
	return permit.Demand{
		Model: d.Model, Input: d.Input, Estimate: min(d.Estimate, d.Input), Output: d.Output, Beside: min(d.Beside, d.Output), Least: min(d.Least, d.Beside, d.Output),
		Price: d.Price, Token: cost(d.Token),
	}, nil
}

// cost returns an amount of money, 0 for what is none.
func cost(usd float64) float64 {
	if !(usd > 0) || math.IsInf(usd, 0) {
		return 0
	}
	return usd
}
