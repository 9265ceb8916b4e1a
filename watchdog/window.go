package watchdog

import (
	"math/bits"
	"time"
)

// slotCount is how many slots a window is cut into: what is older than the
// window leaves it a twelfth of the window at a time.
const slotCount = 12

// ring keeps a value for each of the last slotCount stretches of time.
//
// Invariant: slot n holds number n or an older one of the same remainder.
type ring[S any] struct {
	length time.Duration // of a slot
	origin time.Time     // where slot 0 begins: the first time that was seen
	newest int64         // number of the newest slot
	slots  [slotCount]struct {
		number int64
		used   bool
		value  S
	}
}

func newRing[S any](window time.Duration) ring[S] {
	return ring[S]{length: max(window/slotCount, 1)}
}

// advance returns the number of the slot for now. A time that goes back a
// little counts as the newest one; one that goes back by more than the window
// can only come from a clock that was set, so the ring starts afresh.
func (r *ring[S]) advance(now time.Time) int64 {
	n := int64(now.Sub(r.origin) / r.length)
	if r.origin.IsZero() || n < r.newest-slotCount {
		*r = ring[S]{length: r.length, origin: now}
		return 0
	}
	r.newest = max(r.newest, n)
	return r.newest
}

// at returns the value to add to now.
func (r *ring[S]) at(now time.Time) *S {
	n := r.advance(now)
	s := &r.slots[n%slotCount]
	if !s.used || s.number != n {
		*s = struct {
			number int64
			used   bool
			value  S
		}{number: n, used: true}
	}
	return &s.value
}

// each calls f with every value that lies in the window at now.
func (r *ring[S]) each(now time.Time, f func(*S)) {
	newest := r.advance(now)
	for i := range r.slots {
		if s := &r.slots[i]; s.used && s.number > newest-slotCount {
			f(&s.value)
		}
	}
}

// Buckets of a histogram: whole milliseconds up to 15, then eight to each
// power of two, so that a bucket is at most an eighth of its values wide (the
// scheme of HdrHistogram). The last ends at 2³¹−1 ms, about 24 days.
const (
	maxMillis   = 1<<31 - 1
	bucketCount = 27*8 + 16
)

func bucketOf(ms int64) int {
	if ms < 16 {
		return int(ms)
	}
	e := bits.Len64(uint64(ms)) - 4 // ms>>e lies in 8 … 15
	return e*8 + int(ms>>e)
}

// bucketTop is the largest value of a bucket.
func bucketTop(i int) int64 {
	if i < 16 {
		return int64(i)
	}
	e := i/8 - 1
	return int64(i%8+9)<<e - 1
}

type histogram struct {
	count, max int64
	buckets    [bucketCount]uint32
}

func (h *histogram) add(d time.Duration) {
	ms := min(max(d.Milliseconds(), 0), maxMillis)
	h.count++
	h.max = max(h.max, ms)
	h.buckets[bucketOf(ms)]++
}

func (h *histogram) merge(o *histogram) {
	h.count += o.count
	h.max = max(h.max, o.max)
	for i, n := range o.buckets {
		h.buckets[i] += n
	}
}

// quantile returns a value that the share q of all values does not exceed:
// never less than the exact one (nearest rank), and at most an eighth more.
func (h *histogram) quantile(percent int64) int64 {
	rank := (h.count*percent + 99) / 100
	for i, n := range h.buckets {
		if rank -= int64(n); rank <= 0 {
			return min(bucketTop(i), h.max)
		}
	}
	return h.max
}

// latencies is a rolling distribution.
type latencies struct{ ring[histogram] }

func (l *latencies) add(now time.Time, d time.Duration) { l.at(now).add(d) }

func (l *latencies) over(now time.Time) Latency {
	var sum histogram
	l.each(now, sum.merge)
	if sum.count == 0 {
		return Latency{}
	}
	return Latency{Count: sum.count, P50: sum.quantile(50), P95: sum.quantile(95), Max: sum.max}
}
