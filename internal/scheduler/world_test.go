package scheduler_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/internal/supervisor"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/policy"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/queue/sqlite"
)

// world is a scheduler with a real store and cores that a test plays, all within
// one synctest bubble. Its time is the bubble's.
type world struct {
	testing.TB
	store *sqlite.Store
	sched *scheduler.Scheduler
	cores *playedCores
	stop  context.CancelCauseFunc
	done  chan error // what Run returned
}

// errEnough is why a test ends its scheduler.
var errEnough = errors.New("the test has seen enough")

// openStore opens a store in a folder of the test.
func openStore(t testing.TB) *sqlite.Store {
	t.Helper()
	return openStoreAt(t, filepath.Join(t.TempDir(), "queue.db"))
}

func openStoreAt(t testing.TB, path string) *sqlite.Store {
	t.Helper()
	store, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// newWorld makes a scheduler on a store that change has the last word on. It is
// started by start.
func newWorld(t testing.TB, store *sqlite.Store, cores int, change func(*scheduler.Config)) *world {
	t.Helper()
	w := &world{TB: t, store: store, cores: &playedCores{count: cores}, done: make(chan error, 1)}
	cfg := scheduler.Config{
		Store: store, Instance: "test", Cores: cores, Log: zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.WarnLevel),
		Supervise: func(h supervisor.Handler) scheduler.Cores {
			w.cores.handler = h
			return w.cores
		},
		Tuning: scheduler.Tuning{
			Retry:    policy.NewRetry(time.Second, time.Minute, func() float64 { return 0 }),
			Settings: ipc.Configure{MaxConcurrent: 2, Workers: map[job.WorkerKind]job.WorkerSettings{"shell": {}, "codex": {}}},
		},
	}
	if change != nil {
		change(&cfg)
	}
	w.sched = scheduler.New(cfg)
	return w
}

func (w *world) start() {
	ctx, stop := context.WithCancelCause(w.Context())
	w.stop = stop
	go func() { w.done <- w.sched.Run(ctx) }()
	synctest.Wait()
}

// end stops the scheduler and closes the store.
func (w *world) end() {
	w.Helper()
	w.stop(errEnough)
	if err := <-w.done; err != nil && !errors.Is(err, errEnough) {
		w.Errorf("the scheduler ended: %v", err)
	}
	if err := w.store.Close(); err != nil {
		w.Error(err)
	}
}

// submit hands jobs to the scheduler as one shared batch and returns their ids.
func (w *world) submit(specs ...job.Spec) []job.ID {
	w.Helper()
	ids, err := w.trySubmit(job.Workflow{}, specs...)
	if err != nil {
		w.Fatal(err)
	}
	return ids
}

func (w *world) trySubmit(common job.Workflow, specs ...job.Spec) ([]job.ID, error) {
	b, entries := scheduler.NewBatch("test", "digest", specs, common, stamp())
	err := w.sched.Submit(w.Context(), b, entries)
	ids := make([]job.ID, len(entries))
	for i := range entries {
		ids[i] = entries[i].ID
	}
	return ids, err
}

func (w *world) get(id job.ID) queue.Entry {
	w.Helper()
	e, err := w.store.Get(w.Context(), id)
	if err != nil {
		w.Fatal(err)
	}
	return e
}

// wantState fails the test unless the entry is in the state.
func (w *world) wantState(id job.ID, want job.EntryState) queue.Entry {
	w.Helper()
	e := w.get(id)
	if e.State != want {
		w.Errorf("job %s is %s (%s), want %s", e.Spec.Name, e.State, e.Waiting+e.DeadLetter, want)
	}
	return e
}

// wait lets time pass, and then everything that follows from that happen.
func (w *world) wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// stamp is the time as it is stored.
func stamp() time.Time { return time.Now().UTC().Round(0) }

// task is a job of a worker that takes so long.
func task(name string, takes time.Duration, change ...func(*job.Spec)) job.Spec {
	s := job.Spec{
		Name: job.Name(name), Tenant: "t", Type: job.Tool, Worker: "shell", Instructions: takes.String(),
		Workspace: job.Workspace{Isolation: job.NoWorkspace}, Limits: job.Limits{MaxAttempts: 3},
	}
	for _, c := range change {
		c(&s)
	}
	return s
}

// playedCores keeps cores that are no processes.
type playedCores struct {
	count   int
	handler supervisor.Handler
	// play, if set, has the last word on how a core answers.
	play func(*playedCore)

	mu  sync.Mutex
	all map[int]*playedCore // by index: those that are up
}

