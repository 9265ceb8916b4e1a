package simulate

import (
	"reflect"

	"github.com/agentsched/agentsched/internal/fields"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/policy"
)

// file is a workload file.
type file struct {
	// Workers at once.
	Slots int `yaml:"slots" need:"a whole number from 1 to 100000" min:"1" max:"100000"`
	// How long is simulated; `jobs` may stand in its place. Jobs that run at the end count as far as
	// they got.
	Duration job.Duration `yaml:"duration,omitempty" above:"0s" max:"87600h"`
	// After how many jobs it ends. With a duration too, whichever comes first.
	Jobs int `yaml:"jobs,omitempty" min:"1" max:"2000000"`
	// What all chance is drawn from.
	Seed int64 `yaml:"seed,omitempty" min:"0"`
	// Of what shares are parts: `run_time` (time in slots), `tokens`, `cost_usd`, `jobs`, or `dominant`.
	// Give one to compare policies by the same.
	Measure Measure `yaml:"measure,omitempty" otherwise:"what the policy divides"`
	// The policy, as in the configuration; without a name all are tried.
	Policy policy.Config `yaml:"policy" rows:"below"`
	// Who sends jobs.
	Tenants []tenant `yaml:"tenants" need:"a list of tenants" items:"1" rows:"below"`
}

// JSONSchemaRules implements fields.Ruled.
func (file) JSONSchemaRules() string {
	return `{"anyOf": [{"required": ["duration"]}, {"required": ["jobs"]}]}`
}

// FieldTag lists the measures.
func (Measure) FieldTag() reflect.StructTag { return fields.Enum(Measures()...) }

// tenant is who sends jobs.
type tenant struct {
	// Its name: 1 to 64 of `a-z A-Z 0-9` and, not first, `- _ .`.
	Name job.Tenant `yaml:"name" need:"the name of a tenant such as website"`

	policy.Tenant `yaml:",inline"`

	// How its jobs come; several ways add up.
	Arrivals []arrival `yaml:"arrivals" need:"a list such as [{rate: 30}]" items:"1" rows:"below"`
	// How much one job is.
	Size size `yaml:"size" need:"how much one job is, such as {run_time: 10m}"`
	// What a job says beforehand that it will use of tokens and cost, as a factor of what it then
	// uses: 0.5 is half. Shows how a policy corrects itself.
	Declared amount `yaml:"declared" otherwise:"1" type:"number or distribution"`
	// How often jobs have which priority, in proportion, such as `{0: 9, 10: 1}`.
	Priorities map[string]float64 `yaml:"priorities" above:"0" otherwise:"all 0" keys:"match:\"^(0|-?[1-9][0-9]{0,8})$\" is:\"a priority\" want:\"a whole number such as 10\""`

	priorities []priority // Priorities, ordered by level
}

// SetDefaults implements fields.Defaulter.
func (t *tenant) SetDefaults() { t.Declared = amount{dist{constant, 1, 0}} }

// arrival is one way in which a tenant's jobs come: exactly one of Rate, Burst
// and Waiting is set.
type arrival struct {
	// Jobs an hour on average, at random moments (a Poisson process).
	Rate float64 `yaml:"rate,omitempty" above:"0" max:"3600000" want:"a number of jobs an hour above 0 and at most 3600000"`
	// Jobs at once, at `from`.
	Burst int `yaml:"burst,omitempty" min:"1" max:"2000000"`
	// Jobs that always wait: as one begins, the next arrives.
	Waiting int `yaml:"waiting,omitempty" min:"1" max:"2000000"`
	// After which time the burst comes again.
	Every job.Duration `yaml:"every,omitempty" above:"0s" otherwise:"never"`
	// When they begin to come.
	From job.Duration `yaml:"from,omitempty"`
	// When no more come.
	Until job.Duration `yaml:"until,omitempty" otherwise:"the end"`
}

// JSONSchemaRules implements fields.Ruled.
func (arrival) JSONSchemaRules() string {
	return `{"oneOf": [{"required": ["rate"]}, {"required": ["burst"]}, {"required": ["waiting"]}], "dependentRequired": {"every": ["burst"]}}`
}

// open reports whether jobs arrive at now.
func (a *arrival) open(now job.Duration) bool {
	return now >= a.From && (a.Until == 0 || now < a.Until)
}

// size is what one job uses.
type size struct {
	// How long it holds a slot.
	RunTime runTime `yaml:"run_time" need:"how long a job takes, such as 10m" type:"duration or distribution"`
	// Tokens that it uses.
	Tokens amount `yaml:"tokens" otherwise:"0" type:"number or distribution"`
	// US dollars that it costs.
	CostUSD amount `yaml:"cost_usd" otherwise:"0" type:"number or distribution"`
}

// priority is a level and how often jobs have it, in proportion to the others.
type priority struct {
	level  int
	weight float64
}
