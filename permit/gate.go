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

// Limits are what a gate enforces over all jobs together.
type Limits struct {
	MaxConcurrent int                    // permits and runs at once; at least 1
	PerKind       map[job.WorkerKind]int // of one kind at once; absent or 0: no bound of its own
	TTL           time.Duration          // how long a permit may stay unused
}

// Request asks for one attempt of a job.
type Request struct {
	Job      job.ID
	Attempt  int // number of the attempt to start: 1, 2, 3, …
	Counted  int // earlier attempts that count, as the asker knows it
	Choice   job.Choice
	Limits   job.Limits
	Deadline *time.Time
	Spent    job.Usage     // by earlier attempts, as the asker knows it
	Time     time.Duration // likewise, wall time

	// Reserve, if not nil, is called after every check has passed and takes
	// what the run needs besides (the lock on its workspace). Its error refuses
	// the request; a *Rejection is passed on as it is. release is called
	// exactly once, when the permit ends in whatever way.
	Reserve func() (release func(), err error)
}

// Rejection is a refusal.
type Rejection struct {
	Reason     job.Reason
	RetryAfter time.Duration // zero if the reason is terminal
	Message    string
}

// Error returns the reason and the sentence.
func (r *Rejection) Error() string { return string(r.Reason) + ": " + r.Message }

// slotRetry is how soon to ask again for a slot: the scheduler also asks when
// one of its runs ends, so this only matters if somebody else's run does.
const slotRetry = time.Second

// Gate issues permits. It is safe for concurrent use.
type Gate struct {
	mu      sync.Mutex // guards what follows; never held while calling Reserve or release
	limits  Limits
	unused  map[job.PermitID]*Permit
	live    map[attemptKey]*Permit // unused and used ones, until they are settled
	perKind map[job.WorkerKind]int
	record  ledger
	closed  *Rejection
}

type attemptKey struct {
	job     job.ID
	attempt int
}

// NewGate returns a gate that enforces l.
func NewGate(l Limits) *Gate {
	g := &Gate{
		unused:  map[job.PermitID]*Permit{},
		live:    map[attemptKey]*Permit{},
		perKind: map[job.WorkerKind]int{},
		record:  newLedger(),
	}
	g.Configure(l)
	return g
}

// Configure changes the limits for permits requested from now on.
func (g *Gate) Configure(l Limits) {
	g.mu.Lock()
	defer g.mu.Unlock()
	l.MaxConcurrent = max(l.MaxConcurrent, 1)
	g.limits = l
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
func (g *Gate) Request(ctx context.Context, r Request) (*Permit, error) {
	p, err := g.hold(ctx, r)
	if err != nil {
		return nil, err
	}
	if r.Reserve == nil {
		g.arm(p)
		return p, nil
	}
	release, err := r.Reserve()
	if err != nil {
		p.settle(err, nil)
		return nil, err
	}
	p.release = release
	g.arm(p)
	return p, nil
}

// hold checks every limit and, if all allow it, takes the slots.
func (g *Gate) hold(ctx context.Context, r Request) (*Permit, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed != nil {
		return nil, g.closed
	}
	key := attemptKey{r.Job, r.Attempt}
	if other := g.live[key]; other != nil {
		return nil, &Rejection{job.RateLimited, slotRetry, fmt.Sprintf("attempt %d of the job already has permit %s", r.Attempt, other.ID)}
	}
	now := time.Now()
	grant, err := g.budget(now, r)
	if err != nil {
		return nil, err
	}
	if n, limit := len(g.live), g.limits.MaxConcurrent; n >= limit {
		return nil, &Rejection{job.RateLimited, slotRetry, fmt.Sprintf("%d of %d slots are taken", n, limit)}
	}
	kind := r.Choice.Worker
	if n, limit := g.perKind[kind], g.limits.PerKind[kind]; limit > 0 && n >= limit {
		return nil, &Rejection{job.RateLimited, slotRetry, fmt.Sprintf("%d of %d slots of worker %s are taken", n, limit, kind)}
	}
	p := &Permit{
		ID: job.NewPermitID(), Job: r.Job, Attempt: r.Attempt, Choice: r.Choice, Grant: grant,
		gate: g, key: key,
	}
	p.ctx, p.cancel = context.WithCancelCause(ctx)
	g.live[key] = p
	g.perKind[kind]++
	return p, nil
}

// arm makes the permit usable for its time to live.
func (g *Gate) arm(p *Permit) {
	g.mu.Lock()
	defer g.mu.Unlock()
	ttl := g.limits.TTL
	p.ExpiresAt = time.Now().Add(ttl)
	g.unused[p.ID] = p
	p.expiry = time.AfterFunc(ttl, func() { p.Revoke(ErrExpired) })
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
	if p.key != (attemptKey{j, attempt}) {
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
	return g.live[attemptKey{j, attempt}]
}

// Counts returns how many permits are unused and how many are in use.
func (g *Gate) Counts() (unused, running int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.unused), len(g.live) - len(g.unused)
}

// RevokeUnused ends every permit that was not used yet.
func (g *Gate) RevokeUnused(cause error) {
	g.mu.Lock()
	permits := make([]*Permit, 0, len(g.unused))
	for _, p := range g.unused {
		permits = append(permits, p)
	}
	g.mu.Unlock()
	for _, p := range permits {
		p.Revoke(cause)
	}
}
