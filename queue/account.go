package queue

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/agentsched/agentsched/job"
)

// Owner is who answers for what a job uses: a tenant, or one agent of it. What
// an agent uses counts for its tenant, too.
type Owner struct {
	Tenant job.Tenant  `json:"tenant"`
	Agent  job.AgentID `json:"agent,omitempty"` // "": the tenant as a whole
}

// String returns TENANT or TENANT/AGENT.
func (o Owner) String() string {
	if o.Agent == "" {
		return string(o.Tenant)
	}
	return string(o.Tenant) + "/" + string(o.Agent)
}

// DeadOwnerError refuses an entry of a dead owner (Grant.Dead). It wraps ErrDeadOwner.
type DeadOwnerError struct{ Owner Owner }

// Error names the owner and the command that lets its jobs in again.
func (e *DeadOwnerError) Error() string {
	return fmt.Sprintf("%s is dead and cannot submit jobs; `scheduler grant %s --alive` lets it again", e.Owner, e.Owner)
}

// Unwrap returns ErrDeadOwner.
func (e *DeadOwnerError) Unwrap() error { return ErrDeadOwner }

// Grant is what an owner may use. An entry of an owner that has used as much as
// a bound is not claimed, and changes in no other way. An owner without a grant
// is not bounded.
type Grant struct {
	Owner
	// Dead owners are not enqueued for (ErrDeadOwner); what is queued stays.
	Dead bool `json:"dead,omitempty"`
	// The bounds of what is used within Window; 0: no bound.
	Tokens  int64        `json:"tokens,omitempty"`
	CostUSD float64      `json:"cost_usd,omitempty"`
	Wall    job.Duration `json:"wall,omitempty"` // of attempts, added up
	// Window is how far back use counts; 0: for ever. It is counted in parts of
	// AccountStep, so up to one of those more.
	Window job.Duration `json:"window,omitempty"`
}

// Validate returns why g cannot be an owner's grant, or nil.
func (g Grant) Validate() error {
	if g.Tenant == "" {
		return errors.New("the grant names no tenant, want whose it is")
	}
	if err := job.ValidTenant(g.Tenant); err != nil {
		return fmt.Errorf("the grant's tenant: %w", err)
	}
	if g.Agent != "" {
		if err := job.ValidAgent(g.Agent); err != nil {
			return fmt.Errorf("the grant's agent: %w", err)
		}
	}
	for _, bound := range []struct {
		name  string
		value any
		ok    bool
	}{
		{"tokens", g.Tokens, g.Tokens >= 0},
		{"cost_usd", g.CostUSD, g.CostUSD >= 0 && !math.IsInf(g.CostUSD, 1)},
		{"wall", g.Wall, g.Wall >= 0},
		{"window", g.Window, g.Window >= 0},
	} {
		if !bound.ok {
			return fmt.Errorf("the grant of tenant %s: %s is %v, want 0 for none or more", g.Tenant, bound.name, bound.value)
		}
	}
	return nil
}

// UsedUp reports whether what was used has reached a bound of g.
func (g Grant) UsedUp(a *Account) bool {
	return g.Tokens > 0 && a.Usage.Tokens() >= g.Tokens || g.CostUSD > 0 && a.Usage.CostUSD >= g.CostUSD || g.Wall > 0 && a.Wall >= g.Wall
}

// AccountStep is how finely the ledger knows when something was used.
const AccountStep = 15 * time.Minute

// Dimension is what an account can be kept by.
type Dimension string

// The dimensions of accounts.
const (
	ByTenant Dimension = "tenant"
	ByAgent  Dimension = "agent" // together with its tenant
	ByWorker Dimension = "worker"
	ByModel  Dimension = "model"
	ByDay    Dimension = "day"
)

// Dimensions lists every dimension.
func Dimensions() []Dimension { return []Dimension{ByTenant, ByAgent, ByWorker, ByModel, ByDay} }

// AccountFilter selects what an account sums; zero fields select everything.
type AccountFilter struct {
	// By are the dimensions to keep apart; none gives one account of everything.
	By []Dimension
	// Since and Until are rounded down to AccountStep; Since is included, Until is not.
	Since, Until time.Time
	Tenant       job.Tenant
	Agent        job.AgentID
	Worker       job.WorkerKind
	Model        string
	// Zone is where a day begins; nil is UTC.
	Zone *time.Location
}

