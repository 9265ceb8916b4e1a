package sqlite

import (
	"github.com/agentsched/agentsched/job"
)

// maxPage is how many entries of a lane are read at once.
const maxPage = 256

// cursor is where a claim stands in a lane. It remains for the whole claim; what
// it has read is of one turn.
type cursor struct {
	lane job.Lane
	at   place // behind it the claim goes on

	page []*entryRow // page[0] is the lane's head
	end  bool        // nothing is behind the page
	size int         // of the next page; pages grow, so that a claim of one entry reads one

	// peek is the head's place where that is known without reading it.
	peek  place
	peeks bool
}

// cursor returns the claim's place in a lane.
func (c *claimTurn) cursor(l job.Lane) *cursor {
	k := c.cursors[l]
	if k == nil {
		k = &cursor{lane: l, at: place{runnableAt: earliest}, size: 1}
		c.cursors[l] = k
	}
	return k
}

// head returns the first entry of the lane that the claim has not passed; nil if
// there is none.
func (c *claimTurn) head(k *cursor) (*entryRow, error) {
	if len(k.page) > 0 || k.end {
		if len(k.page) == 0 {
			return nil, nil
		}
		return k.page[0], nil
	}
	var err error
	if k.lane.Only != "" {
		k.page, err = c.only(k)
		k.end = true
	} else {
		size := min(k.size, maxPage)
		k.page, err = c.scope.page(k.lane, k.at, size)
		k.end, k.size = len(k.page) < size, 2*size
	}
	if err != nil || len(k.page) == 0 {
		return nil, err
	}
	return k.page[0], nil
}

// only returns the entry of a lane of one entry, if it is a head and not passed.
func (c *claimTurn) only(k *cursor) ([]*entryRow, error) {
	for _, h := range c.heads {
		if h.id == string(k.lane.Only) && k.at.id != h.id {
			return collect(c.db, scanRow, selectEntry, h.seq)
		}
	}
	return nil, nil
}

// pass moves behind the lane's head.
func (k *cursor) pass() {
	k.at = place{nanos(k.page[0].RunnableAt), string(k.page[0].ID)}
	k.page, k.peeks = k.page[1:], false
}

// forget drops what was read in an earlier turn.
func (k *cursor) forget() { k.page, k.end, k.peeks = nil, false, false }

// walk returns the entries to claim.
func (c *claimTurn) walk() (admitted []*entryRow, err error) {
	if err := c.order.begin(c); err != nil {
		return nil, err
	}
	for looked := 0; len(admitted) < c.spec.Max; looked++ {
		if looked == maxTurn {
			return admitted, nil
		}
		k, err := c.order.next(c)
		if err != nil {
			return nil, err
		}
		if k == nil {
			break
		}
		row := k.page[0]
		admits, err := c.admits(row)
		if err != nil {
			return nil, err
		}
		if admits {
			admitted = append(admitted, row)
		}
		k.pass()
		if err := c.order.tell(c, k); err != nil {
			return nil, err
		}
	}
	c.end = true
	return admitted, nil
}

// looksInto reports whether admits needs entries decoded.
func (c *claimTurn) looksInto() bool { return c.spec.Admit != nil || c.over != nil || c.purse != nil }

func (c *claimTurn) admits(row *entryRow) (bool, error) {
	if c.over != nil && c.over(row.Spec.Tenant, row.Spec.Agent) || c.spec.Admit != nil && !c.spec.Admit(&row.Entry) {
		return false, nil
	}
	return c.purse.pays(&row.Entry)
}
