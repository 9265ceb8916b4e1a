package simulate

import (
	"time"

	"github.com/agentsched/agentsched/policy"
)

// Workload is a scheduler with its tenants and their jobs to come.
type Workload struct {
	Name     string        // as the user named the file
	Slots    int           // workers at once
	Duration time.Duration // when the simulation ends; 0: not by time
	Jobs     int           // after how many jobs it ends; 0: not by number
	Seed     int64         // of all chance
	Measure  Measure       // "": what each policy divides
	// Policy sets up the policy, the tenants' settings included. Its name is "" if
	// the file names none.
	Policy policy.Config

	tenants []tenant
}

// Measure is of what a share is a part.
type Measure string

// The measures.
const (
	RunTime  Measure = "run_time" // time in slots
	Tokens   Measure = "tokens"
	Cost     Measure = "cost_usd"
	Jobs     Measure = "jobs"     // the number of them
	Dominant Measure = "dominant" // of the resources, that of which the tenant uses the largest part of what there is
)

// Measures returns all of them.
func Measures() []Measure { return []Measure{RunTime, Tokens, Cost, Jobs, Dominant} }

// words names the measure in a sentence.
func (m Measure) words() string {
	switch m {
	case Tokens:
		return "tokens"
	case Cost:
		return "cost"
	case Jobs:
		return "jobs"
	case Dominant:
		return "the dominant resource"
	default:
		return "run time"
	}
}

// measureFor returns what a policy divides. Where it falls back on something
// else because the jobs do not use that, so do we.
func (w *Workload) measureFor(name string) Measure {
	var tokens, cost bool
	for i := range w.tenants {
		tokens = tokens || w.tenants[i].Size.Tokens.dist != (dist{})
		cost = cost || w.tenants[i].Size.CostUSD.dist != (dist{})
	}
	switch {
	case w.Measure != "":
		return w.Measure
	case name == policy.NameCredit && cost:
		return Cost
	case (name == policy.NameCredit || name == policy.NameDeficit) && tokens:
		return Tokens
	case name == policy.NameCredit || name == policy.NameDeficit:
		return Jobs
	case name == policy.NameDRF:
		return Dominant
	}
	return RunTime
}
