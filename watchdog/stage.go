package watchdog

import (
	"fmt"
	"slices"
	"time"
)

// Stage is how far the defence has gone. Each stage keeps what the ones below
// it do.
type Stage int

const (
	// Normal: all work is admitted.
	Normal Stage = iota
	// Shed: work of the classes that are shed first is refused.
	Shed
	// Throttle: fewer runs at once, and smaller ones where there is a choice.
	Throttle
	// OpenBreaker: the kinds of worker that are sick are taken out, one at a time.
	OpenBreaker
	// Escalate: a person is told; only work that a person waits for is admitted.
	Escalate

	stageCount = iota
)

var stageNames = [stageCount]string{"normal", "shed", "throttle", "open_breaker", "escalate"}

// String returns the stage's word, e.g. "open_breaker".
func (s Stage) String() string {
	if s < 0 || s >= stageCount {
		return fmt.Sprintf("stage(%d)", int(s))
	}
	return stageNames[s]
}

// MarshalText writes the stage's word.
func (s Stage) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads a stage's word.
func (s *Stage) UnmarshalText(text []byte) error {
	i := slices.Index(stageNames[:], string(text))
	if i < 0 {
		return fmt.Errorf("%q is not a stage, want one of %v", text, stageNames)
	}
	*s = Stage(i)
	return nil
}

// Band is the hysteresis of one stage: it is entered at Enter or above and
// left at Leave or below. The zero Band never leads to its stage.
type Band struct {
	// The stage is entered at this value or above; with 0 in both, never.
	Enter float64 `json:"enter" min:"0"`
	// It is left at this value or below, which is less.
	Leave float64 `json:"leave" min:"0"`
}

// Ladder has the bands of one metric, in the metric's own unit.
type Ladder struct {
	// Work of the classes that are shed is refused.
	Shed Band `json:"shed"`
	// Fewer runs at once, and smaller ones where there is a choice.
	Throttle Band `json:"throttle"`
	// Sick kinds of worker are taken out.
	OpenBreaker Band `json:"open_breaker"`
	// A person is told; only work that somebody waits for begins.
	Escalate Band `json:"escalate"`
}

// bands returns the band of each stage by its number; Normal has none.
func (l Ladder) bands() [stageCount]Band {
	return [stageCount]Band{{}, l.Shed, l.Throttle, l.OpenBreaker, l.Escalate}
}

// reach returns the stage that value asks for, and the highest one that it
// does not let go. Since Leave < Enter, asked is at most held.
func (l Ladder) reach(value float64) (asked, held Stage) {
	for stage, b := range l.bands() {
		if b == (Band{}) {
			continue
		}
		if value >= b.Enter {
			asked = Stage(stage)
		}
		if value > b.Leave {
			held = Stage(stage)
		}
	}
	return asked, held
}

// Thresholds are the ladders of the metrics that can move the defence.
//
// The two of the queue look at the classes that are not shed first, if the
// scheduler tells classes apart: work that waits because it is shed must not
// be a reason to shed. By default they lead no further than to shed, since to
// run less makes a queue longer.
type Thresholds struct {
	// Wait of the oldest job that could run, in milliseconds.
	QueueOldest Ladder `json:"queue_oldest_ms"`
	// Jobs that could run.
	QueueDepth Ladder `json:"queue_depth"`
	// Wait of a job from when it could run until it has a worker, in milliseconds, 95th percentile.
	QueueLag Ladder `json:"worker_queue_lag_ms"`
	// Runs that have a worker.
	Inflight Ladder `json:"worker_inflight_count"`
	// Part of the runs that ended as TIMEOUT, 0 to 1.
	TimeoutRate Ladder `json:"worker_timeout_rate"`
	// From a stop's request to the proof that nothing is left, in milliseconds, 95th percentile.
	CancelLatency Ladder `json:"worker_cancel_latency_ms"`
	// Wait for a folder that another run holds, in milliseconds, 95th percentile.
	LockWait Ladder `json:"workspace_lock_wait_ms"`
	// Answer to a heartbeat, in milliseconds, 95th percentile.
	Heartbeat Ladder `json:"heartbeat_latency_ms"`
	// Resident memory of a core, in bytes.
	RSS Ladder `json:"core_rss_bytes"`
	// CPU that a core uses, in CPUs.
	CPU Ladder `json:"core_cpu_ratio"`
	// Goroutines of a core.
	Goroutines Ladder `json:"core_goroutines"`
	// Open files of a core.
	OpenFiles Ladder `json:"core_open_files"`
}

// gauge is one metric as the defence sees it.
type gauge struct {
	name   string
	ladder Ladder
	value  float64
	known  bool       // an unknown value asks for nothing and holds nothing
	last   *time.Time // when a run last spoke for it; nil: it is measured all the time
}

// gauges returns every metric, the ones of the queue first.
func (c *DefenceConfig) gauges(in Inputs) []gauge {
	t, m := c.Thresholds, in.Metrics
	depth, oldest := in.Queue.without(c.ShedClasses)
	return []gauge{
		{"queue_oldest_ms", t.QueueOldest, float64(oldest), true, nil},
		{"queue_depth", t.QueueDepth, float64(depth), true, nil},
		{"worker_timeout_rate", t.TimeoutRate, m.Timeouts.Ratio, m.Timeouts.Of >= int64(c.MinRuns), &m.Last.Timeout},
		{"worker_queue_lag_ms", t.QueueLag, float64(m.QueueLag.P95), m.QueueLag.Count > 0, &m.Last.QueueLag},
		{"worker_inflight_count", t.Inflight, float64(m.Inflight), true, nil},
		{"worker_cancel_latency_ms", t.CancelLatency, float64(m.CancelLatency.P95), m.CancelLatency.Count > 0, &m.Last.CancelLatency},
		{"workspace_lock_wait_ms", t.LockWait, float64(m.LockWait.P95), m.LockWait.Count > 0, &m.Last.LockWait},
		{"heartbeat_latency_ms", t.Heartbeat, float64(m.Heartbeat.P95), m.Heartbeat.Count > 0, nil},
		number("core_rss_bytes", t.RSS, m.RSS),
		number("core_cpu_ratio", t.CPU, m.CPU),
		number("core_goroutines", t.Goroutines, m.Goroutines),
		number("core_open_files", t.OpenFiles, m.OpenFiles),
	}
}

func number[N int | int64 | float64](name string, l Ladder, value *N) gauge {
	if value == nil {
		return gauge{name: name, ladder: l}
	}
	return gauge{name, l, float64(*value), true, nil}
}
