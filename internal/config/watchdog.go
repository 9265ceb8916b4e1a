package config

import (
	"time"

	"github.com/agentsched/agentsched/breaker"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/watchdog"
)

// Watchdog says when a run is stopped as STALLED, and how far the host may be
// loaded before work is kept away.
type Watchdog struct {
	Window        job.Duration           `json:"window"`         // over which rates and latencies are taken
	StallAfter    job.Duration           `json:"stall_after"`    // without output and without computing; 0: never
	MinCPURatio   float64                `json:"min_cpu_ratio"`  // of one CPU: less is not computing
	RepeatedCalls int                    `json:"repeated_calls"` // like tool calls with like results in a row; 0: any number
	Defence       watchdog.DefenceConfig `json:"defence"`
}

// Escalation says which facts a person is told, how, and what they put out of
// use: the fields of watchdog.EscalationConfig come first.
type Escalation struct {
	WorkerCrashes watchdog.Burst           `json:"worker_crashes"`
	LatestWins    watchdog.Burst           `json:"latest_wins"`
	CoreCrashes   watchdog.Burst           `json:"core_crashes"`
	Disk          watchdog.Disk            `json:"disk"`
	ClockJump     watchdog.ClockJumpConfig `json:"clock_jump"`

	SafeStop SafeStop     `json:"safe_stop"`
	Command  []string     `json:"command,omitempty"` // program and arguments; gets the escalation on stdin
	Webhook  string       `json:"webhook,omitempty"` // http or https address
	Timeout  job.Duration `json:"timeout"`           // of one call of Command or Webhook
}

// SafeStop is what becomes of running work when everything is put out of use.
type SafeStop string

const (
	// DrainRuns lets it end by itself.
	DrainRuns SafeStop = "drain"
	// StopRuns stops it.
	StopRuns SafeStop = "stop"
)

// SafeStops lists the choices.
func SafeStops() []SafeStop { return []SafeStop{DrainRuns, StopRuns} }

func defaultWatchdog() Watchdog {
	d := watchdog.Default()
	return Watchdog{
		Window: d.Window, StallAfter: d.Stall.After, MinCPURatio: d.Stall.MinCPURatio,
		RepeatedCalls: d.Repetition.Calls, Defence: d.Defence,
	}
}

func defaultEscalation() Escalation {
	d := watchdog.Default().Escalation
	return Escalation{
		WorkerCrashes: d.WorkerCrashes, LatestWins: d.LatestWins, CoreCrashes: d.CoreCrashes, Disk: d.Disk, ClockJump: d.ClockJump,
		SafeStop: DrainRuns,
		Timeout:  job.Duration(10 * time.Second),
	}
}

// WatchdogConfig returns what the core's watchdog is set to.
func (c *Config) WatchdogConfig() watchdog.Config {
	w, e := c.Watchdog, c.Escalation
	return watchdog.Config{
		Window:     w.Window,
		Stall:      watchdog.StallConfig{After: w.StallAfter, MinCPURatio: w.MinCPURatio},
		Repetition: watchdog.RepetitionConfig{Calls: w.RepeatedCalls},
		Defence:    w.Defence,
		Escalation: watchdog.EscalationConfig{
			WorkerCrashes: e.WorkerCrashes, LatestWins: e.LatestWins, CoreCrashes: e.CoreCrashes, Disk: e.Disk, ClockJump: e.ClockJump,
		},
	}
}

// BreakerConfig returns what the core's circuit breakers are set to.
func (c *Config) BreakerConfig() breaker.Config { return c.Breaker }
