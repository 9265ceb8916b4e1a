package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/workflow"
)

// Followers find what follows in workflows, teams and pipelines from the ends of jobs,
// and do it: facts in, ops out.
//
//	end of a job, start ──► follow ──► run: read what has changed ──► workflow.Advance ──► ops ──► Store.Apply
//	                                    ▲                                                             │
//	                                    └──────────────── until nothing more follows ─────────────────┘
//
// What follows is a function of what is stored. It is asked for again after a
// crash, or when somebody was faster, and the answer is the same. An end costs what depends
// on it: of a batch is read what has changed, and kept what is known.
type Followers struct {
	store    queue.Store
	feed     *Feed
	log      zerolog.Logger
	jobs     stopper
	kinds    kinds
	dispatch func() // has the dispatcher look at the queue
	open     *openBatches
	fileHere func(context.Context, job.Artifact) (job.Artifact, error) // Config.FileHere

	wake bell

	mu     sync.Mutex // guards what follows
	busy   bool       // something is looked at, or nothing was yet
	later  bool       // something is looked at again soon
	dirty  map[job.BatchID]bool
	failed []FailedTeam // during this scheduler's life

	// What follows is of the goroutine of run alone.
	followed map[job.BatchID]*followed
	looks    uint64               // how many there were
	most     int                  // jobs are known between looks
	stopBy   map[job.ID]time.Time // by when jobs have to stop that were asked for a checkpoint
	again    []job.BatchID        // to be looked at when timer fires
	timer    *time.Timer
}

// stopper ends jobs for those that follow them.
type stopper interface {
	Cancel(ctx context.Context, id job.ID) error
	cancel(ctx context.Context, id job.ID, reason string) error
	// stopJob stops a job whose cancellation the store knows of.
	stopJob(id job.ID, reason string)
	Checkpoint(ctx context.Context, id job.ID, reason string) (asked bool, err error)
}

func (f *Followers) init() *Followers {
	f.wake, f.busy, f.dirty = newBell(), true, map[job.BatchID]bool{}
	f.followed, f.most, f.stopBy = map[job.BatchID]*followed{}, maxFollowed, map[job.ID]time.Time{}
	f.timer = time.NewTimer(time.Hour)
	f.timer.Stop()
	return f
}

// follow has somebody look at what follows from how an entry stands.
func (f *Followers) follow(e *queue.Entry) {
	if e.Spec.Flow.Joined {
		f.look(e.Batch)
	}
}

func (f *Followers) look(b job.BatchID) {
	f.mu.Lock()
	f.dirty[b] = true
	f.mu.Unlock()
	f.wake.ring()
}

func (f *Followers) take() []job.BatchID {
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []job.BatchID
	for b := range f.dirty {
		list = append(list, b)
	}
	clear(f.dirty)
	f.busy = len(list) > 0
	return list
}

func (f *Followers) rest() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.busy = false
}

func (f *Followers) setLater(later bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.later = later
}

// resting reports whether nothing is looked at, and nothing waits for that.
func (f *Followers) resting() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.busy && !f.later && len(f.dirty) == 0
}

// lookLater has a batch looked at again after flowRetry.
func (f *Followers) lookLater(b job.BatchID) {
	f.again = append(f.again, b)
	f.timer.Reset(flowRetry)
	f.setLater(true)
}

// flowRetry is how soon a batch is looked at again that could not be.
const flowRetry = time.Second

// run looks at what follows in workflows, until ctx ends.
func (f *Followers) run(ctx context.Context) error {
	if err := f.find(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	f.rest()
	f.dispatch()
	defer f.timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-f.wake:
		case <-f.timer.C:
			for _, b := range f.again {
				f.look(b)
			}
			f.again = nil
			f.setLater(false)
			continue
		}
		for _, b := range f.take() {
			if err := f.advance(ctx, b); err != nil && ctx.Err() == nil {
				f.log.Error().Err(err).Str("batch", string(b)).Msg("find what follows in a workflow")
				f.lookLater(b)
			}
		}
		f.rest()
		f.dispatch() // the end may have waited for this
	}
}

