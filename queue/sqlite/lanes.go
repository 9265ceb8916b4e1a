package sqlite

import (
	"container/list"
	"context"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// laneChanges knows when lanes have changed last (see changes), from the first time
// that somebody asks.
type laneChanges struct {
	on  bool
	max int // lanes at once: maxLanes
	// floor is the mark up to which changes are not known.
	floor queue.Mark
	order list.List // of laneChange, the latest last
	of    map[laneKey]*list.Element
	// raised is set if there is something to tell watchers after the commit.
	raised   bool
	watchers map[chan struct{}]bool
}

// laneKey is a lane by the row number of its private batch; sharedPool is what is
// shared.
type laneKey struct {
	pool     int64
	tenant   job.Tenant
	priority int
}

type laneChange struct {
	key laneKey
	at  queue.Mark
}

// maxLanes is how many lanes are known at once: 16 MiB. Beyond that, the ones that
// have not changed for longest are forgotten.
const maxLanes = 1 << 16

// noteLane notes a change of an entry, if its lane has changed by it. c.mu is held.
//
// e says where the entry is after the transaction, which tells enough of where it was:
// it leaves its lane by a claim, which does not count as a change, by Keep, or at its
// end as cancelled or expired.
func (c *changes) noteLane(e changedEntry, kept bool) {
	held := e.lane.pool <= heldPool(sharedPool)
	if held {
		e.lane.pool = heldPool(e.lane.pool)
	}
	if e.lane.pool < sharedPool {
		return // external work
	}
	// One that waits for another of its key counts too: its batch may have a lane of that
	// other one now.
	inLane := e.state == job.Queued && !held
	if inLane || kept || e.state == job.Cancelled || e.state == job.Expired {
		c.lanes.raise(e.lane, c.noted)
	}
}

func (l *laneChanges) raise(key laneKey, at queue.Mark) {
	if !l.on {
		return
	}
	l.raised = true
	if e := l.of[key]; e != nil {
		e.Value = laneChange{key, at}
		l.order.MoveToBack(e)
		return
	}
	l.of[key] = l.order.PushBack(laneChange{key, at})
	if l.order.Len() > l.max {
		oldest := l.order.Remove(l.order.Front()).(laneChange)
		delete(l.of, oldest.key)
		l.floor = oldest.at
	}
}

// forget makes everything that has changed before the mark unknown.
func (l *laneChanges) forget(floor queue.Mark) {
	l.floor, l.raised = floor, true
	l.order.Init()
	l.of = map[laneKey]*list.Element{}
}

// signal tells watchers what was raised.
func (l *laneChanges) signal() {
	if !l.raised {
		return
	}
	l.raised = false
	for w := range l.watchers {
		select {
		case w <- struct{}{}:
		default: // it has not yet received the last one
		}
	}
}

// now returns the mark of the newest commit.
func (c *changes) now() queue.Mark {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// lanesSince returns which lanes of a pool have changed after a mark, and whether
// these are known to be all. From now on changes of lanes are noted.
func (c *changes) lanesSince(pool int64, since queue.Mark) (lanes []laneKey, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.startLanes()
	if since < c.lanes.floor || since > c.last {
		return nil, false
	}
	for e := c.lanes.order.Back(); e != nil; e = e.Prev() {
		l := e.Value.(laneChange)
		if l.at <= since {
			break
		}
		if l.key.pool == pool {
			lanes = append(lanes, l.key)
		}
	}
	return lanes, true
}

// startLanes begins to note changes of lanes; c.mu is held. Those of a commit that is
// under way were not noted, and whoever reads before it must be told after it.
func (c *changes) startLanes() {
	if !c.lanes.on {
		c.lanes.on, c.lanes.floor, c.lanes.raised = true, c.noted, c.noted > c.last
	}
}

// Watch implements queue.Store. A store that is open for reading only has nothing to
// tell.
func (s *Store) Watch(ctx context.Context) <-chan struct{} {
	w := make(chan struct{}, 1)
	if s.writer == nil {
		return w
	}
	c := &s.writer.tx.changes
	c.mu.Lock()
	defer c.mu.Unlock()
	c.startLanes()
	if c.lanes.watchers == nil {
		c.lanes.watchers = map[chan struct{}]bool{}
	}
	c.lanes.watchers[w] = true
	context.AfterFunc(ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.lanes.watchers, w)
	})
	return w
}
