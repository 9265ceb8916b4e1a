package scheduler

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/supervisor"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/policy"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/schedule"
)

// drive takes one claimed job through one attempt: permit, submission, end,
// record.
func (s *Scheduler) drive(ctx context.Context, f *flight) {
	defer s.poke()
	defer s.land(f)
	if err := s.rank(ctx, f); err != nil && ctx.Err() == nil {
		s.cfg.Log.Error().Err(err).Msg("the job runs on its first worker")
	}
	log := s.logOf(f)
	if op := s.openStream(ctx, f, log); op != nil {
		s.record(ctx, f, log, op)
		return
	}
	if s.runs.isStopped(f.entry.Batch) {
		s.record(ctx, f, log, s.release(f, 0, f.entry.Choice, job.Waiting{Reason: job.WaitCommand, Text: stoppedRun}))
		return
	}
	permit, op, err := s.requestPermit(ctx, f)
	if err != nil {
		log.Warn().Err(err).Msg("no answer to a permit request")
		after := coreRetry
		if s.isStopping() {
			after = 0
		}
		op = s.release(f, after, f.entry.Choice, job.Waiting{Reason: job.WaitCore, Text: "the last one gave no answer"})
	}
	if permit == nil {
		s.record(ctx, f, log, op)
		return
	}
	began := now()
	begin := queue.Begin{ID: f.entry.ID, Fence: f.entry.Fence, Attempt: job.Attempt{
		Job: f.entry.ID, Number: f.attempt, Fence: f.entry.Fence, Choice: f.choice, State: job.Pending, Started: began,
	}}
	if err := s.apply(ctx, begin); err != nil {
		// Nothing ran yet. The permit expires by itself.
		s.failure(fmt.Errorf("record the start of job %s: %w", f.entry.ID, err))
		return
	}
	s.mu.Lock()
	f.began = began
	s.mu.Unlock()
	s.Feed.observe(Moment{Kind: MomentBegun, At: began, Entry: &f.entry, Attempt: f.attempt, Choice: f.choice, Took: max(began.Sub(f.entry.RunnableAt), 0)})
	s.Feed.publishFlight(f, job.Pending, f.smaller())
	assigned := f.entry
	assigned.Attempts = f.attempt
	s.Feed.signal(&assigned, api.JobAssigned, "", "")
	e := s.submit(ctx, f, permit)
	s.record(ctx, f, log, s.finish(f, e))
}

func (s *Scheduler) logOf(f *flight) zerolog.Logger {
	e := &f.entry
	log := s.cfg.Log.With().Str("job", string(e.ID)).Str("name", string(e.Spec.Name)).Str("tenant", string(e.Spec.Tenant)).
		Int("attempt", f.attempt).Str("worker", string(f.choice.Worker)).Str("trace_id", e.Spec.Trace)
	if id := e.Spec.Context.CorrelationID; id != "" {
		log = log.Str("correlation_id", id)
	}
	return log.Logger()
}

// land ends the flight.
func (s *Scheduler) land(f *flight) {
	defer close(f.landed)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending -= len(f.events)
	f.events = nil
	s.more.Broadcast()
	s.leave(f)
	s.emptied.Broadcast()
	s.post(schedule.Landed{ID: f.entry.ID, Used: f.used, Over: f.over, Parked: f.parked})
}

// requestPermit asks the core. Without a permit, the op says what becomes of
// the job. A core that is overloaded may ask for something smaller: then the
// job's next choices are tried at once.
func (s *Scheduler) requestPermit(ctx context.Context, f *flight) (*ipc.Permit, queue.Op, error) {
	e := &f.entry
	if e.CancelRequested || s.isCancelled(f) {
		return nil, s.cancelBeforeStart(f), nil
	}
	if f.core == nil {
		return nil, nil, errNoCore
	}
	for {
		answer, err := s.askCore(ctx, f)
		switch {
		case err != nil:
			return nil, nil, err
		case answer.Permit != nil:
			return answer.Permit, nil, nil
		case answer.Rejection == nil:
			return nil, nil, errors.New("the core answered with neither permit nor rejection")
		}
		if answer.Rejection.Action != ipc.ActionDegrade || !s.degrade(f, answer.Rejection) {
			return nil, s.rejected(f, answer.Rejection), nil
		}
	}
}

