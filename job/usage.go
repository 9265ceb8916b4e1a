package job

import "fmt"

// Usage counts what a run has consumed. All fields only grow during a run;
// adapters report increments, which Add sums.
type Usage struct {
	InputTokens      int64 `json:"input_tokens,omitempty"`       // tokens, all input, cached ones included
	CachedTokens     int64 `json:"cached_tokens,omitempty"`      // tokens, the part of InputTokens read from a cache
	CacheWriteTokens int64 `json:"cache_write_tokens,omitempty"` // tokens, the part of InputTokens written to a cache
	OutputTokens     int64 `json:"output_tokens,omitempty"`      // tokens, reasoning included
	ReasoningTokens  int64 `json:"reasoning_tokens,omitempty"`   // tokens, the part of OutputTokens spent on reasoning
	// CostUSD is in US dollars: what the worker printed, else priced from the
	// table in the configuration.
	CostUSD float64 `json:"cost_usd,omitempty"`
	// CostKnown is false while some of the tokens had no price.
	CostKnown bool  `json:"cost_known,omitempty"`
	Steps     int64 `json:"steps,omitempty"`    // turns of the agent's loop
	Commands  int64 `json:"commands,omitempty"` // how many commands the agent ran
	// CommandMillis is the wall time spent in tool commands, in milliseconds.
	CommandMillis int64 `json:"command_ms,omitempty"`
}

// Tokens returns input plus output tokens, the figure that max_tokens limits.
func (u Usage) Tokens() int64 { return u.InputTokens + u.OutputTokens }

// Add returns the sum of two usages. The cost of the sum is known only if
// each part that has tokens knows its own.
func (u Usage) Add(v Usage) Usage {
	known := (u.CostKnown || u.Tokens() == 0 && u.CostUSD == 0) && (v.CostKnown || v.Tokens() == 0 && v.CostUSD == 0)
	return Usage{
		InputTokens:      u.InputTokens + v.InputTokens,
		CachedTokens:     u.CachedTokens + v.CachedTokens,
		CacheWriteTokens: u.CacheWriteTokens + v.CacheWriteTokens,
		OutputTokens:     u.OutputTokens + v.OutputTokens,
		ReasoningTokens:  u.ReasoningTokens + v.ReasoningTokens,
		CostUSD:          u.CostUSD + v.CostUSD,
		CostKnown:        known && (u.CostKnown || v.CostKnown),
		Steps:            u.Steps + v.Steps,
		Commands:         u.Commands + v.Commands,
		CommandMillis:    u.CommandMillis + v.CommandMillis,
	}
}

// maxCount and maxCost bound what one report may count, so that sums over many
// stay exact.
const (
	maxCount = 1_000_000_000_000_000
	maxCost  = 1e9 // US dollars
)

// Validate returns the first field that cannot be right, a *FieldError, or nil.
// It is for what others report: an adapter's own figures need none.
func (u Usage) Validate() error {
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"input_tokens", u.InputTokens}, {"cached_tokens", u.CachedTokens}, {"cache_write_tokens", u.CacheWriteTokens},
		{"output_tokens", u.OutputTokens}, {"reasoning_tokens", u.ReasoningTokens}, {"steps", u.Steps}, {"commands", u.Commands}, {"command_ms", u.CommandMillis},
	} {
		if f.value < 0 || f.value > maxCount {
			return &FieldError{Field: f.name, Message: fmt.Sprintf("%d is not allowed, want a number from 0 to %d", f.value, int64(maxCount))}
		}
	}
	if !(u.CostUSD >= 0 && u.CostUSD <= maxCost) {
		return &FieldError{Field: "cost_usd", Message: fmt.Sprintf("%g is not allowed, want US dollars from 0 to %g", u.CostUSD, maxCost)}
	}
	return nil
}
