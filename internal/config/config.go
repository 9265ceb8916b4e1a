package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/agentsched/agentsched/breaker"
	"github.com/agentsched/agentsched/internal/eval"
	"github.com/agentsched/agentsched/internal/logging"
	"github.com/agentsched/agentsched/internal/proc"
	"github.com/agentsched/agentsched/internal/strictyaml"
	"github.com/agentsched/agentsched/internal/trigger"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/policy"
	"github.com/agentsched/agentsched/watchdog"
)

// Config is how a scheduler is set up on its host. Its sections are in sections.go.
type Config struct {
	// How many jobs run at once.
	Concurrency Concurrency `json:"concurrency"`
	// How much may be submitted.
	Queue Queue `json:"queue"`
	// The jobs that agents submit whose own job has the capability `scheduler`.
	Children Children `json:"children"`
	// How often runs may begin.
	Rates Rates `json:"rates,omitzero"`
	// A list of bounds on what is spent within any span of a length. Nothing begins that such a bound
	// counts while it is used up.
	CostWindows []CostWindow `json:"cost_windows,omitempty"`
	// What runs take from the credits of tenants that were given some
	// (`scheduler grant --credits`).
	Credits Credits `json:"credits"`
	// By kind: 1 to 32 of `a-z 0-9` and, not first, `- _`. A job names it in `worker`.
	Workers map[job.WorkerKind]job.WorkerSettings `json:"workers,omitempty"`
	// By model, in US dollars per million tokens.
	Prices map[string]job.Price `json:"prices,omitempty" otherwise:"see below"`
	// How long each stage of stopping a run may take until the next one.
	Stop Stop `json:"stop"`
	// How the scheduler notices that a core hangs, and a core that the scheduler does. A change needs
	// a restart.
	Heartbeat Heartbeat `json:"heartbeat"`
	// The delay before the next attempt doubles from base up to max.
	Retry Retry `json:"retry"`
	// Whose job is next.
	Policy policy.Config `json:"policy"`
	// What a job is expected to use that does not say.
	Expect job.Expectation `json:"expect,omitzero"`
	// For how long what has ended is kept by a server.
	Retention Retention `json:"retention,omitzero"`
	// What is done about failed attempts, by class of failure.
	Recovery Recovery `json:"recovery,omitzero"`
	// What becomes of jobs that were given up.
	DeadLetters DeadLetters `json:"dead_letters,omitzero"`
	// How work is judged, and what follows for who did it.
	Evaluation eval.Settings `json:"evaluation"`
	// When a kind of worker or a model counts as sick, and for how long it is left alone then.
	Breaker breaker.Config `json:"breaker"`
	// When a run is stopped as STALLED, and what is done when the host is overloaded.
	Watchdog watchdog.Config `json:"watchdog"`
	// Which facts a person is told, how, and for how long what they concern is out of use.
	Escalation Escalation `json:"escalation"`
	// What one run may use of the host, unless its job says otherwise. 0: no limit.
	Limits Limits `json:"limits"`
	// How runs are held, and what of the host they see: [security.md](security.md#what-holds-a-run).
	Sandbox Sandbox `json:"sandbox,omitzero"`
	// By name, such as `NPM_TOKEN`: what jobs may be given that nobody else is to see. A job names it in `secrets`.
	Secrets map[string]Secret `json:"secrets,omitempty" keys:"match:\"^[A-Za-z_][A-Za-z0-9_]*$\" is:\"a name\" want:\"a name such as NPM_TOKEN\""`
	// The processes that run the jobs. A change needs a restart.
	Cores Cores `json:"cores"`
	// The folders that jobs work in.
	Workspace Workspace `json:"workspace,omitzero"`
	// By name: 1 to 64 of `a-z 0-9` and, not first, `. - _`. Each has exactly one of `cron`, `every`,
	// `watch`, `webhook`, `command`.
	Triggers map[trigger.Name]trigger.Settings `json:"triggers,omitempty"`
	// Where triggers that wait for a request are heard. A change needs a restart.
	Webhooks trigger.Listener `json:"webhooks"`
	// How others reach a running scheduler beside its unix socket. A change needs a restart.
	API API `json:"api"`
	// How several schedulers share one queue: [fleet.md](fleet.md). A change needs a restart.
	Fleet Fleet `json:"fleet"`
	// Which lines are written to the log, and how.
	Log Log `json:"log"`
	// Where traces go. A change needs a restart.
	Telemetry Telemetry `json:"telemetry,omitzero"`
	// The record of who did what. A change needs a restart.
	Audit Audit `json:"audit"`
}

