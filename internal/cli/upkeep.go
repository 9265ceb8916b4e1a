package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/agentsched/agentsched/internal/logging"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/internal/workspace"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/policy"
	"github.com/agentsched/agentsched/queue"
)

// upkeepEvery is how often a server looks after its store, redriveEvery how often
// it looks for dead letters that a rule requeues.
const (
	upkeepEvery  = 10 * time.Minute
	redriveEvery = time.Minute
)

// pruneStep is how many jobs are forgotten in one transaction.
const pruneStep = 500

// upkeep looks after the store of a server until ctx ends: it reads the whole of
// it once, and forgets, as often as upkeepEvery, what has ended long ago.
func (e *engine) upkeep(ctx context.Context) error {
	log := e.state.logs.For(logging.Upkeep)
	if err := e.state.store.Check(ctx); err != nil && ctx.Err() == nil {
		log.Error().Err(err).Msg("the queue's file is damaged")
		e.sched.Feed.Tell(fmt.Sprintf("the queue's file is damaged: %v; `scheduler recover` says what can be done", err))
	}
	if err := e.sweep(ctx); err != nil && ctx.Err() == nil {
		log.Error().Err(err).Msg("remove what is left of forgotten jobs")
	}
	tick := time.NewTicker(upkeepEvery)
	defer tick.Stop()
	for {
		switch n, err := e.prune(ctx); {
		case err != nil && ctx.Err() == nil:
			log.Error().Err(err).Msg("forget what has ended long ago")
		case n > 0:
			log.Info().Int("jobs", n).Msg("forgot what has ended long ago")
		}
		if err := e.forgetParcels(ctx); err != nil && ctx.Err() == nil {
			log.Error().Err(err).Msg("remove folders that no job names")
		}
		if e.state.artifacts != nil {
			if err := e.state.artifacts.Forget(ctx); err != nil && ctx.Err() == nil {
				log.Error().Err(err).Msg("remove files of forgotten jobs")
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// redrive requeues dead letters as the rules say, until ctx ends.
func (e *engine) redrive(ctx context.Context) error {
	log := e.state.logs.For(logging.DeadLetters)
	tick := time.NewTicker(redriveEvery)
	defer tick.Stop()
	var lately policy.Redrives
	for {
		cfg := e.config()
		if rules := cfg.RedriveRules(); len(rules) > 0 {
			again, next, err := scheduler.Redrive(ctx, e.state.store, e.sched.Submit, rules, lately, utcNow())
			if lately = next; err != nil && ctx.Err() == nil {
				log.Error().Err(err).Msg("requeue dead letters")
			}
			for i := range again {
				log.Info().Str("job", string(again[i].ID)).Str("requeued_from", string(again[i].RequeuedFrom)).Msg("requeued by a rule")
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// prune forgets what the retention says, with its folder, and returns how many
// jobs that were. A workspace with work that exists nowhere else stays.
func (e *engine) prune(ctx context.Context) (n int, err error) {
	keep := e.config().Retention
	spec := queue.PruneSpec{Max: pruneStep}
	if keep.Finished > 0 {
		spec.Before = utcNow().Add(-keep.Finished.Std())
	}
	if keep.DeadLetters > 0 {
		spec.DeadLettersBefore = utcNow().Add(-keep.DeadLetters.Std())
	}
	if spec.Before.IsZero() && spec.DeadLettersBefore.IsZero() {
		return 0, nil
	}
	var all []job.ID
	for {
		ids, failed := e.state.store.Prune(ctx, spec)
		all = append(all, ids...)
		if err = failed; err != nil || len(ids) < pruneStep {
			break
		}
	}
	errs := []error{err}
	slices.Sort(all) // by age: the folder that jobs went on in is the first one's, and its patch the last one's
	for _, id := range all {
		errs = append(errs, e.removeJob(ctx, id))
	}
	if n = len(all); n > 0 {
		errs = append(errs, e.state.store.Compact(ctx))
	}
	return n, errors.Join(errs...)
}

// forgetParcels removes the folders of submitters that no job names any more.
func (e *engine) forgetParcels(ctx context.Context) error {
	size, err := e.parcels.Size(ctx)
	if err != nil || size == 0 {
		return err
	}
	named, err := e.state.store.Parcels(ctx)
	if err != nil {
		return err
	}
	_, err = e.parcels.Forget(ctx, named)
	return err
}

// removeJob removes what is left on disk of a job that is forgotten.
func (e *engine) removeJob(ctx context.Context, id job.ID) error {
	w := workspaces(e.state.dir, e.host.Run)
	err := w.Remove(ctx, id, job.Workspace{}, workspace.RemoveOptions{})
	var unsaved *workspace.UnsavedError
	if errors.As(err, &unsaved) {
		return nil // `scheduler clean` is for the user to say
	}
	if err != nil {
		return fmt.Errorf("remove the workspace of job %s: %w", id, err)
	}
	return os.RemoveAll(filepath.Clean(e.state.dir.Job(id)))
}

// sweep removes folders of jobs that the store has forgotten: a server that was
// killed between the two leaves them.
func (e *engine) sweep(ctx context.Context) error {
	ids, err := forgotten(e.state.dir, func(id job.ID) error {
		_, err := e.state.store.Get(ctx, id)
		return err
	})
	errs := []error{err}
	for _, id := range ids {
		errs = append(errs, e.removeJob(ctx, id))
	}
	return errors.Join(errs...)
}
