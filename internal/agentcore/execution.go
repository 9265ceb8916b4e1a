package agentcore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/internal/proc"
	"github.com/agentsched/agentsched/internal/redact"
	"github.com/agentsched/agentsched/internal/workspace"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/permit"
	"github.com/agentsched/agentsched/watchdog"
	"github.com/agentsched/agentsched/worker"
)

// execution is one attempt of one job while it runs.
type execution struct {
	core     *Core
	session  *session
	settings *settings
	permit   *permit.Permit
	submit   ipc.SubmitJob
	tag      string
	temp     string // folder for the worker's temporary files, removed with the attempt
	// movedFrom is where the agent worked on another host before, with the session with which it goes on here; or "".
	movedFrom string
	log       zerolog.Logger
	secrets   *redact.Redactor

	grants     *grants      // what people have allowed beside the job
	held       *Confinement // nil if nothing holds the run
	observed   *observation // nil if the run is not told of instead
	workspaces *workspace.Manager
	steps      *stepping
	talk       *conversation
	lead       *lead // nil if its agent may not use the scheduler
	clock      *runClock
	stream     *streaming  // nil if the run does not stream
	working    atomic.Bool // its worker's processes may live or begin, or those of a command beside it

	hurry    context.Context // done: skip the gentle stages of a stop
	hurryNow context.CancelFunc

	mu    sync.Mutex // guards what follows and the order of events on the wire
	seq   int64
	texts int // events of mere words so far
	stall *watchdog.Stall
	rings *watchdog.Repetition
}

