package config

import (
	"reflect"
	"time"

	"github.com/agentsched/agentsched/breaker"
	"github.com/agentsched/agentsched/internal/fields"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/watchdog"
)

// Escalation says which facts a person is told, how, and what they put out of
// use.
type Escalation struct {
	watchdog.EscalationConfig

	// What becomes of running jobs when everything is put out of use: `drain` lets them end, `stop`
	// stops them.
	SafeStop SafeStop `json:"safe_stop"`
	// A program, an absolute path or a name on `PATH`, and its arguments. It gets the escalation as
	// JSON on standard input.
	Command []string `json:"command,omitempty" items:"1" want:"the program and its arguments, or leave it out"`
	// An `http` or `https` address, without user and password, to which the escalation is posted as
	// JSON.
	Webhook string `json:"webhook,omitempty"`
	// How long a link of `api.public_url` works, at most: a question that is answered needs none.
	LinkLasts job.Duration `json:"link_lasts" min:"1m" max:"720h" want:"a duration from 1m to 720h, such as 24h"`
	// How long one call of either may take. A call that fails is tried once more, and harms nothing.
	Timeout job.Duration `json:"timeout" above:"0s" want:"a duration such as 10s"`
}

// SafeStop is what becomes of running work when everything is put out of use.
type SafeStop string

const (
	// DrainRuns lets it end by itself.
	DrainRuns SafeStop = "drain"
	// StopRuns stops it.
	StopRuns SafeStop = "stop"
)

// FieldTag lists the choices.
func (SafeStop) FieldTag() reflect.StructTag { return fields.Enum(SafeStops()...) }

// SafeStops lists the choices.
func SafeStops() []SafeStop { return []SafeStop{DrainRuns, StopRuns} }

func defaultEscalation() Escalation {
	return Escalation{EscalationConfig: watchdog.Default().Escalation, SafeStop: DrainRuns, LinkLasts: job.Duration(24 * time.Hour), Timeout: job.Duration(10 * time.Second)}
}

// WatchdogConfig returns what the core's watchdog is set to.
func (c *Config) WatchdogConfig() watchdog.Config {
	w := c.Watchdog
	w.Escalation = c.Escalation.EscalationConfig
	return w
}

// BreakerConfig returns what the core's circuit breakers are set to.
func (c *Config) BreakerConfig() breaker.Config { return c.Breaker }
