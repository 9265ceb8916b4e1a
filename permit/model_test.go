package permit_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/permit"
)

// model is what a gate should be, written down in the plainest way: lists that
// are counted anew for each question.
type model struct {
	gate     *permit.Gate
	circuits *circuits
	limits   permit.Limits
	throttle int
	all      []*held
	jobs     map[job.ID]*jobRecord
	buckets  map[string]*bucket
	spent    map[windowName][]spending // of the windows that there are
}

type held struct {
	permit   *permit.Permit
	model    string
	state    state
	charged  job.Usage
	stopped  bool
	released int
	earlier  bool // than the throttle
	buckets  []*bucket
}

type state string

const (
	unused  state = "unused"
	running state = "running"
	ended   state = "ended"
)

type jobRecord struct {
	attempts int
	spent    job.Usage
}

type windowName struct {
	tenant job.Tenant
	length time.Duration
}

type spending struct {
	at  time.Time
	usd float64
}

// bucket is a token bucket.
type bucket struct {
	size, perSecond, tokens float64
	at                      time.Time
}

func (b *bucket) refill() {
	b.tokens = min(b.size, b.tokens+b.perSecond*time.Since(b.at).Seconds())
	b.at = time.Now()
}

func newModel(l permit.Limits) *model {
	m := &model{
		gate: permit.NewGate(l), circuits: &circuits{}, jobs: map[job.ID]*jobRecord{},
		buckets: map[string]*bucket{}, spent: map[windowName][]spending{},
	}
	m.gate.SetCircuits(m.circuits)
	m.configure(l)
	return m
}

func (m *model) configure(l permit.Limits) {
	m.gate.Configure(l)
	m.limits = l
	m.bucket("codex a second", l.KindRates["codex"].PerSecond, time.Second)
	m.bucket("codex a minute", l.KindRates["codex"].PerMinute, time.Minute)
	m.bucket("acme a minute", l.ModelRates["acme"].PerMinute, time.Minute)
	old := m.spent
	m.spent = map[windowName][]spending{}
	for _, w := range l.CostWindows {
		if w.MaxUSD == 0 {
			continue
		}
		name := windowName{w.Tenant, w.Window}
		was, known := old[name]
		for _, s := range w.Spent {
			if !known && s.Ago < w.Window {
				was = append(was, spending{time.Now().Add(-s.Ago), s.USD})
			}
		}
		m.spent[name] = was
	}
}

// learn books what was spent elsewhere.
func (m *model) learn(s step) {
	m.gate.Learn(map[job.Tenant]float64{s.tenant: s.usage.CostUSD})
	m.bookCost(s.tenant, s.usage.CostUSD)
}

func (m *model) bucket(name string, n int, period time.Duration) {
	b := m.buckets[name]
	switch {
	case n == 0:
		delete(m.buckets, name)
		return
	case b == nil:
		b = &bucket{tokens: float64(n), at: time.Now(), size: float64(n)}
		m.buckets[name] = b
	}
	b.refill()
	b.size, b.perSecond = float64(n), float64(n)/period.Seconds()
	b.refill()
}

func (m *model) bucketsOf(s step) []*bucket {
	var all []*bucket
	for _, name := range []string{"codex a second", "codex a minute"} {
		if b := m.buckets[name]; b != nil && s.kind == "codex" {
			all = append(all, b)
		}
	}
	if b := m.buckets["acme a minute"]; b != nil && (s.model == "acme" || s.model == "acme/large") {
		all = append(all, b)
	}
	return all
}

