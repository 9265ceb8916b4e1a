package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/workflow/durable"
)

// replayStory is what `replay --json` prints: which results were computed when,
// and which came from the store.
type replayStory struct {
	Job      *replayJob      `json:"job,omitempty"`      // absent if a batch was asked for
	Steps    []replayStep    `json:"steps"`              // of the job, in the order in which they were stored
	Workflow *replayWorkflow `json:"workflow,omitempty"` // absent of a job that stands alone
}

// replayJob is a job as a step of its workflow.
type replayJob struct {
	ID          job.ID     `json:"id"`
	Name        job.Name   `json:"name"`
	State       string     `json:"state"`
	Inputs      string     `json:"inputs,omitempty"` // hash over what it could refer to
	Attempts    int        `json:"attempts"`
	CompletedAt *time.Time `json:"completed_at,omitempty"`
	// Kept is "store" if it had ended when the workflow was interrupted, so that
	// what followed took its result from the store, and else "fresh"; absent of a
	// job without a result.
	Kept job.Kept `json:"kept,omitempty"`
}

// replayWorkflow is the batch with its jobs, in the order of submission.
type replayWorkflow struct {
	Batch job.BatchID `json:"batch"`
	// Interruptions are when attempts were lost, since the scheduler itself ended.
	Interruptions []time.Time `json:"interruptions"`
	Jobs          []replayJob `json:"jobs"`
}

// replayStep is a durable step that a job's worker reported.
type replayStep struct {
	ID       string      `json:"id"`
	Inputs   string      `json:"inputs,omitempty"`
	StoredAt *time.Time  `json:"stored_at,omitempty"` // absent: it is not stored, or no longer
	Attempt  int         `json:"attempt,omitempty"`   // that computed what is stored
	Uses     []replayUse `json:"uses"`                // by attempt
}

// replayUse is what one attempt did with a step.
type replayUse struct {
	Attempt int      `json:"attempt"`
	Kept    job.Kept `json:"kept"`          // fresh: computed; store: from the store; refused
	Why     string   `json:"why,omitempty"` // it was refused
}

