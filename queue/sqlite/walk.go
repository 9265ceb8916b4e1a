package sqlite

import (
	"cmp"
	"math"
)

// maxPage is how many candidates are read at once.
const maxPage = 256

// place is where a walk through the candidates stands: behind the entry with
// this RunnableAt and ID in the list of this priority.
type place struct {
	priority   int64
	runnableAt int64
	id         string
}

func start() place { return startOf(math.MaxInt64) }

func startOf(priority int64) place { return place{priority: priority, runnableAt: earliest} }

// compare is negative if p comes before q in the order of a claim.
func (p place) compare(q place) int {
	return cmp.Or(cmp.Compare(q.priority, p.priority), cmp.Compare(p.runnableAt, q.runnableAt), cmp.Compare(p.id, q.id))
}

// walk goes through the candidates of a claim in their order: those of its
// scope, and among them the heads of other batches.
//
// The scope's stand in an index by (priority, runnable_at, id), in which those
// that are not yet runnable lie between the runnable ones of two priorities.
// The walk therefore goes priority by priority and seeks, so that it costs
// what it looks at, whatever else is queued.
type walk struct {
	*tx
	scope scope
	now   int64
	heads []head // runnable, in order

	from  place // behind it the next page begins
	page  []*entryRow
	size  int  // of the next page; pages grow, so that a claim of one entry reads one
	short bool // the page was the end of its priority
	last  bool // there is no further page
}

// newWalk returns a walk from the place where the claim stands.
func newWalk(c *claimTurn) *walk {
	w := &walk{tx: c.tx, scope: c.scope, now: nanos(c.spec.Now), from: c.at, size: c.spec.Max}
	for _, h := range c.heads {
		if h.runnableAt <= w.now && c.at.compare(h.place) < 0 {
			w.heads = append(w.heads, h)
		}
	}
	return w
}

// next returns the next candidate and its place; nil if there is none.
func (w *walk) next() (*entryRow, place, error) {
	if err := w.read(); err != nil {
		return nil, place{}, err
	}
	var own place
	if len(w.page) > 0 {
		own = w.placeOf(w.page[0])
	}
	switch {
	case len(w.heads) > 0 && (len(w.page) == 0 || w.heads[0].compare(own) < 0):
		h := w.heads[0]
		w.heads = w.heads[1:]
		row := &entryRow{}
		err := w.rowOf(h, row)
		return row, h.place, err
	case len(w.page) > 0:
		row := w.page[0]
		w.page = w.page[1:]
		return row, own, nil
	}
	return nil, place{}, nil
}

// placeOf returns the place of a row of the page.
func (w *walk) placeOf(row *entryRow) place {
	return place{w.from.priority, nanos(row.RunnableAt), string(row.ID)}
}

// read fills the page, if it is empty, with what comes next.
func (w *walk) read() error {
	for len(w.page) == 0 && !w.last {
		if w.short {
			if w.from.priority == math.MinInt64 {
				w.last = true
				return nil
			}
			w.from, w.short = startOf(w.from.priority-1), false
		}
		priority, found, err := w.priority(w.scope, w.from.priority)
		if err != nil {
			return err
		}
		if !found {
			w.last = true
			return nil
		}
		if priority != w.from.priority {
			w.from = startOf(priority)
		}
		size := min(w.size, maxPage)
		if w.page, err = w.candidates(w.scope, w.from, w.now, size); err != nil {
			return err
		}
		w.short = len(w.page) < size
		if !w.short {
			w.from = w.placeOf(w.page[size-1])
		}
		w.size = 2 * size
	}
	return nil
}
