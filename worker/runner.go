package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/internal/proc"
	"github.com/agentsched/agentsched/internal/sandbox"
	"github.com/agentsched/agentsched/job"
)

// The life of a run: the session's command is started in a tree of its own; its
// output is told until the program ends or the run's context does; the tree is
// stopped in stages and proven empty; what is left of the output is read; the session
// is told the end; and only then there is an outcome.

// Runner runs sessions: each in a process tree of its own, of which nothing is
// alive when Run returns, unless the Outcome's Ghost says so.
type Runner struct {
	Host   *proc.Host     // starts the processes
	Stages proc.Stages    // how long a program has after each way of asking it to end
	Log    zerolog.Logger // for what concerns no job, such as an adapter's fault
}

// Run is one session to run and what bounds it.
type Run struct {
	Tag     string // value of job.RunTagVariable
	Model   string // for the prices
	LogDir  string // stdout.log and stderr.log are written there; it is made for the first line
	LogName string // "" for the worker itself, else a prefix such as "verify-"

	Tokens         int64         // at most so many in this run; 0 no limit
	CostUSD        float64       // at most so much, US dollars; 0 no limit
	MaxSteps       int64         // 0 no limit
	MaxCommandTime time.Duration // of one tool command; 0 no limit
	Prices         map[string]job.Price
	Limits         proc.Limits // of all its processes together

	// Sandbox holds the process; nil: it may do what any process of the user may.
	Sandbox Sandbox

	// Watch, if not nil, is told of the run's process tree when it was started;
	// what it returns is called when the program has ended or is to be stopped.
	Watch func(*proc.Tree) (stop func())
	// Hurry, if not nil, cuts the gentle stages of a stop short when it is done.
	Hurry context.Context

	// Meter, if not nil, says what the run uses, in place of its program.
	Meter *Meter

	// StoreStep stores a durable step and returns it as it is stored then, on disk;
	// nil: no steps are kept. The worker's output is not read meanwhile.
	StoreStep func(context.Context, Step) (KeptStep, error)
	// Inputs, if not nil, gives the session what others have for it: a Message, an
	// Answer, a Checkpoint.
	Inputs <-chan Input
	// Tell, if not nil, is told what the session has for people: each Ask, Withdraw
	// and Settle. It must not wait. Without it no person is there: each question is
	// answered at once, as Unanswered.
	Tell func(Action)
	// Stream, if not nil, joins the program to a stream of events.
	Stream *Stream

	// Redact takes secrets out of the events, of what is kept of commands and of the
	// logs; nil takes out nothing. What the session is told is as it was printed, but
	// for Exit.Stderr.
	Redact Redactor

	// Sink gets every event in order, with its time; whose it is and its number
	// are Sink's to add. It must not block for long: the worker's output is not
	// read meanwhile.
	Sink func(job.Event)
}

// Sandbox says what the process of a run may do.
type Sandbox interface {
	// Policy returns what the process may do that the command starts.
	Policy(*Command) *sandbox.Policy
	// Started is called when the program was started, before its output is read.
	Started(*sandbox.Start)
}

// Stop is the cause with which a run's context is cancelled: what the attempt's
// failure shall be called. Any other cause counts as CANCELLED.
type Stop struct {
	Class   job.ErrorClass
	Message string
	Hint    string
	Lost    bool // the scheduler itself ends: the attempt does not count
	Now     bool // skip the gentle stages

	ours    bool // made by the Runner itself: it holds however the program ended
	decided bool // the run's own result, not a stop
}

// Error returns the message.
func (s *Stop) Error() string { return s.Message }

// stopOf returns the Stop that ctx was cancelled with; an empty one if it was not.
func stopOf(ctx context.Context) *Stop {
	if ctx.Err() == nil {
		return &Stop{}
	}
	cause := context.Cause(ctx)
	var s *Stop
	switch {
	case errors.As(cause, &s):
		return s
	case errors.Is(cause, context.DeadlineExceeded):
		return &Stop{Class: job.Timeout, Message: "the attempt's time ran out"}
	default:
		return &Stop{Class: job.CancelledClass, Message: cause.Error()}
	}
}

// ErrGhost is wrapped by Run's error when a process of the run could not be ended.
var ErrGhost = errors.New("process cannot be ended")

// Run starts the session's process and returns how the run ended, with its
// usage, commands, logs and whole answer. When ctx ends, the process is stopped
// in stages and the outcome is that of the context's cause (see Stop). A run
// that crosses a limit of its own is stopped, and its outcome is BUDGET even if
// the program ended at that moment. The error is nil or wraps ErrGhost; the
// outcome is valid in both cases.
func (r *Runner) Run(ctx context.Context, s Session, run Run) (job.Outcome, error) {
	started := time.Now()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if run.Redact == nil {
		run.Redact = unredacted{}
	}
	rec := newRecorder(run, cancel, r.Log)
	defer rec.close()
	d := newDriver(ctx, s, &run, rec, cancel, r.Log)
	defer d.close()
	cmd, err := d.command()
	if err != nil {
		return notStarted(started, job.Crash, err), nil
	}
	tree, held, err := r.start(cmd, run)
	if err != nil {
		return notStarted(started, job.Config, err), nil
	}
	defer r.release(held)
	defer tree.ClosePipes()
	out := newLogs(run, cancel)
	defer out.close()
	d.step(Started{})
	if run.Stream != nil {
		run.Stream.Attach(d)
	}
	streams := pump(tree, cmd, d, out)

	unwatch := func() {}
	if run.Watch != nil {
		unwatch = run.Watch(tree)
	}
	unguard := watchLimits(tree, cancel)
	d.listen()
	stopped := awaitEnd(ctx, tree)
	unwatch()
	unguard()
	asked := time.Now()
	report, ghost := r.stop(ctx, tree, d, cmd, run, stopped)
	streams.wait(ghost != nil)
	d.deafen()

	exit := exitOf(tree, out, stopped)
	result, early := d.ended(exit)
	rec.settle(result.CostUSD)
	stop := stopOf(ctx)
	if x := tree.Exceeded(); x != nil && (!stopped || stop.ours) {
		stop = exceeded(x) // whatever the program made of it
	}
	if stop.decided {
		result = *early
	}
	o := rec.outcome(result, exit)
	o.StartedAt, o.EndedAt = started, time.Now()
	o.Artifacts = append(o.Artifacts, out.artifacts()...)
	for _, p := range report.Killed {
		if p.Pid != tree.Pid() {
			o.LeftBehind = append(o.LeftBehind, fmt.Sprintf("%s (pid %d)", p.Comm, p.Pid))
		}
	}
	// A limit can be crossed with the program's last words: then it is crossed.
	if (stopped || stop.ours) && !stop.decided {
		applyStop(&o, stop, o.EndedAt.Sub(asked))
	}
	if ghost != nil {
		return o, fmt.Errorf("%w: %w", ErrGhost, ghost)
	}
	return o, nil
}

