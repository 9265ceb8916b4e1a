package agentcore

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/agentsched/agentsched/breaker"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/watchdog"
)

// Probes are how the core looks at itself and its host. Each nil one
// is the real one (SelfUse, DiskSpace, ReadClock).
type Probes struct {
	Tick  <-chan time.Time // when to look; nil: each second
	Use   func() (watchdog.CoreUse, error)
	Disk  func(path string) (watchdog.DiskSpace, error)
	Clock func() Clock
}

func (p Probes) withDefaults() Probes {
	if p.Use == nil {
		p.Use = SelfUse
	}
	if p.Disk == nil {
		p.Disk = DiskSpace
	}
	if p.Clock == nil {
		origin := time.Now()
		p.Clock = func() Clock { return ReadClock(origin) }
	}
	return p
}

const (
	// sampleEvery is how often the core looks at itself.
	sampleEvery = time.Second
	// quietEvery is how often it tells how it fares while nothing changes.
	quietEvery = 10 * time.Second
)

// monitor collects what the core measures and lets the defence look at it.
type monitor struct {
	core    *Core
	probes  Probes
	metrics *watchdog.Metrics

	mu    sync.Mutex // guards what follows
	queue watchdog.QueueMetrics
	use   watchdog.CoreUse // as sampled last

	// What follows belongs to run's goroutine.
	dropped uint64    // of the peer's, counted already
	told    string    // what was told last, but for what always changes
	toldAt  time.Time // zero: nothing yet
	blind   bool      // a probe's failure was logged
}

func newMonitor(c *Core, probes Probes) *monitor {
	return &monitor{
		core: c, probes: probes, metrics: watchdog.NewMetrics(watchdog.Default().Window.Std()),
		use: watchdog.CoreUse{RSSBytes: -1, CPU: -1, OpenFiles: -1, Goroutines: -1},
	}
}

// run looks at each tick until done is closed.
func (m *monitor) run(done <-chan struct{}) {
	tick := m.probes.Tick
	if tick == nil {
		ticker := time.NewTicker(sampleEvery)
		defer ticker.Stop()
		tick = ticker.C
	}
	m.sampleUse(time.Now())
	for {
		select {
		case <-done:
			return
		case now := <-tick:
			m.step(now)
		}
	}
}

// step samples, lets the defence move, and tells how the core fares.
func (m *monitor) step(now time.Time) {
	c := m.core
	m.sampleUse(now)
	s, settings, err := c.ready()
	if err != nil {
		return
	}
	c.guard.lookAtClock(now)
	c.guard.expire(now)
	space, err := m.probes.Disk(s.dir.Path())
	if m.logOnce(err); err == nil {
		c.guard.observe(now, space)
	}
	_, _, _, dropped := c.peer.Stats()
	m.metrics.EventsDropped(int(dropped - m.dropped))
	m.dropped = dropped

	snapshot := m.metrics.Snapshot(now)
	in := watchdog.Inputs{Metrics: snapshot, Queue: m.lastQueue(), MaxConcurrent: settings.MaxConcurrent}
	for _, a := range c.guard.defence.Step(now, in) {
		m.do(now, settings, a)
	}
	c.gate.Throttle(c.guard.defence.Concurrency())
	m.tell(now, snapshot)
}

// do carries out what the defence wants done. Its stage works by itself, with
// the next request.
func (m *monitor) do(now time.Time, s *settings, a watchdog.Action) {
	c := m.core
	c.cfg.Log.Warn().Str("do", string(a.Do)).Stringer("stage", a.Stage).Str("worker", string(a.Kind)).
		Int("concurrency", a.Concurrency).Str("evidence", a.Evidence).Msg("defence acts")
	switch a.Do {
	case watchdog.DoOpenBreaker:
		c.circuits.Trip(breaker.Key{Worker: a.Kind}, time.Now().Add(s.watchdog.Defence.OpenFor.Std()), a.Evidence)
	case watchdog.DoEscalate:
		c.guard.observe(now, watchdog.Overload{Evidence: a.Evidence})
	}
}

