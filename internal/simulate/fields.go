package simulate

import (
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/policy"
)

// file and what it holds are the fields of a workload file, in the order in
// which docs/simulate.md explains them.
type file struct {
	Slots    int           `yaml:"slots"`
	Duration job.Duration  `yaml:"duration"`
	Jobs     int           `yaml:"jobs"`
	Seed     int64         `yaml:"seed"`
	Measure  Measure       `yaml:"measure"`
	Policy   policy.Config `yaml:"policy"`
	Tenants  []tenant      `yaml:"tenants"`
}

// tenant is who sends jobs. Its settings have the names that the configuration
// gives them; a test compares them with policy.Tenant.
type tenant struct {
	Name          job.Tenant    `yaml:"name"`
	Weight        float64       `yaml:"weight"`
	Credits       float64       `yaml:"credits"`
	Contracted    bool          `yaml:"contracted"`
	Reputation    float64       `yaml:"reputation"`
	MaxConcurrent int           `yaml:"max_concurrent"`
	Budget        policy.Budget `yaml:"budget"`

	Arrivals   []arrival          `yaml:"arrivals"`
	Size       size               `yaml:"size"`
	Declared   amount             `yaml:"declared"`
	Priorities map[string]float64 `yaml:"priorities"`

	priorities []priority // Priorities, ordered by level
}

// settings are what the policy is told of t.
func (t *tenant) settings() policy.Tenant {
	return policy.Tenant{
		Weight: t.Weight, Credits: t.Credits, Contracted: t.Contracted,
		Reputation: t.Reputation, MaxConcurrent: t.MaxConcurrent, Budget: t.Budget,
	}
}

// arrival is one way in which a tenant's jobs come: exactly one of Rate, Burst
// and Waiting is set.
type arrival struct {
	Rate    float64      `yaml:"rate"`    // jobs an hour, on average; a Poisson process
	Burst   int          `yaml:"burst"`   // jobs at once, at From and then Every
	Every   job.Duration `yaml:"every"`   // 0: only at From
	Waiting int          `yaml:"waiting"` // jobs that always wait: as one begins, the next arrives
	From    job.Duration `yaml:"from"`
	Until   job.Duration `yaml:"until"` // exclusive; 0: to the end
}

// open reports whether jobs arrive at now.
func (a *arrival) open(now job.Duration) bool {
	return now >= a.From && (a.Until == 0 || now < a.Until)
}

// size is what one job uses.
type size struct {
	RunTime runTime `yaml:"run_time"` // of one slot
	Tokens  amount  `yaml:"tokens"`
	CostUSD amount  `yaml:"cost_usd"`
}

// priority is a level and how often jobs have it, in proportion to the others.
type priority struct {
	level  int
	weight float64
}
