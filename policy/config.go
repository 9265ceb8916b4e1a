package policy

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/agentsched/agentsched/job"
)

// The names of the policies, and of the ways to rank credit's tiers.
const (
	NamePriority = "priority"
	NameCredit   = "credit"
	NameDeficit  = "deficit"
	NameDRF      = "drf"

	TiersStrict   = "strict"
	TiersWeighted = "weighted"
)

// minWeight is the resolution of weights, and maxWeight keeps their sum over
// many tenants within an int64 (see weightUnit).
const (
	minWeight = 1e-6
	maxWeight = 1e6
)

// minWindow keeps the steps in which a window moves on well above a tick of a clock.
const minWindow = time.Second

// Names returns the names that New knows, in order.
func Names() []string { return []string{NameCredit, NameDeficit, NameDRF, NamePriority} }

// Default returns the settings that hold where none are given: strict priority,
// no ageing; for the other policies a window of a day, contracted tenants
// first, and a reputation of 1 that raises a weight by half.
func Default() Config {
	return Config{Name: NamePriority, Tiers: TiersStrict, Beta: 0.5, Window: job.Duration(24 * time.Hour)}
}

// New returns the policy that c names. Its errors are Validate's.
func New(c Config) (Policy, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.Window == 0 {
		c.Window = Default().Window
	}
	switch c.Name {
	case NameCredit:
		return newBook(c, newCredit(c)), nil
	case NameDeficit:
		return newBook(c, newDeficit()), nil
	case NameDRF:
		return newBook(c, newDRF(c.Capacity)), nil
	default:
		return newBook(c, newPriority()), nil
	}
}

// Validate reports the first setting that New would refuse: a *job.FieldError
// whose Field is the setting's name in a file, with its value and what would be right.
func (c Config) Validate() error {
	if !slices.Contains(Names(), c.Name) {
		return bad("name", "%q is no policy, want one of %s", c.Name, strings.Join(Names(), ", "))
	}
	if c.Tiers != "" && c.Tiers != TiersStrict && c.Tiers != TiersWeighted {
		return bad("tiers", "%q is unknown, want %s or %s", c.Tiers, TiersStrict, TiersWeighted)
	}
	if c.Ageing < 0 {
		return bad("ageing", "%v is not allowed, want a duration, or 0 for none", c.Ageing)
	}
	if c.Window != 0 && c.Window.Std() < minWindow {
		return bad("window", "%v is too short, want at least %v, or 0 for %v", c.Window, minWindow, Default().Window)
	}
	if !amountLike(c.Beta) {
		return bad("beta", "%v is not allowed, want a number of 0 or more", c.Beta)
	}
	for _, f := range []struct {
		name  string
		value float64
	}{
		{"capacity.tokens", c.Capacity.Tokens}, {"capacity.cost_usd", c.Capacity.CostUSD}, {"capacity.slots", c.Capacity.Slots},
	} {
		if !amountLike(f.value) {
			return bad(f.name, "%v is not allowed, want a number above 0, or 0 if it is not to count", f.value)
		}
	}
	if err := c.Budget.validate(); err != nil {
		return err
	}
	if err := c.Each.Validate(); err != nil {
		return inside("each", err)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Tenants)) {
		if err := c.Tenants[name].Validate(); err != nil {
			return inside("tenants."+string(name), err)
		}
	}
	return nil
}

// Validate reports the first setting of a tenant that cannot be meant, as
// Config.Validate does. SetTenants takes such a one for 0.
func (t Tenant) Validate() error {
	switch {
	case t.Weight != 0 && !weightLike(t.Weight):
		return bad("weight", "%v is not allowed, want a number from %v to %v, or 0 for 1", t.Weight, minWeight, maxWeight)
	case t.Credits != 0 && !(t.Credits >= minCredits && t.Credits <= maxWeight):
		return bad("credits", "%v is not allowed, want a number from %v to %v, or 0 for %v times the weight", t.Credits, minCredits, maxWeight, referenceCredits)
	case !(t.Reputation >= 0 && t.Reputation <= 1):
		return bad("reputation", "%v is not allowed, want a number from 0 to 1", t.Reputation)
	case t.MaxConcurrent < 0:
		return bad("max_concurrent", "%d is negative, want a number of jobs, or 0 for no bound", t.MaxConcurrent)
	}
	return t.Budget.validate()
}

func (b Budget) validate() error {
	if !amountLike(b.Tokens) {
		return bad("budget.tokens", "%v is not allowed, want a number of tokens, or 0 for no bound", b.Tokens)
	}
	if !amountLike(b.CostUSD) {
		return bad("budget.cost_usd", "%v is not allowed, want US dollars, or 0 for no bound", b.CostUSD)
	}
	return nil
}

func bad(field, format string, args ...any) error {
	return &job.FieldError{Field: field, Message: fmt.Sprintf(format, args...)}
}

// inside names the field that holds the one that is wrong.
func inside(field string, err error) error {
	if f, ok := err.(*job.FieldError); ok {
		return &job.FieldError{Field: field + "." + f.Field, Message: f.Message}
	}
	return err
}

// amountLike and weightLike are false for what is not a number, too.
func amountLike(x float64) bool { return x >= 0 && !math.IsInf(x, 1) }
func weightLike(x float64) bool { return x >= minWeight && x <= maxWeight }
