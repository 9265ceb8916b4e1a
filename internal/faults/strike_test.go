//go:build linux

package faults

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/faults/act"
	"github.com/agentsched/agentsched/internal/testrun"
)

// faultKind is what strikes.
type faultKind string

const (
	killCore      faultKind = "kill core"
	stopCore      faultKind = "stop core"  // SIGSTOP; only its end ends that
	pauseCore     faultKind = "pause core" // SIGSTOP, and later SIGCONT
	killScheduler faultKind = "kill scheduler"
	killAll       faultKind = "kill scheduler and cores"
	pauseAll      faultKind = "pause scheduler"
	freezeAll     faultKind = "freeze scheduler" // SIGSTOP, and SIGCONT when its runs are gone
	interrupt     faultKind = "interrupt scheduler"
	hurry         faultKind = "interrupt scheduler twice"
	killWorker    faultKind = "kill worker"
	stopWorker    faultKind = "stop worker" // SIGSTOP
	cancelJob     faultKind = "cancel job"
	restartCore   faultKind = "restart core"
	drainCore     faultKind = "drain core"
	reload        faultKind = "reload configuration"
	fillDisk      faultKind = "fill disk" // until the scheduler ends or some time has passed
	jumpClocks    faultKind = "jump wall clock"
	tearFrames    faultKind = "tear frames" // by the plan's Tears, not struck
)

// addFaults gives the plan its faults: one to four that strike, and in some
// scenarios a core that tears frames.
func (p *plan) addFaults(r *rand.Rand) {
	kinds := []faultKind{killCore, killCore, stopCore, pauseCore, killScheduler, killScheduler, killAll, pauseAll, interrupt, hurry, killWorker, stopWorker, cancelJob, restartCore, drainCore, reload}
	if canJump && os.Geteuid() == 0 { // nobody else may write to processes that are secluded, see proc.Seclude
		kinds = append(kinds, jumpClocks, jumpClocks)
	}
	if p.SmallDisk = r.IntN(8) == 0; p.SmallDisk {
		kinds = []faultKind{fillDisk, fillDisk, killScheduler, killCore}
	}
	marks := 6 * len(p.Jobs)
	for range 1 + r.IntN(4) {
		f := fault{After: 1 + r.IntN(marks), Do: pick(r, kinds...), Pick: r.IntN(100)}
		switch f.Do {
		case pauseCore, pauseAll:
			f.MS = 50 + r.IntN(400)
		case fillDisk:
			f.MS = 200 + r.IntN(800)
		case jumpClocks:
			f.MS = pick(r, -7_200_000, -3_000, 3_000, 7_200_000)
		}
		p.Faults = append(p.Faults, f)
	}
	slices.SortStableFunc(p.Faults, func(a, b fault) int { return a.After - b.After })
	if r.IntN(4) == 0 {
		for range 1 + r.IntN(2) {
			tear := act.Tear{Do: pick(r, act.TearKinds()...), Frame: 1 + r.IntN(40), Calls: r.IntN(3) == 0}
			if tear.Do == act.Mute {
				tear.Frame += 2 // a core may take half a minute to say hello
			}
			p.Tears = append(p.Tears, tear)
		}
	}
}

// addLapse has permits lapse soon in some scenarios, and the scheduler frozen until
// they have. There, cores are not stopped: they have to judge.
func (p *plan) addLapse(r *rand.Rand) {
	if p.Lapse = r.IntN(5) == 0 && !p.SmallDisk; !p.Lapse {
		return
	}
	p.Tears = nil
	p.Faults[r.IntN(len(p.Faults))].Do = freezeAll
	for i := range p.Faults {
		switch f := &p.Faults[i]; f.Do {
		case pauseAll, stopCore, pauseCore:
			*f = fault{After: f.After, Do: freezeAll}
		}
	}
}

// errMissed: there was nothing to strike.
var errMissed = errors.New("nothing to strike")

// strike does the harm of a fault to a running scheduler. What lasts is ended
// by the scene's undo, or at its time.
func (s *scene) strike(ctx context.Context, r *run, f fault) error {
	switch f.Do {
	case killCore, stopCore, pauseCore:
		pid, ok := r.core(f.Pick)
		if !ok {
			return errMissed
		}
		return s.hurt(pid, f)
	case killScheduler, pauseAll:
		return s.hurt(r.cmd.Process.Pid, f)
	case freezeAll:
		return s.freeze(r)
	case killAll:
		return r.killAll()
	case interrupt, hurry:
		if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			return errMissed
		}
		if f.Do == hurry {
			_ = r.cmd.Process.Signal(syscall.SIGINT) // gone: the first one was enough
		}
		return nil
	case killWorker, stopWorker:
		return s.hurtWorker(f)
	case cancelJob:
		return s.cancel(ctx, f)
	case restartCore, drainCore:
		return s.restart(ctx, f)
	case reload:
		if !r.up() {
			return errMissed // it may not heed the signal yet, and would be ended by it
		}
		s.reloads++
		if err := s.write("config.yaml", s.config()); err != nil {
			return err
		}
		if r.cmd.Process.Signal(syscall.SIGHUP) != nil {
			return errMissed
		}
		return nil
	case fillDisk:
		return s.fill(time.Duration(f.MS) * time.Millisecond)
	case jumpClocks:
		return s.jump(r, f)
	}
	return fmt.Errorf("what is %q?", f.Do)
}

