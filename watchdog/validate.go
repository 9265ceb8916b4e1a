package watchdog

import (
	"errors"
	"fmt"
	"math"

	"github.com/agentsched/agentsched/job"
)

// Validate returns every rule that c breaks, joined, each a *job.FieldError
// whose Field is the path inside c as JSON writes it.
func (c *Config) Validate() error {
	v := &validator{}
	v.above("window", c.Window)
	v.atLeast("stall.stall_after", c.Stall.After)
	v.ratio("stall.min_cpu_ratio", c.Stall.MinCPURatio, true)
	v.count("repetition.calls", c.Repetition.Calls)
	if c.Repetition.Calls == 1 {
		v.bad("repetition.calls", "is 1, which would end every run at its first call; want 2 or more, or 0 for none")
	}
	v.defence(&c.Defence)
	v.escalation(&c.Escalation)
	return errors.Join(v.errs...)
}

type validator struct{ errs []error }

func (v *validator) bad(field, format string, args ...any) {
	v.errs = append(v.errs, &job.FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
}

func (v *validator) above(field string, d job.Duration) {
	if d <= 0 {
		v.bad(field, "is %s, want a duration above zero", d)
	}
}

func (v *validator) atLeast(field string, d job.Duration) {
	if d < 0 {
		v.bad(field, "is %s, want a duration of zero or more", d)
	}
}

func (v *validator) count(field string, n int) {
	if n < 0 {
		v.bad(field, "is %d, want zero or more", n)
	}
}

func (v *validator) ratio(field string, r float64, zero bool) {
	switch {
	case zero && !(r >= 0 && r <= 1): // not a number is neither
		v.bad(field, "is %g, want a ratio from 0 to 1", r)
	case !zero && !(r > 0 && r <= 1):
		v.bad(field, "is %g, want a ratio above 0 and at most 1", r)
	}
}

func (v *validator) defence(c *DefenceConfig) {
	for _, g := range c.gauges(Inputs{}) {
		v.ladder("defence.thresholds."+g.name, g.ladder)
	}
	for s := Normal; s < stageCount; s++ {
		if d := c.Dwell.of(s); d <= 0 {
			v.bad("defence.dwell."+s.String(), "is %s, want a duration above zero, or the stages flap", d)
		}
	}
	if c.MinRuns < 1 {
		v.bad("defence.min_runs", "is %d, want 1 or more", c.MinRuns)
	}
	v.ratio("defence.sick_ratio", c.SickRatio, false)
	v.ratio("defence.throttle_ratio", c.ThrottleRatio, false)
	v.above("defence.open_for", c.OpenFor)
	for i, class := range c.ShedClasses {
		if class == "" {
			v.bad(fmt.Sprintf("defence.shed_classes[%d]", i), "is empty, want a class such as %s", job.Batch)
		}
	}
	for i, tenant := range c.ProtectTenants {
		if tenant == "" {
			v.bad(fmt.Sprintf("defence.protect_tenants[%d]", i), "is empty, want the name of a tenant")
		}
	}
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
		case !finite(b.Enter) || b.Enter <= 0:
			v.bad(at+".enter", "is %g, want a number above zero", b.Enter)
		case !finite(b.Leave) || b.Leave < 0:
			v.bad(at+".leave", "is %g, want zero or more", b.Leave)
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

func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }

func (v *validator) escalation(c *EscalationConfig) {
	for _, b := range []struct {
		field string
		burst Burst
	}{{"worker_crashes", c.WorkerCrashes}, {"latest_wins", c.LatestWins}, {"core_crashes", c.CoreCrashes}} {
		field := "escalation." + b.field
		v.count(field+".count", b.burst.Count)
		if b.burst.Count > maxBurst {
			v.bad(field+".count", "is %d, want at most %d", b.burst.Count, maxBurst)
		}
		if b.burst.Count > 0 {
			v.above(field+".within", b.burst.Within)
		}
		v.atLeast(field+".cool_down", b.burst.CoolDown)
	}
	if c.Disk.MinFreeBytes < 0 {
		v.bad("escalation.disk.min_free_bytes", "is %d, want zero or more", c.Disk.MinFreeBytes)
	}
	if c.Disk.MinFreeBytes > 0 {
		if r := c.Disk.MinFreeRatio; !(r > 0 && r <= 0.5) {
			v.bad("escalation.disk.min_free_ratio", "is %g, want a ratio above 0 and at most 0.5, or no disk could recover", r)
		}
		v.above("escalation.disk.cool_down", c.Disk.CoolDown)
	}
	v.atLeast("escalation.clock_jump.above", c.ClockJump.Above)
	v.atLeast("escalation.clock_jump.cool_down", c.ClockJump.CoolDown)
}