// errNoCore: no core takes work any more.
var errNoCore = errors.New("no agentcore is up")

// askCore makes one request for a permit.
func (s *Scheduler) askCore(ctx context.Context, f *flight) (ipc.PermitAnswer, error) {
	e := &f.entry
	s.mu.Lock()
	s.ask(f)
	elsewhere := s.elsewhere(f.core)
	s.mu.Unlock()
	limits := e.Spec.Limits
	limits.MaxAttempts = e.MaxAttempts()
	var answer ipc.PermitAnswer
	asked := now()
	err := f.core.Call(ctx, ipc.MethodRequestPermit, ipc.PermitRequest{
		Job: e.ID, Tenant: e.Spec.Tenant, Attempt: f.attempt, Counted: e.Counted, Choice: f.choice,
		Workspace: e.Spec.Workspace, Limits: limits, Deadline: e.Deadline, Spent: e.Spent, SpentTime: e.SpentTime,
		Class: e.Spec.Class, Smaller: f.index+1 < len(e.Spec.Choices()), Degraded: f.index > e.Choice, Elsewhere: elsewhere,
	}, &answer)
	if err != nil {
		s.untold(f.core, elsewhere)
	}
	if err != nil || answer.Permit == nil {
		s.refused(f)
	}
	if err == nil {
		m := Moment{Kind: MomentPermit, Entry: e, Attempt: f.attempt, Choice: f.choice, At: now()}
		if m.Took = m.At.Sub(asked); answer.Rejection != nil {
			m.Reason = answer.Rejection.Reason
		}
		s.Feed.observe(m)
	}
	return answer, err
}

// degrade moves the flight to its job's next choice, for this attempt. It
// reports false if there is none.
func (s *Scheduler) degrade(f *flight, r *ipc.Rejection) bool {
	choices, kind := f.entry.Spec.Choices(), f.choice.Worker
	if f.index+1 >= len(choices) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f.index++
	f.choice = choices[f.index]
	f.because = "the host is overloaded"
	if r.Reason == job.CircuitOpen {
		f.because = string(kind) + " is out of use"
	}
	s.post(schedule.Moved{ID: f.entry.ID, Worker: f.choice.Worker})
	return true
}

// rejected says what becomes of a job that got no permit.
func (s *Scheduler) rejected(f *flight, r *ipc.Rejection) queue.Op {
	e := &f.entry
	why := s.refusedFor(f, r)
	after := max(time.Duration(r.RetryAfterMS)*time.Millisecond, minRetryAfter)
	switch {
	case r.Reason.Terminal():
		return queue.Finish{
			ID: e.ID, Fence: e.Fence, Now: now(), Exit: job.ExitFailed, DeadLetter: r.Message,
			Outcome: job.Outcome{State: job.RunFailed, Class: job.Budget, Message: r.Message},
		}
	case e.Choice+1 < len(e.Spec.Choices()) && (r.Reason == job.CircuitOpen || s.Isolations.isKindOut(f.choice.Worker, e.Spec.Tenant)):
		why = job.Waiting{Reason: job.WaitTurn, Text: why.Text + "; goes on with " + string(e.Spec.Choices()[e.Choice+1].Worker)}
		return s.release(f, 0, e.Choice+1, why)
	case r.Reason == job.WorkspaceBusy:
		s.mu.Lock()
		if _, known := s.blocked[e.ID]; !known {
			s.blocked[e.ID] = now().Add(-f.lockWait)
		}
		s.mu.Unlock()
	}
	switch {
	case s.park(f):
		after = 0
	case r.Action != "", r.Reason == job.FatalMode, r.Reason == job.WorkspaceBusy:
		// The load may change at any time, or an operator changes it.
		after = min(after, maxRetryAfter)
	}
	return s.release(f, after, e.Choice, why)
}

// refusedFor returns what a job waits for that got no permit.
func (s *Scheduler) refusedFor(f *flight, r *ipc.Rejection) job.Waiting {
	if i, blocked := s.Isolations.Blocking(&f.entry); blocked {
		return i.Waiting()
	}
	w := job.Waiting{Reason: r.Waiting, Text: r.Message}
	if w.Reason == "" {
		w.Reason = refusals[r.Reason]
	}
	return w
}

