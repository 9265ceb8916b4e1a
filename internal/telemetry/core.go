package telemetry

import (
	"github.com/agentsched/agentsched/watchdog"
)

// coreMetrics are the watchdog's, under its own names (watchdog.Snapshot): they
// keep its units, too.
type coreMetrics struct {
	inflight, timeouts, sick          *metric // by worker
	lag, cancel, lockWait, heartbeat  *metric // by quantile
	rss, cpu, goroutines, files, drop *metric
}

// allWorkers is the label of a core as a whole.
const allWorkers = "all"

func newCoreMetrics() coreMetrics {
	gauge := func(name, help string, labels ...string) *metric {
		return newMetric(gaugeKind, name, help, append([]string{"core"}, labels...)...)
	}
	return coreMetrics{
		inflight:   gauge("worker_inflight_count", "Runs that have a worker.", "worker"),
		timeouts:   gauge("worker_timeout_rate", "The part of the runs that ended within the window that did so as TIMEOUT.", "worker"),
		sick:       gauge("worker_sick_rate", "The part of the runs that ended within the window that did so in a way that speaks against the kind of worker.", "worker"),
		lag:        gauge("worker_queue_lag_ms", "How long jobs waited until they were given a worker, over the window.", "stat"),
		cancel:     gauge("worker_cancel_latency_ms", "From the request to stop until the process tree was proven empty, over the window.", "stat"),
		lockWait:   gauge("workspace_lock_wait_ms", "How long runs waited for the lock on their workspace, over the window.", "stat"),
		heartbeat:  gauge("heartbeat_latency_ms", "Round trip of heartbeats, over the window.", "stat"),
		rss:        gauge("core_rss_bytes", "Resident memory of the core."),
		cpu:        gauge("core_cpu_ratio", "What the core uses of one CPU, since the sample before."),
		goroutines: gauge("core_goroutines", "Goroutines of the core."),
		files:      gauge("core_open_files", "Open files of the core."),
		drop:       newMetric(counterKind, "event_drop_count", "Events that the core dropped for lack of room since its start.", "core"),
	}
}

func (m *coreMetrics) collect(s *watchdog.Snapshot, core string, names *names, p *page) {
	gauge := func(d *metric, value float64, labels ...string) {
		p.put(d, value, append([]string{core}, labels...)...)
	}
	gauge(m.inflight, float64(s.Inflight), allWorkers)
	gauge(m.timeouts, s.Timeouts.Ratio, allWorkers)
	told := map[string]bool{allWorkers: true, other: true} // one label is told once
	for kind, k := range s.Kinds {
		worker := names.worker(kind)
		if told[worker] {
			continue
		}
		told[worker] = true
		gauge(m.inflight, float64(k.Inflight), worker)
		gauge(m.timeouts, k.Timeouts.Ratio, worker)
		gauge(m.sick, k.Sick.Ratio, worker)
	}
	latency := func(d *metric, l watchdog.Latency) {
		gauge(d, float64(l.P50), "p50")
		gauge(d, float64(l.P95), "p95")
		gauge(d, float64(l.Max), "max")
		gauge(d, float64(l.Count), "count")
	}
	latency(m.lag, s.QueueLag)
	latency(m.cancel, s.CancelLatency)
	latency(m.lockWait, s.LockWait)
	latency(m.heartbeat, s.Heartbeat)
	if s.RSS != nil {
		gauge(m.rss, float64(*s.RSS))
	}
	if s.CPU != nil {
		gauge(m.cpu, *s.CPU)
	}
	if s.Goroutines != nil {
		gauge(m.goroutines, float64(*s.Goroutines))
	}
	if s.OpenFiles != nil {
		gauge(m.files, float64(*s.OpenFiles))
	}
	p.put(m.drop, float64(s.EventsDropped), core)
}