// Run implements scheduler.Cores.
func (p *playedCores) Run(ctx context.Context) error {
	for i := range p.count {
		p.up(i + 1)
	}
	<-ctx.Done()
	p.mu.Lock()
	all := slices.Sorted(maps.Keys(p.all))
	p.mu.Unlock()
	for _, index := range all {
		p.down(index, context.Cause(ctx))
	}
	return context.Cause(ctx)
}

// up starts the core of an index.
func (p *playedCores) up(index int) *playedCore {
	c := p.begin(index)
	p.handler.CoreUp(c.core)
	return c
}

// begin connects and configures a core, of which the scheduler is not told yet.
func (p *playedCores) begin(index int) *playedCore {
	c := &playedCore{index: index, runs: map[job.ID]*playedRun{}}
	fromCore, toScheduler := io.Pipe()
	fromScheduler, toCore := io.Pipe()
	theirs := ipc.NewPeer(fromCore, toCore, ipc.Config{Name: "agentcore", Handler: &toHandler{p, c}, HangLimit: time.Hour})
	c.peer = ipc.NewPeer(fromScheduler, toScheduler, ipc.Config{Name: "scheduler", Handler: c, HangLimit: time.Hour})
	c.theirs, c.core = theirs, supervisor.Join(supervisor.Away{Index: index, PID: 1000 + index, Peer: theirs})
	for _, peer := range []*ipc.Peer{theirs, c.peer} {
		c.peers.Go(func() { peer.Run(context.Background()) }) //nolint:errcheck // how it ends is the test's doing
	}
	if p.play != nil {
		p.play(c)
	}
	c.configured = p.handler.Settings(c.core)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all == nil {
		p.all = map[int]*playedCore{}
	}
	p.all[index] = c
	return c
}

// at returns the core that is up in a place.
func (p *playedCores) at(index int) *playedCore {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all[index]
}

// down ends the core of an index with all that runs on it.
func (p *playedCores) down(index int, cause error) {
	p.mu.Lock()
	c := p.all[index]
	delete(p.all, index)
	p.mu.Unlock()
	if c == nil {
		return
	}
	c.peer.Stop(cause)
	c.theirs.Stop(cause)
	c.peers.Wait()
	c.mu.Lock()
	for _, r := range c.runs {
		r.cancel(cause)
	}
	c.mu.Unlock()
	c.working.Wait()
	p.handler.CoreRuns(c.core)
	p.handler.CoreDown(c.core, cause)
}

// Hurry implements scheduler.Cores.
func (p *playedCores) Hurry() {}

// Reconfigure implements scheduler.Cores.
func (p *playedCores) Reconfigure(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.all {
		settings := p.handler.Settings(c.core)
		c.mu.Lock()
		c.configured = settings
		c.mu.Unlock()
	}
	return nil
}

// Restart implements scheduler.Cores.
func (p *playedCores) Restart(context.Context, int, bool) error { return supervisor.ErrNotRunning }

// Resume implements scheduler.Cores.
func (p *playedCores) Resume(int) bool { return false }

// Cores implements scheduler.Cores.
func (p *playedCores) Cores() []supervisor.Status { return nil }

// running returns how many runs there are of each kind.
func (p *playedCores) running() (total int, kinds map[job.WorkerKind]int) {
	kinds = map[job.WorkerKind]int{}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.all {
		c.mu.Lock()
		for _, r := range c.runs {
			kinds[r.Choice.Worker]++
			total++
		}
		c.mu.Unlock()
	}
	return total, kinds
}

// toHandler passes on what a played core says.
type toHandler struct {
	*playedCores
	c *playedCore
}

func (h *toHandler) HandleCall(ctx context.Context, method string, params json.RawMessage) (any, error) {
	return h.handler.CoreCall(ctx, h.c.core, method, params)
}

func (h *toHandler) HandleNotify(_ context.Context, method string, params json.RawMessage) {
	h.handler.CoreNotify(h.c.core, method, params)
}

// playedCore is one core. It grants every permit, and a run lasts as long as its
// instructions say.
type playedCore struct {
	index        int
	core         *supervisor.Core // as the scheduler sees it
	peer, theirs *ipc.Peer        // its end of the wire, and the scheduler's
	peers        sync.WaitGroup
	working      sync.WaitGroup

	// What a test may change before the core is up: the answer to a call in place of
	// the usual one, if it says so, and how a run goes.
	answer func(ctx context.Context, method string, params json.RawMessage) (result any, err error, answered bool)
	run    func(context.Context, *playedRun) job.Outcome

	mu         sync.Mutex // guards what follows
	runs       map[job.ID]*playedRun
	configured ipc.Configure
	reports    []ipc.QueueMetrics // that it was told
	submitted  []ipc.SubmitJob    // that it has taken
	permits    int                // that it was asked for
	methods    []string           // of the calls, in their order
	listed     *ipc.Isolations    // that it was told last, where a test looks
}

