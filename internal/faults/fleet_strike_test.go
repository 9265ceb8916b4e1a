//go:build linux

package faults

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/agentsched/agentsched/internal/pgtest"
	"github.com/agentsched/agentsched/internal/testrun"
)

// strike does the harm of a fault to the fleet.
func (f *fleet) strike(ctx context.Context, x fault) error {
	lasts := time.Duration(x.MS) * time.Millisecond
	switch x.Do {
	case killNode, freezeNode, stallNode, stallCore, cutNode, deafenNode, silenceNode, narrowNode, slowNode, jumpNode:
		m := f.pickNode(x)
		if m == nil {
			return errMissed
		}
		return f.strikeNode(m, x.Do, lasts)
	case killLeader, freezeLeader, killStandby:
		return f.strikeScheduler(ctx, x.Do, lasts)
	case upgradeMachine:
		return f.upgrade(ctx, slices.Concat(f.nodes, f.schedulers)[x.Pick])
	case restartAll:
		return f.restartSchedulers(ctx)
	case restartBase, killBase:
		stop := func() error { return f.server.Stop(pgtest.Fast) }
		if x.Do == killBase {
			stop = f.server.Kill
		}
		return errors.Join(stop(), f.server.Restart())
	case cutCommit:
		// What the leader commits is sent as a whole, and what else is said is short.
		f.base.CutAt(func(said []byte) bool { return len(said) > 400 })
		return nil
	case cutStatement:
		f.base.CutAfter(1000 + 50*x.MS)
		return nil
	case jumpBase:
		if !pgtest.CanClock() {
			return errMissed
		}
		f.later(4*time.Second, func() error { return f.server.Jump(0) })
		return f.server.Jump(lasts)
	case holdBase:
		f.base.Hold()
		f.later(lasts, func() error { f.base.Mend(); return nil })
		return nil
	case killNodeRun:
		return f.hurtWorker(fault{Do: killWorker, Pick: x.Pick})
	case cancelOnFleet:
		return f.cancelOne(ctx, x)
	}
	return fmt.Errorf("what is %q?", x.Do)
}

// pickNode returns a node that runs and that nothing has struck which lasts.
func (f *fleet) pickNode(x fault) *machine {
	fit := slices.DeleteFunc(slices.Clone(f.nodes), func(m *machine) bool {
		return m.down || m.hurt || m.run.over() || x.Do == slowNode && m.relays == nil
	})
	if len(fit) == 0 {
		return nil
	}
	return fit[x.Pick%len(fit)]
}

func (f *fleet) strikeNode(m *machine, do faultKind, lasts time.Duration) error {
	end := func() error { return nil }
	var err error
	switch do {
	case killNode:
		if err := m.kill(f); err != nil {
			return err
		}
		end = func() error { return f.up(m) }
	case freezeNode:
		m.freeze(f)
		end = func() error {
			f.census.thaw(m.host)
			defer f.census.thaw(m.host) // the last process is told later than the first one
			return m.thaw()
		}
	case stallNode, stallCore:
		pid := m.run.cmd.Process.Pid
		if do == stallCore {
			cores := m.running(filepath.Join(m.programs, "agentcore"))
			if len(cores) == 0 {
				return errMissed
			}
			pid = cores[0] // its fuse is another process of the program, or this one is
		}
		if syscall.Kill(pid, syscall.SIGSTOP) != nil {
			return errMissed
		}
		end = func() error { _ = syscall.Kill(pid, syscall.SIGCONT); return nil } // gone: nothing to go on with
	case cutNode:
		err, end = m.net.cut(both), m.net.mend
	case deafenNode:
		err, end = m.net.cut(hears), m.net.mend
	case silenceNode:
		err, end = m.net.cut(tells), m.net.mend
	case narrowNode:
		err, end = m.net.narrow(32), m.net.widen
	case slowNode:
		end = m.slow(lasts)
	case jumpNode:
		return f.jumpMachine(m, lasts)
	}
	if err != nil {
		return err
	}
	m.hurt = true
	f.later(lasts, func() error { m.hurt = false; return end() })
	return nil
}

// slow delays what is said on a node's links, and cuts them.
func (m *machine) slow(lasts time.Duration) (end func() error) {
	for i, r := range m.relays {
		r.Delay(50*time.Millisecond + lasts/20)
		r.CutAfter(2000 * (i + 1))
	}
	return func() error {
		for _, r := range m.relays {
			r.Delay(0)
		}
		return nil
	}
}

// freeze stops all that runs on a machine, one process after the other, which takes a while where much runs. thaw has it
// go on.
func (m *machine) freeze(f *fleet) {
	if m.host != nil {
		f.census.freeze(m.host)
		defer f.census.stood(m.host)
	}
	known := map[int]bool{}
	for more := true; more; { // what one has started that was not stopped yet
		more = false
		for _, pid := range m.net.processes() {
			if !known[pid] && syscall.Kill(pid, syscall.SIGSTOP) == nil {
				known[pid], more = true, true
			}
		}
		testrun.Within(f.tb, stopsWithin, func() bool { return !slices.ContainsFunc(slices.Collect(maps.Keys(known)), starts) })
	}
}

