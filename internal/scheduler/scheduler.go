package scheduler

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oklog/run"
	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/internal/eval"
	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/internal/supervisor"
	"github.com/agentsched/agentsched/internal/workspace"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/policy"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/schedule"
)

// Config of a Scheduler.
type Config struct {
	Store queue.Store
	// Batch is a private batch to work on, and makes Run return when it is done;
	// "" works on what is shared alone, for ever.
	Batch job.BatchID
	// Also are shared batches for whose end Run waits too, like those that Submit
	// adds. What is shared is worked on in any case.
	Also     []job.BatchID
	Instance job.InstanceID // of the state directory: it begins the tag of every run
	Cores    int            // agentcores at once, 1 or more
	Lease    time.Duration  // of a claim; DefaultLease if 0
	Extend   time.Duration  // between two extensions of it; a third of the lease if 0
	Log      zerolog.Logger
	// Supervise returns who keeps the cores alive, given who hears of them.
	Supervise func(supervisor.Handler) Cores

	// Isolations are what is out of use; nil: nothing. What changes is written by
	// KeepIsolations, if that is set: see LoadIsolations.
	Isolations     *isolation.Book
	KeepIsolations *statedir.SoleWriter
	// OnEscalation hears of every escalation, once. It must not wait.
	OnEscalation func(isolation.Escalation)

	// OnQuestion hears of every job that begins to wait for a person. It must not
	// wait.
	OnQuestion func(Question)

	// Observer hears of every moment in the way of a job; nil: nobody does.
	Observer Observer

	// Evaluator judges the work of jobs that ask for it; nil: nobody does. Its
	// Changed is to be Judge.TakeVerdict.
	Evaluator *eval.Evaluator

	// Parcels are the folders of submitters that jobs name; nil: there are none.
	Parcels ParcelReader

	// KeepFiles stores what an attempt left before its end is recorded, where other schedulers find it, too. It may
	// take its time. nil: nobody else looks.
	KeepFiles func(id job.ID, attempt int, o *job.Outcome)

	// FileHere returns where a file that an attempt left lies on this host, which brings it here if another scheduler
	// of the queue has it. nil: files lie where they were recorded.
	FileHere func(ctx context.Context, a job.Artifact) (job.Artifact, error)

	// Mirrors returns the mirrors of repositories that this host has, as job.Workspace.Mirror names them, sorted. It may
	// take its time. nil: none.
	Mirrors func() []string

	// RealPath resolves the symbolic links of a workspace's path; nil means
	// filepath.EvalSymlinks. It may take its time.
	RealPath func(string) (string, error)

	// Placement is how jobs are put on hosts; "" is schedule.Spread.
	Placement schedule.Placement
	// NodesOnly keeps jobs off this scheduler's own host.
	NodesOnly bool

	// Traits are what the adapters say of their workers, by adapter.
	Traits map[string]job.WorkerTraits

	// NewPolicy makes the policy that says who is next; nil: policy.New.
	NewPolicy func(policy.Config) (policy.Policy, error)

	idle    bool // it never runs: see Idle
	standby bool // another one works on the store: see Standby

	Tuning
}

// Cores keeps the cores alive: a *supervisor.Supervisor, whose methods these are.
type Cores interface {
	Run(ctx context.Context) error
	Hurry()
	Reconfigure(ctx context.Context) error
	Restart(ctx context.Context, index int, drain bool) error
	Resume(index int) bool
	Cores() []supervisor.Status
}

// NodeResumer are Cores some of which are on nodes.
type NodeResumer interface {
	// ResumeNode has the cores of a node that are in a crash loop tried again, and reports whether there
	// are any.
	ResumeNode(name string) bool
}

// Tuning is what can be changed while a Scheduler runs; see Reload.
type Tuning struct {
	Retry *policy.Retry
	// Policy says who is next; without a name it is policy.Default(). Expect is
	// what a job is expected to use that does not say.
	Policy policy.Config
	Expect job.Expectation
	// Settings are what every core enforces. MaxConcurrent and the bounds of
	// Workers also bound what is claimed.
	Settings ipc.Configure
	// Rates are what all cores keep to together.
	Rates Rates
	// Children bounds what agents submit.
	Children ChildBounds
	// StopOnSafeStop makes a safe stop end what runs, too; else it drains.
	StopOnSafeStop bool
}

// DefaultLease is how long a claim stays valid without being extended.
const DefaultLease = 30 * time.Second

