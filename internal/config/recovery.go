package config

import (
	"fmt"
	"maps"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/policy"
)

// Recovery is what is done about failed attempts.
type Recovery struct {
	// What is done about a failed attempt, by class of failure; a row that is given replaces the one
	// of that class as a whole.
	Classes map[job.ErrorClass]RecoveryRule `json:"classes,omitempty" otherwise:"see recovery.md"`
	// Tables of jobs that name a domain.
	Domains map[string]RecoveryDomain `json:"domains,omitempty" keys:"match:\"^[A-Za-z0-9][A-Za-z0-9_:/@-]{0,127}$\" is:\"a name of a domain\" want:\"1 to 128 of a-z A-Z 0-9 and, not first, - _ : / @\"" otherwise:"the built-in one, legal"`
}

// RecoveryDomain is a policy.Domain.
type RecoveryDomain struct {
	// `default` or another domain: this one may not do less than that about anything, and has its rows
	// where `classes` names none.
	StricterThan string `json:"stricter_than,omitempty" otherwise:"no claim"`
	// What differs.
	Classes map[job.ErrorClass]RecoveryRule `json:"classes,omitempty"`
}

// RecoveryRule is a policy.Rule.
type RecoveryRule struct {
	// What is done, from the least strict to the strictest.
	Action policy.Action `json:"action" need:"one of restart, retry, feedback, fallback, fallback_or_escalate, escalate"`
	// `retry` and `feedback` go on with the agent's own session. `restart` does so in any case.
	Resume bool `json:"resume,omitempty"`
	// Before a job is given up: once more without the session, if this attempt had resumed one and got
	// nowhere.
	Afresh bool `json:"afresh,omitempty"`
	// Without the backoff.
	AtOnce bool `json:"at_once,omitempty"`
	// The least delay, doubled with each attempt up to `retry.max`, where the provider names no time.
	Floor *job.Duration `json:"floor,omitempty" otherwise:"of the class: 15s for RATE_LIMIT, else 0s"`
}

// DeadLetters are what became of jobs that were given up.
type DeadLetters struct {
	// A list of rules by which jobs that were given up are requeued, looked at once a minute. The
	// first that matches one decides about it.
	Redrive []Redrive `json:"redrive,omitempty"`
}

// Redrive is a policy.RedriveRule.
type Redrive struct {
	// Of which classes of failures, such as `[SERVER, NETWORK]`.
	Class []job.ErrorClass `json:"class" need:"the classes of failures such as [SERVER, NETWORK]" items:"1"`
	// Whose.
	Tenant job.Tenant `json:"tenant,omitempty" otherwise:"everybody's"`
	// Of which kind of worker.
	Worker job.WorkerKind `json:"worker,omitempty" otherwise:"any"`
	// How long after the job was given up.
	After job.Duration `json:"after,omitempty"`
	// How often a job is requeued in all, by whomever.
	Max *int `json:"max,omitempty" min:"1" want:"how often a job is requeued, 1 or more"`
	// So many jobs within any such time, e.g. `10/h`, `1/m`, `100/24h`.
	Rate policy.RedriveRate `json:"rate,omitzero" otherwise:"any number"`
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

// recovery looks at which table is stricter than which, once each is right by itself.
func (v *validator) recovery() {
	if !v.faulty("recovery") {
		_, _, err := v.config.Recovery.tables()
		v.adopt(err, func(field string) string { return "recovery." + field })
	}
}

func (v *validator) deadLetters() {
	for i, r := range v.config.DeadLetters.Redrive {
		if r.Worker != "" {
			v.kind(fmt.Sprintf("dead_letters.redrive[%d].worker", i), r.Worker)
		}
	}
}
