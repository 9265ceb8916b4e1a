package queue

import (
	"errors"
	"fmt"
	"time"

	"github.com/agentsched/agentsched/job"
)

// Prices are how many credits a run takes from the balance of its tenant, if that has
// one. A price is 0 or more.
type Prices struct {
	Run    int64                 // of a run
	Agents map[job.AgentID]int64 // of a run of these agents instead
}

// DefaultPrices are those of a store that was told no others: a credit for each run.
func DefaultPrices() Prices { return Prices{Run: 1} }

// Of returns what a run of an agent takes; "" is no agent.
func (p Prices) Of(agent job.AgentID) int64 {
	if price, named := p.Agents[agent]; named {
		return price
	}
	return p.Run
}

// TopUp adds credits to the balance of a tenant, or takes some back if Credits is below
// 0. A tenant has no balance, and its runs cost nothing, before its first TopUp. The
// error wraps ErrIllegalTransition if fewer credits are left than are to be taken back.
//
// Of those with one Key, "" is none, the first that is applied counts. Others that ask for
// the same change nothing, and for something else they are refused with ErrExists.
type TopUp struct {
	Tenant  job.Tenant
	Credits int64 // not 0; at most MaxCredits were ever added
	By      string
	Key     string
	Now     time.Time
}

// DropBalance ends the balance of a tenant: what is left is lost, and its runs cost
// nothing from now on. ErrNotFound if it has none.
type DropBalance struct {
	Tenant job.Tenant
	By     string
	Now    time.Time
}

func (TopUp) op()       {}
func (DropBalance) op() {}

// MaxCredits bounds what is ever added to a balance.
const MaxCredits = 1_000_000_000_000_000

// Validate returns why op cannot be applied, whatever the balance is, or nil.
func (op TopUp) Validate() error {
	if op.Tenant == "" {
		return errors.New("credits are for no tenant, want whose they are")
	}
	if err := job.ValidTenant(op.Tenant); err != nil {
		return fmt.Errorf("credits of tenant: %w", err)
	}
	if op.Credits == 0 || op.Credits > MaxCredits || op.Credits < -MaxCredits {
		return fmt.Errorf("credits of tenant %s are %d, want 1 to %d to add some, or less than 0 to take some back", op.Tenant, op.Credits, int64(MaxCredits))
	}
	return nil
}

// Balance is what was added to a tenant's credits and what its runs have taken. A claim
// takes the price of a run in its own transaction, and passes over what there is too
// little for. The price is given back when the claim ends without an attempt that
// counts: it was released or reclaimed, or its attempt was Lost. So a balance never goes
// below 0, but by a claim with ClaimSpec.OverGrants.
type Balance struct {
	Tenant job.Tenant
	Added  int64
	Taken  int64 // by runs that count, and by those under way
}

// Left is how many credits there are.
func (b Balance) Left() int64 { return b.Added - b.Taken }

// Add returns b with so many credits more, or fewer. The error wraps
// ErrIllegalTransition.
func (b Balance) Add(credits int64) (Balance, error) {
	switch {
	case credits < 0 && b.Left() < -credits:
		return b, Refuse("credits of tenant %s: %d left, %d cannot be taken back", b.Tenant, b.Left(), -credits)
	case b.Added > MaxCredits-max(0, credits):
		return b, Refuse("credits of tenant %s: %d were added so far, and %d more would be more than %d", b.Tenant, b.Added, credits, int64(MaxCredits))
	}
	b.Added += credits
	return b, nil
}

// Credit is an entry in the history of a balance: a TopUp, a DropBalance, or the claim of
// a run whose price was not given back.
type Credit struct {
	ID      string // larger than those of all earlier ones of the tenant
	At      time.Time
	Credits int64       // below 0: taken
	Job     job.ID      // of a claim
	Attempt int         // of a claim
	Agent   job.AgentID // of a claim; "" none
	By      string      // who asked for it; "" of a claim
}
