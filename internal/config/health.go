package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/agentsched/agentsched/job"
)

const (
	// MaxCores is more than any host has use for: each is a process.
	MaxCores = 64
	// leastRSS is more than a core needs when it does nothing: one that crosses
	// its threshold at once would be replaced for ever.
	leastRSS Size = 64 << 20
)

// adopt takes over the mistakes that another package found in a value of its
// own, *job.FieldErrors joined, each at the path that place gives its field.
func (v *validator) adopt(err error, place func(field string) string) {
	if err == nil {
		return
	}
	list := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		list = joined.Unwrap()
	}
	for _, one := range list {
		field, ok := one.(*job.FieldError)
		if !ok {
			v.Failf("", "%v", one)
			continue
		}
		path := place(field.Field)
		if v.Has(path) {
			v.Failf(path, "%s", field.Message)
		} else {
			v.Failf(path, "%s (the file leaves it at its default)", field.Message)
		}
	}
}

// watchdogPath returns where the file has a field of watchdog.Config.
func watchdogPath(field string) string {
	switch {
	case strings.HasPrefix(field, "escalation."):
		return field
	case strings.HasPrefix(field, "stall."):
		return "watchdog." + strings.TrimPrefix(field, "stall.")
	case field == "repetition.calls":
		return "watchdog.repeated_calls"
	}
	return "watchdog." + field
}

func (v *validator) shedClasses() {
	for i, class := range v.config.Watchdog.Defence.ShedClasses {
		if !slices.Contains(job.Classes(), class) {
			v.Failf(fmt.Sprintf("watchdog.defence.shed_classes[%d]", i), "%q is no class of jobs, want one of %s", class, words(job.Classes()))
		}
	}
	for i, tenant := range v.config.Watchdog.Defence.ProtectTenants {
		v.tenant(fmt.Sprintf("watchdog.defence.protect_tenants[%d]", i), tenant)
	}
}

// notification looks at how escalations are told. Its messages never repeat
// the webhook's address, which may be a secret itself.
func (v *validator) notification() {
	e := v.config.Escalation
	if !slices.Contains(SafeStops(), e.SafeStop) {
		v.Failf("escalation.safe_stop", "%q is unknown, want one of %s", e.SafeStop, words(SafeStops()))
	}
	if v.Has("escalation.command") && len(e.Command) == 0 {
		v.Failf("escalation.command", "is empty, want the program and its arguments, or leave it out")
	}
	v.program("escalation.command[0]", e.Command)
	if e.Webhook != "" {
		switch web, credentials := isWeb(e.Webhook); {
		case !web:
			v.Failf("escalation.webhook", "want an address such as https://alerts.example.com/agents")
		case credentials:
			v.Failf("escalation.webhook", "must not hold a user or a password; let escalation.command make a call that needs them")
		}
	}
	if e.Timeout == 0 {
		v.Failf("escalation.timeout", "is 0, want a duration such as 10s")
	}
}

func (v *validator) limits() {
	for _, r := range []struct {
		path string
		is   Resources
	}{{"limits", v.config.Limits.Each()}, {"limits.total", v.config.Limits.Total}} {
		if least := Size(job.MinMemory); r.is.Memory > 0 && r.is.Memory < least {
			v.Failf(r.path+".memory", "is %s, less than a program needs; want %s or more, or 0 for no limit", r.is.Memory, least)
		}
		if r.is.Processes < 0 {
			v.Failf(r.path+".processes", "is %d, want a number of processes, or 0 for no limit", r.is.Processes)
		}
		if r.is.CPU < 0 || r.is.CPU > job.MaxCPUs {
			v.Failf(r.path+".cpu", "is %g, want how many CPUs, at most %d, or 0 for no limit", r.is.CPU, job.MaxCPUs)
		}
	}
}

func (v *validator) cores() {
	c := v.config.Cores
	if c.Count < 1 || c.Count > MaxCores {
		v.Failf("cores.count", "is %d, want 1 to %d", c.Count, MaxCores)
	}
	if c.MaxRSS > 0 && c.MaxRSS < leastRSS {
		v.Failf("cores.max_rss", "is %s, less than a core needs; want %s or more, or 0 for any", c.MaxRSS, leastRSS)
	}
	if c.MaxCPU < 0 {
		v.Failf("cores.max_cpu", "is %g, want how many CPUs, or 0 for any", c.MaxCPU)
	}
	if c.CPUFor == 0 {
		v.Failf("cores.cpu_for", "is 0, want a duration such as 5m")
	}
	if hang := v.config.Heartbeat.HangAfter; c.SlowHeartbeat >= hang && v.Has("cores.slow_heartbeat") {
		v.Failf("cores.slow_heartbeat", "is %s, not shorter than heartbeat.hang_after, which is %s: the core would count as hung before", c.SlowHeartbeat, hang)
	}
	if c.Restarts.Count < 1 {
		v.Failf("cores.restarts.count", "is %d, want 1 or more", c.Restarts.Count)
	}
	if c.Restarts.Within == 0 {
		v.Failf("cores.restarts.within", "is 0, want a duration such as 1m")
	}
	if c.Restarts.Isolate == 0 {
		v.Failf("cores.restarts.isolate", "is 0, want a duration such as 30s")
	}
}

func words[S ~string](list []S) string {
	var b strings.Builder
	for i, word := range list {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(string(word))
	}
	return b.String()
}
