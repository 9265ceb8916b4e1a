package ipc

import "time"

// garbageWindow counts lines that are not JSON. One may be a stray print; limit of them within span are another program
// on the stream.
type garbageWindow struct {
	limit int
	span  time.Duration
	times []time.Time // of the last limit lines, oldest first
}

// add notes a bad line at now; it is true when limit of them, this one included, lie within the span.
func (g *garbageWindow) add(now time.Time) bool {
	g.times = append(g.times, now)
	if len(g.times) > g.limit {
		g.times = g.times[1:]
	}
	return len(g.times) == g.limit && now.Sub(g.times[0]) <= g.span
}