// tell sends on_metrics if something changed that is worth it, else now and then.
func (m *monitor) tell(now time.Time, snapshot watchdog.Snapshot) {
	c := m.core
	n := ipc.Metrics{
		Stage: c.guard.defence.Stage().String(), Concurrency: c.guard.defence.Concurrency(), Evidence: c.guard.defence.Evidence(),
	}
	// These are never the same twice.
	quiet := snapshot
	quiet.Time, quiet.Heartbeat = time.Time{}, watchdog.Latency{}
	quiet.RSS, quiet.CPU, quiet.Goroutines, quiet.OpenFiles = nil, nil, nil, nil
	n.Metrics = encoded(quiet)
	state := string(encoded(n))
	if state == m.told && now.Sub(m.toldAt) < quietEvery {
		return
	}
	m.told, m.toldAt = state, now
	n.Metrics = encoded(snapshot)
	if err := c.peer.NotifyDroppable(ipc.NotifyMetrics, "metrics", n); err != nil {
		c.cfg.Log.Debug().Err(err).Msg("metrics not sent")
	}
}

// encoded returns v as JSON; plain structs of ours can always be written so.
func encoded(v any) json.RawMessage {
	text, err := json.Marshal(v)
	if err != nil {
		return json.RawMessage("null")
	}
	return text
}

// sampleUse looks at what the core itself uses.
func (m *monitor) sampleUse(now time.Time) {
	use, err := m.probes.Use() // what cannot be read is negative
	m.logOnce(err)
	m.metrics.Core(now, use)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.use = use
}

// logOnce logs the first failure of a probe: the next would be the same each second.
func (m *monitor) logOnce(err error) {
	if err != nil && !m.blind {
		m.blind = true
		m.core.cfg.Log.Warn().Err(err).Msg("the core cannot read some figures of the host")
	}
}

func (m *monitor) lastQueue() watchdog.QueueMetrics {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.queue
}

func (m *monitor) lastUse() watchdog.CoreUse {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.use
}

// runBegins counts a run that was submitted.
func (m *monitor) runBegins(r *ipc.SubmitJob) {
	now := time.Now()
	m.metrics.RunStarted(r.Choice.Worker)
	m.metrics.QueueLag(now, time.Duration(r.QueueLagMS)*time.Millisecond)
	if r.Spec.Workspace.Path != "" {
		m.metrics.LockWait(now, time.Duration(r.LockWaitMS)*time.Millisecond)
	}
}

// runEnds counts how a run ended, with what its class tells of the kind of worker.
// A lost run tells nothing about its worker, and a crash counts against the worker only if
// the run was not stopped.
func (m *monitor) runEnds(r *ipc.SubmitJob, o *job.Outcome, class job.ErrorClass, stopped, lost bool) {
	now, kind := time.Now(), r.Choice.Worker
	if lost || o.State == job.RunCancelled {
		class = job.CancelledClass
	}
	m.metrics.RunEnded(now, kind, class)
	if o.StopMillis > 0 {
		m.metrics.CancelLatency(now, time.Duration(o.StopMillis)*time.Millisecond)
	}
	if class == job.Crash && !stopped {
		m.core.guard.observe(now, watchdog.WorkerCrash{Kind: kind, Tenant: r.Spec.Tenant, Job: r.Job})
	}
}

// reportQueueMetrics takes how the queue stands.
func (c *Core) reportQueueMetrics(_ context.Context, r ipc.QueueMetrics) (ipc.Empty, error) {
	_, settings, err := c.ready()
	if err != nil {
		return ipc.Empty{}, err
	}
	queue := watchdog.QueueMetrics{Depth: r.Depth, OldestMS: r.OldestMS}
	if len(r.ByClass) > 0 {
		queue.ByClass = map[job.Class]watchdog.ClassQueue{}
	}
	for class, part := range r.ByClass {
		queue.ByClass[class] = watchdog.ClassQueue{Depth: part.Depth, OldestMS: part.OldestMS}
	}
	c.monitor.mu.Lock()
	c.monitor.queue = queue
	c.monitor.mu.Unlock()

	now := time.Now()
	for _, ms := range r.HeartbeatMS {
		c.monitor.metrics.Heartbeat(now, time.Duration(ms)*time.Millisecond)
	}
	for _, workspace := range r.LatestWins {
		if workspace != "" {
			c.guard.observe(now, watchdog.LatestWins{Workspace: workspace})
		}
	}
	c.learn(settings, r.Elsewhere)
	if r.Ledger != "" {
		c.shared.telling.Go(func() { c.shared.remember(c.life, r.Ledger) })
	}
	return ipc.Empty{}, nil
}
