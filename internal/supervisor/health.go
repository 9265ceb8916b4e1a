package supervisor

import (
	"fmt"
	"time"

	"github.com/agentsched/agentsched/ipc"
)

// slowBeats is how many heartbeats in a row must be slow: one may be the host's.
const slowBeats = 3

// health judges the heartbeats of one core.
type health struct {
	cfg     *Config
	slow    int      // heartbeats in a row that took too long
	samples []sample // of CPU time, as many as CPUFor spans, the oldest first
}

type sample struct {
	at  time.Time
	cpu time.Duration // used since the core's start
}

// pulse is the last heartbeat of a core.
type pulse struct {
	took time.Duration
	rss  int64   // bytes; -1: unknown
	cpu  float64 // of one CPU, since the heartbeat before
}

// complaint says which limit a core crosses. An urgent one does not wait until
// other cores have been replaced: memory that is used up stops the host.
type complaint struct {
	why    string
	urgent bool
}

// beat notes a heartbeat that was answered at now. It returns nil as long as
// nothing is wrong.
func (h *health) beat(now time.Time, took time.Duration, r ipc.HeartbeatResult) (pulse, *complaint) {
	p := pulse{took: took, rss: r.RSSBytes}
	var c *complaint
	if h.slow++; h.cfg.SlowHeartbeat <= 0 || took <= h.cfg.SlowHeartbeat {
		h.slow = 0
	}
	if h.slow >= slowBeats {
		c = &complaint{why: fmt.Sprintf("%d heartbeats in a row took longer than %s, the last %s", h.slow, h.cfg.SlowHeartbeat, took.Round(time.Millisecond))}
	}
	if r.CPUMS >= 0 {
		var average float64
		p.cpu, average = h.use(sample{now, time.Duration(r.CPUMS) * time.Millisecond})
		if h.cfg.MaxCPU > 0 && average > h.cfg.MaxCPU {
			c = &complaint{why: fmt.Sprintf("it used %.2f of a CPU over %s, more than %.2f", average, h.cfg.CPUFor, h.cfg.MaxCPU)}
		}
	}
	if h.cfg.MaxRSS > 0 && r.RSSBytes > h.cfg.MaxRSS {
		c = &complaint{why: fmt.Sprintf("it uses %s of memory, more than %s", mib(r.RSSBytes), mib(h.cfg.MaxRSS)), urgent: true}
	}
	return p, c
}

// use notes a sample and returns the CPU use since the last one, and the
// average over CPUFor, or 0 if the samples do not span it yet.
func (h *health) use(s sample) (last, average float64) {
	if n := len(h.samples); n > 0 {
		last = ratio(h.samples[n-1], s)
	}
	h.samples = append(h.samples, s)
	for len(h.samples) > 1 && s.at.Sub(h.samples[1].at) >= h.cfg.CPUFor {
		h.samples = h.samples[1:]
	}
	if s.at.Sub(h.samples[0].at) >= h.cfg.CPUFor {
		average = ratio(h.samples[0], s)
	}
	return last, average
}

func ratio(from, to sample) float64 {
	span := to.at.Sub(from.at)
	if span <= 0 {
		return 0
	}
	return float64(to.cpu-from.cpu) / float64(span)
}

func mib(bytes int64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }
