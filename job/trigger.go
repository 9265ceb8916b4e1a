package job

// Trigger is what made a job's submission.
type Trigger string

const (
	// ByHand: a person or a program asked for it.
	ByHand Trigger = "manual"
	// ByCron: a point in time or an interval.
	ByCron Trigger = "cron"
	// ByEvent: a file changed, a webhook was called, a command printed something new.
	ByEvent Trigger = "event"
	// ByResume: it goes on with what was interrupted or had been given up.
	ByResume Trigger = "resume"
	// ByCustom: whatever a program means by it.
	ByCustom Trigger = "custom"
)

// Or returns t, or ByHand if it is not given.
func (t Trigger) Or() Trigger {
	if t == "" {
		return ByHand
	}
	return t
}

// Triggers lists every trigger.
func Triggers() []Trigger { return []Trigger{ByHand, ByCron, ByEvent, ByResume, ByCustom} }

// Expectation is what a job is expected to use in all; 0: not known.
type Expectation struct {
	// Tokens, input and output together; `0` if it is not known.
	Tokens int64 `json:"tokens,omitempty" min:"1" zero:"not known"`
	// US dollars; `0` if it is not known.
	CostUSD float64 `json:"cost_usd,omitempty" above:"0" want:"US dollars above 0" zero:"not known"`
}