// ErrFatal is wrapped when nothing may run until an operator has looked.
var ErrFatal = errors.New("nothing runs before an operator has looked")

// errDone ends the loop when the batch has no unfinished job.
var errDone = errors.New("all jobs are done")

// Scheduler moves the jobs of one store. Make it with New, run it once.
//
//	loop    owns the machine that decides
//	fleet   hears of the cores, and calls them
//	works   do what the machine says, a goroutine each (dispatch.go, work.go)
type Scheduler struct {
	cfg     Config
	holder  string // its claims', and nobody else's: see gone
	loop    *loop
	fleet   *fleet
	applier *applier
	reader  *reader

	// Feed tells of what happens.
	Feed *Feed
	// Isolations is what is out of use.
	Isolations *Isolations
	// Followers find what follows in workflows, teams and pipelines.
	Followers *Followers
	// Judge evaluates work, and Approvals has people look at it.
	Judge     *Judge
	Approvals *Approvals
	// Runs are those that other processes have handed over.
	Runs *Runs
	// Grants are what people have allowed runs.
	Grants *Grants
	// Conversations are what people say to agents, and what these ask people.
	Conversations *Conversations
	// Children are the jobs that agents submit.
	Children *Children
	// Links are by which people without a login answer what waits for them.
	Links *Links
	// Explain says how jobs stand.
	Explain *Explain

	folders *workspace.Resolver // of workspaces

	started time.Time
	origin  time.Time // the same, with the monotonic clock

	steps   *steps
	streams *streams
	hurried chan struct{} // closed by Hurry
	hurry   sync.Once
	begun   chan struct{} // see Begun
	// extending is when the extension of leases that is under way began, after origin;
	// 0: none is.
	extending  atomic.Int64
	extended   atomic.Int64 // when the last one was done, likewise
	works      sync.WaitGroup
	failure    context.CancelCauseFunc // ends Run with an error
	unresolved []string                // workspaces whose real path the machine wants to know; the dispatcher's

	recalling sync.Mutex // held while it is read what was spent lately

	mu         sync.Mutex                     // guards what follows, and Config.Tuning
	batches    []job.BatchID                  // that are worked on; empty: all
	submitting int                            // batches that are about to be added
	ready      map[job.Class]queue.ClassReady // as counted last
	stopping   bool
}

// New returns a scheduler; nothing runs before Run.
func New(cfg Config) *Scheduler {
	cfg.Cores = max(cfg.Cores, 1)
	if cfg.Lease <= 0 {
		cfg.Lease = DefaultLease
	}
	if cfg.Extend <= 0 {
		cfg.Extend = cfg.Lease / 3
	}
	if cfg.Isolations == nil {
		cfg.Isolations = &isolation.Book{}
	}
	s := &Scheduler{
		cfg: cfg, holder: string(cfg.Instance) + "/" + rand.Text(), started: now(), origin: time.Now(), hurried: make(chan struct{}), begun: make(chan struct{}),
	}
	if cfg.Batch != "" {
		s.batches = append([]job.BatchID{cfg.Batch}, cfg.Also...)
	}
	s.loop = newLoop(schedule.Config{
		Scopes: s.scopes(), Policy: fallbackPolicy(), Expect: cfg.Expect, Bounds: boundsOf(&cfg.Settings), Placement: cfg.Placement, Retry: cfg.Retry,
		Windows: cfg.Settings.Limits.CostWindows, Await: func(at time.Time, r *schedule.Run, o *job.Outcome, d *policy.Decision) queue.Op {
			return s.Approvals.oversee(at, r, o, d)
		}, With: withEnd,
	})
	s.folders = workspace.NewResolver(cfg.RealPath, s.loop.poke)
	connect(s)
	s.fleet.sup = cfg.Supervise(s.fleet)
	return s
}

// withEnd returns what else is stored with the op that ends a claim.
func withEnd(r *schedule.Run, op queue.Op) []queue.Op {
	ops := anew(op)
	if end, ok := op.(queue.Finish); ok && end.Exit != "" {
		ops = append(ops, markJudged(&r.Entry, end.Now)...)
	}
	return ops
}

// safeStop ends what runs, too, if the tuning says so.
func (s *Scheduler) safeStop(why string) {
	s.mu.Lock()
	stop := s.cfg.StopOnSafeStop
	s.mu.Unlock()
	if stop {
		s.loop.post(schedule.Stop{How: schedule.Interrupt, Reason: why})
	}
}

