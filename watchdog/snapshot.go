package watchdog

import (
	"time"

	"github.com/agentsched/agentsched/job"
)

// Snapshot is every metric at one moment. What is unknown is nil, null in JSON.
type Snapshot struct {
	Time     time.Time `json:"time"`
	WindowMS int64     `json:"window_ms"` // over which rates and latencies are taken

	// Inflight is how many runs have a worker.
	Inflight int `json:"worker_inflight_count"`
	// QueueLag is how long jobs waited from when they could run until they were
	// given a worker. A queue that stands still shows nothing here: see
	// QueueMetrics.
	QueueLag Latency `json:"worker_queue_lag_ms"`
	// Timeouts is how many of the runs that ended did so as TIMEOUT.
	Timeouts Rate `json:"worker_timeout_rate"`
	// Last is when the last sample of each was taken that speaks for an overload.
	Last Last `json:"-"`
	// CancelLatency is from the request to stop until the process tree was
	// proven empty.
	CancelLatency Latency `json:"worker_cancel_latency_ms"`
	// LockWait is how long runs waited for the lock on their workspace.
	LockWait Latency `json:"workspace_lock_wait_ms"`

	// Heartbeat is from a heartbeat's question to its answer.
	Heartbeat  Latency  `json:"heartbeat_latency_ms"`
	RSS        *int64   `json:"core_rss_bytes"`
	CPU        *float64 `json:"core_cpu_ratio"` // 1 is one CPU, always busy, since the sample before
	Goroutines *int     `json:"core_goroutines"`
	OpenFiles  *int     `json:"core_open_files"`
	// EventsDropped counts events dropped for lack of room since the start.
	EventsDropped int64 `json:"event_drop_count"`

	// Kinds has the kinds that run or ran within the window.
	Kinds map[job.WorkerKind]KindSnapshot `json:"workers,omitempty"`
}

// Last is when something was measured last; zero: not within the memory of the
// process. Of the runs only what ended as TIMEOUT counts.
type Last struct{ QueueLag, Timeout, CancelLatency, LockWait time.Time }

// KindSnapshot is what is measured by kind of worker.
type KindSnapshot struct {
	Inflight int  `json:"worker_inflight_count"`
	Timeouts Rate `json:"worker_timeout_rate"`
	// Sick is how many of the runs that ended did so in a way that speaks
	// against the kind: see Sick.
	Sick Rate `json:"worker_sick_rate"`
}

// Latency is a distribution over the window, in milliseconds. Percentiles are
// by nearest rank, exact up to 15 ms and above that at most an eighth too
// high; Count 0 means that nothing was measured.
type Latency struct {
	Count int64 `json:"count"`
	P50   int64 `json:"p50"`
	P95   int64 `json:"p95"`
	Max   int64 `json:"max"`
}

// Rate is how many of the things that ended within the window ended so.
type Rate struct {
	Ratio float64 `json:"ratio"` // Count / Of, 0 without any
	Count int64   `json:"count"`
	Of    int64   `json:"of"`
}

func rate(count, of int64) Rate {
	r := Rate{Count: count, Of: of}
	if of > 0 {
		r.Ratio = float64(count) / float64(of)
	}
	return r
}

// Sick reports whether a run that ended so speaks against its kind of worker
// or its provider. A failing test suite does not, nor does a limit that the
// job itself has; a rate limit has a remedy of its own, the time that the
// provider named.
func Sick(class job.ErrorClass) bool {
	switch class {
	case job.Server, job.Network, job.Timeout, job.Stalled, job.Crash:
		return true
	default:
		return false
	}
}

// CoreUse is what the core itself uses, as sampled from the system. A
// negative number is unknown.
type CoreUse struct {
	RSSBytes   int64
	CPU        time.Duration // since the process started, user and system
	OpenFiles  int
	Goroutines int
}