// Account is what was used, of one value of each dimension that was asked for.
type Account struct {
	Tenant job.Tenant     `json:"tenant,omitempty"`
	Agent  job.AgentID    `json:"agent,omitempty"`
	Worker job.WorkerKind `json:"worker,omitempty"`
	Model  string         `json:"model,omitempty"`
	Day    string         `json:"day,omitempty"` // 2006-01-02

	Usage job.Usage `json:"usage"`
	// Wall is the time of attempts, added up; Attempts how many ended, Completed
	// how many entries were completed as succeeded, by that worker and model; those
	// that share a result are among them, under their own agent.
	Wall      job.Duration `json:"wall,omitempty"`
	Attempts  int64        `json:"attempts,omitempty"`
	Completed int64        `json:"completed,omitempty"`
}

// Ledger tells what was used. It is charged by the ops of a Store in their own
// transactions: by each usage event when it is stored for the first time
// (Append; if its attempt has not begun, by Begin), and by what an Outcome says
// beyond its attempt's events (Finish, Reclaim, Await), each at the time of the event or
// of the attempt's end. So nothing is charged twice, however often and in whatever
// order it is delivered: of each attempt, field by field, the larger of the
// events' sum and the outcome counts. An outcome that says less takes nothing
// back, since what events told of was consumed.
type Ledger interface {
	// Accounts returns what was used, ordered by the dimensions' values in the
	// order of AccountFilter.By. An account's cost is known if all its tokens have
	// a price, and it has any.
	Accounts(ctx context.Context, f AccountFilter) ([]Account, error)
	// Grants returns all grants, ordered by tenant and agent.
	Grants(ctx context.Context) ([]Grant, error)
	// Balances returns all balances, ordered by tenant.
	Balances(ctx context.Context) ([]Balance, error)
	// Credits returns the history of a tenant's balance, the newest entry first, at most
	// limit of those before the one with the ID before; "" begins. What runs took is in
	// it for as long as PruneSpec.Before lets jobs stay.
	Credits(ctx context.Context, t job.Tenant, before string, limit int) ([]Credit, error)
	// Prices returns what runs take from balances.
	Prices() Prices
}

// PruneSpec says what a store may forget. Only what has ended is forgotten, with
// its attempts and events; the ledger remains. An entry stays as long as one that
// has its result (Entry.CoalescedWith), that does it again (RequeuedAs) or goes on
// from it (ContinuedAs, which goes with that), and as long as one that is forked
// from it (ForkedFrom) is unfinished; a job of a workflow (job.Flow.Joined) as
// long as another job of its batch is. A batch goes with its last entry, if it is
// closed or shared. The records of a job's spaces go with it, those of a batch's
// with its last entry.
type PruneSpec struct {
	// Before is when an entry must have ended; zero: none is forgotten.
	Before time.Time
	// DeadLettersBefore is that of dead letters that are neither requeued nor
	// dropped; zero: those stay.
	DeadLettersBefore time.Time
	Max               int // at most so many in one transaction, 1 or more
}

// Keeper is what a store does for its own upkeep.
type Keeper interface {
	// Prune forgets entries and returns their ids; fewer than Max if nothing is
	// left to forget.
	Prune(ctx context.Context, spec PruneSpec) ([]job.ID, error)
	// Parcels returns the digests of the parcels that entries name, in any order.
	Parcels(ctx context.Context) ([]string, error)
	// Compact gives space that is no longer needed back to the disk, in steps that
	// let other writes through.
	Compact(ctx context.Context) error
	// Backup writes a copy of the whole store, as of one moment, to a new file
	// that only its owner may read, while the store goes on being used. If there is
	// one of that name the error wraps fs.ErrExist; after an error there is none.
	Backup(ctx context.Context, path string) error
	// Check reads the whole store and returns what is wrong with it, nil if
	// nothing is; the error wraps ErrCorrupt.
	Check(ctx context.Context) error
}