// find finds the workflows that are unfinished.
func (f *Followers) find(ctx context.Context) error {
	open, _, err := f.store.List(ctx, queue.Filter{Joined: true, Limit: 1 << 30})
	if err != nil {
		return fmt.Errorf("look for unfinished workflows: %w", err)
	}
	for i := range open {
		f.follow(&open[i])
	}
	// Of a batch whose jobs have all ended a team may still have to decide.
	batches, err := f.store.Batches(ctx, "")
	if err != nil {
		return fmt.Errorf("look for teams: %w", err)
	}
	for i := range batches {
		if batches[i].ClosedAt == nil && len(batches[i].Workflow.Teams) > 0 {
			f.look(batches[i].ID)
		}
	}
	return nil
}

// maxRounds bounds how often one look at a batch finds something more to do: each
// round ends or spawns something.
const maxRounds = 10_000

// maxBeaten is how often in a row somebody else may be faster.
const maxBeaten = 100

// advance does what follows from how the jobs of a batch stand.
func (f *Followers) advance(ctx context.Context, id job.BatchID) error {
	beaten := 0
	for range maxRounds {
		more, err := f.advanceOnce(ctx, id)
		if beaten < maxBeaten && (errors.Is(err, queue.ErrIllegalTransition) || errors.Is(err, queue.ErrFenced)) {
			beaten++
			continue // somebody was faster: it looks otherwise by now
		}
		beaten = 0
		if err != nil || !more {
			return err
		}
	}
	return fmt.Errorf("workflow %s does not come to rest", id)
}

// advanceOnce reads what has changed in the batch, asks what follows, and does it.
// It reports whether something was done, so that more may follow.
func (f *Followers) advanceOnce(ctx context.Context, id job.BatchID) (bool, error) {
	common, err := f.open.workflow(ctx, id)
	if err != nil {
		return false, err
	}
	// Pipelines come first: they read what is new while they act. All that follows is
	// decided about one moment.
	if done, err := f.stream(ctx, id, common); err != nil || done {
		return done, err
	}
	known, err := f.refresh(ctx, id)
	if err != nil {
		return false, err
	}
	f.looksAt(id)
	byName := known.byName
	if done, err := f.superviseTeams(ctx, id, common, known); err != nil || done {
		return done, err
	}
	known.flow.Workflow, known.flow.Shells = common, f.kinds.shells()
	moves := known.flow.Advance()
	if len(moves) == 0 {
		if known.flow.Over() {
			for _, e := range known.jobs {
				delete(f.stopBy, e.ID)
			}
			delete(f.followed, id)
			f.open.close(id)
		}
		return false, nil
	}
	done := false
	defer func() {
		if !done {
			known.flow.Again() // what was not done follows still
		}
	}()
	at := now()
	var made []workflow.Move
	var each [][]queue.Op // what makes each of these
	var cancels []job.ID
	stages := stageJobs(common)
	for _, m := range moves {
		if c, ok := m.(workflow.Cancel); ok {
			cancels = append(cancels, byName[c.Name].ID)
			continue
		}
		ops := []queue.Op{flowOp(id, m, byName, at)}
		if r, ok := m.(workflow.Ready); ok && stages[r.Name] {
			// It stands for what its stage's events are given to.
			ops = append(ops, queue.Keep{ID: byName[r.Name].ID, For: job.HeldForParts, Waiting: job.Waiting{Reason: job.WaitParts}.String()})
		}
		made, each = append(made, m), append(each, ops)
	}
	whole := true // all of it was done
	if len(each) > 0 {
		n, err := f.applyMoves(ctx, each)
		if errors.Is(err, queue.ErrQueueFull) {
			return true, f.failSpawns(ctx, id, moves, byName, err)
		}
		if err != nil && n == 0 {
			return false, fmt.Errorf("take workflow %s further: %w", id, err)
		}
		if err != nil { // the rest is another question now
			moves, each, cancels, whole = made[:n], each[:n], nil, false
		}
	}
	for _, op := range slices.Concat(each...) {
		if spawn, ok := op.(queue.Spawn); ok {
			for i := range spawn.Entries {
				f.feed.observe(Moment{Kind: MomentSubmitted, At: spawn.Entries[i].CreatedAt, Entry: &spawn.Entries[i]})
			}
		}
	}
	for _, c := range cancels {
		if err := f.jobs.Cancel(ctx, c); err != nil && !errors.Is(err, queue.ErrIllegalTransition) {
			return false, err
		}
	}
	done = whole
	f.tellMoves(ctx, moves, byName)
	return true, nil
}

