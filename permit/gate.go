package permit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/agentsched/agentsched/job"
)

// What Use can meet.
var (
	// ErrUnknown: no such permit, or it was used, expired or revoked.
	ErrUnknown = errors.New("permit is unknown, used, expired or revoked")
	// ErrMismatch: the permit is for another job or attempt.
	ErrMismatch = errors.New("permit is for another job or attempt")
	// ErrExpired is the cause of the context of a permit that was not used in time.
	ErrExpired = errors.New("permit expired unused")
)

// Gate issues permits. It is safe for concurrent use.
type Gate struct {
	started time.Time

	// mu guards what follows. It is never held while calling what others gave:
	// Reserve, its release, Circuits, their tickets, Defence.
	mu       sync.Mutex
	limits   Limits
	unused   map[job.PermitID]*Permit
	live     map[job.ID]*Permit // unused and used ones, until they are settled
	slots    slots
	rates    rates
	windows  windows
	record   ledger
	lapse    lapse
	throttle int // see Throttle
	closed   *Rejection
	circuits Circuits // nil: none
	defence  Defence  // nil: none
}

// NewGate returns a gate that enforces l.
func NewGate(l Limits) *Gate {
	g := &Gate{
		started: time.Now(),
		unused:  map[job.PermitID]*Permit{},
		live:    map[job.ID]*Permit{},
		slots:   newSlots(),
		rates:   rates{},
		record:  newLedger(),
	}
	g.Configure(l)
	return g
}

// Configure changes the limits for permits requested from now on; what runs is
// charged under the new windows. Rates and windows that stay keep what they
// have counted.
func (g *Gate) Configure(l Limits) {
	g.mu.Lock()
	defer g.mu.Unlock()
	l.MaxConcurrent = max(l.MaxConcurrent, 1)
	if g.limits = l; l.Validity <= 0 {
		g.lapse = lapse{}
	}
	now := time.Now()
	g.rates.configure(now, &l)
	g.windows = g.windows.configured(g.uptime(now), &l)
}

// Close refuses every later request with r. Permits that are out stay valid
// until they are used, expire or are revoked.
func (g *Gate) Close(r *Rejection) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = r
}

// Request returns a permit or a *Rejection. The permit's context is a child
// of ctx, which must live as long as the core does, not as long as the call.
//
// A refused request takes nothing. Who is asked, in this order: the defence;
// the job's own limits, since what cannot heal is said first; the circuits, so
// that a job goes to its next worker at once instead of waiting for a slot of
// a sick one; slots, rates and windows of cost; at last Reserve.
func (g *Gate) Request(ctx context.Context, r Request) (*Permit, error) {
	p, err := g.request(ctx, r.withDefaults())
	if err != nil {
		return nil, complete(err)
	}
	return p, nil
}

func (g *Gate) request(ctx context.Context, r Request) (*Permit, error) {
	circuits, defence := g.others()
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

func (g *Gate) others() (Circuits, Defence) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.circuits, g.defence
}

// allowed checks what concerns the job alone.
func (g *Gate) allowed(r Request) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, err := g.grant(time.Now(), r)
	return err
}

// grant returns the budget of the attempt, if it may run as far as its job is
// concerned. One attempt of a job is live at a time: two could together exceed
// what each of them is granted. Called with g.mu held.
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

// hold checks every limit and, if all allow it, takes slots and tokens. Of
// several refusals it returns the one that takes longest to heal.
func (g *Gate) hold(ctx context.Context, r Request) (*Permit, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	grant, err := g.grant(now, r)
	if err != nil {
		return nil, err
	}
	refused := later(g.slots.check(&g.limits, g.throttled(), &r), g.windows.check(g.uptime(now), r.Tenant))
	tokens, slow := g.rates.reserve(now, &r)
	if refused = later(refused, slow); refused != nil {
		giveBack(now, tokens)
		return nil, refused
	}
	p := &Permit{
		ID: job.NewPermitID(), Job: r.Job, Tenant: r.Tenant, Workspace: r.Workspace, Folder: r.Folder, Attempt: r.Attempt, Choice: r.Choice, Grant: grant,
		gate: g, tokens: tokens, granted: now,
	}
	p.ctx, p.cancel = context.WithCancelCause(ctx)
	g.live[r.Job] = p
	g.slots.take(&r)
	return p, nil
}

// arm makes the permit usable for its time to live, unless the gate was closed or
// all permits lapsed meanwhile: whoever does that revokes what is unused.
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

// Use takes the permit for the run that it was issued for. The run ends with
// the permit's Settle.
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
	if !p.expiry.Stop() {
		return nil, fmt.Errorf("permit %s: %w", id, ErrUnknown)
	}
	delete(g.unused, id)
	p.used = time.Now()
	g.record.begin(j)
	return p, nil
}

// Live returns the permit of an attempt that is unused or running, or nil.
func (g *Gate) Live(j job.ID, attempt int) *Permit {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p := g.live[j]; p != nil && p.Attempt == attempt && !p.ExpiresAt.IsZero() { // armed: not still being made
		return p
	}
	return nil
}

// Counts returns how many permits are unused and how many are in use.
func (g *Gate) Counts() (unused, running int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.unused), len(g.live) - len(g.unused)
}

// RevokeUnused ends the permits that were not used yet and that which picks;
// nil picks all.
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
