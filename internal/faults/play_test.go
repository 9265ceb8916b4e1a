//go:build linux

package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/agentsched/agentsched/internal/testrun"
)

// patience is how long a scenario may take until all its jobs have ended, as testrun counts time.
const patience = 90 * time.Second

// errStuck: the jobs have not ended, and nothing strikes any more.
var errStuck = fmt.Errorf("the jobs have not ended within %s", patience)

// play runs the plan to its end: the scheduler is started until every job has
// ended, and each fault strikes when its mark is reached. Then, with only the
// sentinel left, the quiet is looked at, and the sentinel may end too.
func (s *scene) play(ctx context.Context) error {
	ctx, end := testrun.Context(s.tb, ctx, patience, errStuck)
	defer end()
	pending := s.plan.Faults
	for {
		r, err := s.start()
		if err != nil {
			return err
		}
		pending, err = s.follow(ctx, r, pending)
		if err != nil {
			return err
		}
		if r.over() {
			// What lasts beyond a scheduler's end would keep the next from starting.
			if err := s.undoUntil(time.Now(), true); err != nil {
				return err
			}
			continue
		}
		// Every job but the sentinel has ended.
		if err := s.quiet(ctx, r); err != nil {
			return err
		}
		if r.over() {
			continue
		}
		if !s.plan.Dump {
			return s.finish(ctx, r)
		}
		s.plan.Dump = false // once
		if err := s.countGoroutines(r); err != nil {
			return err
		}
	}
}

// follow strikes until the run is over or every job but the sentinel has
// ended, and returns the faults that are left.
func (s *scene) follow(ctx context.Context, r *run, pending []fault) ([]fault, error) {
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	known := len(s.runs) == 1 // what has ended: all of it happens before our eyes
	asked := time.Now()
	for {
		n, more := s.marks.now()
		if err := s.undoUntil(time.Now(), false); err != nil {
			return nil, err
		}
		if err := s.keepJumped(r); err != nil {
			return nil, err
		}
		// A scheduler that is starting may end jobs before it shows anything.
		known = known && !r.missed() && time.Since(asked) < time.Second
		if !known {
			known, asked = s.learn(ctx, r), time.Now()
		}
		if r.over() {
			return pending, s.excused(r)
		}
		if known && s.allEnded() {
			return nil, s.undoUntil(time.Now(), true)
		}
		if len(pending) > 0 && pending[0].After <= n {
			f := pending[0]
			switch err := s.strike(ctx, r, f); {
			case errors.Is(err, errMissed):
				pending[0].After = n + 1 // there will be something to strike
			case err != nil:
				return nil, fmt.Errorf("%s: %w", f.Do, err)
			default:
				s.struck[f.Do]++
				r.struck = append(r.struck, f.Do)
				pending = pending[1:]
				continue
			}
		}
		undo, stop := s.nextUndo()
		select {
		case <-more:
		case <-r.ended:
		case <-undo:
		case <-look.C: // what was missed by a killed scheduler is asked for again
		case <-ctx.Done():
			stop()
			return nil, fmt.Errorf("%w:\n%s", context.Cause(ctx), s.unfinished())
		}
		stop()
	}
}

// learn asks a scheduler that was started again which jobs have ended: one that
// was killed may have had no time to tell.
func (s *scene) learn(ctx context.Context, r *run) bool {
	client := s.client()
	defer client.Close()
	for _, j := range s.plan.Jobs {
		if s.hasEnded(j.Name) {
			continue
		}
		ctx, end := context.WithTimeout(ctx, 300*time.Millisecond)
		got, err := client.Job(ctx, j.Name)
		end()
		if err != nil {
			return false // not up yet, or stopped: later
		}
		if got.Job.State.Terminal() {
			r.note(j.Name)
		}
	}
	return true
}

func (s *scene) hasEnded(name string) bool {
	for _, r := range s.runs {
		if r.hasEnded(name) {
			return true
		}
	}
	return false
}

func (s *scene) allEnded() bool {
	for _, j := range s.plan.Jobs {
		if j.Name != sentinel && !s.hasEnded(j.Name) {
			return false
		}
	}
	return true
}

// unfinished tells of the jobs that have not ended, and of the cores.
func (s *scene) unfinished() string {
	client := s.client()
	defer client.Close()
	ctx, end := context.WithTimeout(context.Background(), 2*time.Second)
	defer end()
	var b strings.Builder
	for _, j := range s.plan.Jobs {
		if s.hasEnded(j.Name) {
			continue
		}
		got, err := client.Job(ctx, j.Name)
		if err != nil {
			fmt.Fprintf(&b, "%s: %v\n", j.Name, err)
			continue
		}
		e := got.Job
		fmt.Fprintf(&b, "%s: %s %s, runnable at %s, %d attempts, waiting: %s\n", j.Name, e.State, e.ExitKind, e.RunnableAt.Format(time.StampMilli), e.Attempts, e.Waiting)
	}
	status, err := client.Status(ctx)
	text, _ := json.Marshal(status)
	fmt.Fprintf(&b, "status: %s %v\n", text, err)
	for _, m := range s.census.alive() {
		fmt.Fprintf(&b, "alive: %s %s of %s, pid %d\n", m.Role, m.Run, m.Job, m.pid)
	}
	return b.String()
}

// excused returns an error if the scheduler had no reason to end.
func (s *scene) excused(r *run) error {
	for _, f := range r.struck {
		switch f {
		case killScheduler, killAll, interrupt, hurry, fillDisk:
			return nil
		}
	}
	return fmt.Errorf("the scheduler ended by itself (%s), with jobs left to do", r.cmd.ProcessState)
}

// finish lets the sentinel end, and waits for the scheduler's end, which comes
// when there is nothing left to do.
func (s *scene) finish(ctx context.Context, r *run) error {
	close(s.census.release)
	select {
	case <-r.ended:
	case <-ctx.Done():
		return fmt.Errorf("every job may end, but the scheduler does not: %w", context.Cause(ctx))
	}
	// 0: every job was completed; 1: one failed.
	if code := r.cmd.ProcessState.ExitCode(); code != 0 && code != 1 {
		return fmt.Errorf("the scheduler ended with %s, want exit code 0 or 1", r.cmd.ProcessState)
	}
	return nil
}

// dump has a scheduler that hangs say in its standard error where.
func (s *scene) dump() {
	r := s.runs[len(s.runs)-1]
	if r.over() {
		return
	}
	_ = r.cmd.Process.Signal(syscall.SIGCONT)
	_ = r.cmd.Process.Signal(syscall.SIGQUIT)
	select {
	case <-r.ended:
	case <-time.After(5 * time.Second):
	}
}
