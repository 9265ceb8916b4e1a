package worker

import (
	"fmt"
	"sync"

	"github.com/agentsched/agentsched/job"
)

// Meter takes what a run uses from who serves its models, a gateway, in place of what its program says. The program's own
// figures are a check: where the two differ, an event tells it.
type Meter struct {
	// Settle ends the requests of the run that are still under way, and has charged the last of them when it returns. It is
	// called once, when the program has ended.
	Settle func()

	mu  sync.Mutex
	rec *recorder // nil before the run and after it
}

// Charge adds to what the run has used. Requests that come before or after the run are charged to nobody.
func (m *Meter) Charge(u job.Usage) {
	m.mu.Lock()
	rec := m.rec
	m.mu.Unlock()
	if rec != nil {
		rec.metered(job.Event{Kind: job.EventUsage, Usage: &u})
	}
}

func (m *Meter) attach(rec *recorder) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rec = rec
}

// meterTolerance is how far the program's figures may be from the meter's before that is told.
const meterTolerance = 0.02

// differs reports whether said is further from metered than the tolerance allows.
func differs(said, metered float64) bool {
	return said-metered > meterTolerance*metered || metered-said > meterTolerance*metered
}

// compare returns what the program said differently from the meter; "" if nothing.
func compare(said, metered job.Usage) string {
	switch {
	case said.Tokens() > 0 && differs(float64(said.Tokens()), float64(metered.Tokens())):
		return fmt.Sprintf("the worker says that it used %d tokens, the gateway counted %d; the gateway's count holds", said.Tokens(), metered.Tokens())
	case said.CostKnown && metered.CostKnown && said.CostUSD > 0 && differs(said.CostUSD, metered.CostUSD):
		return fmt.Sprintf("the worker says that it cost %.4f US dollars, by the gateway's count and the configured prices it is %.4f, which holds", said.CostUSD, metered.CostUSD)
	}
	return ""
}