// refusals is what a rejection has a job wait for that does not say it.
var refusals = map[job.Reason]job.WaitingReason{
	job.QueueStall: job.WaitLoad, job.GlobalShed: job.WaitLoad, job.CircuitOpen: job.WaitCircuit, job.RateLimited: job.WaitRate,
	job.FatalMode: job.WaitIsolation, job.WorkspaceBusy: job.WaitFolder,
}

// coreRetry is how soon a job is tried again whose core gave no answer.
const coreRetry = 200 * time.Millisecond

// minRetryAfter keeps a rejection without a time from becoming a busy loop;
// maxRetryAfter is how long what an operator can lift delays a job at most.
const (
	minRetryAfter = 100 * time.Millisecond
	maxRetryAfter = 5 * time.Second
)

func (s *Scheduler) release(f *flight, after time.Duration, choice int, w job.Waiting) queue.Op {
	s.noteClock()
	at := now()
	runnable := at.Add(after)
	if before := f.entry.RunnableAt; after == 0 && before.Before(at) {
		runnable = before // it keeps its place
	}
	return queue.Release{ID: f.entry.ID, Fence: f.entry.Fence, Now: at, RunnableAt: runnable, Choice: choice, Waiting: w.String()}
}

func (s *Scheduler) cancelBeforeStart(f *flight) queue.Op {
	return queue.Finish{
		ID: f.entry.ID, Fence: f.entry.Fence, Now: now(), Exit: job.ExitCancelled,
		Outcome: job.Outcome{State: job.RunCancelled, Class: job.CancelledClass, Message: "cancelled before it started"},
	}
}

// submit hands the job to the core and waits for its end.
func (s *Scheduler) submit(ctx context.Context, f *flight, p *ipc.Permit) ending {
	if s.isCancelled(f) {
		return ending{outcome: job.Outcome{State: job.RunCancelled, Class: job.CancelledClass, Message: "cancelled before it started"}}
	}
	environ := s.runs.environ(&f.entry)
	// Not ctx: a submission that is under way when the scheduler is asked to end
	// must be known to have happened or not.
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTime)
	defer cancel()
	err := f.core.Call(call, ipc.MethodSubmitJob, ipc.SubmitJob{
		Permit: p.ID, Job: f.entry.ID, Attempt: f.attempt, Choice: f.choice, Spec: f.entry.Spec, Environ: environ,
		Session: f.resume(), Feedback: f.entry.Feedback, Resolved: f.entry.Resolved, HasSteps: f.attempt > 1 && s.hasSteps(call, f.entry.ID), Stream: f.stream.name(),
		QueueLagMS: max(now().Sub(f.entry.RunnableAt), 0).Milliseconds(), LockWaitMS: f.lockWait.Milliseconds(),
	}, nil)
	var refused *ipc.Error
	if errors.As(err, &refused) {
		return refusal(refused)
	}
	s.mu.Lock()
	delete(s.lateStarts, f.entry.ID)
	s.mu.Unlock()
	// Any other error is the core's death or silence. Its job may run: only
	// CoreDown, after the reaping, says that it does not.
	s.startStream(ctx, f)
	s.cancelLate(f)
	if s.runs.isStopped(f.entry.Batch) {
		s.interrupt(context.WithoutCancel(ctx), f, false)
	}
	return s.endStream(ctx, f, <-f.done)
}

// refusal is the end of an attempt that the core did not start.
func refusal(e *ipc.Error) ending {
	o := job.Outcome{State: job.RunFailed, Class: job.Config, Message: "the core refused the job: " + e.Message, ExitCode: -1, StartedAt: now(), EndedAt: now()}
	if e.Code == ipc.CodePermitUnknown || e.Code == ipc.CodeShuttingDown {
		// Too late, or at a bad moment: nobody's fault.
		o.State, o.Class = job.RunCancelled, job.CancelledClass
	}
	return ending{outcome: o, late: e.Code == ipc.CodePermitUnknown}
}

// A job whose permit expires before its core hears of it has a host that is too
// slow. It is tried again after lateDelay, doubled each time, and given up after
// maxLateStarts in a row.
const (
	maxLateStarts = 10
	lateDelay     = time.Second
)