// Hurry makes the end of Run, under way or to come, skip the gentle stages.
func (s *Scheduler) Hurry() {
	s.hurry.Do(func() { close(s.hurried) })
	s.fleet.sup.Hurry()
}

// Begun returns a channel that is closed when Run has taken back what an earlier
// scheduler held. A run that is handed over before that would count as an earlier
// one's, and jobs stand as they were left.
func (s *Scheduler) Begun() <-chan struct{} { return s.begun }

// Run moves jobs until the batch is done (nil), ctx ends (its cause), or the
// store or the core fails for good. It first takes back what an earlier
// scheduler held; the caller owns the store alone.
//
//	supervisor ── the core's life
//	dispatcher ── asks the machine what follows, and has it done; it ends last
//	extender   ── keeps the leases
//	reporter   ── tells the cores how the queue stands, ends isolations
//	answerer   ── answers where no person has in time
//	teller     ── tells runs again what they could not be told
//	leads      ── ends the jobs that agents have submitted whose own has ended
//	follower   ── finds what follows from the ends of a workflow's jobs
//	judge      ── has the work of jobs evaluated that have ended
//
// Ending is in order: claim no more → shut the cores down, which stops their runs and
// reports them → every run's end is recorded.
func (s *Scheduler) Run(ctx context.Context) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	s.failure = fail
	held, _, err := s.cfg.Store.List(ctx, queue.Filter{States: []job.EntryState{job.Dispatched}, Limit: 1 << 30})
	if err != nil {
		return fmt.Errorf("look for what an earlier scheduler held: %w", err)
	}
	ended, err := s.fleet.leftBehind(ctx, held, s.earlier)
	if err != nil {
		return fmt.Errorf("look for what an earlier scheduler has left on nodes: %w", err)
	}
	at := now()
	err = s.cfg.Store.Apply(ctx,
		queue.Reclaim{Now: at, Fences: ended, Message: "the scheduler ended while this attempt ran"},
		// It may have put jobs off while its wall clock stood ahead.
		queue.Rebase{Now: at, After: at, Future: true})
	if err != nil {
		return fmt.Errorf("take back what an earlier scheduler held: %w", err)
	}
	if err := s.Runs.hold(ctx); err != nil {
		return err
	}
	s.fleet.lookAtMirrors()
	close(s.begun)
	s.extended.Store(int64(max(time.Since(s.origin), 1)))
	for i := range held {
		s.Feed.publishEntry(ctx, held[i].ID) // some end with that: they were to be cancelled
		s.Feed.signalReclaimed(ctx, held[i].ID, at)
	}
	if err := s.recallSpendings(ctx); err != nil {
		return err
	}
	if err := s.usePolicy(ctx); err != nil {
		return err
	}
	if s.cfg.Batch != "" {
		own, _, err := s.cfg.Store.List(ctx, queue.Filter{Batch: s.cfg.Batch, States: []job.EntryState{job.Queued}, Limit: 1000})
		if err != nil {
			return fmt.Errorf("look at the jobs of the run: %w", err)
		}
		s.folders.Know(foldersOf(own)) // as Submit does
	}

	coreCtx, stopCores := context.WithCancelCause(context.WithoutCancel(ctx))
	tailCtx, stopTail := context.WithCancel(context.WithoutCancel(ctx))
	var g run.Group
	coresEnded := make(chan struct{})
	g.Add(func() error {
		defer stopTail()
		return s.dispatch(ctx, stopCores, coresEnded)
	}, func(err error) { fail(err) })
	g.Add(func() error {
		defer close(coresEnded)
		err := s.fleet.sup.Run(coreCtx)
		fail(err) // if it is the first to end
		return err
	}, func(error) {})
	g.Add(func() error { return s.extendLoop(tailCtx) }, func(error) {})
	g.Add(func() error { return s.reportLoop(tailCtx) }, func(error) {})
	g.Add(func() error { return s.Approvals.run(tailCtx) }, func(error) {})
	g.Add(func() error { return s.Conversations.run(tailCtx) }, func(error) {})
	g.Add(func() error { return s.Children.run(tailCtx) }, func(error) {})
	g.Add(func() error { return s.Links.run(tailCtx) }, func(error) {})
	g.Add(func() error { return s.Followers.run(tailCtx) }, func(error) {})
	g.Add(func() error { return s.Judge.run(tailCtx) }, func(error) {})
	g.Run() //nolint:errcheck // the cause of ctx is the first one
	s.fleet.ledger.close()

	if cause := context.Cause(ctx); !errors.Is(cause, errDone) {
		return cause
	}
	return nil
}

