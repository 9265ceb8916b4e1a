package config

import (
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentsched/agentsched/internal/fields"
	"github.com/agentsched/agentsched/internal/strictyaml"
	"github.com/agentsched/agentsched/job"
)

// validator looks at the values of a configuration whose form is right.
type validator struct {
	*strictyaml.Doc
	config   *Config
	adapters []string
	needing  []string // of the adapters, those that need a command
	policies []string // beside the known ones
	noFile   bool     // there is nothing but variables
	given    []Override
	wrong    []*VariableError // of variables
}

func (v *validator) validate() {
	for _, e := range fields.Check(v.config, v.Has) {
		v.Failf(e.Field, "%s", e.Message)
	}
	v.concurrency()
	v.rates()
	v.costWindows()
	for _, kind := range slices.Sorted(maps.Keys(v.config.Workers)) {
		v.worker(fields.Join("workers", string(kind)), kind, v.config.Workers[kind])
	}
	v.times()
	v.recovery()
	v.deadLetters()
	v.evaluation()
	v.adopt(v.config.Breaker.Validate(), func(field string) string { return "breaker." + field })
	watchdog := v.config.WatchdogConfig()
	v.adopt(watchdog.Validate(), watchdogPath)
	v.notification()
	if c, hang := v.config.Cores, v.config.Heartbeat.HangAfter; c.SlowHeartbeat >= hang && v.Has("cores.slow_heartbeat") {
		v.Failf("cores.slow_heartbeat", "is %s, not shorter than heartbeat.hang_after, which is %s: the core would count as hung before", c.SlowHeartbeat, hang)
	}
	v.sandbox()
	v.secrets()
	v.policy()
	v.triggers()
	v.api()
	v.fleet()
	v.telemetry()
}

// kind refuses a name that is neither a worker's of this file nor an adapter's.
func (v *validator) kind(path string, kind job.WorkerKind) {
	if _, ours := v.config.Workers[kind]; ours || v.isAdapter(string(kind)) {
		return
	}
	known := slices.Clone(v.adapters)
	for _, ours := range slices.Sorted(maps.Keys(v.config.Workers)) {
		known = append(known, string(ours))
	}
	if near := fields.Nearest(string(kind), known); near != "" {
		v.Failf(path, "%q is no known worker; did you mean %s?", kind, near)
		return
	}
	v.Failf(path, "%q is no known worker, want one of %s or one set up under workers", kind, strings.Join(v.adapters, ", "))
}

func (v *validator) worker(path string, kind job.WorkerKind, w job.WorkerSettings) {
	adapter := w.Adapter
	switch {
	case adapter == "" && v.isAdapter(string(kind)):
		adapter = string(kind)
	case adapter == "":
		v.Failf(path+".adapter", "is missing: no adapter has the name %s, so say which drives it, one of %s", kind, strings.Join(v.adapters, ", "))
	case !v.isAdapter(adapter):
		hint := ""
		if near := fields.Nearest(adapter, v.adapters); near != "" {
			hint = "did you mean " + near + "? "
		}
		v.Failf(path+".adapter", "%q is no known adapter; %sKnown: %s", adapter, hint, strings.Join(v.adapters, ", "))
	}
	if slices.Contains(v.needing, adapter) && len(w.Command) == 0 {
		v.Failf(path+".command", "is missing: the adapter %s needs the program to run, such as [/opt/agent/run, --batch]", adapter)
	} else {
		v.program(path+".command[0]", w.Command)
	}
	if len(w.Subagents) > 0 && slices.Contains([]string{"codex", "acp", "shell", "exec"}, adapter) {
		v.Failf(path+".subagents", "has no use with the adapter %s, whose program is not told of subagents; claude and opencode are", adapter)
	}
	v.endpoint(path, w)
	for i, k := range w.Keys {
		v.oneSource(fmt.Sprintf("%s.keys[%d]", path, i), k.File, k.Command, k.Env)
	}
}

// program refuses a command whose program is a relative path. Relative to what?
// A worker runs in another folder for each job, and nobody knows the scheduler's.
func (v *validator) program(path string, command []string) {
	if len(command) > 0 && strings.ContainsRune(command[0], '/') && !filepath.IsAbs(command[0]) {
		v.Failf(path, "%q is a relative path, want an absolute one or a name on PATH", command[0])
	}
}

// endpoint looks at where a worker finds its model. Its messages never repeat
// key_env or base_url, where people put keys by mistake.
func (v *validator) endpoint(path string, w job.WorkerSettings) {
	if w.BaseURL != "" {
		switch web, credentials := isWeb(w.BaseURL); {
		case !web:
			v.Failf(path+".base_url", "want the address of a model endpoint such as https://gateway.example.com/v1")
		case credentials:
			v.Failf(path+".base_url", "must not hold a user or a key; put the key into a variable and name it in key_env")
		}
	}
	if w.KeyEnv != "" && w.BaseURL == "" && !v.Blamed(path+".base_url") {
		v.Failf(path+".key_env", "has no use without base_url; without it the program uses its own login")
	}
}

// isWeb reports whether address is one of the web, and whether it holds a user
// or a password.
func isWeb(address string) (web, credentials bool) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return false, false
	}
	return true, u.User != nil
}

func (v *validator) isAdapter(name string) bool {
	return len(v.adapters) == 0 || slices.Contains(v.adapters, name)
}

func (v *validator) times() {
	c := v.config
	if c.Heartbeat.HangAfter <= c.Heartbeat.Interval {
		v.Failf(given(v, "heartbeat.hang_after", "heartbeat.interval"), "hang_after %s is not longer than interval %s: every core would seem to hang", c.Heartbeat.HangAfter, c.Heartbeat.Interval)
	}
	if h := c.Heartbeat; h.PermitValidity > 0 && h.PermitValidity < 2*h.HangAfter {
		v.Failf("heartbeat.permit_validity", "is %s, want at least twice heartbeat.hang_after, which is %s, or 0s for permits that do not lapse: a core that answers late would stop its runs", h.PermitValidity, h.HangAfter)
	}
	if c.Retry.Max < c.Retry.Base {
		v.Failf(given(v, "retry.max", "retry.base"), "max %s is shorter than base %s", c.Retry.Max, c.Retry.Base)
	}
}

// faulty reports whether a mistake was recorded at path or within it.
func (v *validator) faulty(path string) bool { return v.isWrong(path) || v.Doc.Faulty(path) }

// given returns path if the file gives it and otherwise other, which must be
// what does not fit the default of path.
func given(v *validator, path, other string) string {
	if v.Has(path) {
		return path
	}
	return other
}
