package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/queue/sched"
)

// openBatch finds the unfinished batch that the source continues, or submits
// its jobs as a new one. told is a line for the user about which it was.
func openBatch(ctx context.Context, store queue.Store, src *source, fresh bool) (id job.BatchID, told string, err error) {
	batches, err := store.Batches(ctx, src.name)
	if err != nil {
		return "", "", failure(err)
	}
	if src.resume {
		return resumeNewest(ctx, store, batches)
	}
	digest, err := src.digest()
	if err != nil {
		return "", "", failure(err)
	}
	for _, b := range batches {
		if b.ClosedAt != nil {
			continue
		}
		unfinished, total, err := progressOf(ctx, store, b.ID)
		switch {
		case err != nil:
			return "", "", failure(err)
		case fresh || unfinished == 0 && b.Digest != digest:
			if err := dropBatch(ctx, store, b.ID); err != nil {
				return "", "", failure(err)
			}
		case b.Digest != digest:
			return "", "", usage(
				fmt.Errorf("the jobs of this source have changed since a run of %s that is unfinished: %d of its %d jobs", b.CreatedAt.Local().Format(time.DateTime), unfinished, total),
				"`scheduler run` without arguments finishes it as it was",
				"`scheduler run --new …` cancels its unfinished jobs and runs the changed ones")
		default:
			return b.ID, fmt.Sprintf("continuing the run of %s: %d of %d jobs are finished", b.CreatedAt.Local().Format(time.DateTime), total-unfinished, total), nil
		}
	}
	if err := scheduler.Declare(ctx, store, &src.workflow, src.specs, utcNow()); errors.Is(err, scheduler.ErrProfile) {
		return "", "", usage(err)
	} else if err != nil {
		return "", "", failure(err)
	}
	b, entries := scheduler.NewBatch(src.name, digest, src.specs, src.workflow, utcNow())
	b.Private = true // this run works on it, and none but this
	err = store.Enqueue(ctx, b, entries)
	if dup, ok := errors.AsType[*queue.DuplicateError](err); ok {
		return "", "", rejected(dup)
	}
	if errors.Is(err, queue.ErrDeadOwner) {
		return "", "", usage(fmt.Errorf("submit the jobs: %w", err), "`scheduler grant ls` shows who is dead, `scheduler grant OWNER --alive` lets jobs in again")
	}
	if err != nil {
		return "", "", failure(fmt.Errorf("submit the jobs: %w", err))
	}
	return b.ID, fmt.Sprintf("%s submitted", count(len(entries), "job")), nil
}

// rejected says which job was refused for which other one, and what to do.
func rejected(dup *queue.DuplicateError) error {
	return usage(
		fmt.Errorf("job %s is rejected: the unfinished job %s (%s) has the same key, %q; nothing was submitted", dup.Name, dup.OtherJob, dup.Other, dup.Key),
		fmt.Sprintf("`scheduler show %s` tells how that one stands, `scheduler cancel %s` withdraws it", dup.Other, dup.Other),
		"with another on_duplicate the job would not be refused: docs/job-file.md")
}

// resumeNewest returns the newest batch that has unfinished jobs.
func resumeNewest(ctx context.Context, store queue.Store, batches []queue.Batch) (job.BatchID, string, error) {
	for _, b := range batches {
		if b.ClosedAt != nil || !b.Private {
			continue
		}
		unfinished, total, err := progressOf(ctx, store, b.ID)
		if err != nil {
			return "", "", failure(err)
		}
		if unfinished > 0 {
			return b.ID, fmt.Sprintf("continuing the run of %s: %d of %d jobs are finished", b.CreatedAt.Local().Format(time.DateTime), total-unfinished, total), nil
		}
	}
	return "", "", nothingToContinue()
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
func submitted(ctx context.Context, store queue.Store) ([]job.BatchID, error) {
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

func progressOf(ctx context.Context, store queue.Store, id job.BatchID) (unfinished, total int, err error) {
	_, total, err = store.List(ctx, queue.Filter{Batch: id, Limit: 1})
	if err != nil {
		return 0, 0, err
	}
	_, unfinished, err = store.List(ctx, queue.Filter{Batch: id, States: []job.EntryState{job.Queued, job.Dispatched}, Limit: 1})
	return unfinished, total, err
}

// dropBatch cancels what is unfinished of a batch and closes it. Nothing of it
// runs: this process owns the state directory and has started nothing yet.
func dropBatch(ctx context.Context, store queue.Store, id job.BatchID) error {
	now := utcNow()
	if err := store.Apply(ctx, queue.Reclaim{Now: now, All: true, Message: "the scheduler ended while this attempt ran"}); err != nil {
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
