package permit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/agentsched/agentsched/job"
)

var (
	// ErrUnknown is wrapped by the error of Use for an id that is no unused permit. The
	// caller asks for a new permit.
	ErrUnknown = errors.New("permit is unknown, used, expired or revoked")
	// ErrMismatch is wrapped by the error of Use for a permit of another job or attempt. That
	// permit stays unused.
	ErrMismatch = errors.New("permit is for another job or attempt")
	// ErrExpired is the cause of the context of a permit that was not used in time.
	ErrExpired = errors.New("permit expired unused")
)

// Gate gives out permits. It is safe for concurrent use. For each attempt its caller
//
//  1. calls Request and, after a *Rejection, calls it again after RetryAfter;
//  2. calls Use within Limits.TTL, and starts the run under the permit's Context;
//  3. calls Charge for each report of usage and stops the run if it returns a Stop, or
//     Reserve before each request to a model and charges the Reservation;
//  4. stops the run at Grant.Deadline, or when Context ends;
//  5. calls SettleWith when the last process of the run is gone.
//
// It calls Renew when the scheduler renews its permits, and Lapse every LookEvery.
type Gate struct {
	started time.Time // the origin of the windows' time

	// mu guards what follows. It is never held during a call of code from outside:
	// Reserve, its release, Circuits, their tickets, Defence, Shared.
	mu       sync.Mutex
	limits   Limits
	unused   map[job.PermitID]*Permit // those that Use finds; a subset of live
	live     map[job.ID]*Permit       // being made, unused and in use: one a job
	slots    slots                    // what the permits in live hold
	rates    rates
	requests requestRates
	windows  windows
	waiting  []*waiter // requests to models that have not begun, in the order in which they came
	record   ledger
	lease    Lease      // of all permits; it begins with the first Renew
	throttle int        // see Throttle
	closed   *Rejection // set by Close
	circuits Circuits   // nil: none
	defence  Defence    // nil: none
	shared   Shared     // nil: nothing is shared
	// observe sees each reservation that is made, charged or ended, with mu held. It is for tests; nil: nobody does.
	observe func(*Reservation)
}

// NewGate returns a gate that enforces l.
func NewGate(l Limits) *Gate {
	g := &Gate{
		started:  time.Now(),
		unused:   map[job.PermitID]*Permit{},
		live:     map[job.ID]*Permit{},
		slots:    newSlots(),
		rates:    rates{},
		requests: requestRates{},
		record:   newLedger(),
	}
	g.Configure(l)
	return g
}

// Configure changes the limits for permits requested from now on. Runs are charged to
// the new windows. A rate or a window that was there before keeps what it has counted, so
// that configuring again gives nobody a fresh budget. A new Validity counts from the next
// Renew. A MaxConcurrent below 1 counts as 1.
func (g *Gate) Configure(l Limits) {
	g.mu.Lock()
	defer g.mu.Unlock()
	l.MaxConcurrent = max(l.MaxConcurrent, 1)
	if g.limits = l; l.Validity <= 0 {
		g.lease = Lease{}
	}
	now := time.Now()
	g.rates.configure(now, &l)
	g.requests.configure(now, &l)
	g.windows = g.windows.configured(g.uptime(now), &l)
	g.advance()
}

// Close refuses every later request with r, and every one under way that has no permit
// yet. Permits that were given out stay valid: they can still be used, expire or be
// revoked, and do not lapse any more.
func (g *Gate) Close(r *Rejection) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = r
}

// Request returns a permit, or a *Rejection, or another error that Reserve or the
// circuits returned. The permit's context is a child of ctx, which must live as long as
// the core does, not as long as the call. A refused request holds nothing. The checks, in
// their order, and their reasons:
//
//  1. the Defence                its own: GLOBAL_SHED, QUEUE_STALL, CIRCUIT_OPEN, FATAL_MODE, WORKSPACE_BUSY
//  2. Close                      that of Close
//     lapsed permits             RATE_LIMIT, waiting permit
//     another permit of the job  RATE_LIMIT, waiting turn
//     the job's own limits       LIMIT_EXCEEDED, terminal
//  3. Circuits                   CIRCUIT_OPEN
//  4. slots                      RATE_LIMIT, waiting slot; GLOBAL_SHED if only Throttle is in the way
//     cost windows               RATE_LIMIT, waiting cost_window
//     rates                      RATE_LIMIT, waiting rate
//  5. Shared                     its own: RATE_LIMIT, waiting cost_window or rate
//  6. Reserve                    its own: WORKSPACE_BUSY
//
// The job's limits come early, because waiting cannot help there. The circuits come before
// the slots, so that a job goes to its next worker at once instead of waiting for a slot of
// a sick one. Of several refusals in step 4 the one that takes longest counts. Steps 2 and
// 4 hold the lock; what changed between them is checked again.
func (g *Gate) Request(ctx context.Context, r Request) (*Permit, error) {
	p, err := g.request(ctx, r.withDefaults())
	if err != nil {
		return nil, complete(err)
	}
	return p, nil
}

func (g *Gate) request(ctx context.Context, r Request) (*Permit, error) {
	circuits, defence, shared := g.others()
	if defence != nil {
		if refused := defence.Admit(r); refused != nil {
			return nil, refused
		}
	}
	if err := g.allowed(r); err != nil {
		return nil, err
	}
	t, err := ask(circuits, r.Choice)
	if err != nil {
		return nil, err
	}
	p, err := g.hold(ctx, r)
	if err != nil {
		t.end(0, nil)
		return nil, err
	}
	p.ticket, p.CircuitState = t, t.state
	if shared != nil {
		if p.unshare, err = shared.Admit(ctx, r); err != nil {
			p.end(err, nil, nil)
			return nil, err
		}
	}
	if r.Reserve != nil {
		if p.release, err = r.Reserve(); err != nil {
			p.release = nil
			p.end(err, nil, nil)
			return nil, err
		}
	}
	if err := g.arm(p); err != nil {
		p.end(err, nil, nil)
		return nil, err
	}
	return p, nil
}

