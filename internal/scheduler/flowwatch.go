package scheduler

import (
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// awaited is what the jobs of a batch that is at rest wait for, so that at the end
// of one of thousands not all are gone over again: most ends change nothing but how
// many are left. It is for batches without teams and pipelines, which have their
// own reasons to act.
type awaited struct {
	left []int            // of each that waits: how many ends until something may follow
	by   map[job.ID][]int // which of them wait for a job
}

// ends notes that a job has ended, and reports whether something may follow from it.
func (w *awaited) ends(id job.ID) bool {
	waiting, known := w.by[id]
	if !known {
		return true
	}
	delete(w.by, id)
	follows := false
	for _, n := range waiting {
		w.left[n]--
		follows = follows || w.left[n] <= 0
	}
	return follows
}

// await adds something that waits for all of these jobs.
func (w *awaited) await(ids ...job.ID) {
	if len(ids) == 0 {
		return
	}
	w.left = append(w.left, len(ids))
	for _, id := range ids {
		w.by[id] = append(w.by[id], len(w.left)-1)
	}
}

// awaitedIn returns what a batch of which nothing follows now waits for, nil if that
// cannot be said: then each end has it looked at.
//
//	a job that is held for its needs   all of those that have not ended
//	a list whose parts may all run     all of its parts
//	the batch                          all of its jobs
//	a list or a loop                   itself: somebody may end it, and its parts with it
//	a part of anything else            itself: each end may let the next one go
func awaitedIn(common *job.Workflow, known *followed) *awaited {
	if len(common.Teams) > 0 || len(common.Pipelines) > 0 {
		return nil
	}
	w := &awaited{by: map[job.ID][]int{}}
	var all []job.ID
	parts, heldBack := map[job.Name][]job.ID{}, map[job.Name]bool{}
	for _, e := range known.jobs {
		if e.State.Terminal() {
			continue
		}
		all = append(all, e.ID)
		f := &e.Spec.Flow
		if f.Node != "" {
			parts[f.Node] = append(parts[f.Node], e.ID)
			heldBack[f.Node] = heldBack[f.Node] || e.Held == job.HeldForNeeds
			continue
		}
		if f.ForEach != nil || f.Loop != nil {
			w.await(e.ID) // ended by somebody, it has parts to be stopped
		}
		if e.Held != job.HeldForNeeds {
			continue
		}
		var needs []job.ID
		for _, name := range f.Needs {
			need := known.byName[name]
			if need == nil {
				return nil
			}
			if !need.State.Terminal() {
				needs = append(needs, need.ID)
			}
		}
		if len(needs) == 0 {
			return nil // it should have been let go
		}
		w.await(needs...)
	}
	for name, ids := range parts {
		if node := known.byName[name]; node != nil && node.Spec.Flow.ForEach != nil && !heldBack[name] {
			w.await(ids...)
			continue
		}
		for _, id := range ids {
			w.await(id)
		}
	}
	w.await(all...)
	return w
}

// rested notes what a batch waits for of which nothing follows now, unless something
// has happened to it since it was read.
func (f *Followers) rested(b job.BatchID, w *awaited) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if w != nil && !f.dirty[b] {
		f.awaited[b] = w
	}
}

// quiet reports whether nothing follows from the end of a job.
func (f *Followers) quiet(e *queue.Entry) bool {
	if !e.State.Terminal() {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	w := f.awaited[e.Batch]
	return w != nil && !f.dirty[e.Batch] && !w.ends(e.ID)
}
