package watchdog

import (
	"errors"
	"fmt"

	"github.com/agentsched/agentsched/internal/fields"
	"github.com/agentsched/agentsched/job"
)

// Validate returns every rule that c breaks, joined, each a *job.FieldError
// whose Field is the path inside c as the configuration writes it; those of
// c.Escalation begin with "escalation.".
func (c *Config) Validate() error {
	v := &validator{errs: fields.Errors(c)}
	for _, e := range fields.Check(c.Escalation, nil) {
		v.errs = append(v.errs, &job.FieldError{Field: "escalation." + e.Field, Message: e.Message})
	}
	for _, g := range c.Defence.gauges(Inputs{}) {
		v.ladder("defence.thresholds."+g.name, g.ladder)
	}
	v.escalation(&c.Escalation)
	return errors.Join(v.errs...)
}

type validator struct{ errs []error }

func (v *validator) bad(field, format string, args ...any) {
	v.errs = append(v.errs, &job.FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
}

// ladder checks that each band is one, and that no stage begins or ends above
// its successor: then a value that holds a stage holds all below it.
func (v *validator) ladder(field string, l Ladder) {
	below := Normal
	bands := l.bands()
	for stage := Shed; stage < stageCount; stage++ {
		b, at := bands[stage], field+"."+stage.String()
		if b == (Band{}) {
			continue
		}
		switch {
		case b.Enter == 0:
			v.bad(at+".enter", "is 0, want a number above 0")
		case b.Leave >= b.Enter:
			v.bad(at+".leave", "is %g, want less than enter, which is %g", b.Leave, b.Enter)
		}
		if p := bands[below]; below > Normal {
			if p.Enter > b.Enter {
				v.bad(field+"."+below.String()+".enter", "is %g, above the one of its successor %s, which is %g", p.Enter, stage, b.Enter)
			}
			if p.Leave > b.Leave {
				v.bad(field+"."+below.String()+".leave", "is %g, above the one of its successor %s, which is %g", p.Leave, stage, b.Leave)
			}
		}
		below = stage
	}
}

func (v *validator) escalation(c *EscalationConfig) {
	for _, b := range []struct {
		field string
		burst Burst
	}{{"worker_crashes", c.WorkerCrashes}, {"latest_wins", c.LatestWins}, {"core_crashes", c.CoreCrashes}} {
		if b.burst.Count > 0 && b.burst.Within == 0 {
			v.bad("escalation."+b.field+".within", "is 0s, want a duration above 0s")
		}
	}
	if c.Disk.MinFreeBytes > 0 {
		if c.Disk.MinFreeRatio == 0 {
			v.bad("escalation.disk.min_free_ratio", "is 0, want a ratio above 0 and at most 0.5, or no disk could recover")
		}
		if c.Disk.CoolDown == 0 {
			v.bad("escalation.disk.cool_down", "is 0s, want a duration above 0s")
		}
	}
}