// stopsWithin is how long a process that was sent SIGSTOP is waited for. One that waits for what it starts, which is
// stopped already, never stands still.
const stopsWithin = time.Second

// starts reports whether a process may still start others, though it was sent SIGSTOP: on a busy machine it takes that
// a while later. When a thread of it is stopped, no other one returns from the kernel.
func starts(pid int) bool {
	states := testrun.Threads(pid)
	return !strings.Contains(states, "T") && strings.Trim(states, "ZX") != ""
}

func (m *machine) thaw() error {
	for _, pid := range m.net.processes() {
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}
	return nil
}

// kill ends all that runs on a machine, as the loss of its host would: none sees another die.
func (m *machine) kill(f *fleet) error {
	m.down = true
	if m.host != nil {
		defer f.census.thaw(m.host)
	}
	m.freeze(f)
	for _, pid := range m.net.processes() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	<-m.run.ended
	if !testrun.Within(f.tb, leftWithin, func() bool { return len(m.net.processes()) == 0 }) {
		return fmt.Errorf("%s was killed, and has processes: %v", m.name, m.net.processes())
	}
	return nil
}

// running lists the machine's processes of a program.
func (m *machine) running(program string) (pids []int) {
	for _, pid := range m.net.processes() {
		if exe, _ := os.Readlink(filepath.Join("/proc", fmt.Sprint(pid), "exe")); exe == program {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids
}

// jumpMachine has the wall clock of a machine's own processes jump, and later stand right again.
func (f *fleet) jumpMachine(m *machine, by time.Duration) error {
	if !canJump {
		return errMissed
	}
	var jumped []int
	for _, pid := range append(m.running(program("scheduler")), m.running(program("agentcore"))...) {
		if err := jumpClock(pid, by); err == nil {
			jumped = append(jumped, pid)
		} else if !isGone(err) {
			return fmt.Errorf("jump the clock of process %d: %w", pid, err)
		}
	}
	if len(jumped) == 0 {
		return errMissed
	}
	m.hurt = true // a process that is stopped tells its clock nothing
	f.later(time.Second, func() error {
		m.hurt = false
		for _, pid := range jumped {
			if err := jumpClock(pid, 0); err != nil && !isGone(err) {
				return fmt.Errorf("put a clock right: %w", err)
			}
		}
		return nil
	})
	return nil
}

// strikeScheduler strikes the leader or a standby, if another scheduler is there to go on.
func (f *fleet) strikeScheduler(ctx context.Context, do faultKind, lasts time.Duration) error {
	leader := f.leader(ctx)
	fit := f.working()
	if leader == nil || len(fit) < 2 {
		return errMissed
	}
	m := leader
	if do == killStandby {
		fit = slices.DeleteFunc(fit, func(m *machine) bool { return m == leader })
		m = fit[0]
	}
	end := m.thaw
	if do == freezeLeader {
		m.freeze(f)
	} else {
		if err := m.kill(f); err != nil {
			return err
		}
		end = func() error { return f.up(m) }
	}
	m.hurt = true
	f.later(lasts, func() error { m.hurt = false; return end() })
	return nil
}

// working lists the schedulers that run, and that nothing has struck which lasts.
func (f *fleet) working() []*machine {
	return slices.DeleteFunc(slices.Clone(f.schedulers), func(m *machine) bool { return m.down || m.hurt || m.run.over() })
}

// restartSchedulers tells all schedulers to end, and starts them again.
func (f *fleet) restartSchedulers(ctx context.Context) error {
	if len(f.working()) < fleetSchedulers || f.leader(ctx) == nil {
		return errMissed
	}
	for _, m := range f.schedulers {
		m.down = true
		_ = m.run.cmd.Process.Signal(syscall.SIGTERM)
	}
	for _, m := range f.schedulers {
		select {
		case <-m.run.ended:
		case <-ctx.Done():
			return fmt.Errorf("%s does not end: %w", m.name, context.Cause(ctx))
		}
	}
	for _, m := range f.schedulers {
		if err := f.up(m); err != nil {
			return err
		}
	}
	return nil
}

func (f *fleet) cancelOne(ctx context.Context, x fault) error {
	working := f.working()
	jobs := slices.DeleteFunc(slices.Clone(f.plan.Jobs), func(j jobPlan) bool { return f.log.ended(j.Name) })
	if len(working) == 0 || len(jobs) == 0 {
		return errMissed
	}
	name := jobs[x.Pick%len(jobs)].Name
	client := working[x.Pick%len(working)].client()
	defer client.Close()
	ctx, end := context.WithTimeout(ctx, 5*time.Second)
	defer end()
	f.cancelled[name] = true // also if the answer is lost
	if _, err := client.Cancel(ctx, name); err != nil {
		return errMissed
	}
	return nil
}
