package agentcore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// provided is an adapter whose models are those of one provider.
type provided string

func (provided) Locate(job.WorkerSettings) (string, error)       { return "/bin/sh", nil }
func (provided) Version(context.Context, string) (string, error) { return "1", nil }
func (provided) Start(*worker.Task) (worker.Session, error)      { return nil, errors.New("never started") }
func (p provided) Provider() string                              { return string(p) }

// ask requests a permit for a job of its own, changed as the test wants it.
func (c *client) ask(change func(*ipc.PermitRequest)) ipc.PermitAnswer {
	c.t.Helper()
	r := ipc.PermitRequest{
		Job: job.NewID(), Tenant: "t", Attempt: 1, Choice: job.Choice{Worker: "coder"}, Workspace: job.Workspace{Isolation: job.NoWorkspace},
	}
	if change != nil {
		change(&r)
	}
	var a ipc.PermitAnswer
	c.must(ipc.MethodRequestPermit, r, &a)
	if (a.Permit == nil) == (a.Rejection == nil) {
		c.t.Fatalf("the answer is %+v", a)
	}
	return a
}

func (c *client) granted(what string, change func(*ipc.PermitRequest)) {
	c.t.Helper()
	if a := c.ask(change); a.Permit == nil {
		c.t.Errorf("%s: refused with %+v", what, a.Rejection)
	}
}

func (c *client) refused(what string, want job.Reason, change func(*ipc.PermitRequest)) ipc.Rejection {
	c.t.Helper()
	a := c.ask(change)
	if a.Rejection == nil {
		c.t.Errorf("%s: granted", what)
		return ipc.Rejection{}
	}
	if r := a.Rejection; r.Reason != want || r.RetryAfterMS <= 0 || r.Message == "" {
		c.t.Errorf("%s: refused with %+v, want %s, a time and a sentence", what, r, want)
	}
	return *a.Rejection
}

// TestLimitsAreEnforced asks for one permit more than each limit of configure
// allows.
func TestLimitsAreEnforced(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	other := t.TempDir()
	in := func(path string) func(*ipc.PermitRequest) {
		return func(r *ipc.PermitRequest) { r.Workspace = job.Workspace{Path: path, Isolation: job.Worktree} }
	}
	of := func(tenant job.Tenant) func(*ipc.PermitRequest) {
		return func(r *ipc.PermitRequest) { r.Tenant = tenant }
	}
	beside := func(e ipc.Elsewhere) func(*ipc.PermitRequest) {
		return func(r *ipc.PermitRequest) { r.Elsewhere = &e }
	}
	held := func(n int, h ipc.Held) (all []ipc.Held) {
		for range n {
			all = append(all, h)
		}
		return all
	}
	hour := job.Duration(time.Hour)
	tests := []struct {
		name    string
		limits  ipc.Limits
		granted []func(*ipc.PermitRequest) // in this order
		refused func(*ipc.PermitRequest)
		still   func(*ipc.PermitRequest) // what else is granted after that; nil: the test ends
	}{
		{"a tenant", ipc.Limits{PerTenant: map[job.Tenant]int{"a": 1}}, []func(*ipc.PermitRequest){of("a")}, of("a"), of("b")},
		{"each tenant", ipc.Limits{EachTenant: 1}, []func(*ipc.PermitRequest){of("a")}, of("a"), of("b")},
		{"a workspace, by any of its names", ipc.Limits{PerWorkspace: map[string]int{link: 1}}, []func(*ipc.PermitRequest){in(dir)}, in(link), in(other)},
		{"each workspace", ipc.Limits{EachWorkspace: 1}, []func(*ipc.PermitRequest){in(link)}, in(dir), in(other)},
		{"what was spent before", ipc.Limits{CostWindows: []ipc.CostWindow{{Tenant: "a", Window: hour, MaxUSD: 1, Spent: []ipc.Spending{{AgoMS: 1_800_000, USD: 1}}}}},
			nil, of("a"), of("b")},
		{"what was spent elsewhere", ipc.Limits{CostWindows: []ipc.CostWindow{{Window: hour, MaxUSD: 1}}},
			[]func(*ipc.PermitRequest){nil}, beside(ipc.Elsewhere{Spent: map[job.Tenant]float64{"b": 1}}), nil},
		{"what runs elsewhere", ipc.Limits{}, []func(*ipc.PermitRequest){beside(ipc.Elsewhere{Running: held(3, ipc.Held{})})},
			beside(ipc.Elsewhere{Running: held(3, ipc.Held{})}), nil},
		{"a tenant's runs elsewhere", ipc.Limits{EachTenant: 2}, []func(*ipc.PermitRequest){beside(ipc.Elsewhere{Running: held(1, ipc.Held{Tenant: "t"})})},
			beside(ipc.Elsewhere{Running: held(1, ipc.Held{Tenant: "t"})}), beside(ipc.Elsewhere{Running: held(1, ipc.Held{Tenant: "b"})})},
		{"a workspace's runs elsewhere", ipc.Limits{EachWorkspace: 1}, nil,
			func(r *ipc.PermitRequest) {
				in(dir)(r)
				beside(ipc.Elsewhere{Running: held(1, ipc.Held{Workspace: dir})})(r) // the scheduler tells real paths
			}, in(dir)},
	}
	c := start(t)
	c.hello()
	for _, tt := range tests {
		// Each has limits of its own: those of the one before are gone.
		c.configure(func(s *ipc.Configure) {
			s.Limits = tt.limits
			s.Workers = map[job.WorkerKind]job.WorkerSettings{
				"coder": {Adapter: "codex", Model: "gpt-5"}, "gated": {Adapter: "codex", BaseURL: "http://127.0.0.1:1"},
			}
		})
		t.Run(tt.name, func(t *testing.T) {
			c.t = t
			for n, change := range tt.granted {
				c.granted(fmt.Sprintf("request %d", n), change)
			}
			if r := c.refused("one more", job.RateLimited, tt.refused); tt.name == "what was spent before" && (r.RetryAfterMS > 1_900_000 || r.RetryAfterMS < 1_700_000) {
				t.Errorf("half an hour is left, told to wait %d ms", r.RetryAfterMS)
			}
			if tt.still != nil {
				c.granted("another", tt.still)
			}
		})
		c.t = t
		c.revoke()
	}
	c.end()
}

