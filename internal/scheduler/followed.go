package scheduler

import (
	"context"
	"fmt"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/workflow"
)

// followed is what is known of an open batch, so that a look at it reads only what
// has changed since the last one. It takes about 2 KB for each job, and of those
// that have not ended their words. All of it is in the store: it may be dropped at
// any time, and a new scheduler begins with none.
type followed struct {
	mark   queue.Mark
	jobs   []*queue.Entry // in the order of submission, never changed; see dropWords
	flow   workflow.Batch // what has become of each of them
	at     map[job.ID]int // where each of them is
	byName map[job.Name]*queue.Entry

	teams     *workflow.Teams // nil: it has none, or they were not asked for yet
	incidents []workflow.Incident
	failed    map[job.Name]bool // teams whose failure is stored

	looked uint64 // at which of Followers.looks it was looked at last
}

// maxFollowed is how many jobs of open batches are known between looks.
const maxFollowed = 50_000

// refresh returns what is known of a batch, brought up to date.
func (f *Followers) refresh(ctx context.Context, id job.BatchID) (*followed, error) {
	known := f.followed[id]
	if known == nil {
		known = &followed{at: map[job.ID]int{}, byName: map[job.Name]*queue.Entry{}, failed: map[job.Name]bool{}}
		f.followed[id] = known
	}
	c, err := f.store.BatchSince(ctx, id, known.mark)
	if err != nil {
		return nil, fmt.Errorf("read the jobs of workflow %s: %w", id, err)
	}
	before := *known
	if c.Whole {
		known.mark, known.jobs, known.flow, known.at, known.byName = 0, nil, workflow.Batch{}, map[job.ID]int{}, map[job.Name]*queue.Entry{}
	}
	for i := range c.Entries {
		e := &c.Entries[i]
		j, ended := before.ended(e.ID)
		if !ended {
			if j, err = f.factsOf(ctx, e); err != nil {
				return nil, err // the mark is an earlier one still
			}
		}
		known.put(*e, j)
	}
	known.mark = c.Mark
	return known, nil
}

// ended returns what has become of a job that has ended: that does not change.
func (f *followed) ended(id job.ID) (workflow.Job, bool) {
	i, ok := f.at[id]
	if !ok || !f.jobs[i].State.Terminal() {
		return workflow.Job{}, false
	}
	return *f.flow.Job(i), true
}

// put takes up how a job stands, in memory of its own.
func (f *followed) put(entry queue.Entry, j workflow.Job) {
	e := &entry
	if e.State.Terminal() {
		dropWords(e)
	}
	j.Spec = &e.Spec
	name := e.Spec.Name
	i, known := f.at[e.ID]
	if !known {
		i = len(f.jobs)
		f.jobs = append(f.jobs, nil)
		f.at[e.ID] = i
	}
	if !known || f.byName[name] == f.jobs[i] { // of two with the same name the later one counts
		f.byName[name] = e
	}
	f.jobs[i] = e
	f.flow.Put(i, j)
}

// dropWords takes from a job what nobody asks for again when it has ended, which is
// most of what it takes in memory.
func dropWords(e *queue.Entry) {
	s := &e.Spec
	s.Instructions, s.SystemPrompt, s.Verify, s.Payload, s.Flow.Input = "", "", "", nil, nil
	e.Resolved, e.Result, e.Approval, e.Feedback = nil, nil, nil, ""
}

// looksAt notes that a batch is looked at, and drops those that were looked at the
// longest ago if there are too many.
func (f *Followers) looksAt(id job.BatchID) {
	f.looks++
	jobs := 0
	for b, known := range f.followed {
		if b == id {
			known.looked = f.looks
		}
		jobs += len(known.jobs)
	}
	for jobs > f.most && len(f.followed) > 1 {
		oldest := id
		for b, known := range f.followed {
			if known.looked < f.followed[oldest].looked {
				oldest = b
			}
		}
		jobs -= len(f.followed[oldest].jobs)
		delete(f.followed, oldest)
	}
}
