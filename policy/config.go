package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/agentsched/agentsched/internal/fields"
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

// Validate returns the settings that New would refuse, joined: each a
// *job.FieldError whose Field is the setting's name in a file, with its value
// and what would be right.
func (c Config) Validate() error {
	var errs []error
	if !slices.Contains(Names(), c.Name) {
		message := fmt.Sprintf("%q is not a policy, want one of ", c.Name)
		if near := fields.Nearest(c.Name, Names()); near != "" {
			message = fmt.Sprintf("%q is not a policy; did you mean %s? Known: ", c.Name, near)
		}
		errs = append(errs, &job.FieldError{Field: "name", Message: message + strings.Join(Names(), ", ")})
	}
	return errors.Join(append(errs, fields.Errors(c)...)...)
}

// Validate returns the settings of a tenant that cannot be meant, as
// Config.Validate does. SetTenants takes such a one for 0.
func (t Tenant) Validate() error { return fields.Validate(t) }

// weightLike is false for what is not a number, too.
func weightLike(x float64) bool { return x >= minWeight && x <= maxWeight }
