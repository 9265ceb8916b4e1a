package scheduler

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/schedule"
)

// ErrEnding: the scheduler takes no further jobs.
var ErrEnding = errors.New("the scheduler is about to end")

// NewBatch returns a batch of jobs as it is submitted at the time. Those that
// hang together with others are held until somebody has looked at all of them.
func NewBatch(source, digest string, specs []job.Spec, w job.Workflow, at time.Time) (queue.Batch, []queue.Entry) {
	b := queue.Batch{ID: job.NewBatchID(), Source: source, Digest: digest, Workflow: w, CreatedAt: at}
	entries := make([]queue.Entry, len(specs))
	stages := stageJobs(&w)
	for i, s := range specs {
		s.Lead = job.Lead{} // no agent's
		entries[i] = newEntry(b.ID, s, at)
		if stages[s.Name] {
			entries[i].Held, entries[i].Waiting = job.HeldForNeeds, job.Waiting{Reason: job.WaitPipeline}.String()
		}
	}
	return b, entries
}

func newEntry(b job.BatchID, s job.Spec, at time.Time) queue.Entry {
	if s.Trace == "" {
		s.Trace = NewTrace()
	}
	e := queue.Entry{ID: job.NewID(), Batch: b, Spec: s, State: job.Queued, CreatedAt: at, RunnableAt: at, Deadline: s.Deadline}
	_, e.Key = s.Duplicates()
	if s.RunnableAt != nil {
		e.RunnableAt = *s.RunnableAt
	}
	if !s.Flow.Alone() {
		e.Held, e.Waiting = job.HeldForNeeds, job.Waiting{Reason: job.WaitDependency}.String()
	}
	return e
}

// NewTrace returns the id of a trace, as W3C Trace Context has it: 32 hexadecimal
// digits.
func NewTrace() string {
	id := uuid.New()
	return hex.EncodeToString(id[:])
}

// foldersOf returns the folders that jobs work in.
func foldersOf(entries []queue.Entry) (paths []string) {
	for i := range entries {
		paths = append(paths, entries[i].Spec.Workspace.Path)
	}
	return paths
}

// Submit stores a batch and works on it like on its own. When it returns nil
// the jobs are durable. Running jobs that newer ones take the place of
// (job.LatestWins) are stopped.
func (s *Scheduler) Submit(ctx context.Context, b queue.Batch, entries []queue.Entry) error {
	return s.admit(ctx, &b, entries, func(ctx context.Context) error {
		err := Declare(ctx, s.cfg.Store, &b.Workflow, specsOf(entries), b.CreatedAt)
		if err == nil {
			err = s.cfg.Store.Enqueue(ctx, b, entries)
		}
		return err
	})
}

// admit is Submit of what store makes durable.
func (s *Scheduler) admit(ctx context.Context, b *queue.Batch, entries []queue.Entry, store func(context.Context) error) error {
	s.mu.Lock()
	if s.stopping {
		s.mu.Unlock()
		return ErrEnding
	}
	s.submitting++
	s.mu.Unlock()
	// Before anything can be claimed: a job whose folder is not known yet is passed over, and
	// would lose its turn to those of a lower priority.
	s.folders.Know(foldersOf(entries))
	err := store(ctx)
	s.mu.Lock()
	s.submitting--
	if err == nil && len(s.batches) > 0 {
		s.batches = append(s.batches, b.ID)
	}
	s.mu.Unlock()
	if err != nil {
		return fmt.Errorf("submit %d jobs: %w", len(entries), err)
	}
	s.Followers.open.note(b, entries)
	// The jobs are durable: what follows is done also if whoever submitted them has gone.
	ctx = context.WithoutCancel(ctx)
	var failed []error
	for i := range entries {
		e := &entries[i]
		policy, key := e.Spec.Duplicates()
		e.Key = key
		s.Feed.observe(Moment{Kind: MomentSubmitted, At: e.CreatedAt, Entry: e})
		s.Followers.follow(e)
		s.Feed.publishEntry(ctx, e.ID)
		if policy != job.LatestWins {
			continue
		}
		if err := s.supersede(ctx, e.ID); err != nil {
			failed = append(failed, err)
		}
	}
	if len(failed) > 0 {
		// The runs are marked in the store: their ends are recorded as cancelled.
		s.cfg.Log.Error().Err(failed[0]).Int("jobs", len(failed)).Msg("look for runs that newer jobs take the place of")
	}
	s.poke()
	return nil
}

func specsOf(entries []queue.Entry) []job.Spec {
	specs := make([]job.Spec, len(entries))
	for i := range entries {
		specs[i] = entries[i].Spec
	}
	return specs
}

// Wake makes the scheduler look at the queue again: something that keeps jobs from
// running may have changed, such as a grant.
func (s *Scheduler) Wake() { s.loop.post(schedule.Forget{}) }

// Changed tells whoever watches of an entry that somebody has changed beside the
// scheduler, as programs do with work that they claim themselves.
func (s *Scheduler) Changed(e *queue.Entry) {
	s.Feed.publishState(e)
	if e.State != job.Dispatched {
		s.loop.post(schedule.Lapsed{ID: e.ID})
	}
	if e.Spec.Type == job.External && e.Key == "" {
		return // it has no place among the scheduler's own jobs
	}
	if e.State.Terminal() {
		s.Feed.publishFollowers(context.Background(), e)
	}
	if e.CancelRequested && e.State == job.Dispatched && e.Spec.Type != job.External {
		s.stopJob(e.ID, "cancelled by a program")
	}
	s.poke()
}

// Batches returns the batches that are worked on: Config.Batch first, then
// Config.Also and those that Submit has added; none if all are.
func (s *Scheduler) Batches() []job.BatchID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.batches)
}

// Reload puts a tuning in force: for permits asked for from now on, and for the
// decisions about attempts that end from now on. The error says which core
// could not be told; it is told again when it is replaced.
func (s *Scheduler) Reload(ctx context.Context, t Tuning) error {
	s.mu.Lock()
	policyBefore := s.cfg.Policy
	s.cfg.Tuning = t
	s.mu.Unlock()
	s.fleet.use(t.Settings, t.Rates)
	var before, keep time.Duration
	s.loop.ask(func(m *schedule.Machine) {
		before = m.Remembers()
		m.Take(time.Now(), s.fleet.boundsNow(), schedule.Windows(t.Settings.Limits.CostWindows), schedule.UseRetry{Retry: t.Retry})
		keep = m.Remembers()
	})
	if keep > before {
		if err := s.recallSpendings(ctx); err != nil {
			return err
		}
	}
	if !reflect.DeepEqual(policyBefore, t.Policy) {
		if err := s.usePolicy(ctx); err != nil {
			return err
		}
	}
	s.poke()
	return s.fleet.sup.Reconfigure(ctx)
}