// start starts the command in a tree of its own, with pipes to it, held as its policy says. The caller releases what
// holds it when the tree has ended.
func (r *Runner) start(cmd Command, run Run) (*proc.Tree, *sandbox.Start, error) {
	spec := proc.Spec{
		Path: cmd.Path, Args: cmd.Args, Env: cmd.Env, Dir: cmd.Dir, Run: run.Tag,
		PipeStdin: cmd.KeepStdin || len(cmd.Stdin) > 0, PipeStdout: true, PipeStderr: true,
		Extra: cmd.Files, NewSession: true, PdeathSignal: syscall.SIGKILL, Limits: &run.Limits,
	}
	if run.Sandbox == nil {
		tree, err := r.Host.Start(spec)
		if err != nil {
			return nil, nil, fmt.Errorf("start %s: %w", cmd.Path, err)
		}
		return tree, nil, nil
	}
	held, err := run.Sandbox.Policy(&cmd).Prepare(cmd.Path, cmd.Files)
	if err != nil {
		return nil, nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	tree, err := r.Host.Start(held.Apply(spec))
	if err != nil {
		r.release(held)
		return nil, nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	run.Sandbox.Started(held)
	return tree, held, nil
}

// release ends what holds a run; nil is nothing.
func (r *Runner) release(held *sandbox.Start) {
	if held == nil {
		return
	}
	if err := held.Close(); err != nil {
		r.Log.Warn().Err(err).Msg("release what held the run")
	}
}

// awaitEnd returns when the program has ended, or true when it is to be stopped.
func awaitEnd(ctx context.Context, tree *proc.Tree) (stopped bool) {
	select {
	case <-tree.Exited():
		return false
	case <-ctx.Done():
	}
	// It may have ended at the same time; then it was not stopped.
	select {
	case <-tree.Exited():
		return false
	default:
		return true
	}
}

// exitOf returns how the program ended, as the session is told it.
func exitOf(tree *proc.Tree, out *logs, stopped bool) Exit {
	state := tree.ExitState()
	e := Exit{Code: state.Code, Stderr: out.stderrTail(), Stopped: stopped}
	if state.Signal != 0 {
		e.Signal = state.Signal.String()
	}
	return e
}

// stop ends the tree: in stages if it was asked to, at once if its leader has
// ended by itself and only what it left behind is to go.
func (r *Runner) stop(ctx context.Context, tree *proc.Tree, d *driver, cmd Command, run Run, stopped bool) (proc.Report, error) {
	stages := r.Stages
	stages.Leftover = min(stages.Terminate, leftoverTime)
	switch {
	case !stopped:
		stages = proc.Stages{Leftover: stages.Leftover, Kill: stages.Kill}
	case stopOf(ctx).Now:
		stages = proc.Stages{Kill: stages.Kill}
	case cmd.KeepStdin:
		// The program listens: it gets as long after our message as after SIGINT.
		stages.FirstWait = stages.Interrupt
		stages.First = func(context.Context) error { d.cancel(); return nil }
	}
	// What caused the stop must not cut it short; only Hurry may.
	patience := context.WithoutCancel(ctx)
	if run.Hurry != nil {
		patience = run.Hurry
	}
	return tree.Stop(patience, stages)
}

// leftoverTime is how long a tool that outlives its worker has to end by itself
// after SIGTERM, e.g. a shell with a lock file to take away.
const leftoverTime = time.Second

// applyStop turns the outcome into that of a run that was stopped.
func applyStop(o *job.Outcome, s *Stop, took time.Duration) {
	o.State, o.Class, o.Message, o.Hint = job.RunFailed, s.Class, s.Message, s.Hint
	if s.Class == job.CancelledClass {
		o.State = job.RunCancelled
	}
	o.RetryAt = nil
	o.StopMillis = max(took.Milliseconds(), 1)
}

// notStarted is the outcome of a run whose process could not be started.
func notStarted(at time.Time, class job.ErrorClass, err error) job.Outcome {
	hint := ""
	if errors.Is(err, os.ErrPermission) {
		hint = "make the program executable for this user"
	}
	return job.Outcome{State: job.RunFailed, Class: class, Message: err.Error(), Hint: hint, ExitCode: -1, StartedAt: at, EndedAt: time.Now()}
}