func (m *Main) replayCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "replay JOB", Short: "Show what of a job's work was done anew and what came from the store", Args: cobra.ExactArgs(1),
		Long: `Show the durable steps of a job: what each was computed from, when its result was
stored and by which attempt, and which later attempts took it from the store. Of a
job that belongs to a workflow the workflow's jobs follow: those that had ended
when it was interrupted were not run again.

JOB is a job as for ` + "`scheduler show`" + `, or the id of a batch, or 8 or more of its first
characters.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			_, store, err := m.look(cmd.Context())
			if err != nil {
				return err
			}
			defer store.Close()
			s, err := tellReplay(cmd.Context(), store, args[0])
			if err != nil {
				return failure(err)
			}
			if asJSON {
				return failure(writeJSON(m.stdout, s))
			}
			return failure(s.print(m.stdout))
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// recordStore is a store that keeps records too.
type recordStore interface {
	queue.Store
	queue.Journal
}

// tellReplay reads what is known of the job, or the batch, that ref means.
func tellReplay(ctx context.Context, store recordStore, ref string) (*replayStory, error) {
	e, err := queue.Find(ctx, store, ref)
	if errors.Is(err, queue.ErrNotFound) {
		if b, ok, err := findBatch(ctx, store, ref); ok || err != nil {
			if err != nil {
				return nil, err
			}
			w, err := replayOfBatch(ctx, store, b)
			return &replayStory{Steps: []replayStep{}, Workflow: w}, err
		}
	}
	if err != nil {
		return nil, err
	}
	s := &replayStory{}
	if s.Steps, err = replaySteps(ctx, store, &e); err != nil {
		return nil, err
	}
	if e.Spec.Flow.Joined {
		if s.Workflow, err = replayOfBatch(ctx, store, e.Batch); err != nil {
			return nil, err
		}
		if i := slices.IndexFunc(s.Workflow.Jobs, func(j replayJob) bool { return j.ID == e.ID }); i >= 0 {
			s.Job = &s.Workflow.Jobs[i]
			return s, nil
		}
	}
	j := newReplayJob(&e, nil)
	s.Job = &j
	return s, nil
}

// findBatch returns the batch whose id is ref or, if it has 8 characters or more,
// begins with it.
func findBatch(ctx context.Context, store queue.Store, ref string) (job.BatchID, bool, error) {
	all, err := store.Batches(ctx, "")
	if err != nil || len(ref) < 8 {
		return "", false, err
	}
	var found []job.BatchID
	for _, b := range all {
		if strings.HasPrefix(string(b.ID), ref) {
			found = append(found, b.ID)
		}
	}
	if len(found) > 1 {
		return "", false, fmt.Errorf("%d batches have ids that begin with %q: %s, %s …; give more of it", len(found), ref, found[0], found[1])
	}
	return append(found, "")[0], len(found) == 1, nil
}

func newReplayJob(e *queue.Entry, interruptions []time.Time) replayJob {
	j := replayJob{ID: e.ID, Name: e.Spec.Name, State: stateWord(e), Attempts: e.Attempts, CompletedAt: e.CompletedAt}
	if e.Resolved != nil {
		j.Inputs = e.Resolved.Hash
	}
	if e.State == job.Completed && e.CompletedAt != nil {
		j.Kept = job.KeptFresh
		if slices.ContainsFunc(interruptions, func(at time.Time) bool { return at.After(*e.CompletedAt) }) {
			j.Kept = job.KeptBefore
		}
	}
	return j
}

// replayOfBatch reads a batch's jobs, and when the batch was interrupted.
func replayOfBatch(ctx context.Context, store queue.Store, b job.BatchID) (*replayWorkflow, error) {
	entries, _, err := store.List(ctx, queue.Filter{Batch: b, Limit: 1 << 30})
	if err != nil {
		return nil, err
	}
	w := &replayWorkflow{Batch: b, Interruptions: []time.Time{}, Jobs: []replayJob{}}
	for i := range entries {
		attempts, err := store.Attempts(ctx, entries[i].ID)
		if err != nil {
			return nil, err
		}
		for _, a := range attempts {
			if a.Lost && a.Ended != nil {
				w.Interruptions = append(w.Interruptions, *a.Ended)
			}
		}
	}
	slices.SortFunc(w.Interruptions, time.Time.Compare)
	w.Interruptions = slices.CompactFunc(w.Interruptions, time.Time.Equal)
	for i := range entries {
		w.Jobs = append(w.Jobs, newReplayJob(&entries[i], w.Interruptions))
	}
	return w, nil
}

// replaySteps joins the stored steps of a job with what its events tell of them.
func replaySteps(ctx context.Context, store recordStore, e *queue.Entry) ([]replayStep, error) {
	of := e.ID
	if e.CoalescedWith != "" {
		of = e.CoalescedWith // it had no run of its own
	}
	stored, _, err := durable.Page(ctx, store, durable.Space(of), "", 0)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(stored, func(a, b durable.Stored) int { return a.At.Compare(b.At) })
	steps := []replayStep{}
	place := map[string]int{}
	step := func(id string) *replayStep {
		if _, ok := place[id]; !ok {
			place[id] = len(steps)
			steps = append(steps, replayStep{ID: id, Uses: []replayUse{}})
		}
		return &steps[place[id]]
	}
	for _, s := range stored {
		r := step(s.ID)
		r.Inputs, r.StoredAt, r.Attempt = s.Inputs, &s.At, s.Attempt
		if s.Attempt > 0 {
			r.use(replayUse{Attempt: s.Attempt, Kept: job.KeptFresh})
		}
	}
	for after := int64(0); ; {
		events, err := store.Events(ctx, of, after, 1000)
		if err != nil {
			return nil, err
		}
		if len(events) == 0 {
			return steps, nil
		}
		for i := range events {
			ev := &events[i]
			if after = ev.Cursor; ev.Kind == job.EventStep && ev.Kept != "" {
				u := replayUse{Attempt: ev.Attempt, Kept: ev.Kept}
				if ev.Kept == job.KeptRefused {
					u.Why = ev.Text
				}
				step(ev.Step).use(u)
			}
		}
	}
}

// use adds what an attempt did, once, in the order of the attempts.
func (s *replayStep) use(u replayUse) {
	if slices.ContainsFunc(s.Uses, func(have replayUse) bool { return have.Attempt == u.Attempt && have.Kept == u.Kept }) {
		return
	}
	s.Uses = append(s.Uses, u)
	slices.SortStableFunc(s.Uses, func(a, b replayUse) int { return a.Attempt - b.Attempt })
}
