package simulate

import "time"

// Kinds of event. Of one moment, what ends comes first: its slot is free for
// what arrives.
const (
	ends int8 = iota
	arrives
)

// event is that a job ends or a stream has arrivals; index is the job's or the
// stream's.
type event struct {
	at    time.Duration
	index int32
	kind  int8
}

// before is a total order, so that equal workloads are played equally.
func (e event) before(o event) bool {
	switch {
	case e.at != o.at:
		return e.at < o.at
	case e.kind != o.kind:
		return e.kind < o.kind
	}
	return e.index < o.index
}

// heap is a binary heap of events, the earliest at its root.
type heap struct{ all []event }

// next returns when the earliest event happens; never if there is none.
func (h *heap) next() time.Duration {
	if len(h.all) == 0 {
		return never
	}
	return h.all[0].at
}

func (h *heap) push(e event) {
	h.all = append(h.all, e)
	for i := len(h.all) - 1; i > 0; {
		up := (i - 1) / 2
		if !h.all[i].before(h.all[up]) {
			return
		}
		h.all[i], h.all[up] = h.all[up], h.all[i]
		i = up
	}
}

func (h *heap) pop() event {
	first, last := h.all[0], len(h.all)-1
	h.all[0] = h.all[last]
	h.all = h.all[:last]
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < last; child++ {
			if h.all[child].before(h.all[least]) {
				least = child
			}
		}
		if least == i {
			return first
		}
		h.all[i], h.all[least] = h.all[least], h.all[i]
		i = least
	}
}
