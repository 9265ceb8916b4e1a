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
	"github.com/agentsched/agentsched/job"
)

// Runner runs sessions: each in a process tree of its own, of which nothing is
// alive when Run returns, unless the Outcome's Ghost says so.
type Runner struct {
	Host   *proc.Host
	Stages proc.Stages
	Log    zerolog.Logger
}

// Run is one session to run and what bounds it.
type Run struct {
	Tag     string // value of job.RunTagVariable
	Model   string // for the prices
	LogDir  string // exists; stdout.log and stderr.log are written there
	LogName string // "" for the worker itself, else a prefix such as "verify-"

	Tokens         int64         // at most so many in this run; 0 no limit
	CostUSD        float64       // at most so much, US dollars; 0 no limit
	MaxSteps       int64         // 0 no limit
	MaxCommandTime time.Duration // of one tool command; 0 no limit
	Prices         map[string]job.Price

	// Hurry, if not nil, cuts the gentle stages of a stop short when it is done.
	Hurry context.Context

	// Sink gets every event in order, with its time; whose it is and its number
	// are Sink's to add. It must not block for long: the worker's output is not
	// read meanwhile.
	Sink func(job.Event)
}

// Stop is the cause with which a run's context is cancelled: what the attempt's
// failure shall be called. Any other cause counts as CANCELLED.
type Stop struct {
	Class   job.ErrorClass
	Message string
	Hint    string
	Lost    bool // the scheduler itself ends: the attempt does not count
	Now     bool // skip the gentle stages

	verdict *Result // of the session's Judge: the run's own result, and nobody's stop
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
// usage, commands, logs and whole answer. When ctx ends, the process is stopped in stages and
// the outcome is that of the context's cause (see Stop). The error is nil or
// wraps ErrGhost; the outcome is valid in both cases.
func (r *Runner) Run(ctx context.Context, s Session, run Run) (job.Outcome, error) {
	started := time.Now()
	cmd := s.Command()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	rec := newRecorder(run, cancel, r.Log)
	defer rec.close()

	pipes, err := openPipes()
	if err != nil {
		return notStarted(started, fmt.Errorf("make pipes for %s: %w", cmd.Path, err)), nil
	}
	defer pipes.close()
	tree, err := r.Host.Start(proc.Spec{
		Path: cmd.Path, Args: cmd.Args, Env: cmd.Env, Dir: cmd.Dir, Run: run.Tag,
		Stdin: pipes.stdinR, Stdout: pipes.stdoutW, Stderr: pipes.stderrW,
		NewSession: true, PdeathSignal: syscall.SIGKILL,
	})
	if err != nil {
		return notStarted(started, fmt.Errorf("start %s: %w", cmd.Path, err)), nil
	}
	pipes.closeChildEnds()

	out, err := openLogs(run)
	if err != nil {
		cancel(&Stop{Class: job.ResourceExhausted, Message: err.Error(), Hint: "make room in the state directory"})
	}
	defer out.close()
	framer, framed := s.(Framer)
	if framed {
		rec.recordAll(framer.Opening())
	}
	streams := pump(pipes, cmd, s, rec, out, cancel)

	stopped := false
	select {
	case <-tree.Exited():
	case <-ctx.Done():
		// The program may have ended at the same moment; then it was not stopped.
		select {
		case <-tree.Exited():
		default:
			stopped = true
		}
	}
	asked := time.Now()
	report, ghost := r.stop(ctx, tree, s, cmd, pipes, run, stopped)
	streams.wait(ghost != nil)

	state := tree.ExitState()
	exit := Exit{Code: state.Code, Stderr: out.stderrTail(), Stopped: stopped}
	if state.Signal != 0 {
		exit.Signal = state.Signal.String()
	}
	if framed {
		rec.recordAll(framer.Closing(exit))
	}
	var o job.Outcome
	if stop := stopOf(ctx); stopped && stop.verdict != nil {
		stopped = false
		o = rec.outcome(*stop.verdict, exit)
	} else {
		o = rec.outcome(s.Result(exit), exit)
	}
	o.StartedAt, o.EndedAt = started, time.Now()
	o.Artifacts = append(o.Artifacts, out.artifacts()...)
	for _, p := range report.Killed {
		if p.Pid != tree.Pid() {
			o.LeftBehind = append(o.LeftBehind, fmt.Sprintf("%s (pid %d)", p.Comm, p.Pid))
		}
	}
	if stopped {
		applyStop(&o, stopOf(ctx), o.EndedAt.Sub(asked))
	}
	if ghost != nil {
		return o, fmt.Errorf("%w: %w", ErrGhost, ghost)
	}
	return o, nil
}

// stop ends the tree: in stages if it was asked to, at once if its leader has
// ended by itself and only what it left behind is to go.
func (r *Runner) stop(ctx context.Context, tree *proc.Tree, s Session, cmd Command, p *pipes, run Run, stopped bool) (proc.Report, error) {
	stages := r.Stages
	switch {
	case !stopped || stopOf(ctx).Now:
		stages = proc.Stages{Kill: stages.Kill}
	case cmd.KeepStdin:
		// The program listens: it gets as long after our message as after SIGINT.
		stages.FirstWait = stages.Interrupt
		stages.First = func(ctx context.Context) error {
			if deadline, ok := ctx.Deadline(); ok {
				p.stdinW.SetWriteDeadline(deadline)
			}
			return s.Cancel(p.stdinW)
		}
	}
	// What caused the stop must not cut it short; only Hurry may.
	patience := context.WithoutCancel(ctx)
	if run.Hurry != nil {
		patience = run.Hurry
	}
	return tree.Stop(patience, stages)
}

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
func notStarted(at time.Time, err error) job.Outcome {
	class, hint := job.Config, ""
	if errors.Is(err, os.ErrPermission) {
		hint = "make the program executable for this user"
	}
	return job.Outcome{State: job.RunFailed, Class: class, Message: err.Error(), Hint: hint, ExitCode: -1, StartedAt: at, EndedAt: time.Now()}
}
