package queuetest

import (
	"fmt"
	"hash/fnv"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// picker is a Chooser for one claim. It picks the runnable lane that less says,
// or an arbitrary one that depends on salt and on what it was told alone.
type picker struct {
	all   bool
	stale []job.Lane
	now   time.Time
	max   int // lanes to pick at most; 0: no bound
	less  func(a, b queue.Entry) bool
	salt  int

	heads  map[job.Lane]queue.Entry // as it was last told
	told   []string                 // names, "-" for none, in the order in which it was told
	taken  []job.ID
	picked int
}

func (p *picker) Stale() (all bool, lanes []job.Lane) { return p.all, p.stale }

func (p *picker) Head(l job.Lane, e *queue.Entry) {
	if p.heads == nil {
		p.heads = map[job.Lane]queue.Entry{}
	}
	if e == nil {
		delete(p.heads, l)
		p.told = append(p.told, "-")
		return
	}
	p.heads[l] = *e
	p.told = append(p.told, string(e.Spec.Name))
}

func (p *picker) Next() (best job.Lane, ok bool) {
	if p.max > 0 && p.picked == p.max {
		return job.Lane{}, false
	}
	less := p.less
	if less == nil {
		less = func(a, b queue.Entry) bool { return p.hash(a) < p.hash(b) }
	}
	for l, e := range p.heads {
		if !e.RunnableAt.After(p.now) && (!ok || less(e, p.heads[best])) {
			best, ok = l, true
		}
	}
	p.picked++
	return best, ok
}

func (p *picker) Taken(e *queue.Entry) { p.taken = append(p.taken, e.ID) }

func (p *picker) hash(e queue.Entry) uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, p.salt, e.ID)
	return h.Sum64()
}

// known returns the ids of the heads that it knows.
func (p *picker) known() map[string]job.ID {
	ids := map[string]job.ID{}
	for l, e := range p.heads {
		ids[fmt.Sprintf("%+v", l)] = e.ID
	}
	return ids
}