// earlier reports whether a claim is of an earlier scheduler of this instance, whose state
// directory this one has locked: it has ended. What others hold they keep as long as they extend it.
func (s *Scheduler) earlier(holder string) bool {
	return holder != s.holder && (strings.HasPrefix(holder, string(s.cfg.Instance)+"/") ||
		strings.HasPrefix(holder, "scheduler-")) // before version 7 of the store
}

// poke makes the dispatcher look again.
func (s *Scheduler) poke() { s.loop.poke() }

// writeTime bounds a write about a job that has already happened: it is made
// even while the scheduler ends.
const writeTime = 30 * time.Second

// apply writes ops that must not be cut short by the end of ctx.
func (s *Scheduler) apply(ctx context.Context, ops ...queue.Op) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTime)
	defer cancel()
	return s.cfg.Store.Apply(ctx, ops...)
}

// extendLoop keeps the leases of the live claims.
func (s *Scheduler) extendLoop(ctx context.Context) error {
	tick := time.NewTicker(s.cfg.Extend)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		// What an earlier scheduler has left holds until its host comes, or not.
		runs := slices.DeleteFunc(s.loop.runs(), func(r *schedule.Run) bool { return r.Core == 0 })
		fences := make([]job.Fence, len(runs))
		for i, r := range runs {
			fences[i] = r.Entry.Fence
		}
		if len(fences) == 0 {
			s.extended.Store(int64(time.Since(s.origin)))
			continue
		}
		s.extending.Store(int64(max(time.Since(s.origin), 1)))
		lost, err := s.cfg.Store.Extend(ctx, fences, now().Add(s.cfg.Lease))
		s.extending.Store(0)
		if err == nil {
			s.extended.Store(int64(time.Since(s.origin)))
		}
		if err != nil && ctx.Err() == nil {
			s.cfg.Log.Error().Err(err).Msg("extend leases")
		}
		if n := s.taken(runs, lost); n > 0 {
			s.failure(fmt.Errorf("%d claims were taken by another scheduler: %w", n, queue.ErrFenced))
		}
	}
}

// renewsPermits reports whether heartbeats renew the permits of runs: as long as the
// store keeps their leases. An extension that is not done when the next one is due
// hangs, and so would the record of what the runs do. A scheduler that stood still for
// longer has to extend the leases first: another one may have them.
func (s *Scheduler) renewsPermits() bool {
	at, began := time.Since(s.origin), time.Duration(s.extending.Load())
	return (began == 0 || at-began < s.cfg.Extend) && at-time.Duration(s.extended.Load()) < 2*s.cfg.Extend
}

// taken counts the fences that were lost without our doing: a run whose end was
// recorded meanwhile has lost its fence by that.
func (s *Scheduler) taken(runs []*schedule.Run, lost []job.Fence) (n int) {
	s.loop.ask(func(m *schedule.Machine) {
		for _, r := range runs {
			if slices.Contains(lost, r.Entry.Fence) && m.Kept(r) {
				n++
			}
		}
	})
	return n
}

// RestartCore replaces a core, or all of them with index 0, one after the
// other. With drain it first lets the jobs of each end; else they are stopped
// and go on with their sessions on the successor. It returns when the last
// successor is up.
func (s *Scheduler) RestartCore(ctx context.Context, index int, drain bool) error {
	err := s.fleet.sup.Restart(ctx, index, drain)
	if errors.Is(err, supervisor.ErrNotRunning) {
		return fmt.Errorf("%w: %w", ErrEnding, err)
	}
	return err
}

// CorePID returns the process id of a core that is up, or 0.
func (s *Scheduler) CorePID() int { return s.fleet.pid() }

// Running returns how many jobs are given to cores, by the kind of worker that
// each runs on.
func (s *Scheduler) Running() map[job.WorkerKind]int {
	running := map[job.WorkerKind]int{}
	for _, r := range s.loop.runs() {
		running[r.Choice.Worker]++
	}
	return running
}

// Settings returns what the cores enforce now, with what counts in each cost window.
func (s *Scheduler) Settings() ipc.Configure { return s.fleet.Settings(nil) }
