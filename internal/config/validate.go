package config

import (
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/agentsched/agentsched/internal/strictyaml"
	"github.com/agentsched/agentsched/job"
)

// execAdapter runs a program of the user's own, which must be named.
const execAdapter = "exec"

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// validator looks at the values of a configuration whose form is right.
type validator struct {
	*strictyaml.Doc
	config   *Config
	adapters []string
	policies []string // beside the known ones
	noFile   bool     // there is nothing but variables
	given    []Override
	wrong    []*VariableError // of variables
}

func (v *validator) validate() {
	v.concurrency()
	v.rates()
	v.costWindows()
	for _, kind := range slices.Sorted(maps.Keys(v.config.Workers)) {
		v.worker(strictyaml.Entry("workers", string(kind)), kind, v.config.Workers[kind])
	}
	for _, model := range slices.Sorted(maps.Keys(v.config.Prices)) {
		if path := strictyaml.Entry("prices", model); v.Has(path) {
			v.price(path, model, v.config.Prices[model])
		}
	}
	v.times()
	v.recovery()
	v.deadLetters()
	v.evaluation()
	v.adopt(v.config.Breaker.Validate(), func(field string) string { return "breaker." + field })
	watchdog := v.config.WatchdogConfig()
	v.adopt(watchdog.Validate(), watchdogPath)
	v.shedClasses()
	v.notification()
	v.limits()
	v.cores()
	v.policy()
	v.triggers()
	v.api()
	v.log()
	v.telemetry()
	v.audit()
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
	if near := strictyaml.Nearest(string(kind), known); near != "" {
		v.Failf(path, "%q is no known worker; did you mean %s?", kind, near)
		return
	}
	v.Failf(path, "%q is no known worker, want one of %s or one set up under workers", kind, strings.Join(v.adapters, ", "))
}

func (v *validator) worker(path string, kind job.WorkerKind, w job.WorkerSettings) {
	if err := job.ValidWorker(kind); err != nil {
		v.Failf(path, "%v", err)
	}
	adapter := w.Adapter
	switch {
	case adapter == "" && v.isAdapter(string(kind)):
		adapter = string(kind)
	case adapter == "":
		v.Failf(path+".adapter", "is missing: no adapter has the name %s, so say which drives it, one of %s", kind, strings.Join(v.adapters, ", "))
	case !v.isAdapter(adapter):
		hint := ""
		if near := strictyaml.Nearest(adapter, v.adapters); near != "" {
			hint = "did you mean " + near + "? "
		}
		v.Failf(path+".adapter", "%q is no known adapter; %sKnown: %s", adapter, hint, strings.Join(v.adapters, ", "))
	}
	if adapter == execAdapter && len(w.Command) == 0 {
		v.Failf(path+".command", "is missing: the adapter exec needs the program to run, such as [/opt/agent/run, --batch]")
	} else if v.Has(path+".command") && len(w.Command) == 0 {
		v.Failf(path+".command", "is empty, want the program and its leading arguments, or leave it out")
	} else {
		v.program(path+".command[0]", w.Command)
	}
	if v.Has(path+".max_concurrent") && w.MaxConcurrent < 1 {
		v.Failf(path+".max_concurrent", "is %d, want 1 or more; leave it out for no bound of its own", w.MaxConcurrent)
	}
	v.endpoint(path, w)
	for i, name := range w.Env {
		if at := fmt.Sprintf("%s.env[%d]", path, i); !variableName.MatchString(name) {
			v.Failf(at, "want the name of a variable such as HTTPS_PROXY, not a value; values are taken from the scheduler's environment")
		}
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
	if w.KeyEnv == "" {
		return
	}
	if !variableName.MatchString(w.KeyEnv) {
		v.Failf(path+".key_env", "want the name of the variable that holds the key, such as GATEWAY_KEY, not the key itself")
	}
	if w.BaseURL == "" && !v.Blamed(path+".base_url") {
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

func (v *validator) price(path, model string, p job.Price) {
	// A variable changes one field of an entry; a file gives the entry as a whole.
	_, byDefault := defaultPrices()[model]
	byDefault = byDefault && !v.Doc.Has(path)
	for _, part := range []struct {
		name     string
		value    float64
		required bool
	}{
		{"input", p.Input, true}, {"cached", rate(p.CachedRead), false}, {"cache_write", rate(p.CacheWrite), false}, {"output", p.Output, true},
	} {
		at := path + "." + part.name
		if part.required && !v.Has(at) && !byDefault {
			v.Failf(at, "is missing, want US dollars per million tokens")
		}
		if part.value < 0 {
			v.Failf(at, "is %g, want US dollars per million tokens, 0 or more", part.value)
		}
	}
}

func rate(p *float64) float64 {
	if p == nil {
		return 0
	}
	return *p
}

func (v *validator) times() {
	c := v.config
	for _, one := range []struct {
		path  string
		value job.Duration
	}{
		{"stop.kill", c.Stop.Kill}, // a stage before it may be skipped with 0
		{"heartbeat.interval", c.Heartbeat.Interval},
		{"heartbeat.hang_after", c.Heartbeat.HangAfter},
		{"retry.base", c.Retry.Base},
		{"retry.max", c.Retry.Max},
	} {
		if one.value == 0 {
			v.Failf(one.path, "is 0, want a duration such as 10s")
		}
	}
	if c.Heartbeat.HangAfter <= c.Heartbeat.Interval {
		v.Failf(given(v, "heartbeat.hang_after", "heartbeat.interval"), "hang_after %s is not longer than interval %s: every core would seem to hang", c.Heartbeat.HangAfter, c.Heartbeat.Interval)
	}
	if c.Retry.Max < c.Retry.Base {
		v.Failf(given(v, "retry.max", "retry.base"), "max %s is shorter than base %s", c.Retry.Max, c.Retry.Base)
	}
}

// given returns path if the file gives it and otherwise other, which must be
// what does not fit the default of path.
func given(v *validator, path, other string) string {
	if v.Has(path) {
		return path
	}
	return other
}
