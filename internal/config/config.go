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
	Concurrency Concurrency                           `json:"concurrency"`
	Queue       Queue                                 `json:"queue"`
	Rates       Rates                                 `json:"rates,omitzero"`
	CostWindows []CostWindow                          `json:"cost_windows,omitempty"`
	Workers     map[job.WorkerKind]job.WorkerSettings `json:"workers,omitempty"`
	// Prices are US dollars per million tokens, by model.
	Prices    map[string]job.Price `json:"prices,omitempty"`
	Stop      Stop                 `json:"stop"`
	Heartbeat Heartbeat            `json:"heartbeat"`
	Retry     Retry                `json:"retry"`
	// Policy says whose job is next, Expect what a job is expected to use that
	// does not say.
	Policy      policy.Config   `json:"policy"`
	Expect      job.Expectation `json:"expect,omitzero"`
	Retention   Retention       `json:"retention,omitzero"`
	Recovery    Recovery        `json:"recovery,omitzero"`
	DeadLetters DeadLetters     `json:"dead_letters,omitzero"`
	Evaluation  eval.Settings   `json:"evaluation"` // how work is judged
	Breaker     breaker.Config  `json:"breaker"`
	Watchdog    Watchdog        `json:"watchdog"`
	Escalation  Escalation      `json:"escalation"`
	Limits      Limits          `json:"limits"`
	Cores       Cores           `json:"cores"`
	Workspace   Workspace       `json:"workspace,omitzero"`
	// Triggers submit jobs by themselves; Webhooks is where those are heard that
	// wait for a request.
	Triggers map[trigger.Name]trigger.Settings `json:"triggers,omitempty"`
	Webhooks trigger.Listener                  `json:"webhooks"`
	// What `serve` says, to whom and how.
	API       API       `json:"api"`
	Log       Log       `json:"log"`
	Telemetry Telemetry `json:"telemetry,omitzero"`
	Audit     Audit     `json:"audit"`
}

// Default returns the configuration of a host without a configuration file.
func Default() Config {
	heartbeat := Heartbeat{Interval: job.Duration(time.Second), HangAfter: job.Duration(10 * time.Second)}
	return Config{
		Concurrency: Concurrency{Max: max(2, runtime.NumCPU())},
		Queue:       Queue{MaxJobs: 10_000, MaxQueued: 100_000},
		Workers:     map[job.WorkerKind]job.WorkerSettings{},
		Prices:      defaultPrices(),
		Stop:        Stop{Interrupt: job.Duration(2 * time.Second), Terminate: job.Duration(5 * time.Second), Kill: job.Duration(10 * time.Second)},
		Heartbeat:   heartbeat,
		Policy:      policy.Default(),
		Retention:   Retention{Finished: job.Duration(90 * 24 * time.Hour)},
		Retry:       Retry{Base: job.Duration(time.Second), Max: job.Duration(5 * time.Minute)},
		Evaluation:  eval.DefaultSettings(),
		Breaker:     breaker.DefaultConfig(),
		Watchdog:    defaultWatchdog(),
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
// stands above it.
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
	v := validator{Doc: doc, config: &c, adapters: opts.Adapters, policies: opts.Policies, noFile: empty}
	v.environment(opts.Environ)
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