// request asks the gate and compares its answer with the model's.
func (m *model) request(s step) error {
	id := job.ID(fmt.Sprint(s.job))
	if m.jobs[id] == nil {
		m.jobs[id] = &jobRecord{}
	}
	h := &held{model: s.model, state: unused}
	m.circuits.refuse = nil
	if s.refuse == "circuit" {
		m.circuits.refuse = &permit.Rejection{Reason: job.CircuitOpen, RetryAfter: time.Second, Message: "sick"}
	}
	m.gate.SetDefence(nil)
	if s.refuse == "defence" {
		m.gate.SetDefence(defence(func(permit.Request) *permit.Rejection { return &permit.Rejection{Reason: job.GlobalShed} }))
	}
	p, err := m.gate.Request(context.Background(), permit.Request{
		Job: id, Tenant: s.tenant, Workspace: s.workspace, Attempt: m.jobs[id].attempts + 1,
		Choice: job.Choice{Worker: s.kind}, Model: s.model, Limits: ofJob, Elsewhere: s.elsewhere,
		Reserve: func() (func(), error) {
			if s.refuse == "reserve" {
				return nil, errors.New("reservation failed")
			}
			return func() { h.released++ }, nil
		},
	})
	if err == nil && s.refuse != "" {
		return fmt.Errorf("granted, although the %s refused", s.refuse)
	}
	var refused *permit.Rejection
	if errors.As(err, &refused) && (refused.Message == "" || (refused.RetryAfter == 0) != refused.Reason.Terminal()) {
		return fmt.Errorf("rejection %+v has no sentence or no time", refused)
	}
	must, may := m.room(id, s)
	if err != nil && must && s.refuse == "" {
		return fmt.Errorf("refused, although there is room: %w", err)
	}
	if err != nil {
		return nil
	}
	if !may {
		return errors.New("granted, although there is no room")
	}
	if left := ofJob.MaxTokens - m.jobs[id].spent.Tokens(); p.Tokens != left {
		return fmt.Errorf("%d tokens were granted, %d are left", p.Tokens, left)
	}
	for _, b := range m.bucketsOf(s) {
		b.tokens--
		h.buckets = append(h.buckets, b)
	}
	h.permit = p
	m.all = append(m.all, h)
	return nil
}