// others returns what Request asks without the lock: a defence may revoke permits of this
// gate while it decides.
func (g *Gate) others() (Circuits, Defence, Shared) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.circuits, g.defence, g.shared
}

// allowed checks what concerns the job alone, before the circuits are asked: a job without
// a budget must not take one of the few probes of a half-open breaker.
func (g *Gate) allowed(r Request) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, err := g.grant(time.Now(), r)
	return err
}

// grant returns the budget of the attempt, if nothing about its job keeps it from
// running. Called with g.mu held.
func (g *Gate) grant(now time.Time, r Request) (Grant, error) {
	if g.closed != nil {
		return Grant{}, g.closed
	}
	if err := g.lapsedLocked(); err != nil {
		return Grant{}, err
	}
	if other := g.live[r.Job]; other != nil {
		return Grant{}, limited(job.WaitTurn, slotRetry, "attempt %d of the job already has permit %s", other.Attempt, other.ID)
	}
	return g.budget(now, r)
}

// hold checks every limit and, if all allow it, takes slots and tokens in the same
// critical section: no other request can take them in between.
func (g *Gate) hold(ctx context.Context, r Request) (*Permit, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	grant, err := g.grant(now, r)
	if err != nil {
		return nil, err
	}
	refused := g.slots.check(&g.limits, g.throttled(), &r)
	var tokens []*rate.Limiter
	if !r.Running {
		var slow *Rejection
		tokens, slow = g.rates.reserve(now, &r)
		refused = later(later(refused, g.windows.check(g.uptime(now), r.Tenant)), slow)
	}
	if refused != nil {
		giveBack(now, tokens)
		return nil, refused
	}
	p := &Permit{
		ID: job.NewPermitID(), Job: r.Job, Tenant: r.Tenant, Workspace: r.Workspace, Folder: r.Folder, Attempt: r.Attempt, Choice: r.Choice, Grant: grant,
		gate: g, tokens: tokens, granted: now, onPartition: r.Limits.OnPartition,
		ceded: ceded(r.Ceded),
	}
	p.ctx, p.cancel = context.WithCancelCause(ctx)
	g.live[r.Job] = p
	g.slots.take(&r)
	return p, nil
}

// arm makes the permit usable for its time to live. It refuses if the gate was closed or
// the permits lapsed meanwhile: the call that did so revoked the unused permits and did not
// find this one.
func (g *Gate) arm(p *Permit) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed != nil {
		return g.closed
	}
	if err := g.lapsedLocked(); err != nil {
		return err
	}
	ttl := g.limits.TTL
	p.ExpiresAt = time.Now().Add(ttl)
	g.unused[p.ID] = p
	p.expiry = time.AfterFunc(ttl, func() { p.Revoke(ErrExpired) })
	return nil
}

// Use takes the permit for the run that it was given out for. From now on the attempt
// counts. The caller ends the permit with Settle or SettleWith, also if no run begins. A
// permit is used once: a second Use is an ErrUnknown.
func (g *Gate) Use(id job.PermitID, j job.ID, attempt int) (*Permit, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.unused[id]
	if p == nil {
		return nil, fmt.Errorf("permit %s: %w", id, ErrUnknown)
	}
	if p.Job != j || p.Attempt != attempt {
		return nil, fmt.Errorf("permit %s for job %s attempt %d, asked for job %s attempt %d: %w", id, p.Job, p.Attempt, j, attempt, ErrMismatch)
	}
	// The timer has fired and waits for the lock: the permit expires, and is not used.
	if !p.expiry.Stop() {
		return nil, fmt.Errorf("permit %s: %w", id, ErrUnknown)
	}
	delete(g.unused, id)
	p.used = time.Now()
	g.record.begin(j, attempt)
	return p, nil
}

// Uncount says that an attempt does not count, though its run may have ended by itself: its
// claim was over before that was heard. What it used stays charged. An attempt that the gate
// does not know of is no error.
func (g *Gate) Uncount(j job.ID, attempt int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.record.uncount(j, attempt)
}

// Live returns the permit of an attempt, unused or in use, or nil.
func (g *Gate) Live(j job.ID, attempt int) *Permit {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p := g.live[j]; p != nil && p.Attempt == attempt && !p.ExpiresAt.IsZero() { // armed: not still being made
		return p
	}
	return nil
}

// Counts returns how many permits are unused and how many are in use. A permit that is
// being made counts as in use: it holds its slot already.
func (g *Gate) Counts() (unused, running int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.unused), len(g.live) - len(g.unused)
}

// RevokeUnused revokes the unused permits for which which returns true; nil means all.
// A permit that is being made is not among them: see arm. which is called with the lock
// held and must not call the gate.
func (g *Gate) RevokeUnused(cause error, which func(*Permit) bool) {
	g.mu.Lock()
	permits := make([]*Permit, 0, len(g.unused))
	for _, p := range g.unused {
		if which == nil || which(p) {
			permits = append(permits, p)
		}
	}
	g.mu.Unlock()
	for _, p := range permits {
		p.Revoke(cause)
	}
}
