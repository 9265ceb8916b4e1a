package jobfile

import (
	"encoding/json"
	"slices"

	"github.com/agentsched/agentsched/job"
)

// best is the worker of a job whose candidates reputation chooses from.
const best = "best"

// resolveConflicts are the instructions of a merge that a worker completes.
const resolveConflicts = `Several changes were put together in this folder, and some of them conflict. The places are marked in the files with lines that begin with <<<<<<<, ======= and >>>>>>>.

Resolve every conflict so that what each side meant is kept, remove all marks, and change nothing else.`

// flow returns how a job hangs together with others. Merge is another way to
// say needs and workspace.from.
func (r *reader) flow(path string, e *entry) job.Flow {
	f := job.Flow{
		Needs: e.Needs.names, If: e.If, Input: e.Input.json, Best: e.ofBest,
		ForEach: r.forEach(path+".for_each", e.ForEach), Loop: e.Loop, Oversight: e.Oversight, Evaluation: e.Evaluation,
	}
	if e.Workspace != nil {
		f.From, f.OnConflict = e.Workspace.From.names, e.Workspace.OnConflict
	}
	if e.Merge.names == nil {
		return f
	}
	if f.From != nil {
		r.Failf(path+".workspace.from", "has no use beside merge, which names the jobs already")
	}
	if e.Workspace != nil {
		f.From = e.Merge.names
	} else {
		r.Failf(path+".workspace", "is missing, want the folder that the patches are merged in, such as {path: .}")
	}
	f.Needs = slices.Clone(f.Needs)
	for _, name := range e.Merge.names {
		if !slices.Contains(e.Needs.names, name) {
			f.Needs = append(f.Needs, name)
		}
	}
	return f
}

// mergeDefaults fills in what a merge need not say. The patches are put together
// before the worker starts: without conflicts nothing is left to do.
func (r *reader) mergeDefaults(path string, e *entry, agent *profile) {
	if e.Merge.names == nil || r.Has(path+".instructions") {
		return
	}
	hasWorker := e.Worker != "" || agent != nil && agent.given.Worker != ""
	switch {
	case e.Workspace != nil && e.Workspace.OnConflict == job.ResolveConflict && !job.Type(e.Type).Command() && e.Worker != string(job.ShellWorker):
		e.Instructions.text = resolveConflicts
		if !hasWorker {
			r.Failf(path+".worker", "is missing, and with on_conflict %s one is to resolve the conflicts, want %s", job.ResolveConflict, r.oneOf())
		}
	case e.Type == "" && !hasWorker:
		e.Type = jobType(job.Tool)
		e.Instructions.text = "true"
	case e.Type == jobType(job.Tool):
		e.Instructions.text = "true"
	}
}

// best turns the candidates of a job into its worker and its fallbacks.
func (r *reader) best(path string, e *entry) {
	if e.Worker != best {
		if e.Candidates != nil {
			r.Failf(path+".candidates", "have no use without worker: %s; other workers to try are the fallback", best)
		}
		return
	}
	for _, f := range []struct {
		field string
		given bool
	}{{"model", e.Model != ""}, {"fallback", e.Fallback != nil}} {
		if f.given {
			r.Failf(path+"."+f.field, "has no use with worker: %s, whose candidates name it, as worker or worker:model", best)
		}
	}
	if e.Candidates == nil || len(*e.Candidates) == 0 {
		r.Failf(path+".candidates", "are missing: with worker: %s, want the workers to choose from, such as [codex, \"claude:sonnet\"]", best)
		e.vetted = true
		return
	}
	first := (*e.Candidates)[0]
	e.Worker, e.Model, e.Fallback, e.ofBest = string(first.Worker), first.Model, (*e.Candidates)[1:], true
}

func (r *reader) forEach(path string, given *forEach) *job.ForEach {
	if given == nil || r.Blamed(path) {
		return nil
	}
	f := &job.ForEach{Items: given.Items.json, Max: given.Max, MaxParallel: given.MaxParallel}
	if f.Items == nil {
		f.Items = json.RawMessage(`[]`) // a mistake that was recorded
	}
	return f
}
