package watchdog

import (
	"sync"
	"time"

	"github.com/agentsched/agentsched/job"
)

// Metrics collects what the core measures. It is safe for concurrent use.
type Metrics struct {
	mu        sync.Mutex // guards what follows
	window    time.Duration
	queueLag  latencies
	cancel    latencies
	lockWait  latencies
	heartbeat latencies
	kinds     map[job.WorkerKind]*kindMetrics // bounded by the kinds that are set up
	dropped   int64
	last      Last

	use   CoreUse
	used  time.Time // when use was sampled; zero: never
	ratio *float64  // of CPU, between the last two samples
}

type kindMetrics struct {
	inflight int
	ended    ring[tally]
}

// tally counts runs that ended.
type tally struct{ runs, timeouts, sick int64 }

// NewMetrics returns metrics whose rates and latencies are taken over window.
func NewMetrics(window time.Duration) *Metrics {
	m := &Metrics{
		kinds: map[job.WorkerKind]*kindMetrics{},
		use:   CoreUse{RSSBytes: -1, CPU: -1, OpenFiles: -1, Goroutines: -1},
	}
	m.Configure(window)
	return m
}

// Configure changes the window. If it is another one, rates and latencies
// begin anew; what is counted now stays.
func (m *Metrics) Configure(window time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if window == m.window {
		return
	}
	m.window = window
	for _, l := range []*latencies{&m.queueLag, &m.cancel, &m.lockWait, &m.heartbeat} {
		*l = latencies{newRing[histogram](window)}
	}
	for _, k := range m.kinds {
		k.ended = newRing[tally](window)
	}
}

// QueueLag records how long a job waited until it was given a worker.
func (m *Metrics) QueueLag(now time.Time, waited time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.queueLag.add(now, waited)
	m.last.QueueLag = now
}

// LockWait records how long a run waited for its workspace.
func (m *Metrics) LockWait(now time.Time, waited time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lockWait.add(now, waited)
	m.last.LockWait = now
}

// RunStarted records that a worker of a kind was started.
func (m *Metrics) RunStarted(kind job.WorkerKind) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kind(kind).inflight++
}

// RunEnded records that a run which was recorded as started has ended; class
// is "" if it did what was asked. A cancelled one says nothing about its kind
// and is in no rate.
func (m *Metrics) RunEnded(now time.Time, kind job.WorkerKind, class job.ErrorClass) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := m.kind(kind)
	k.inflight = max(k.inflight-1, 0)
	if class == job.CancelledClass {
		return
	}
	t := k.ended.at(now)
	t.runs++
	if class == job.Timeout {
		t.timeouts++
		m.last.Timeout = now
	}
	if Sick(class) {
		t.sick++
	}
}

// CancelLatency records how long a stop took, from the request until the
// process tree was proven empty.
func (m *Metrics) CancelLatency(now time.Time, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cancel.add(now, took)
	m.last.CancelLatency = now
}

// Heartbeat records how long a heartbeat's answer took.
func (m *Metrics) Heartbeat(now time.Time, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.heartbeat.add(now, took)
}

// EventsDropped records that n events were dropped.
func (m *Metrics) EventsDropped(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dropped += int64(max(n, 0))
}

// Core records what the core uses at now. CPU becomes a ratio from the second
// sample on.
func (m *Metrics) Core(now time.Time, use CoreUse) {
	m.mu.Lock()
	defer m.mu.Unlock()
	elapsed := now.Sub(m.used)
	switch {
	case m.used.IsZero(), use.CPU < 0, m.use.CPU < 0:
		m.ratio = nil
	case elapsed <= 0, use.CPU < m.use.CPU: // two samples of one moment, or in disorder: keep the ratio
	default:
		ratio := float64(use.CPU-m.use.CPU) / float64(elapsed)
		m.ratio = &ratio
	}
	m.use, m.used = use, now
}

// Snapshot returns every metric at now.
func (m *Metrics) Snapshot(now time.Time) Snapshot {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := Snapshot{
		Time: now.UTC(), WindowMS: m.window.Milliseconds(),
		QueueLag: m.queueLag.over(now), CancelLatency: m.cancel.over(now),
		LockWait: m.lockWait.over(now), Heartbeat: m.heartbeat.over(now),
		RSS: known(m.use.RSSBytes), Goroutines: known(m.use.Goroutines), OpenFiles: known(m.use.OpenFiles),
		EventsDropped: m.dropped, Last: m.last,
	}
	if m.ratio != nil {
		ratio := *m.ratio
		s.CPU = &ratio
	}
	var all tally
	for kind, k := range m.kinds {
		var sum tally
		k.ended.each(now, func(t *tally) {
			sum.runs += t.runs
			sum.timeouts += t.timeouts
			sum.sick += t.sick
		})
		all.runs += sum.runs
		all.timeouts += sum.timeouts
		s.Inflight += k.inflight
		if k.inflight == 0 && sum.runs == 0 {
			continue
		}
		if s.Kinds == nil {
			s.Kinds = map[job.WorkerKind]KindSnapshot{}
		}
		s.Kinds[kind] = KindSnapshot{Inflight: k.inflight, Timeouts: rate(sum.timeouts, sum.runs), Sick: rate(sum.sick, sum.runs)}
	}
	s.Timeouts = rate(all.timeouts, all.runs)
	return s
}

func (m *Metrics) kind(kind job.WorkerKind) *kindMetrics {
	k := m.kinds[kind]
	if k == nil {
		k = &kindMetrics{ended: newRing[tally](m.window)}
		m.kinds[kind] = k
	}
	return k
}

func known[N int | int64](n N) *N {
	if n < 0 {
		return nil
	}
	return &n
}
