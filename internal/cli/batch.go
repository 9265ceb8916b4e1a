package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/internal/server"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/queue/sched"
)

// openBatch finds the unfinished batch that the source continues, or submits
// its jobs as a new one, of which added hears. told is a line for the user about which it was.
func openBatch(ctx context.Context, store queue.Store, src *source, fresh bool, added func([]queue.Entry)) (id job.BatchID, told string, err error) {
	if src.resume {
		list, err := server.RunsOf(ctx, store)
		if err != nil {
			return "", "", failure(err)
		}
		opened, err := newestRun(list)
		return opened.Batch, toldOf(opened.OpenedRun), err
	}
	run, err := src.run(fresh)
	if err != nil {
		return "", "", err
	}
	runs := scheduler.RunStore{
		Reader: store, Drop: func(ctx context.Context, id job.BatchID) error { return dropBatch(ctx, store, id) },
		Add: func(ctx context.Context, b queue.Batch, entries []queue.Entry) error {
			if err := scheduler.Declare(ctx, store, &b.Workflow, run.Specs, b.CreatedAt); err != nil {
				return err
			}
			b.Private = true // this run works on it, and none but this
			if err := store.Enqueue(ctx, b, entries); err != nil {
				return err
			}
			added(entries)
			return nil
		},
	}
	opened, err := runs.Open(ctx, run)
	if err != nil {
		return "", "", notOpened(err)
	}
	return opened.Batch, toldOf(opened), nil
}

// run is what the source asks for.
func (s *source) run(fresh bool) (*scheduler.Run, error) {
	digest, err := s.digest()
	if err != nil {
		return nil, failure(err)
	}
	return &scheduler.Run{Source: s.name, Digest: digest, Specs: s.specs, Workflow: s.workflow, Fresh: fresh}, nil
}

// toldOf says which batch was opened.
func toldOf(r api.OpenedRun) string {
	if r.Continued {
		return fmt.Sprintf("continuing the run of %s: %d of %d jobs are finished", r.CreatedAt.Local().Format(time.DateTime), r.Jobs-r.Unfinished, r.Jobs)
	}
	return count(r.Jobs, "job") + " submitted"
}

// notOpened gives the reason why a run could not be opened its exit code.
func notOpened(err error) error {
	var changed *scheduler.RunChangedError
	dup, isDup := errors.AsType[*queue.DuplicateError](err)
	dead, isDead := errors.AsType[*queue.DeadOwnerError](err)
	switch {
	case errors.As(err, &changed):
		return usage(changed, changedHints()...)
	case errors.Is(err, scheduler.ErrProfile), errors.Is(err, queue.ErrTooManyJobs), errors.Is(err, queue.ErrQueueFull):
		return usage(err)
	case isDup:
		return rejected(dup)
	case isDead:
		return usage(dead)
	}
	return failure(fmt.Errorf("submit the jobs: %w", err))
}

// changedHints say what to do about a run whose jobs have changed.
func changedHints() []string {
	return []string{"`scheduler run` without arguments finishes it as it was", "`scheduler run --new …` cancels its unfinished jobs and runs the changed ones"}
}

// newestRun returns the newest run that has unfinished jobs.
func newestRun(list []api.RunStatus) (api.RunStatus, error) {
	for _, run := range list {
		if run.Unfinished > 0 {
			return run, nil
		}
	}
	return api.RunStatus{}, nothingToContinue()
}

// rejected says which job was refused for which other one, and what to do.
func rejected(dup *queue.DuplicateError) error {
	return usage(
		fmt.Errorf("job %s is rejected: the unfinished job %s (%s) has the same key, %q; nothing was submitted", dup.Name, dup.OtherJob, dup.Other, dup.Key),
		fmt.Sprintf("`scheduler show %s` tells how that one stands, `scheduler cancel %s` withdraws it", dup.Other, dup.Other),
		"with another on_duplicate the job would not be refused: docs/job-file.md")
}

func nothingToContinue() error {
	return usage(fmt.Errorf("no unfinished run to continue"), "name a job file: scheduler run FILE", "or one job: scheduler run --worker codex \"…\"",
		"what was submitted or requeued, and belongs to no run, is worked on by `scheduler serve`")
}

// submittedPrefix begins the source of a batch that was given to a running
// scheduler: no `run FILE` takes it for its own.
const submittedPrefix = "submitted: "

// submitted returns the shared batches that are unfinished, like those that were
// given to an earlier scheduler while it ran: whoever runs next goes on with them.
func submitted(ctx context.Context, store queue.Reader) ([]job.BatchID, error) {
	batches, err := store.Batches(ctx, "")
	if err != nil {
		return nil, err
	}
	var list []job.BatchID
	for _, b := range batches {
		if b.ClosedAt == nil && !b.Private && b.Source != sched.Source {
			list = append(list, b.ID)
		}
	}
	slices.Reverse(list) // the oldest first
	return list, nil
}

// dropBatch cancels what is unfinished of a batch and closes it. Nothing of it
// runs: this process owns the state directory and has started nothing yet.
func dropBatch(ctx context.Context, store queue.Store, id job.BatchID) error {
	now := utcNow()
	held, _, err := store.List(ctx, queue.Filter{Batch: id, States: []job.EntryState{job.Dispatched}, Limit: 1 << 30})
	if err != nil {
		return err
	}
	back := queue.Reclaim{Now: now, Message: "the scheduler ended while this attempt ran"}
	for _, e := range held {
		back.Fences = append(back.Fences, e.Fence)
	}
	if err := store.Apply(ctx, back); err != nil {
		return err
	}
	entries, _, err := store.List(ctx, queue.Filter{Batch: id, States: []job.EntryState{job.Queued}, Limit: 1 << 30})
	if err != nil {
		return err
	}
	ops := []queue.Op{queue.CloseBatch{ID: id, Now: now}}
	for _, e := range entries {
		ops = append(ops, queue.Cancel{ID: e.ID, Now: now})
	}
	return store.Apply(ctx, ops...)
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// stored returns what the store has as the API would tell it: how the jobs stand
// too, as far as the store knows.
func stored(entries ...queue.Entry) []api.Job {
	jobs := server.JobsOf(entries)
	for i := range jobs {
		if jobs[i].Status == nil {
			st := scheduler.StatusOf(&entries[i], time.Now())
			jobs[i].Status = &st
		}
	}
	return jobs
}