// lastSubmitted returns the run that it has taken last.
func (c *playedCore) lastSubmitted() ipc.SubmitJob {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.submitted) == 0 {
		return ipc.SubmitJob{}
	}
	return c.submitted[len(c.submitted)-1]
}

// playedRun is a run on a played core.
type playedRun struct {
	ipc.SubmitJob
	c      *playedCore
	cancel context.CancelCauseFunc
	seq    int64
}

// tell sends an event of the run.
func (r *playedRun) tell(e job.Event) {
	r.seq++
	e.Job, e.Attempt, e.Seq, e.Time = r.Job, r.Attempt, r.seq, stamp()
	r.c.peer.Notify(context.Background(), ipc.NotifyWorkerEvent, ipc.WorkerEvent{Event: e}) //nolint:errcheck // the core may be about to die
}

// HandleCall implements ipc.Handler.
func (c *playedCore) HandleCall(ctx context.Context, method string, params json.RawMessage) (any, error) {
	if c.answer != nil {
		if result, err, answered := c.answer(ctx, method, params); answered {
			return result, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.methods = append(c.methods, method)
	switch method {
	case ipc.MethodRequestPermit:
		var r ipc.PermitRequest
		if err := json.Unmarshal(params, &r); err != nil {
			return nil, err
		}
		c.permits++
		return ipc.PermitAnswer{Permit: &ipc.Permit{ID: job.PermitID(fmt.Sprintf("p%d", c.permits)), Job: r.Job, Attempt: r.Attempt}}, nil
	case ipc.MethodSubmitJob:
		r := &playedRun{c: c}
		if err := json.Unmarshal(params, &r.SubmitJob); err != nil {
			return nil, err
		}
		c.begin(r)
	case ipc.MethodCancelJob:
		var r ipc.CancelJob
		if err := json.Unmarshal(params, &r); err != nil {
			return nil, err
		}
		if run := c.runs[r.Job]; run != nil {
			run.cancel(errCancelled)
		}
	case ipc.MethodCheckpointJob:
		return ipc.CheckpointResult{}, nil
	case ipc.MethodReportQueueMetrics:
		var q ipc.QueueMetrics
		if err := json.Unmarshal(params, &q); err != nil {
			return nil, err
		}
		c.reports = append(c.reports, q)
	}
	return ipc.Empty{}, nil
}

var errCancelled = errors.New("cancelled")

// HandleNotify implements ipc.Handler.
func (c *playedCore) HandleNotify(context.Context, string, json.RawMessage) {}

// begin starts a run; c.mu is held.
func (c *playedCore) begin(r *playedRun) {
	ctx, cancel := context.WithCancelCause(context.Background())
	r.cancel = cancel
	c.runs[r.Job] = r
	c.submitted = append(c.submitted, r.SubmitJob)
	play := c.run
	if play == nil {
		play = lasts
	}
	c.working.Go(func() {
		began := stamp()
		o := play(ctx, r)
		o.StartedAt, o.EndedAt = began, stamp()
		c.mu.Lock()
		delete(c.runs, r.Job)
		c.mu.Unlock()
		c.peer.Notify(context.Background(), ipc.NotifyJobCompleted, ipc.JobCompleted{Job: r.Job, Attempt: r.Attempt, Outcome: o}) //nolint:errcheck // the core may be about to die
	})
}

// lasts is a run that takes as long as its instructions say, and succeeds unless
// it is cancelled.
func lasts(ctx context.Context, r *playedRun) job.Outcome {
	r.tell(job.Event{Kind: job.EventState, State: job.Running})
	d, err := time.ParseDuration(r.Spec.Instructions)
	if err != nil {
		return job.Outcome{State: job.RunFailed, Class: job.Config, Message: err.Error()}
	}
	if !sleep(ctx, d) {
		return job.Outcome{State: job.RunCancelled, Class: job.CancelledClass, Message: "stopped"}
	}
	return job.Outcome{State: job.RunCompleted, Answer: "done"}
}

// sleep reports false if ctx has ended before d is over.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
