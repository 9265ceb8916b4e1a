package agentcore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/agentsched/agentsched/breaker"
	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/internal/proc"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/permit"
	"github.com/agentsched/agentsched/watchdog"
)

// settings is what configure sets.
type settings struct {
	ipc.Configure
	limits   permit.Limits
	watchdog watchdog.Config
	breaker  breaker.Config
	provider map[string]string // see providersOf
}

// configure changes everything that it is told, or nothing if any of it is
// wrong. What runs goes on under the settings that it began with, but for the
// gate's windows of cost.
func (c *Core) configure(_ context.Context, r ipc.Configure) (ipc.Empty, error) {
	s, err := newSettings(r, providersOf(c.cfg.Adapters), c.realPaths(r.Limits.PerWorkspace))
	if err != nil {
		return ipc.Empty{}, ipc.InvalidParams(err)
	}
	c.configuring.Lock()
	defer c.configuring.Unlock()
	if !c.restored {
		if err := c.restoreCircuits(s.Circuits, s.At); err != nil {
			return ipc.Empty{}, ipc.InvalidParams(fmt.Errorf("circuits: %w", err))
		}
		c.restored = true
	}
	if err := c.circuits.Configure(s.breaker); err != nil {
		return ipc.Empty{}, ipc.InvalidParams(within("breaker", err))
	}
	c.guard.configure(s.watchdog)
	c.guard.replace(time.Now(), s.Isolations)
	c.monitor.metrics.Configure(s.watchdog.Window.Std())
	c.gate.Configure(s.limits)
	if s.Limits.Shared {
		c.gate.SetShared(c.shared)
	} else {
		c.gate.SetShared(nil)
	}
	c.limitRuns(s)
	c.learnSecrets(s)
	c.use(s)
	c.renew(0)
	select {
	case c.reconfigured <- struct{}{}:
	default:
	}
	return ipc.Empty{}, nil
}

// use makes these the settings of what begins from now on.
func (c *Core) use(s *settings) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settings = s
	// A scheduler that does not read is no reason to end where permits lapse: its runs
	// do, and it hears of them when it reads again.
	c.peer.SetPatient(s.limits.Validity > 0 && !c.ending)
}

// limitRuns bounds all runs together. Where that cannot be done, they run all the
// same: the log says so, and `scheduler doctor`.
func (c *Core) limitRuns(s *settings) {
	c.mu.Lock()
	session := c.session
	c.mu.Unlock()
	if session == nil {
		return
	}
	t := &s.RunLimits.Total
	if err := session.host.LimitAll(proc.Limits{Memory: t.Memory, Processes: t.Processes, CPU: t.CPU}); err != nil {
		c.cfg.Log.Warn().Err(err).Msg("the limits on all runs together are not enforced")
	}
}

// realPaths returns a function that tells the real paths of folders that have limits. One
// whose file system does not answer stands for itself: no run gets a permit there
// meanwhile, and a core that waited for it would not start.
func (c *Core) realPaths(limits map[string]int) func(string) string {
	c.folders.Know(slices.Sorted(maps.Keys(limits)))
	return func(path string) string {
		real, _ := c.folders.Get(path) // at once, of those that were asked for
		return real
	}
}

// newSettings reads and checks what configure was told; the error names every
// field that is wrong.
func newSettings(r ipc.Configure, provider map[string]string, realPath func(string) string) (*settings, error) {
	if r.PermitTTL == 0 {
		r.PermitTTL = job.Duration(ipc.DefaultPermitTTL)
	}
	s := &settings{Configure: r, provider: provider}
	var errs [4]error
	s.limits, errs[0] = limitsOf(&r, realPath)
	s.watchdog, errs[1] = section("watchdog", r.Watchdog, watchdog.Default())
	s.breaker, errs[2] = section("breaker", r.Breaker, breaker.DefaultConfig())
	errs[3] = checkIsolations(r.Isolations.Isolations)
	return s, errors.Join(errs[:]...)
}

// section reads what text says over the defaults, and checks it.
func section[C any, P interface {
	*C
	Validate() error
}](name string, text json.RawMessage, c C) (C, error) {
	if len(text) > 0 {
		if err := json.Unmarshal(text, &c); err != nil {
			return c, fmt.Errorf("%s: %w", name, err)
		}
	}
	return c, within(name, P(&c).Validate())
}

// within puts the name of a section in front of every field that err is about.
func within(name string, err error) error {
	if err == nil {
		return nil
	}
	list := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		list = joined.Unwrap()
	}
	named := make([]error, len(list))
	for i, one := range list {
		named[i] = fmt.Errorf("%s: %w", name, one)
		var field *job.FieldError
		if errors.As(one, &field) {
			named[i] = &job.FieldError{Field: name + "." + field.Field, Message: field.Message}
		}
	}
	return errors.Join(named...)
}

// isolate takes over what is out of use.
func (c *Core) isolate(_ context.Context, r ipc.Isolations) (ipc.Empty, error) {
	if err := checkIsolations(r.Isolations); err != nil {
		return ipc.Empty{}, ipc.InvalidParams(err)
	}
	now := time.Now()
	was := c.guard.book.List(now)
	c.guard.replace(now, r)
	for _, i := range was {
		if i.Cause != isolation.CauseUsageLimit {
			continue
		}
		for _, st := range c.circuits.Snapshot() {
			if _, blocked := c.guard.book.Blocked(isolation.Run{Kind: st.Worker}, now); !blocked && i.Scope == isolation.WorkerScope(st.Worker) {
				c.circuits.Reset(st.Key)
			}
		}
	}
	return ipc.Empty{}, nil
}

// checkIsolations refuses scopes that are none, or that are there twice.
func checkIsolations(list []isolation.Isolation) error {
	var errs []error
	seen := map[isolation.Scope]bool{}
	for n, i := range list {
		scope, err := isolation.ParseScope(string(i.Scope))
		switch {
		case err != nil:
			errs = append(errs, &job.FieldError{Field: fmt.Sprintf("isolations[%d].scope", n), Message: err.Error()})
		case seen[scope]:
			errs = append(errs, &job.FieldError{Field: fmt.Sprintf("isolations[%d].scope", n), Message: fmt.Sprintf("%s is listed twice", scope)})
		}
		seen[scope] = true
		list[n].Scope = scope
	}
	return errors.Join(errs...)
}
