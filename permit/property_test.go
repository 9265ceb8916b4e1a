package permit_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/permit"
)

// TestGateAgainstModel plays random histories of requests, uses, charges,
// revocations, expiries, settlements, waiting, reconfiguration, throttling and
// news of other gates against a model that counts naively: the gate grants what
// the model has room for and refuses the rest, and whatever was taken comes back
// exactly once.
func TestGateAgainstModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		// All is drawn before the bubble: rapid's own goroutines are not of it.
		configs := rapid.SliceOfN(rapid.Custom(drawLimits), 3, 3).Draw(rt, "limits")
		steps := rapid.SliceOfN(rapid.Custom(drawStep), 20, 150).Draw(rt, "steps")
		var err error
		synctest.Test(t, func(*testing.T) { err = play(configs, steps) })
		if err != nil {
			rt.Fatal(err)
		}
	})
}

func drawLimits(t *rapid.T) permit.Limits {
	upTo := func(name string, n int) int { return rapid.IntRange(0, n).Draw(t, name) }
	window := func(tenant job.Tenant, length time.Duration) permit.CostWindow {
		w := permit.CostWindow{Tenant: tenant, Window: length, MaxUSD: float64(upTo("cents", 5))}
		for range upTo("parts", 3) {
			w.Spent = append(w.Spent, permit.Spending{Ago: length * time.Duration(upTo("twelfths ago", 14)) / 12, USD: float64(upTo("spent", 4)) / 4})
		}
		return w
	}
	return permit.Limits{
		MaxConcurrent: 1 + upTo("total", 4),
		PerKind:       map[job.WorkerKind]int{"codex": upTo("kind", 2)},
		PerTenant:     map[job.Tenant]int{"x": upTo("tenant", 2)}, EachTenant: upTo("each tenant", 3),
		PerWorkspace: map[string]int{"/w": upTo("workspace", 2)}, EachWorkspace: upTo("each workspace", 2),
		TTL:         5 * time.Second,
		KindRates:   map[job.WorkerKind]permit.Rate{"codex": {PerSecond: upTo("a second", 3), PerMinute: upTo("a minute", 9)}},
		ModelRates:  map[string]permit.Rate{"acme": {PerMinute: upTo("of a model", 7)}},
		CostWindows: []permit.CostWindow{window("x", 10*time.Second), window("", time.Minute)},
	}
}

type step struct {
	op        string
	which     int // of the permits, the limits
	job       int
	kind      job.WorkerKind
	tenant    job.Tenant
	workspace string
	model     string
	refuse    string // who refuses
	usage     job.Usage
	lost      bool
	wait      time.Duration
	elsewhere []permit.Held
}

func drawStep(t *rapid.T) step {
	n := func(name string, low, high int) int { return rapid.IntRange(low, high).Draw(t, name) }
	var elsewhere []permit.Held
	for range max(n("elsewhere", -3, 3), 0) { // mostly nothing
		elsewhere = append(elsewhere, permit.Held{
			Kind:      rapid.SampledFrom([]job.WorkerKind{"codex", "shell"}).Draw(t, "kind there"),
			Tenant:    rapid.SampledFrom([]job.Tenant{"x", "y", ""}).Draw(t, "tenant there"),
			Workspace: rapid.SampledFrom([]string{"", "/w", "/v"}).Draw(t, "workspace there"),
		})
	}
	return step{
		elsewhere: elsewhere,
		op: rapid.SampledFrom([]string{
			"request", "request", "request", "request", "request", "request", "use", "use", "use", "charge", "charge", "charge",
			"revoke", "settle", "settle", "wait", "wait", "wait", "configure", "throttle", "learn",
		}).Draw(t, "op"),
		which: n("which", 0, 7), job: n("job", 0, 19),
		kind:      rapid.SampledFrom([]job.WorkerKind{"codex", "shell"}).Draw(t, "kind"),
		tenant:    rapid.SampledFrom([]job.Tenant{"x", "y", ""}).Draw(t, "tenant"),
		workspace: rapid.SampledFrom([]string{"", "/w", "/v"}).Draw(t, "workspace"),
		model:     rapid.SampledFrom([]string{"", "acme/large", "acme", "acmes"}).Draw(t, "model"),
		refuse:    rapid.SampledFrom([]string{"", "", "", "", "", "", "reserve", "circuit", "defence"}).Draw(t, "refuse"),
		usage:     job.Usage{OutputTokens: int64(n("tokens", 0, 9)), CostUSD: float64(n("cost", 0, 8)) / 4},
		lost:      n("lost", 0, 4) == 0,
		wait:      time.Duration(n("wait", 1, 1000)*rapid.SampledFrom([]int{1, 1, 1, 7, 30}).Draw(t, "times")) * time.Millisecond,
	}
}

// ofJob bounds every job of a history.
var ofJob = job.Limits{MaxAttempts: 3, MaxTokens: 30, MaxCostUSD: 5}

func play(configs []permit.Limits, steps []step) error {
	m := newModel(configs[0])
	for i, s := range steps {
		if err := m.step(configs, s); err != nil {
			return fmt.Errorf("step %d, %+v: %w", i, s, err)
		}
		if err := m.check(); err != nil {
			return fmt.Errorf("after step %d, %+v: %w", i, s, err)
		}
	}
	for _, h := range m.all {
		h.permit.Revoke(errEnd)
		m.expire()
		if h.state == running {
			m.settle(h, job.Usage{}, false)
		}
	}
	return m.check()
}

func (m *model) step(configs []permit.Limits, s step) error {
	switch s.op {
	case "request":
		return m.request(s)
	case "wait":
		time.Sleep(s.wait)
		synctest.Wait()
		m.expire()
		return nil
	case "configure":
		m.configure(configs[s.which%len(configs)])
		return nil
	case "throttle":
		if m.throttle == 0 && s.which > 4 {
			for _, h := range m.all {
				h.earlier = h.state != ended
			}
		}
		m.throttle = max(s.which-4, 0)
		m.gate.Throttle(s.which - 4)
		return nil
	case "learn":
		m.learn(s)
		return nil
	}
	h := m.pick(s)
	if h == nil {
		return nil
	}
	switch s.op {
	case "use":
		_, err := m.gate.Use(h.permit.ID, h.permit.Job, h.permit.Attempt)
		if (err == nil) != (h.state == unused) {
			return fmt.Errorf("use of a permit that is %s: %v", h.state, err)
		}
		if err == nil {
			h.state = running
			m.jobs[h.permit.Job].attempts++
		}
	case "charge":
		return m.charge(h, s.usage)
	case "revoke":
		h.permit.Revoke(errEnd)
		m.expire()
	case "settle":
		m.settle(h, s.usage, s.lost)
	}
	return nil
}

// pick returns one of the permits that the step fits, now and then any; nil if
// there is none.
func (m *model) pick(s step) *held {
	fits := map[string]state{"use": unused, "revoke": unused, "charge": running, "settle": running}[s.op]
	var some []*held
	for _, h := range m.all {
		if h.state == fits || s.which == 0 {
			some = append(some, h)
		}
	}
	if len(some) == 0 {
		return nil
	}
	return some[s.which%len(some)]
}
