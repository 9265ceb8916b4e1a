package config

import (
	"fmt"
	"maps"
	"regexp"
	"slices"

	"github.com/agentsched/agentsched/internal/strictyaml"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/policy"
)

// domainName is what a job's domain may be called, but for the dots, which
// would not read well in the path of a field.
var domainName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_:/@-]{0,127}$`)

// Recovery is what is done about failed attempts.
type Recovery struct {
	// Classes replace rows of policy.DefaultRules, Domains those of
	// policy.DefaultDomains.
	Classes map[job.ErrorClass]RecoveryRule `json:"classes,omitempty"`
	Domains map[string]RecoveryDomain       `json:"domains,omitempty"`
}

// RecoveryDomain is a policy.Domain.
type RecoveryDomain struct {
	StricterThan string                          `json:"stricter_than,omitempty"`
	Classes      map[job.ErrorClass]RecoveryRule `json:"classes,omitempty"`
}

// RecoveryRule is a policy.Rule.
type RecoveryRule struct {
	Action policy.Action `json:"action"`
	Resume bool          `json:"resume,omitempty"`
	Afresh bool          `json:"afresh,omitempty"`
	AtOnce bool          `json:"at_once,omitempty"`
	Floor  *job.Duration `json:"floor,omitempty"` // none: that of policy.DefaultRules
}

// DeadLetters are what became of jobs that were given up.
type DeadLetters struct {
	Redrive []Redrive `json:"redrive,omitempty"`
}

// Redrive is a policy.RedriveRule.
type Redrive struct {
	Class  []job.ErrorClass   `json:"class"`
	Tenant job.Tenant         `json:"tenant,omitempty"`
	Worker job.WorkerKind     `json:"worker,omitempty"`
	After  job.Duration       `json:"after,omitempty"`
	Max    *int               `json:"max,omitempty"` // none: 1
	Rate   policy.RedriveRate `json:"rate,omitzero"`
}

// RetryPolicy returns what decides about failed attempts; random returns
// numbers of a uniform distribution over [0, 1). The error is nil for a
// configuration that was read from a file.
func (c *Config) RetryPolicy(random func() float64) (*policy.Retry, error) {
	rules, domains, err := c.Recovery.tables()
	return &policy.Retry{Rules: rules, Domains: domains, Base: c.Retry.Base.Std(), Max: c.Retry.Max.Std(), Random: random}, err
}

func (r *Recovery) tables() (policy.Rules, map[string]policy.Rules, error) {
	rules := policy.DefaultRules()
	maps.Copy(rules, recoveryRules(r.Classes))
	given := map[string]policy.Domain{}
	for name, d := range r.Domains {
		given[name] = policy.Domain{StricterThan: d.StricterThan, Rules: recoveryRules(d.Classes)}
	}
	domains, err := policy.Tables(rules, given)
	return rules, domains, err
}

func recoveryRules(given map[job.ErrorClass]RecoveryRule) policy.Rules {
	rules := policy.Rules{}
	for class, r := range given {
		floor := policy.DefaultRules()[class].Floor
		if r.Floor != nil {
			floor = r.Floor.Std()
		}
		rules[class] = policy.Rule{Action: r.Action, Resume: r.Resume, Afresh: r.Afresh, AtOnce: r.AtOnce, Floor: floor}
	}
	return rules
}

// RedriveRules returns by which rules dead letters are requeued.
func (c *Config) RedriveRules() []policy.RedriveRule {
	var rules []policy.RedriveRule
	for _, r := range c.DeadLetters.Redrive {
		most := 1
		if r.Max != nil {
			most = *r.Max
		}
		rules = append(rules, policy.RedriveRule{Classes: r.Class, Tenant: r.Tenant, Worker: r.Worker, After: r.After.Std(), Max: most, Rate: r.Rate})
	}
	return rules
}

func (v *validator) recovery() {
	right := v.recoveryClasses("recovery.classes", v.config.Recovery.Classes)
	for _, name := range slices.Sorted(maps.Keys(v.config.Recovery.Domains)) {
		at := strictyaml.Entry("recovery.domains", name)
		if !domainName.MatchString(name) {
			v.Failf(at, "%q is not a name of a domain, want 1 to 128 of a-z A-Z 0-9 and, not first, - _ : / @", name)
			right = false
			continue
		}
		right = v.recoveryClasses(at+".classes", v.config.Recovery.Domains[name].Classes) && right
	}
	if right {
		_, _, err := v.config.Recovery.tables()
		v.adopt(err, func(field string) string { return "recovery." + field })
	}
}

// recoveryClasses reports whether the rows can be compared with others.
func (v *validator) recoveryClasses(path string, rows map[job.ErrorClass]RecoveryRule) bool {
	right := true
	for _, class := range slices.Sorted(maps.Keys(rows)) {
		at, row := strictyaml.Entry(path, string(class)), rows[class]
		right = v.errorClass(at, class) && right
		switch {
		case row.Action == "":
			v.Failf(at+".action", "is missing, want one of %s", words(policy.Actions()))
		case !slices.Contains(policy.Actions(), row.Action):
			v.Failf(at+".action", "%q is no action, want one of %s", row.Action, words(policy.Actions()))
		default:
			continue
		}
		right = false
	}
	return right
}

func (v *validator) errorClass(path string, class job.ErrorClass) bool {
	if slices.Contains(job.ErrorClasses(), class) {
		return true
	}
	var known []string
	for _, c := range job.ErrorClasses() {
		known = append(known, string(c))
	}
	if near := strictyaml.Nearest(string(class), known); near != "" {
		v.Failf(path, "%q is no class of failures; did you mean %s?", class, near)
	} else {
		v.Failf(path, "%q is no class of failures, want one of %s", class, words(job.ErrorClasses()))
	}
	return false
}

func (v *validator) deadLetters() {
	for i, r := range v.config.DeadLetters.Redrive {
		at := fmt.Sprintf("dead_letters.redrive[%d]", i)
		switch {
		case v.Has(at+".class") && len(r.Class) == 0:
			v.Failf(at+".class", "is empty, want the classes of failures such as [SERVER, NETWORK]")
		case len(r.Class) == 0:
			v.Failf(at+".class", "is missing, want the classes of failures such as [SERVER, NETWORK]")
		}
		for n, class := range r.Class {
			v.errorClass(fmt.Sprintf("%s.class[%d]", at, n), class)
		}
		if r.Tenant != "" {
			v.tenant(at+".tenant", r.Tenant)
		}
		if r.Worker != "" {
			v.kind(at+".worker", r.Worker)
		}
		if r.Max != nil && *r.Max < 1 {
			v.Failf(at+".max", "is %d, want how often a job is requeued, 1 or more", *r.Max)
		}
	}
}
