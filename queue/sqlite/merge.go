package sqlite

import (
	"cmp"
	"container/heap"
	"fmt"
)

// merged is the order of a claim: all lanes of the scope
// merged by priority, RunnableAt and ID. It knows the heads by their places and
// reads a lane only when its turn comes.
type merged struct {
	ready []*cursor // a heap of the lanes with a runnable head
	ahead []*cursor // lanes whose head is not yet runnable
}

// begin reads all lanes anew: in a later turn there may be others.
func (o *merged) begin(c *claimTurn) error {
	o.ready, o.ahead = nil, nil
	lanes, err := c.scope.lanes()
	if err != nil {
		return err
	}
	for _, h := range c.heads {
		lanes = append(lanes, laneHead{h.lane(c.scope), h.place})
	}
	for _, l := range lanes {
		k := c.cursor(l.lane)
		if k.at.before(l.place) {
			k.peek, k.peeks = l.place, true
		}
		// Enough for its share, and to see what is behind that.
		k.size = max(k.size, c.spec.Max/len(lanes)+1)
		if err := o.tell(c, k); err != nil {
			return err
		}
	}
	return nil
}

func (p place) before(q place) bool {
	return cmp.Or(cmp.Compare(p.runnableAt, q.runnableAt), cmp.Compare(p.id, q.id)) < 0
}

func (o *merged) tell(c *claimTurn, k *cursor) error {
	if !k.peeks {
		if found, err := o.look(c, k); err != nil || !found {
			return err
		}
	}
	if k.peek.runnableAt > c.now {
		o.ahead = append(o.ahead, k)
	} else {
		heap.Push(o, k)
	}
	return nil
}

// look finds the place of a lane's head, without reading entries whose turn may
// not come.
func (o *merged) look(c *claimTurn, k *cursor) (found bool, err error) {
	switch {
	case len(k.page) > 0:
		k.peek, k.peeks = place{nanos(k.page[0].RunnableAt), string(k.page[0].ID)}, true
	case !k.end && k.lane.Only == "":
		k.peek, k.peeks, err = c.scope.peek(k.lane, k.at)
	}
	return k.peeks, err
}

func (o *merged) next(c *claimTurn) (*cursor, error) {
	if len(o.ready) == 0 {
		return nil, nil
	}
	k := heap.Pop(o).(*cursor)
	row, err := c.head(k)
	switch {
	case err != nil:
		return nil, err
	case row == nil: // not within one transaction
		return nil, fmt.Errorf("job %s has gone while it was looked at", k.peek.id)
	}
	if !c.looksInto() {
		return k, nil // the caller decodes what is claimed
	}
	return k, row.decode()
}

// nextAt seeks, in each lane, what lies behind the runnable ones.
func (o *merged) nextAt(c *claimTurn) (int64, error) {
	next := int64(latest)
	for _, k := range o.ahead {
		next = min(next, k.peek.runnableAt)
	}
	for _, k := range o.ready {
		if k.lane.Only != "" {
			continue
		}
		at, found, err := c.scope.firstAfter(k.lane, c.now)
		if err != nil {
			return 0, err
		}
		if found {
			next = min(next, at)
		}
	}
	return next, nil
}

// Len, Less, Swap, Push and Pop implement heap.Interface.
func (o *merged) Len() int { return len(o.ready) }

// Less is the order of a claim.
func (o *merged) Less(i, j int) bool {
	a, b := o.ready[i], o.ready[j]
	if a.lane.Priority != b.lane.Priority {
		return a.lane.Priority > b.lane.Priority
	}
	return a.peek.before(b.peek)
}

// Swap is heap.Interface's.
func (o *merged) Swap(i, j int) { o.ready[i], o.ready[j] = o.ready[j], o.ready[i] }

// Push is heap.Interface's.
func (o *merged) Push(k any) { o.ready = append(o.ready, k.(*cursor)) }

// Pop is heap.Interface's.
func (o *merged) Pop() any {
	last := o.ready[len(o.ready)-1]
	o.ready = o.ready[:len(o.ready)-1]
	return last
}
