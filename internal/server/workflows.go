package server

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/workflow"
)

// workflows answers about batches whose jobs depend on one another.
type workflows struct {
	store queue.Store
	all   cached[[]api.Workflow]
}

func (w *workflows) routes(r *router) {
	get(r, route{id: "list-workflows", method: "GET", path: "/v1/workflows", role: read, answered: fromStore, tag: "workflows",
		about: "List the batches whose jobs depend on one another, the newest first.\nThe list is computed from the last 2,000 batches, at most every 2 s."}, w.list)
	get(r, route{id: "get-workflow", method: "GET", path: "/v1/workflows/{batch}", role: read, answered: fromStore, tag: "workflows",
		about: "Return the jobs of a batch as a graph."}, w.graph)
}

// Bounds of a list of workflows.
const (
	maxWorkflows = 200
	maxBatches   = 2000 // that are looked at
)

type workflowsQuery struct {
	Limit int `query:"limit" minimum:"1" maximum:"200" default:"50" doc:"the most to return"`
}

func (w *workflows) list(ctx context.Context, q *workflowsQuery) (api.Workflows, error) {
	list, err := w.all.get(ctx, w.make)
	return api.Workflows{Workflows: some(list[:min(len(list), q.Limit)])}, err
}

func (w *workflows) make(ctx context.Context) ([]api.Workflow, error) {
	batches, err := w.store.Batches(ctx, "")
	if err != nil {
		return nil, err
	}
	list := []api.Workflow{}
	for i := range batches[:min(len(batches), maxBatches)] {
		b := &batches[i]
		first, total, err := w.store.List(ctx, queue.Filter{Batch: b.ID, Limit: 1})
		if err != nil {
			return nil, err
		}
		if total == 0 || !first[0].Spec.Flow.Joined {
			continue
		}
		entries, _, err := w.store.List(ctx, queue.Filter{Batch: b.ID, Limit: total})
		if err != nil {
			return nil, err
		}
		if list = append(list, workflowOf(b, entries)); len(list) == maxWorkflows {
			break
		}
	}
	return list, nil
}

func workflowOf(b *queue.Batch, entries []queue.Entry) api.Workflow {
	w := api.Workflow{Batch: b.ID, Source: b.Source, CreatedAt: b.CreatedAt, Jobs: len(entries), States: map[string]int{}}
	for i := range entries {
		w.States[stateWord(&entries[i])]++
	}
	for _, t := range b.Workflow.Teams {
		w.Teams = append(w.Teams, t.ID)
	}
	for _, p := range b.Workflow.Pipelines {
		w.Pipelines = append(w.Pipelines, p.ID)
	}
	return w
}

// batchPath is the part of a path that names a batch.
type batchPath struct {
	Batch string `path:"batch" doc:"its id, or 8 or more characters of its beginning or its end"`
}

func (w *workflows) graph(ctx context.Context, in *batchPath) (api.Graph, error) {
	b, err := findBatch(ctx, w.store, in.Batch)
	if err != nil {
		return api.Graph{}, err
	}
	entries, _, err := w.store.List(ctx, queue.Filter{Batch: b.ID, Limit: 1 << 30})
	if err != nil {
		return api.Graph{}, err
	}
	return api.Graph{Workflow: workflowOf(&b, entries), Nodes: nodesOf(&b.Workflow, entries)}, nil
}

// findBatch returns the batch that ref names.
func findBatch(ctx context.Context, store queue.Reader, ref string) (queue.Batch, error) {
	all, err := store.Batches(ctx, "")
	if err != nil {
		return queue.Batch{}, err
	}
	var found []queue.Batch
	for _, b := range all {
		if string(b.ID) == ref {
			return b, nil
		}
		if len(ref) >= 8 && (strings.HasPrefix(string(b.ID), ref) || strings.HasSuffix(string(b.ID), ref)) {
			found = append(found, b)
		}
	}
	switch len(found) {
	case 0:
		return queue.Batch{}, fmt.Errorf("batch %q: %w", ref, queue.ErrNotFound)
	case 1:
		return found[0], nil
	}
	return queue.Batch{}, badField("path.batch", "%q is part of the ids of %d batches: %s, %s …; give more of it", ref, len(found), found[0].ID, found[1].ID)
}

// nodesOf returns the jobs as nodes. A part has the level of what it is a part of.
func nodesOf(w *job.Workflow, entries []queue.Entry) []api.Node {
	var specs []job.Spec
	for i := range entries {
		if entries[i].Spec.Flow.Node == "" {
			specs = append(specs, entries[i].Spec)
		}
	}
	level, critical := map[job.Name]int{}, map[job.Name]bool{}
	if plan, err := workflow.NewPlan(specs); err == nil { // it was looked at when it was submitted
		for n, names := range plan.Levels {
			for _, name := range names {
				level[name] = n
			}
		}
		for _, name := range plan.Critical {
			critical[name] = len(plan.Critical) > 1
		}
	}
	stages, at := stagesOf(w), time.Now()
	nodes := []api.Node{}
	for i := range entries {
		e := &entries[i]
		f := &e.Spec.Flow
		st := scheduler.StatusOf(e, at)
		n := api.Node{
			ID: e.ID, Name: e.Spec.Name, Kind: kindOf(e, stages), State: string(st.State), Level: level[e.Spec.Name], Critical: critical[e.Spec.Name],
			Needs: f.Needs, Of: f.Node, If: f.If, Worker: e.Spec.Choices()[min(e.Choice, len(e.Spec.Fallback))].Worker,
			Attempts: e.Attempts, Note: st.Line(), StartedAt: e.DispatchedAt, EndedAt: e.CompletedAt,
		}
		if n.Of != "" {
			n.Level = level[n.Of]
		}
		nodes = append(nodes, n)
	}
	return nodes
}

func stagesOf(w *job.Workflow) []job.Name {
	var names []job.Name
	for i := range w.Pipelines {
		for _, stage := range w.Pipelines[i].Stages {
			names = append(names, stage.Job)
		}
	}
	return names
}

// kindOf says what sort of node a job is.
func kindOf(e *queue.Entry, stages []job.Name) string {
	f := &e.Spec.Flow
	switch {
	case f.Node != "":
		return "job" // a part: it is what its node repeats
	case f.ForEach != nil:
		return "for_each"
	case f.Loop != nil:
		return "loop"
	case slices.Contains(stages, e.Spec.Name):
		return "stage"
	case len(f.From) > 0:
		return "merge"
	}
	return "job"
}