// Default returns the configuration of a host without a configuration file.
func Default() Config {
	heartbeat := defaultHeartbeat()
	return Config{
		Concurrency: Concurrency{Max: max(2, runtime.NumCPU())},
		Queue:       Queue{MaxJobs: 10_000, MaxQueued: 100_000},
		Children:    Children{MaxDepth: 2, MaxJobs: 8},
		Credits:     Credits{Run: 1},
		Workers:     map[job.WorkerKind]job.WorkerSettings{},
		Prices:      defaultPrices(),
		Stop:        Stop{Interrupt: job.Duration(2 * time.Second), Terminate: job.Duration(5 * time.Second), Kill: job.Duration(10 * time.Second)},
		Heartbeat:   heartbeat,
		Fleet:       Fleet{Lease: job.Duration(5 * time.Second), NodeLease: job.Duration(15 * time.Second), Work: true, Placement: "spread"},
		Policy:      policy.Default(),
		Retention:   Retention{Finished: job.Duration(90 * 24 * time.Hour)},
		Retry:       Retry{Base: job.Duration(time.Second), Max: job.Duration(5 * time.Minute)},
		Evaluation:  eval.DefaultSettings(),
		Breaker:     breaker.DefaultConfig(),
		Watchdog:    watchdog.Default(),
		Escalation:  defaultEscalation(),
		Limits:      defaultLimits(proc.HostLimits()),
		Cores:       defaultCores(heartbeat),
		Webhooks:    trigger.DefaultListener(),
		API:         defaultAPI(),
		Log:         Log{Format: logging.Auto, Level: logging.Info},
		Audit:       Audit{Enabled: true, MaxSize: 64 << 20, Keep: 30},
	}
}

// WorkerLimit returns how many jobs may run at once on workers of a kind; 0
// means that only Concurrency.Max bounds them.
func (c *Config) WorkerLimit(kind job.WorkerKind) int {
	if n := c.Concurrency.PerWorker[kind]; n > 0 {
		return n
	}
	return c.Workers[kind].MaxConcurrent
}

// Options are what a configuration is read against.
type Options struct {
	// Adapters are the names of the adapters that exist; empty means that any
	// name will do.
	Adapters []string
	// NeedCommand are those of Adapters that have no program of their own.
	NeedCommand []string
	// NotEmpty refuses a file without a byte, which is the default configuration
	// otherwise: who reads a file again may meet it while it is being written.
	NotEmpty bool
	// Policies are the names of those that exist beside policy.Names.
	Policies []string
	// Environ are variables, "NAME=value" each, as of os.Environ. Those whose name
	// is of the form AGENTSCHED_SECTION__FIELD stand above the file.
	Environ []string
}

// Load reads the configuration file at path. An error about its content is of
// type strictyaml.Errors, one about a variable of Options.Environ holds a
// *VariableError; a file that is not there is os.ErrNotExist. Paths are taken
// relative to the file.
func Load(path string, opts Options) (Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("read configuration %s: %w", path, strictyaml.WithoutPath(err))
	}
	if opts.NotEmpty && len(data) == 0 {
		return Config{}, fmt.Errorf("configuration %s is empty; write a comment into it if everything is to have its default", path)
	}
	c, err := Decode(path, data, opts)
	if err != nil {
		return Config{}, err
	}
	if err := c.resolve(filepath.Dir(path)); err != nil {
		return Config{}, fmt.Errorf("read configuration %s: %w", path, err)
	}
	return c, nil
}

// WithoutFile returns the configuration of a host without a configuration file:
// the default with what Options.Environ sets. Paths are taken relative to the
// working directory. An error about a variable holds a *VariableError.
func WithoutFile(opts Options) (Config, error) {
	c, err := Decode("", nil, opts)
	if err != nil {
		return Config{}, err
	}
	if err := c.resolve("."); err != nil {
		return Config{}, fmt.Errorf("configuration of the environment: %w", err)
	}
	return c, nil
}

// Decode reads a configuration from its bytes; name stands for it in errors.
// A file of nothing but comments is the default configuration. Options.Environ
// overrides it.
func Decode(name string, data []byte, opts Options) (Config, error) {
	c := Default()
	doc, err := strictyaml.Parse(name, data)
	empty := errors.Is(err, strictyaml.ErrEmpty)
	if empty {
		if len(overrides(opts.Environ)) == 0 {
			return c, nil
		}
		doc, err = strictyaml.Parse(name, []byte("{}"))
	}
	if err != nil {
		return Config{}, err
	}
	doc.Decode(&c)
	v := validator{Doc: doc, config: &c, adapters: opts.Adapters, needing: opts.NeedCommand, policies: opts.Policies, noFile: empty}
	v.environment(opts.Environ)
	if !v.Has("heartbeat.permit_validity") {
		c.Heartbeat.PermitValidity = permitValidity(c.Heartbeat)
	}
	if !v.Has("cores.slow_heartbeat") {
		c.Cores.SlowHeartbeat = slowHeartbeat(c.Heartbeat)
	}
	// A file that has other thresholds for it, of a version without this one, stays as valid as it was.
	if wait := &c.Watchdog.Defence.Thresholds.LockWait; wait.Shed == watchdog.Default().Defence.Thresholds.LockWait.Shed &&
		slices.ContainsFunc([]watchdog.Band{wait.Throttle, wait.OpenBreaker, wait.Escalate}, func(b watchdog.Band) bool {
			return b != watchdog.Band{} && (b.Enter < wait.Shed.Enter || b.Leave < wait.Shed.Leave)
		}) {
		wait.Shed = watchdog.Band{}
	}
	v.validate()
	if err := v.Err(); err != nil {
		return Config{}, err
	}
	return c, nil
}

// DefaultPath returns where the configuration file is looked for when none is
// named: agentsched/config.yaml in $XDG_CONFIG_HOME or else in ~/.config.
func DefaultPath() (string, error) {
	// The XDG base directory specification says that a relative path is to be ignored.
	if dir := os.Getenv("XDG_CONFIG_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "agentsched", "config.yaml"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("find the configuration file: %w", err)
	}
	return filepath.Join(home, ".config", "agentsched", "config.yaml"), nil
}
