package breaker_test

import (
	"fmt"
	"testing"

	"github.com/agentsched/agentsched/breaker"
	"github.com/agentsched/agentsched/job"
)

// TestRules lets three attempts end with each class and looks at what was
// counted, or opened, at either breaker.
func TestRules(t *testing.T) {
	const nothing, well, sick, open = "nothing", "well", "sick", "open"
	want := map[job.ErrorClass]struct{ kind, model, kindAlone string }{
		job.NoError:           {well, well, well},
		job.VerifyFailed:      {well, well, well},
		job.InvalidOutput:     {well, well, well},
		job.ConflictClass:     {nothing, nothing, nothing},
		job.HumanRejected:     {well, well, well},
		job.Budget:            {well, well, well},
		job.SandboxClass:      {well, well, well},
		job.Server:            {sick, sick, sick},
		job.Network:           {sick, sick, sick},
		job.Timeout:           {sick, sick, sick},
		job.Stalled:           {sick, sick, sick},
		job.Auth:              {sick, sick, sick},
		job.Crash:             {sick, nothing, sick},
		job.RateLimit:         {nothing, open, open},
		job.CancelledClass:    {nothing, nothing, nothing},
		job.ResourceExhausted: {nothing, nothing, nothing},
		job.Config:            {nothing, nothing, nothing},
		job.Unknown:           {nothing, nothing, nothing},
	}
	read := func(s breaker.State) string {
		switch {
		case s.State == breaker.Open:
			return open
		case s.Requests == 0:
			return nothing
		case s.Requests == 1 && s.Failures == 0:
			return well
		case s.Requests == 1 && s.Failures == 1:
			return sick
		}
		return fmt.Sprintf("%+v", s)
	}
	for _, class := range append(job.ErrorClasses(), job.NoError) {
		t.Run(string(class), func(t *testing.T) {
			w, ok := want[class]
			if !ok {
				t.Fatalf("class %s has no rule: say against whom it speaks", class)
			}
			bubble(t, small, func(b bench) {
				b.runs(gpt, class)
				if got := read(b.state(codexKey)); got != w.kind {
					t.Errorf("it says of the kind: %s, want %s", got, w.kind)
				}
				if got := read(b.state(gptKey)); got != w.model {
					t.Errorf("it says of the model: %s, want %s", got, w.model)
				}
			})
			bubble(t, small, func(b bench) {
				b.runs(codex, class)
				if got := read(b.state(codexKey)); got != w.kindAlone {
					t.Errorf("it says of the kind, without a model: %s, want %s", got, w.kindAlone)
				}
			})
		})
	}
}