// lateStart says what follows when an attempt came too late for its permit. It does
// not count as one of the job's.
func (s *Scheduler) lateStart(f *flight, op queue.Finish) queue.Op {
	s.mu.Lock()
	s.lateStarts[f.entry.ID]++
	n := s.lateStarts[f.entry.ID]
	s.mu.Unlock()
	s.cfg.Log.Warn().Str("job", string(f.entry.ID)).Int("attempt", f.attempt).Int("in_a_row", n).Msg("the permit expired before the job could begin")
	op.Lost = true
	if n < maxLateStarts {
		after := lateDelay << (n - 1)
		op.Retry = queue.Retry{RunnableAt: op.Now.Add(after), Choice: f.entry.Choice, Session: f.entry.Session, SessionWorker: f.entry.SessionWorker, Feedback: f.entry.Feedback,
			Waiting: job.Waiting{Reason: job.WaitPermit, Text: fmt.Sprintf("its permit expired before it could begin, %d times in a row; next attempt after %s", n, after)}.String()}
		return op
	}
	op.Exit = job.ExitFailed
	op.DeadLetter = fmt.Sprintf("%s: its permit expired before it could begin, %d times in a row: the host is too slow; retry it when the load or the disk is better", job.ResourceExhausted, n)
	op.Outcome.State, op.Outcome.Class = job.RunFailed, job.ResourceExhausted
	op.Outcome.Hint = "look at the load of the host and its disk"
	return op
}

// finish decides what follows the attempt's end.
func (s *Scheduler) finish(f *flight, e ending) queue.Op {
	s.noteClock()
	o := e.outcome
	s.mu.Lock()
	cancelled, usage, session, began, touched := f.cancelled, f.usage, f.session, f.began, f.touched
	s.charge(f, o.Usage.CostUSD-usage.CostUSD) // what no event has told
	retry := s.cfg.Retry
	s.mu.Unlock()
	if e.died != nil {
		o = job.Outcome{State: job.RunFailed, Class: job.Crash, Message: fmt.Sprintf("the core died: %v", e.died),
			Usage: usage, Session: session, ExitCode: -1, StartedAt: began, EndedAt: now()}
	}
	if o.Session == "" {
		o.Session = session
	}
	// A core that dies before the agent has said with which session it goes on says
	// nothing against the session.
	unheard := e.died != nil && o.Session == "" && f.resume() != ""
	if unheard {
		o.Session = f.resume()
	}
	op := queue.Finish{ID: f.entry.ID, Fence: f.entry.Fence, Attempt: f.attempt, Outcome: o, Now: now()}
	if o.State == job.Checkpointed && !cancelled {
		return s.checkpointed(f, op, touched)
	}
	switch {
	case cancelled && !o.Succeeded():
		op.Exit = job.ExitCancelled
		op.Outcome.State, op.Outcome.Class = job.RunCancelled, job.CancelledClass
		return op
	case e.late:
		return s.lateStart(f, op)
	case o.State == job.RunCancelled, e.died != nil && (s.isStopping() || errors.Is(e.died, supervisor.ErrReplaced)):
		// Nobody asked for it but us: it goes on with the next scheduler, or core.
		op.Lost = true
		op.Retry = queue.Retry{RunnableAt: f.entry.RunnableAt, Choice: f.entry.Choice, Feedback: f.entry.Feedback, Waiting: s.interrupted(f).String()}
		op.Retry.Session, op.Retry.SessionWorker = f.goesOnWith(o.Session, touched)
		return op
	}
	history := policy.History{
		Choices: len(f.entry.Spec.Choices()), Choice: f.index, Counted: f.entry.Counted + 1,
		MaxAttempts: f.entry.MaxAttempts(), Resumed: f.resume() != "" && !unheard, Domain: f.entry.Spec.Domain,
	}
	forgiven := s.judgeStream(f, &o, &history)
	op.Outcome = o
	d := retry.Decide(history, &o, now())
	op.Lost = forgiven && d.Exit == ""
	if p, ok := policy.Park(&o, f.choice, now()); ok {
		s.Isolations.parkKind(p)
		d.RunnableAt = now() // the isolation holds it, and may be lifted earlier
	}
	if await := s.oversee(f, &o, &d); await != nil {
		return await
	}
	op.Exit, op.DeadLetter = d.Exit, d.DeadLetter
	if d.Exit == "" {
		if d.Choice == f.index {
			d.Choice = f.entry.Choice // the same again: the job's own choice, load or not
		}
		op.Retry = queue.Retry{RunnableAt: d.RunnableAt, Choice: d.Choice, Feedback: d.Feedback, Waiting: again(&d, now()).String()}
		if d.Resume {
			op.Retry.Session, op.Retry.SessionWorker = o.Session, f.choice.Worker
		}
	}
	return op
}