// hurt kills, stops or pauses a process.
func (s *scene) hurt(pid int, f fault) error {
	sig := syscall.SIGSTOP
	if f.Do == killCore || f.Do == killScheduler {
		sig = syscall.SIGKILL
	}
	if err := syscall.Kill(pid, sig); err != nil {
		return errMissed
	}
	if f.Do == pauseCore || f.Do == pauseAll {
		s.later(time.Duration(f.MS)*time.Millisecond, func() error {
			_ = syscall.Kill(pid, syscall.SIGCONT) // gone: nothing to go on with
			return nil
		})
	}
	return nil
}

// frozenWithin is how long the runs of a frozen scheduler may last, as testrun counts
// time: their permits lapse after lapseAfter, and then they are stopped.
const (
	lapseAfter   = 4 * time.Second
	frozenWithin = 40 * time.Second
)

// freeze stops the scheduler until nothing of its runs is left, which is the cores'
// doing alone. One that dies at that moment leaves what nobody else could end.
func (s *scene) freeze(r *run) error {
	all := func() bool { return len(r.alive()) == s.plan.Cores && !r.over() }
	if len(s.census.alive()) == 0 || !all() || r.cmd.Process.Signal(syscall.SIGSTOP) != nil {
		return errMissed
	}
	gone := testrun.Within(s.tb, frozenWithin, func() bool { return len(s.census.alive()) == 0 || !all() })
	left := map[*member]bool{}
	for _, m := range s.census.alive() {
		left[m] = true
	}
	if err := r.cmd.Process.Signal(syscall.SIGCONT); err != nil && !r.over() {
		return err
	}
	if gone {
		return nil
	}
	return fmt.Errorf("the scheduler was frozen for %s, its permits are valid for %s, and of its runs there are: %s", frozenWithin, lapseAfter, describe(left, nil))
}

// hurtWorker kills or stops a process of a worker, but none of the sentinel's.
func (s *scene) hurtWorker(f fault) error {
	all := slices.DeleteFunc(s.census.alive(), func(m *member) bool { return m.Job == sentinel })
	if len(all) == 0 {
		return errMissed
	}
	sig := syscall.SIGKILL
	if f.Do == stopWorker {
		sig = syscall.SIGSTOP
	}
	if all[f.Pick%len(all)].signal(sig) != nil {
		return errMissed
	}
	return nil
}

func (s *scene) cancel(ctx context.Context, f fault) error {
	name := s.plan.Jobs[f.Pick%(len(s.plan.Jobs)-1)].Name // the sentinel is last
	client := s.client()
	defer client.Close()
	ctx, end := context.WithTimeout(ctx, 5*time.Second)
	defer end()
	if _, err := client.Cancel(ctx, name); err != nil {
		return errMissed // it has ended, or the scheduler is not there
	}
	s.cancelled[name] = true
	return nil
}

// restart has one or all cores replaced, as `scheduler restart-core` does.
func (s *scene) restart(ctx context.Context, f fault) error {
	if _, err := os.Stat(filepath.Join(s.state, "scheduler.sock")); err != nil {
		return errMissed // not up yet
	}
	which := api.RestartCores{Core: f.Pick % (s.plan.Cores + 1), Drain: f.Do == drainCore}
	stay := func() {}
	if which.Drain {
		stay = s.census.driveAway()
	}
	s.calls.Go(func() {
		defer stay()
		client := s.client()
		defer client.Close()
		// Whatever becomes of it: the scheduler may be killed meanwhile.
		_, _ = client.RestartCores(ctx, which)
	})
	return nil
}

// fill leaves no room on the small disk for a while.
func (s *scene) fill(lasts time.Duration) error {
	ballast := filepath.Join(s.state, "ballast")
	f, err := os.OpenFile(ballast, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return errMissed // it is full
	}
	defer f.Close()
	for size := 1 << 16; size > 0; {
		if _, err := f.Write(make([]byte, size)); errors.Is(err, syscall.ENOSPC) {
			size /= 2
		} else if err != nil {
			return err
		}
	}
	s.later(lasts, func() error { return os.Remove(ballast) })
	return nil
}

// jump changes the wall clock for the scheduler and its cores, as if it were
// the machine's, and some time later puts it right.
func (s *scene) jump(r *run, f fault) error {
	if s.clock != 0 {
		return errMissed // once at a time
	}
	s.clock = time.Duration(f.MS) * time.Millisecond
	s.jumped = map[int]bool{}
	s.later(700*time.Millisecond, func() error {
		s.clock = 0
		for pid := range s.jumped {
			if err := jumpClock(pid, 0); err != nil && !isGone(err) {
				return fmt.Errorf("put a clock right: %w", err)
			}
		}
		return nil
	})
	return s.keepJumped(r)
}

// keepJumped has every process that came since then see the clock that jumped.
func (s *scene) keepJumped(r *run) error {
	if s.clock == 0 {
		return nil
	}
	for _, pid := range append(r.alive(), r.cmd.Process.Pid) {
		if s.jumped[pid] {
			continue
		}
		if err := jumpClock(pid, s.clock); err == nil {
			s.jumped[pid] = true
		} else if !isGone(err) {
			return fmt.Errorf("jump the clock of process %d: %w", pid, err)
		}
	}
	return nil
}

// isGone reports whether an error is that of a process that has ended.
func isGone(err error) bool {
	// Memory of a process that has just gone takes nothing: pwrite returns 0.
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}
