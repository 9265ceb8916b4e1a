package main

import (
	"slices"
	"sync"
	"time"
)

// ringSize bounds what is remembered; River's adapter remembers as many.
const ringSize = 32768

// ring has the latest durations.
type ring struct {
	mu   sync.Mutex
	list []noted
	next int
}

type noted struct {
	at   time.Time
	took time.Duration
}

func (r *ring) add(took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := noted{time.Now(), max(took, 0)}
	if len(r.list) < ringSize {
		r.list = append(r.list, n)
		return
	}
	r.list[r.next] = n
	r.next = (r.next + 1) % ringSize
}

// quantiles are those of what was noted after since, in milliseconds; zeros if nothing was.
func (r *ring) quantiles(since time.Time, at ...float64) []float64 {
	var values []time.Duration
	r.mu.Lock()
	for _, n := range r.list {
		if n.at.After(since) {
			values = append(values, n.took)
		}
	}
	r.mu.Unlock()
	slices.Sort(values)
	out := make([]float64, len(at))
	for i, q := range at {
		if len(values) > 0 {
			out[i] = values[int(q*float64(len(values)-1))].Seconds() * 1e3
		}
	}
	return out
}