// again returns what a job waits for that gets another attempt.
func again(d *policy.Decision, at time.Time) job.Waiting {
	if d.RunnableAt.After(at) {
		return job.Waiting{Reason: job.WaitRetry, Text: d.Waiting}
	}
	return job.Waiting{Reason: job.WaitTurn, Text: d.Waiting}
}

// interrupted says what becomes of a run that we cut short.
func (s *Scheduler) interrupted(f *flight) job.Waiting {
	switch {
	case s.isStopping():
		return job.Waiting{Reason: job.WaitScheduler, Text: "interrupted; goes on at the next run"}
	case s.runs.isStopped(f.entry.Batch):
		return job.Waiting{Reason: job.WaitCommand, Text: stoppedRun}
	}
	return job.Waiting{Reason: job.WaitTurn, Text: "interrupted; goes on soon"}
}

// beforeEnd puts the move to Running before the end of an attempt of which the
// core told no such move: a run fails from Running, not from Pending.
func (s *Scheduler) beforeEnd(f *flight, op queue.Op) []queue.Op {
	ended := false
	switch end := op.(type) {
	case queue.Finish:
		ended = end.Attempt > 0 && end.Outcome.State != job.RunCancelled
	case queue.Await:
		ended = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	move := queue.Move{ID: f.entry.ID, Fence: f.entry.Fence, Attempt: f.attempt, To: job.Running}
	var ops []queue.Op
	if (ended || f.checkpointed) && !f.running {
		f.running = true
		ops = append(ops, move)
	}
	if f.checkpointed {
		move.To = job.Checkpointed
		ops = append(ops, move)
	}
	return append(ops, op)
}

// record makes the op durable, together with the attempt's last events, and
// then tells whoever watches.
func (s *Scheduler) record(ctx context.Context, f *flight, log zerolog.Logger, op queue.Op) {
	ops := append(append(s.takeEvents(f), s.beforeEnd(f, op)...), anew(op)...)
	if end, ok := op.(queue.Finish); ok && end.Exit != "" {
		ops = append(ops, markJudged(&f.entry, end.Now)...)
	}
	s.mu.Lock()
	switch end := op.(type) {
	case queue.Finish:
		f.used, f.over = end.Outcome.Usage, end.Exit != ""
	case queue.Await:
		f.used, f.over = end.Outcome.Usage, true
	}
	f.recording = true
	s.mu.Unlock()
	if err := s.apply(ctx, ops...); err != nil {
		// What is not recorded is run again by the next scheduler: better than
		// going on with a store that does not store.
		s.failure(fmt.Errorf("record the end of job %s: %w", f.entry.ID, err))
		return
	}
	log.Debug().Str("op", fmt.Sprintf("%T", op)).Msg("recorded")
	s.observeAttempt(f, op)
	e := after(f.entry, op)
	s.mu.Lock()
	checkpointed := f.checkpointed
	s.mu.Unlock()
	if checkpointed {
		s.Feed.publishFlight(f, job.Checkpointed, e.Waiting)
		s.Feed.signal(&e, api.CheckpointCreated, "", e.Waiting)
		s.follow(&e) // its team may have wanted it
	}
	s.tell(&e, op)
	if f.entry.Key != "" {
		s.Feed.publishEntry(ctx, f.entry.ID)
		s.Feed.publishFollowers(ctx, &f.entry)
		return
	}
	s.Feed.publishState(&e)
}

// observeAttempt tells the observer of the end of an attempt.
func (s *Scheduler) observeAttempt(f *flight, op queue.Op) {
	m := Moment{Kind: MomentAttemptEnded, Entry: &f.entry, Attempt: f.attempt, Choice: f.choice}
	switch end := op.(type) {
	case queue.Finish:
		if end.Attempt == 0 {
			return // it never began
		}
		m.Outcome = &end.Outcome
	case queue.Await:
		m.Outcome = &end.Outcome
	default:
		return
	}
	s.Feed.observe(m)
}