// startRun starts the run that the permit was used for. It reports false if
// the core is ending.
func (c *Core) startRun(s *session, settings *settings, p *permit.Permit, r ipc.SubmitJob) bool {
	e := &execution{
		core: c, session: s, settings: settings, permit: p, submit: resolved(r),
		tag: job.RunTag(s.instance, r.Job, r.Attempt), secrets: c.secretsOf(settings, r.Environ),
		log: c.cfg.Log.With().Str("job", string(r.Job)).Int("attempt", r.Attempt).Str("permit", string(p.ID)).
			Str("worker", string(r.Choice.Worker)).Str("tenant", string(r.Spec.Tenant)).Str("trace_id", r.Spec.Trace).Logger(),
	}
	e.working.Store(true)
	e.hurry, e.hurryNow = context.WithCancel(c.hurry)
	e.stall, e.rings = newWatch(settings)
	e.grants = &grants{entries: r.Granted, full: r.Spec.HasFullNetwork()}
	e.talk = newConversation(e)
	e.lead = newLead(e)
	e.steps = newStepping(c.peer, r.Job, r.Attempt, e.talk.inputs, e.emit)
	if r.Stream != nil {
		e.stream = &streaming{peer: c.peer, job: r.Job, attempt: r.Attempt}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ending {
		e.hurryNow()
		return false
	}
	c.live[e.tag] = e
	c.runs.Add(1)
	c.monitor.runBegins(&e.submit)
	go e.run()
	return true
}

// stop cancels the run; stopping it again with Now hurries a stop under way.
func (e *execution) stop(s *worker.Stop) {
	e.permit.Revoke(s)
	if s.Now {
		e.hurryNow()
	}
}

// run is the life of an attempt. Whatever happens in it, exactly one
// on_job_completed is sent at its end.
func (e *execution) run() {
	c := e.core
	defer c.runs.Done()
	defer e.hurryNow()
	ctx := e.startClock()
	defer e.clock.close()

	e.log.Info().Msg("run starts")
	outcome := e.attempt(ctx)
	c.logBlown(c.heedFuse())
	stop := stopOf(ctx)
	if stop == fuseStop && outcome.State == job.RunFailed { // it was judged before that was heard of
		outcome.State, outcome.Class, outcome.Message, outcome.Hint, outcome.RetryAt = job.RunCancelled, stop.Class, stop.Message, "", nil
	}
	redactOutcome(e.secrets, &outcome)
	// Without a Stop the workspace was taken: no request ended the run.
	lost := outcome.State == job.RunCancelled && (stop == nil || stop.Lost)
	class := e.said(&outcome)
	c.monitor.runEnds(&e.submit, &outcome, class, stop != nil, lost)
	uncounted := e.stream != nil || outcome.State == job.Checkpointed
	asked := e.clock.waited()
	outcome.AskedMillis = asked.Milliseconds()
	e.permit.SettleWith(permit.Result{Usage: outcome.Usage, Class: class, RetryAt: outcome.RetryAt, Lost: lost, Uncounted: uncounted, Asked: asked})

	c.mu.Lock()
	delete(c.live, e.tag)
	c.mu.Unlock()
	e.log.Info().Str("state", string(outcome.State)).Str("class", string(outcome.Class)).Str("message", outcome.Message).
		Int64("tokens", outcome.Usage.Tokens()).Float64("cost_usd", outcome.Usage.CostUSD).
		Int64("worker_cancel_latency_ms", outcome.StopMillis).Msg("run ended")
	e.report(outcome)
}

// startClock returns the context of the run, which ends at its deadline at the latest. That moves
// on while the run waits for people, but not beyond the job's own, which is a time of the world's.
func (e *execution) startClock() (ctx context.Context) {
	limit := time.Time{}
	if at := e.submit.Spec.Deadline; at != nil {
		limit = time.Now().Add(time.Until(*at))
	}
	ctx, e.clock = newRunClock(e.permit.Context(), e.permit.Deadline, limit,
		&worker.Stop{Class: job.Timeout, Message: "stopped at " + e.permit.Why})
	return ctx
}

// stopOf returns the Stop with which ctx was cancelled, or nil.
func stopOf(ctx context.Context) *worker.Stop {
	var s *worker.Stop
	if errors.As(context.Cause(ctx), &s) {
		return s
	}
	return nil
}

// report tells the scheduler how the run ended. If it cannot be told, it is
// gone, and the next one will run the job again.
func (e *execution) report(o job.Outcome) {
	r := e.submit
	ctx := context.Background()
	if o.State == job.RunCancelled {
		err := e.core.peer.Notify(ctx, ipc.NotifyJobCancelled, ipc.JobCancelled{Job: r.Job, Attempt: r.Attempt, LatencyMS: o.StopMillis})
		e.logUntold(err)
	}
	done := ipc.JobCompleted{Job: r.Job, Attempt: r.Attempt, Outcome: o, Talk: e.talk.close()}
	if o.RetryAt != nil {
		at := o.RetryAt.UTC().Round(0)
		if *o.RetryAt != o.RetryAt.Round(0) { // it has a monotonic reading: a while was asked for
			done.RetryIn = job.Duration(max(time.Until(*o.RetryAt), 1))
		}
		done.Outcome.RetryAt = &at
	}
	err := e.core.peer.NotifyFinal(ctx, ipc.NotifyJobCompleted, e.tag, done)
	e.logUntold(err)
}

func (e *execution) logUntold(err error) {
	if err != nil {
		e.log.Warn().Err(err).Msg("the end of the run was not sent to the scheduler")
	}
}

// maxTexts bounds how many events of mere words a run may make: a program that
// floods its output would fill the store. Its log file has the rest.
const maxTexts = 50_000

// emit sends an event of the core's own, without secrets.
func (e *execution) emit(ev job.Event) {
	ev.Text, ev.Command = e.secrets.String(ev.Text), e.secrets.String(ev.Command)
	if c := ev.Connection; c != nil {
		c.Host, c.Reason, c.Allow = e.secrets.String(c.Host), e.secrets.String(c.Reason), e.secrets.String(c.Allow)
	}
	if r := ev.Refusal; r != nil {
		r.Detail = e.secrets.String(r.Detail)
	}
	e.send(ev)
}

// send numbers an event, which has no secrets, and sends it. What the scheduler
// must not miss waits for room; the rest may be dropped.
func (e *execution) send(ev job.Event) {
	if ev.Kind == job.EventSession {
		e.talk.sessionIs(ev.Session)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if ev.Kind == job.EventText || ev.Kind == job.EventLog {
		switch e.texts++; {
		case e.texts == maxTexts+1:
			ev = job.Event{Kind: job.EventWarning, Text: fmt.Sprintf("more than %d lines: the rest is only in the log files of this attempt", maxTexts)}
		case e.texts > maxTexts:
			return
		}
	}
	e.seq++
	ev.Job, ev.Attempt, ev.Seq, ev.Trace = e.submit.Job, e.submit.Attempt, e.seq, e.submit.Spec.Trace
	if ev.Time.IsZero() {
		ev.Time = time.Now()
	}
	ev.Time = ev.Time.UTC()
	e.look(&ev)
	var err error
	switch {
	case ev.Kind == job.EventState, ev.Kind == job.EventSession, ev.Kept != "":
		err = e.core.peer.NotifyPatient(context.Background(), ipc.NotifyWorkerEvent, ipc.WorkerEvent{Event: ev})
	default:
		err = e.core.peer.NotifyDroppable(ipc.NotifyWorkerEvent, e.tag, ipc.WorkerEvent{Event: ev})
	}
	if err != nil {
		e.log.Debug().Err(err).Str("kind", string(ev.Kind)).Msg("event not sent")
	}
}

// attempt prepares the workspace, runs the worker, checks what it did and
// collects what it left, whatever the outcome.
func (e *execution) attempt(ctx context.Context) job.Outcome {
	started := time.Now()
	dir := e.attemptDir()
	var err error
	if e.temp, err = e.session.temps.Take(e.tag); err != nil {
		return failed(started, job.ResourceExhausted, err)
	}
	defer e.returnTemp()
	granted, err := e.giveSecrets(ctx)
	if err != nil {
		return e.notPrepared(ctx, started, err)
	}
	session, err := e.takeSession(ctx)
	if err != nil {
		return e.notPrepared(ctx, started, err)
	}
	e.workspaces = e.session.workspaces.TrustFilters(e.settings.TrustFilters)
	if e.gitHeld() {
		e.workspaces = e.workspaces.Confine(e.session.confinedGit)
	}
	request := workspace.Request{
		Job: e.folder(), Name: e.submit.Spec.Name, Spec: e.submit.Spec.Workspace, Fresh: session != nil || e.submit.Session == "" && !e.submit.HasSteps,
		OnConflict: e.submit.Spec.Flow.OnConflict, Title: e.title(), Origin: e.origin,
	}
	if e.submit.Attempt > 1 {
		request.Uncollected = e.session.dir.Attempt(e.submit.Job, e.submit.Attempt-1)
	}
	bring, err := e.inherit(ctx, session, &request)
	if err != nil {
		return e.notPrepared(ctx, started, err)
	}
	if request.Patches, err = e.bring(ctx); err != nil {
		return e.notPrepared(ctx, started, err)
	}
	prepare := func() (*workspace.Workspace, error) { return e.workspaces.Prepare(ctx, request) }
	ws, err := prepare()
	if err == nil {
		ws, err = e.goOn(ctx, session, ws, prepare)
	}
	if err == nil {
		err = bring(ctx, ws)
	}
	if err != nil {
		return e.notPrepared(ctx, started, err)
	}
	if !ws.First {
		defer e.dropReplaced(ctx)()
	}
	e.emit(job.Event{Kind: job.EventState, State: job.Running})
	for _, note := range ws.Notes {
		e.emit(job.Event{Kind: job.EventWarning, Text: note})
	}

	ws.Env = append(ws.Env, granted...)
	outcome, err := e.work(ctx, ws, dir)
	e.working.Store(false)
	if err != nil {
		e.core.guard.observe(time.Now(), watchdog.Ghost{Detail: fmt.Sprintf("run %s: %v", e.tag, err)})
	}
	if len(outcome.LeftBehind) > 0 {
		e.emit(job.Event{Kind: job.EventWarning, Text: "killed processes that the worker left behind: " + strings.Join(outcome.LeftBehind, ", ")})
	}
	outcome.StartedAt = started.UTC()
	outcome.Answer = e.secrets.String(outcome.Answer)
	keepAnswer(dir, &outcome)
	e.collect(ctx, ws, dir, &outcome)
	e.keepSession(ws, dir, &outcome)
	outcome.EndedAt = time.Now().UTC()
	return outcome
}

// dropReplaced removes what the workspace has replaced while the worker works. The
// function that it returns ends that.
func (e *execution) dropReplaced(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var dropping sync.WaitGroup
	dropping.Go(func() { e.workspaces.DropReplaced(ctx, e.folder()) })
	return func() {
		cancel()
		dropping.Wait()
	}
}

// title is the first line of the job's instructions, for the commit of its work.
func (e *execution) title() string {
	line, _, _ := strings.Cut(strings.TrimSpace(e.submit.Spec.Instructions), "\n")
	line, _ = job.Cut(e.secrets.String(line), 1<<10)
	return line
}

func (e *execution) returnTemp() {
	if err := e.session.temps.Return(e.temp); err != nil {
		e.log.Warn().Err(err).Msg("temporary files were not removed")
	}
}

// keepAnswer cuts an answer that is too long for the wire and the store; the
// whole is kept as an artifact.
func keepAnswer(dir string, o *job.Outcome) {
	whole := o.Answer
	var cut int64
	if o.Answer, cut = job.Cut(whole, job.MaxEventText); cut == 0 {
		return
	}
	_ = keepFile(o, job.ArtifactAnswer, filepath.Join(dir, "answer"), []byte(whole)) // the outcome has its beginning
}

// keepFile writes a file of an attempt and adds it to the artifacts of the outcome.
func keepFile(o *job.Outcome, name, path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return err
	}
	sum := sha256.Sum256(data)
	o.Artifacts = append(o.Artifacts, job.Artifact{Name: name, Path: path, Bytes: int64(len(data)), SHA256: hex.EncodeToString(sum[:])})
	return nil
}

// attemptDir is the folder of the attempt. Who puts something into it makes it.
func (e *execution) attemptDir() string {
	return e.session.dir.Attempt(e.submit.Job, e.submit.Attempt)
}

// notPrepared is the outcome of an attempt whose workspace could not be made,
// or that was stopped before it was.
func (e *execution) notPrepared(ctx context.Context, started time.Time, err error) job.Outcome {
	if s := stopOf(ctx); s != nil {
		o := failed(started, s.Class, s)
		o.Hint = s.Hint
		if s.Class == job.CancelledClass {
			o.State = job.RunCancelled
		}
		return o
	}
	var busy *workspace.BusyError
	if errors.As(err, &busy) {
		// Another run has taken the folder since the permit: the attempt does not count.
		o := failed(started, job.CancelledClass, err)
		o.State = job.RunCancelled
		return o
	}
	var clash *workspace.PatchesError
	if errors.As(err, &clash) {
		o := failed(started, job.ConflictClass, clash)
		o.Hint = "let the worker resolve it (on_conflict: worker), or let one of the jobs begin with the patch of the other"
		return o
	}
	var setup *workspace.SetupError
	if errors.As(err, &setup) {
		o := failed(started, job.Config, errors.New(setup.Reason))
		o.Hint = setup.Hint
		return o
	}
	if f := (*worker.Failure)(nil); errors.As(err, &f) {
		return failed(started, f.Class, err)
	}
	return failed(started, job.Config, fmt.Errorf("prepare workspace: %w", err))
}

// collectTime bounds how long the patch of a run may take to make, and collectLate
// how long it may go on, or take at all, once the run's own time is over.
const (
	collectTime = 2 * time.Minute
	collectLate = time.Minute
)

// collecting returns the context in which the patch of a run is made. A run that
// was stopped leaves one, too; but who cancels a run while its patch is made, or
// is in a hurry then, does not wait for it.
func (e *execution) collecting(run context.Context) (context.Context, context.CancelFunc) {
	if run.Err() != nil {
		return context.WithTimeoutCause(context.Background(), collectLate, fmt.Errorf("it took longer than %s", collectLate))
	}
	ctx, timeout := context.WithTimeoutCause(context.Background(), collectTime, fmt.Errorf("it took longer than %s", collectTime))
	ctx, cancel := context.WithCancelCause(ctx)
	unwatch := context.AfterFunc(run, func() {
		if stop := stopOf(run); stop != nil && stop.Class == job.Timeout {
			select {
			case <-ctx.Done():
			case <-time.After(collectLate):
			}
		}
		cancel(context.Cause(run))
	})
	unhurry := context.AfterFunc(e.hurry, func() { cancel(context.Cause(run)) })
	return ctx, func() {
		unhurry()
		unwatch()
		cancel(nil)
		timeout()
	}
}

// collect keeps what the run changed, also after a stop.
func (e *execution) collect(run context.Context, ws *workspace.Workspace, dir string, o *job.Outcome) {
	ctx, cancel := e.collecting(run)
	defer cancel()
	began := time.Now()
	changes, err := e.workspaces.Collect(ctx, ws, dir)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		e.emit(job.Event{Kind: job.EventWarning, Text: fmt.Sprintf("the patch could not be made: %v; the work is in %s", err, ws.Dir)})
		e.log.Warn().Err(err).Str("workspace", ws.Dir).Msg("collect patch")
		if o.State == job.RunCompleted {
			o.State, o.Class = job.RunFailed, job.ResourceExhausted
			o.Message = fmt.Sprintf("the work was done, but its patch could not be made: %v", err)
			o.Hint = "look at the work in " + ws.Dir
			if stop := stopOf(ctx); stop != nil {
				o.Class, o.StopMillis = stop.Class, max(time.Since(began).Milliseconds(), 1)
				if o.Message = stop.Message; stop.Class == job.CancelledClass {
					o.State = job.RunCancelled
				}
			}
		}
		return
	}
	for _, note := range changes.Notes {
		e.emit(job.Event{Kind: job.EventWarning, Text: note})
	}
	o.Files = changes.Files
	if len(o.Files) > job.MaxFiles {
		o.Files = o.Files[:job.MaxFiles]
	}
	o.DiffStat, o.PatchHash, o.Commit = changes.DiffStat, changes.SHA256, changes.Commit
	if changes.Patch != "" {
		o.Artifacts = append(o.Artifacts, job.Artifact{Name: job.ArtifactPatch, Path: changes.Patch, Bytes: changes.Bytes, SHA256: changes.SHA256})
	}
	if changes.Whole != "" {
		o.Artifacts = append(o.Artifacts, job.Artifact{Name: job.ArtifactWhole, Path: changes.Whole, Bytes: changes.WholeBytes, SHA256: changes.WholeSHA256})
	}
}

func failed(started time.Time, class job.ErrorClass, err error) job.Outcome {
	o := job.Outcome{State: job.RunFailed, Class: class, Message: err.Error(), ExitCode: -1, StartedAt: started.UTC(), EndedAt: time.Now().UTC()}
	var f *worker.Failure
	if errors.As(err, &f) {
		o.Class, o.Hint = f.Class, f.Hint
	}
	return o
}

func (e *execution) stages() proc.Stages {
	s := e.settings.Stop
	return proc.Stages{Interrupt: s.Interrupt.Std(), Terminate: s.Terminate.Std(), Kill: s.Kill.Std()}
}