// revoke ends the permits that are unused, as an isolation does.
func (c *client) revoke() {
	c.t.Helper()
	c.isolate(list(isolation.Global))
	var h ipc.HeartbeatResult
	if c.must(ipc.MethodHeartbeat, ipc.Heartbeat{}, &h); h.Permits != 0 || h.Running != 0 {
		c.t.Fatalf("permits are left: %+v", h)
	}
	c.isolate(nil)
}

// TestConfigureNamesWhatIsWrong, and changes nothing then.
func TestConfigureNamesWhatIsWrong(t *testing.T) {
	c := start(t)
	c.hello()
	c.configure(func(s *ipc.Configure) { s.MaxConcurrent = 1 })
	tests := []struct {
		field  string
		change func(*ipc.Configure)
	}{
		{"max_concurrent", func(s *ipc.Configure) { s.MaxConcurrent = 0 }},
		{"workers.codex.max_concurrent", func(s *ipc.Configure) {
			s.Workers = map[job.WorkerKind]job.WorkerSettings{"codex": {MaxConcurrent: -1}}
		}},
		{"limits.per_tenant.a", func(s *ipc.Configure) { s.Limits.PerTenant = map[job.Tenant]int{"a": -1} }},
		{"limits.each_tenant", func(s *ipc.Configure) { s.Limits.EachTenant = -1 }},
		{"limits.per_workspace./w", func(s *ipc.Configure) { s.Limits.PerWorkspace = map[string]int{"/w": -2} }},
		{"limits.per_workspace.here", func(s *ipc.Configure) { s.Limits.PerWorkspace = map[string]int{"here": 2} }},
		{"limits.each_workspace", func(s *ipc.Configure) { s.Limits.EachWorkspace = -1 }},
		{"limits.cost_windows[1].window", func(s *ipc.Configure) {
			s.Limits.CostWindows = []ipc.CostWindow{{Window: 1, MaxUSD: 1}, {MaxUSD: 1}}
		}},
		{"limits.cost_windows[0].max_usd", func(s *ipc.Configure) { s.Limits.CostWindows = []ipc.CostWindow{{Window: 1, MaxUSD: -1}} }},
		{"watchdog.defence.min_runs", func(s *ipc.Configure) { s.Watchdog = []byte(`{"defence": {"min_runs": 0}}`) }},
		{"watchdog.defence.thresholds.queue_depth.shed.enter", func(s *ipc.Configure) {
			s.Watchdog = []byte(`{"defence": {"thresholds": {"queue_depth": {"shed": {"enter": 9, "leave": 1}, "throttle": {"enter": 8, "leave": 1}}}}}`)
		}},
		{"watchdog.escalation.latest_wins.count", func(s *ipc.Configure) { s.Watchdog = []byte(`{"escalation": {"latest_wins": {"count": -1}}}`) }},
		{"watchdog: ", func(s *ipc.Configure) { s.Watchdog = []byte(`{"window": "soon"}`) }},
		{"breaker.probes", func(s *ipc.Configure) { s.Breaker = []byte(`{"probes": 0}`) }},
		{"breaker.min_requests", func(s *ipc.Configure) { s.Breaker = []byte(`{"min_requests": -1, "probes": 0}`) }},
		{"isolations[0].scope", func(s *ipc.Configure) { s.Isolations.Isolations = list("everything") }},
		{"isolations[1].scope", func(s *ipc.Configure) { s.Isolations.Isolations = list("worker:codex", "worker:codex") }},
		{"circuits", func(s *ipc.Configure) { s.Circuits = []ipc.Circuit{{Worker: "codex", State: "ajar"}} }},
	}
	fresh := start(t) // was never configured: circuits are looked at once
	fresh.hello()
	for _, tt := range tests {
		asked := c
		if tt.field == "circuits" {
			asked = fresh
		}
		s := ipc.Configure{MaxConcurrent: 4}
		tt.change(&s)
		err := asked.call(ipc.MethodConfigure, s, nil)
		var refused *ipc.Error
		if !errors.As(err, &refused) || refused.Code != ipc.CodeInvalidParams || !strings.Contains(refused.Message, tt.field) {
			t.Errorf("got %v, want invalid params that name %s", err, tt.field)
		}
	}
	c.granted("a request under what was set before", nil)
	c.refused("a second one", job.RateLimited, nil)
	c.end()
	fresh.configure(nil)
	fresh.end()
}
