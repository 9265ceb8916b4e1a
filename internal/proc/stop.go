package proc

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"
)

// DefaultKill is how long the last stage may take when Stages.Kill is 0.
const DefaultKill = 10 * time.Second

// Stages of a stop. The zero value kills at once.
type Stages struct {
	// First, if not nil, asks the leader in its own way to end: closes its input, writes a cancel message. It runs
	// before SIGINT and must return when its context is done or the leader is dead. Its error is logged, not returned:
	// the next stage follows anyway.
	First     func(ctx context.Context) error
	FirstWait time.Duration // how long the leader has after First was called

	Interrupt time.Duration // how long the leader has after SIGINT; 0 skips it
	Terminate time.Duration // how long the leader has after SIGTERM; 0 skips it
	// Leftover is how long what outlives the leader has after SIGTERM to end by itself: shells have locks and temporary
	// files to take away. 0 kills it at once. It costs nothing when nothing is left.
	Leftover time.Duration
	Kill     time.Duration // how long the kill and its proof may take until ErrGhost; 0 means DefaultKill
}

// DefaultStages suits the worker CLIs.
var DefaultStages = Stages{Interrupt: 2 * time.Second, Terminate: 5 * time.Second, Kill: DefaultKill}

func (s Stages) gentle() bool { return s.First != nil || s.Interrupt > 0 || s.Terminate > 0 }

// inTime calls end with a deadline after so long, and again if a ghost was found but this process has stood still
// meanwhile, or its host: what was to die had no time to. Who runs notices a deadline when it comes, or a moment later.
func inTime(after time.Duration, end func(deadline time.Time) error) error {
	for again := 3; ; again-- {
		began := time.Now()
		err := end(began.Add(after))
		if late := time.Since(began) - after; !errors.Is(err, ErrGhost) || late < max(after, time.Second) || again == 0 {
			return err
		}
	}
}

// Stop ends the tree and proves it empty. It is the one way in which a tree ends: cancel, timeout, and the sweep after a
// leader that ended by itself.
//
// The gentle stages wait for the leader only; as soon as it has exited, or had before, whatever else of the tree lives
// is asked to end if Stages.Leftover says so, and killed. A done ctx cuts the gentle stages short but never the kill. Stop may be called again and from
// several goroutines: one works, the others wait and get the same report, and one that asks for no gentle stage (or whose
// ctx is done) hurries the one at work. After ErrGhost it may be tried again.
func (t *Tree) Stop(ctx context.Context, s Stages) (Report, error) {
	begin := time.Now()
	if !s.gentle() || ctx.Err() != nil {
		t.hurryUp()
	}
	t.stopping <- struct{}{}
	defer func() { <-t.stopping }()
	if t.proven != nil {
		return *t.proven, nil
	}

	rep := Report{Stage: StageKill}
	finishFirst := t.askToEnd(ctx, s, &rep)
	if s.Kill == 0 {
		s.Kill = DefaultKill
	}
	err := error(nil)
	if !t.goneWithLeader(&rep) {
		if s.Leftover > 0 && ctx.Err() == nil && rep.Stage != StageKill {
			t.askLeftovers(time.Now().Add(s.Leftover), &rep)
		}
		err = inTime(s.Kill, func(deadline time.Time) error { return t.empty(deadline, &rep) })
	}
	finishFirst()
	if err != nil {
		return Report{}, err
	}
	if rep.Stage == StageKill && t.ExitState().Signal != syscall.SIGKILL {
		rep.Stage = StageExited // by itself, before the kill reached it
	}
	if inner := t.program(); inner != nil {
		rep.tellOfInner(inner)
	}
	rep.Latency = time.Since(begin)
	t.proven = &rep

	log := t.host.cfg.Log.Debug()
	if len(rep.Killed) > 0 && rep.Stage == StageExited {
		log = t.host.cfg.Log.Info()
	}
	log.Str("run", t.run).Int("pid", t.pid).Stringer("stage", rep.Stage).Int("killed", len(rep.Killed)).
		Dur("latency_ms", rep.Latency).Msg("process tree is empty")
	return rep, nil
}

// askToEnd goes through the gentle stages until the leader has exited or patience is spent, and notes the stage. The
// returned function waits for First to return; it is called when the tree is dead, since First may hang until then.
func (t *Tree) askToEnd(ctx context.Context, s Stages, rep *Report) (finishFirst func()) {
	finishFirst = func() {}
	select {
	case <-t.exited:
		rep.Stage = StageExited
		return finishFirst
	default:
	}
	if !s.gentle() || t.hurriedNow() {
		return finishFirst
	}
	// Once a parent is gone, the way from an orphan to its tree is gone too.
	t.noteMembers(rep)

	if s.First != nil {
		firstCtx, cancel := context.WithTimeout(ctx, s.FirstWait)
		returned := make(chan error, 1)
		go func() { returned <- s.First(firstCtx) }()
		finishFirst = func() {
			cancel()
			if err := <-returned; err != nil {
				t.host.cfg.Log.Debug().Err(err).Str("run", t.run).Msg("first stage of stop")
			}
		}
		if t.waitExited(ctx, s.FirstWait) {
			rep.Stage = StageFirst
			return finishFirst
		}
	}
	for _, stage := range []struct {
		is   Stage
		wait time.Duration
		sigs []syscall.Signal
	}{
		{StageInterrupt, s.Interrupt, []syscall.Signal{syscall.SIGINT}},
		// A stopped process takes SIGTERM only when it is continued.
		{StageTerminate, s.Terminate, []syscall.Signal{syscall.SIGTERM, syscall.SIGCONT}},
	} {
		if stage.wait <= 0 {
			continue
		}
		for _, sig := range stage.sigs {
			if err := t.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
				t.host.cfg.Log.Debug().Err(err).Str("run", t.run).Msg("stop stage")
			}
		}
		if t.waitExited(ctx, stage.wait) {
			rep.Stage = stage.is
			return finishFirst
		}
	}
	return finishFirst
}

// waitExited reports whether the leader exited within d and before someone lost patience.
func (t *Tree) waitExited(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-t.exited:
		return true
	case <-timer.C:
	case <-ctx.Done():
	case <-t.hurry:
	}
	return false
}

// reapedBefore waits for the waiter of a dead leader.
func (t *Tree) reapedBefore(deadline time.Time) bool {
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case <-t.exited:
		return true
	case <-timer.C:
		return false
	}
}

func (t *Tree) hurryUp() {
	t.host.mu.Lock()
	defer t.host.mu.Unlock()
	if !t.hurried {
		t.hurried = true
		close(t.hurry)
	}
}

func (t *Tree) hurriedNow() bool {
	t.host.mu.Lock()
	defer t.host.mu.Unlock()
	return t.hurried
}