// applyMoves applies what makes each of some moves, in one transaction if it can be:
// a move may make a later one impossible, as the end of a job takes those along that
// share its result. Then they are made one by one, up to the first that cannot be
// made any more. It returns how many were.
func (f *Followers) applyMoves(ctx context.Context, each [][]queue.Op) (made int, err error) {
	err = f.store.Apply(ctx, slices.Concat(each...)...)
	if err == nil {
		return len(each), nil
	}
	for errors.Is(err, queue.ErrIllegalTransition) && made < len(each) {
		if next := f.store.Apply(ctx, each[made]...); next != nil {
			return made, next
		}
		made++
	}
	return made, err
}

// failSpawns ends the nodes for whose parts the queue has no room. One that waited
// for room would wait for other submissions of its tenant, without a bound.
func (f *Followers) failSpawns(ctx context.Context, id job.BatchID, moves []workflow.Move, byName map[job.Name]*queue.Entry, full error) error {
	var ends []workflow.Move
	var ops []queue.Op
	for _, m := range moves {
		spawn, ok := m.(workflow.Spawn)
		if !ok || len(spawn.Specs) < 2 {
			continue
		}
		ends = append(ends, workflow.Keep{Name: spawn.Node, For: job.HeldForParts, Waiting: job.Waiting{Reason: job.WaitParts, Text: "its failure is being recorded"}.String()},
			workflow.Conclude{Name: spawn.Node, Exit: job.ExitFailed, DeadLetter: full.Error(), Class: job.ResourceExhausted})
	}
	for _, m := range ends {
		ops = append(ops, flowOp(id, m, byName, now()))
	}
	if err := f.store.Apply(ctx, ops...); err != nil {
		return fmt.Errorf("fail what finds no room in workflow %s: %w", id, err)
	}
	f.tellMoves(ctx, ends, byName)
	return nil
}

// flowOp returns the op that makes a move.
func flowOp(id job.BatchID, m workflow.Move, byName map[job.Name]*queue.Entry, at time.Time) queue.Op {
	switch m := m.(type) {
	case workflow.Ready:
		return queue.Ready{ID: byName[m.Name].ID, Resolved: m.Resolved, Now: at}
	case workflow.Keep:
		return queue.Keep{ID: byName[m.Name].ID, For: m.For, Waiting: m.Waiting}
	case workflow.Skip:
		return queue.Skip{ID: byName[m.Name].ID, Why: m.Why, Now: at}
	case workflow.Conclude:
		return queue.Conclude{ID: byName[m.Name].ID, Exit: m.Exit, Result: m.Result, DeadLetter: m.DeadLetter, Class: m.Class, Now: at}
	case workflow.Spawn:
		spawn := queue.Spawn{Batch: id}
		for _, s := range m.Specs {
			spawn.Entries = append(spawn.Entries, newEntry(id, s, at))
		}
		return spawn
	}
	panic(fmt.Sprintf("a workflow's move of type %T", m)) // the list above is complete
}