// room reports whether the gate must grant and whether it may: the two differ
// only where a window's parts or rounding leave it open.
func (m *model) room(id job.ID, s step) (must, may bool) {
	record := m.jobs[id]
	if record.attempts >= ofJob.MaxAttempts || record.spent.Tokens() >= ofJob.MaxTokens || record.spent.CostUSD >= ofJob.MaxCostUSD {
		return false, false
	}
	tenant := s.tenant
	if tenant == "" {
		tenant = job.DefaultTenant
	}
	var live, ofKind, ofTenant, ofWorkspace int
	for _, h := range m.all {
		if h.state == ended {
			continue
		}
		if h.permit.Job == id {
			return false, false
		}
		live++
		ofKind += one(h.permit.Choice.Worker == s.kind)
		ofTenant += one(h.permit.Tenant == tenant)
		ofWorkspace += one(s.workspace != "" && h.permit.Workspace == s.workspace)
	}
	throttle := 0
	for _, h := range m.all {
		if h.state != ended && !h.earlier {
			throttle = m.throttle // what began after it uses it up
		}
	}
	for _, h := range s.elsewhere {
		live++
		ofKind += one(h.Kind == s.kind)
		ofTenant += one(h.Tenant == tenant || h.Tenant == "" && tenant == job.DefaultTenant)
		ofWorkspace += one(s.workspace != "" && h.Workspace == s.workspace)
	}
	perTenant, perWorkspace := m.limits.EachTenant, m.limits.EachWorkspace
	if tenant == "x" {
		perTenant = m.limits.PerTenant["x"]
	}
	if s.workspace == "/w" {
		perWorkspace = m.limits.PerWorkspace["/w"]
	}
	for _, pair := range [][2]int{{live, m.limits.MaxConcurrent}, {live, throttle}, {ofKind, m.limits.PerKind[s.kind]}, {ofTenant, perTenant}, {ofWorkspace, perWorkspace}} {
		if pair[1] > 0 && pair[0] >= pair[1] {
			return false, false
		}
	}
	const unclear = 1e-6 // of a token, by rounding
	must, may = true, true
	for _, b := range m.bucketsOf(s) {
		b.refill()
		must = must && b.tokens >= 1+unclear
		may = may && b.tokens >= 1-unclear
	}
	for _, w := range m.limits.CostWindows {
		if w.MaxUSD == 0 || w.Tenant != "" && w.Tenant != tenant {
			continue
		}
		must = must && m.sum(w, longest(w)) < w.MaxUSD
		may = may && m.sum(w, w.Window) < w.MaxUSD
	}
	return must, may
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

// longest is for how long a charge may count: a part of a window more than it,
// and parts are rounded up to whole nanoseconds.
func longest(w permit.CostWindow) time.Duration { return w.Window + w.Window/60 + 60 }

// sum is what was charged to a window less than a span ago.
func (m *model) sum(w permit.CostWindow, span time.Duration) float64 {
	var sum float64
	for _, s := range m.spent[windowName{w.Tenant, w.Window}] {
		if time.Since(s.at) < span {
			sum += s.usd
		}
	}
	return sum
}

// charge lets a run consume u, unless it was told to stop. The verdict must be
// to stop if anything is crossed, so each run crosses by one increment.
func (m *model) charge(h *held, u job.Usage) error {
	if h.state == running && h.stopped {
		return nil
	}
	stop := h.permit.Charge(u)
	if h.state != running {
		if stop != nil {
			return fmt.Errorf("verdict %v on a permit that is %s", stop, h.state)
		}
		return nil
	}
	m.book(h, u)
	h.stopped = stop != nil
	must := h.charged.Tokens() > h.permit.Tokens || h.charged.CostUSD > h.permit.CostUSD
	may := must
	for _, w := range m.limits.CostWindows {
		if w.MaxUSD > 0 && (w.Tenant == "" || w.Tenant == h.permit.Tenant) && (u.Tokens() > 0 || u.CostUSD > 0) {
			must = must || m.sum(w, w.Window) >= w.MaxUSD
			may = may || m.sum(w, longest(w)) >= w.MaxUSD
		}
	}
	if must && stop == nil || !may && stop != nil {
		return fmt.Errorf("verdict %v; to stop: must %v, may %v", stop, must, may)
	}
	return nil
}

func (m *model) book(h *held, u job.Usage) {
	h.charged = h.charged.Add(u)
	record := m.jobs[h.permit.Job]
	record.spent = record.spent.Add(u)
	m.bookCost(h.permit.Tenant, u.CostUSD)
}

func (m *model) bookCost(tenant job.Tenant, usd float64) {
	if tenant == "" {
		tenant = job.DefaultTenant
	}
	for name := range m.spent {
		if name.tenant == "" || name.tenant == tenant {
			m.spent[name] = append(m.spent[name], spending{time.Now(), usd})
		}
	}
}

// settle ends a run whose total is what it was charged and rest.
func (m *model) settle(h *held, rest job.Usage, lost bool) {
	if h.state != running {
		return
	}
	h.permit.SettleWith(permit.Result{Usage: h.charged.Add(rest), Class: job.Crash, Lost: lost})
	m.book(h, rest)
	if lost {
		m.jobs[h.permit.Job].attempts--
	}
	h.state = ended
}

// expire notes which permits have ended unused.
func (m *model) expire() {
	for _, h := range m.all {
		if h.state == unused && h.permit.Context().Err() != nil {
			h.state = ended
			for _, b := range h.buckets {
				b.refill()
				b.tokens = min(b.size, b.tokens+1)
			}
		}
	}
}

// check compares what can be seen of the gate with the model.
func (m *model) check() error {
	var wantUnused, wantRunning int
	for _, h := range m.all {
		wantUnused += one(h.state == unused)
		wantRunning += one(h.state == running)
		if h.released != one(h.state == ended) {
			return fmt.Errorf("a permit that is %s was released %d times", h.state, h.released)
		}
		if h.state == unused && !time.Now().Before(h.permit.ExpiresAt) {
			return fmt.Errorf("permit %s outlived its time", h.permit.ID)
		}
	}
	if u, r := m.gate.Counts(); u != wantUnused || r != wantRunning {
		return fmt.Errorf("the gate counts %d unused and %d running, there are %d and %d", u, r, wantUnused, wantRunning)
	}
	if c := m.circuits; c.out != wantUnused+wantRunning || len(c.faults) > 0 {
		return fmt.Errorf("%d tickets are out for %d permits, faults %q", c.out, wantUnused+wantRunning, c.faults)
	}
	for _, w := range m.gate.Windows() {
		low, high := m.sum(w, w.Window), m.sum(w, longest(w))
		if w.SpentUSD() < low-1e-9 || w.SpentUSD() > high+1e-9 || math.IsNaN(w.SpentUSD()) {
			return fmt.Errorf("the window of %s of %q holds %v, want %v to %v", w.Window, w.Tenant, w.SpentUSD(), low, high)
		}
	}
	return nil
}
