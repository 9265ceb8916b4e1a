package sqlite

import (
	"fmt"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// chosen is the order in which a Chooser wants the lanes.
type chosen struct {
	queue.Chooser
	asked bool // Stale was; it is once in a claim
}

func (o *chosen) begin(c *claimTurn, expired []job.Lane) error {
	var all bool
	var lanes []job.Lane
	if !o.asked {
		o.asked = true
		all, lanes = o.Stale()
	}
	if all {
		found, err := c.lanes(c.scope)
		if err != nil {
			return err
		}
		lanes = nil
		for _, l := range found {
			lanes = append(lanes, l.lane)
		}
		for _, h := range c.heads {
			lanes = append(lanes, h.lane(c.scope))
		}
	}
	done := make(map[job.Lane]bool, len(lanes))
	for _, l := range append(lanes, expired...) {
		if l.Batch != c.scope.batch {
			return fmt.Errorf("the chooser asks for a lane of batch %q", l.Batch)
		}
		if done[l] {
			continue
		}
		done[l] = true
		if err := o.tell(c, c.cursor(l)); err != nil {
			return err
		}
	}
	return nil
}

func (o *chosen) tell(c *claimTurn, k *cursor) error {
	row, err := c.head(k)
	if err != nil {
		return err
	}
	if row == nil {
		k.told, k.toldAt = "", latest
		o.Head(k.lane, nil)
		return nil
	}
	if err := row.decode(); err != nil {
		return err
	}
	k.told, k.toldAt = row.ID, nanos(row.RunnableAt)
	e := row.Entry
	o.Head(k.lane, &e)
	return nil
}

// next follows the Chooser. What it knows of a lane may be older than the lane
// is: then it is told, and asked again.
func (o *chosen) next(c *claimTurn) (*cursor, error) {
	for {
		l, ok := o.Next()
		if !ok {
			return nil, nil
		}
		if l.Batch != c.scope.batch {
			return nil, fmt.Errorf("the chooser chose a lane of batch %q", l.Batch)
		}
		known := c.cursors[l] != nil
		k := c.cursor(l)
		row, err := c.head(k)
		switch {
		case err != nil:
			return nil, err
		case row != nil && nanos(row.RunnableAt) <= c.now && (!known || k.told == row.ID):
			return k, row.decode()
		case known && (row == nil && k.told == "" || row != nil && k.told == row.ID && k.toldAt == nanos(row.RunnableAt)):
			return nil, fmt.Errorf("the chooser chose tenant %s, priority %d, where nothing can be claimed", l.Tenant, l.Priority)
		}
		if err := o.tell(c, k); err != nil {
			return nil, err
		}
	}
}

func (o *chosen) taken(e *queue.Entry) {
	claimed := *e
	o.Taken(&claimed)
}

func (o *chosen) nextAt(c *claimTurn) (int64, error) {
	next := int64(latest)
	for _, k := range c.cursors {
		if k.told != "" && k.toldAt > c.now {
			next = min(next, k.toldAt)
		}
	}
	return next, nil
}
