package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/internal/server"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// replayStory is what `replay --json` prints: which results were computed when,
// and which came from the store.
type replayStory struct {
	Job      *replayJob      `json:"job,omitempty"`      // absent if a batch was asked for
	Steps    []api.Step      `json:"steps"`              // of the job, in the order in which they were stored
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

func (m *Main) replayCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "replay JOB", Short: "Show what of a job's work was done anew and what came from the store", Args: cobra.ExactArgs(1),
		Long: `Show the durable steps of a job: what each was computed from, when its result was
stored and by which attempt, and which later attempts took it from the store. Of a
job that belongs to a workflow the workflow's jobs follow: those that had ended
when it was interrupted were not run again.

JOB is a job as for ` + "`scheduler show`" + `, or the id of a batch, or 8 or more of its first
or last characters.`,
		Example: "  scheduler replay crawl\n  scheduler replay crawl --json | jq '.steps[].id'",
		RunE: func(cmd *cobra.Command, args []string) error {
			_, store, err := m.look(cmd.Context())
			if err != nil {
				return err
			}
			defer store.Close()
			s, err := tellReplay(cmd.Context(), store, args[0])
			if err != nil {
				return coded(err)
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

// tellReplay reads what is known of the job, or the batch, that ref means.
func tellReplay(ctx context.Context, store queue.Store, ref string) (*replayStory, error) {
	e, err := find(ctx, store, ref)
	if errors.Is(err, queue.ErrNotFound) {
		if b, ok, err := findBatch(ctx, store, ref); ok || err != nil {
			if err != nil {
				return nil, err
			}
			w, err := replayOfBatch(ctx, store, b)
			return &replayStory{Steps: []api.Step{}, Workflow: w}, err
		}
	}
	if err != nil {
		return nil, err
	}
	s := &replayStory{}
	if s.Steps, err = server.StepsOf(ctx, store, &e); err != nil {
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

// findBatch returns the batch whose id is ref or, if that has 8 characters or more,
// begins or ends with it.
func findBatch(ctx context.Context, store queue.Reader, ref string) (job.BatchID, bool, error) {
	all, err := store.Batches(ctx, "")
	if err != nil || len(ref) < 8 {
		return "", false, err
	}
	var found []job.BatchID
	for _, b := range all {
		if strings.HasPrefix(string(b.ID), ref) || strings.HasSuffix(string(b.ID), ref) {
			found = append(found, b.ID)
		}
	}
	if len(found) > 1 {
		return "", false, fmt.Errorf("%q is part of the ids of %d batches: %s, %s …; give more of it", ref, len(found), found[0], found[1])
	}
	return append(found, "")[0], len(found) == 1, nil
}

func newReplayJob(e *queue.Entry, interruptions []time.Time) replayJob {
	j := replayJob{ID: e.ID, Name: e.Spec.Name, State: string(scheduler.StatusOf(e, time.Now()).State), Attempts: e.Attempts, CompletedAt: e.CompletedAt}
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
func replayOfBatch(ctx context.Context, store queue.Reader, b job.BatchID) (*replayWorkflow, error) {
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
