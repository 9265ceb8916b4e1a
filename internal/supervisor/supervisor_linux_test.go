package supervisor

import (
	"context"
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agentsched/agentsched/internal/proc"
	"github.com/agentsched/agentsched/internal/testrun"
	"github.com/agentsched/agentsched/ipc"
)

func cores(n int) func(*Config) { return func(c *Config) { c.Cores = n } }

func TestCoresComeUpAndEnd(t *testing.T) {
	b := newBench(t, fakeMode{Early: true}, cores(3))
	b.start()
	if e := b.await("forget", 0); e.text != "[]" || e.span != 0 {
		t.Errorf("told to forget %s", e.text)
	}
	for i, c := range b.up(1, 2, 3) {
		b.await("notify", i+1) // sent before it was configured, told after CoreUp
		s := b.awaitStatus(i+1, "up", isUp)
		if c.Index() != i+1 || s.PID != c.PID() || s.Version != "fake" || s.Protocol != ipc.ProtocolVersion || s.Restarts != 0 || s.Since.IsZero() {
			t.Errorf("core %d: %+v", c.Index(), s)
		}
		var got ipc.Configure
		if b.call(c, fakeGet, nil, &got); got.MaxConcurrent != 4 {
			t.Errorf("configured with %+v", got)
		}
	}
	cause := errors.New("enough")
	b.stop(cause)
	if err := b.ended(); !errors.Is(err, cause) {
		t.Errorf("Run: %v", err)
	}
	for i := range 3 {
		if e := b.await("down", i+1); !errors.Is(e.cause, cause) {
			t.Errorf("core %d: %v", i+1, e.cause)
		}
	}
	if b.seen("crash", 0) || b.seen("failed", 0) || b.seen("draining", 0) {
		t.Errorf("events %+v", b.events)
	}
}

func TestReconfigureReachesEveryCore(t *testing.T) {
	b := newBench(t, fakeMode{}, cores(2))
	b.start()
	live := b.up(1, 2)
	b.mu.Lock()
	b.settings = testSettings(9)
	b.mu.Unlock()
	if err := b.Reconfigure(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, c := range live {
		var got ipc.Configure
		if b.call(c, fakeGet, nil, &got); got.MaxConcurrent != 9 {
			t.Errorf("core %d is configured with %+v", c.Index(), got)
		}
	}
}

// Heartbeats renew the permits of a core as long as the scheduler works.
func TestHeartbeatsRenewPermits(t *testing.T) {
	b := newBench(t, fakeMode{}, nil)
	b.start()
	core := b.up(1)[0]
	for _, works := range []bool{true, false, true} {
		b.works.Store(works)
		last := func() (beat ipc.Heartbeat) {
			b.call(core, fakeBeat, nil, &beat)
			return beat
		}
		before := last()
		beat := last()
		for beat.Seq < before.Seq+2 { // the next one may be on its way
			beat = last()
		}
		if beat.Renew != works {
			t.Errorf("the scheduler works is %t, and heartbeat %+v", works, beat)
		}
	}
}

// What workers do to hide: they print their pid and stay.
const (
	asChild   = `sh -c 'echo $$; exec sleep 300' & `
	asDaemon  = `(setsid sh -c 'echo $$; exec sleep 300' >&9 9>&- </dev/null & ) 9>&1 >/dev/null; `
	asCleared = `env -i setsid /bin/sh -c 'echo $$; exec /bin/sleep 300' & `
	asBoth    = `(env -i setsid /bin/sh -c 'echo $$; exec /bin/sleep 300' & ) ; `
	staying   = "exec sleep 300"
	leaving   = "exit 0"
)

// startWorkers starts one worker of each kind, beside some whose leader has
// ended already.
func (b *bench) startWorkers(c *Core) []int {
	b.t.Helper()
	var pids []int
	for name, script := range map[string]string{
		"child": asChild + staying, "daemon": asDaemon + staying, "cleared": asCleared + staying, "both": asBoth + staying,
		"left daemon": asDaemon + leaving, "left both": asBoth + leaving,
	} {
		started := b.startWorker(c, name, script, 1)
		if strings.HasPrefix(name, "left") {
			started = started[1:]
		}
		pids = append(pids, started...)
	}
	return pids
}

// When CoreDown is told, nothing of that core lives and all of the others does,
// whatever the workers did.
func TestDeathOfOneCore(t *testing.T) {
	for name, cgroup := range map[string]string{"cgroup": "supervisortest", "plain": ""} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, fakeMode{Cgroup: cgroup}, cores(3))
			workers := map[int][]int{} // guarded by b.mu
			b.onDown = func(c *Core) {
				b.mu.Lock()
				mine := workers[c.Index()]
				b.mu.Unlock()
				if left := alive(mine...); len(left) > 0 {
					t.Errorf("told that core %d is down while %v live of %v", c.Index(), left, mine)
				}
			}
			b.start()
			b.await("forget", 0)
			live := b.up(1, 2, 3)
			for _, c := range live {
				started := b.startWorkers(c)
				b.mu.Lock()
				workers[c.Index()] = started
				b.mu.Unlock()
			}
			all := slices.Concat(workers[1], workers[2], workers[3])
			if got := alive(all...); len(got) != len(all) {
				t.Fatalf("of %v only %v live", all, got)
			}

			b.kill(live[0].PID())
			if e := b.await("down", 1); errors.Is(e.cause, ErrReplaced) || !strings.Contains(e.cause.Error(), "killed") {
				t.Errorf("down because of %v", e.cause)
			}
			if e := b.await("forget", 0); e.span != 6 || !strings.Contains(e.text, string(b.id)+"/daemon/1") {
				t.Errorf("told to forget %s", e.text)
			}
			if r := b.await("crash", 1).crash; len(r.Runs) != 6 || r.PID != live[0].PID() || r.Exit != "ended by signal: killed" || r.Dump != "" {
				t.Errorf("report %+v", r)
			}
			others := slices.Concat(workers[2], workers[3])
			if got := alive(others...); len(got) != len(others) {
				t.Errorf("of the others' %v only %v live", others, got)
			}
			if b.seen("down", 0) || b.seen("runs", 2) || b.seen("runs", 3) {
				t.Errorf("another core is down: %+v", b.events)
			}
			b.up(1)

			// Two at once: an orphan that nothing ties to its core may be of either.
			for _, c := range live[1:] {
				b.kill(c.PID())
			}
			b.await("down", 2)
			b.await("down", 3)
			if got := alive(others...); len(got) > 0 {
				t.Errorf("%v live", got)
			}
			b.up(2, 3)
		})
	}
}

func TestRunSweepsWhatAnEarlierSchedulerLeft(t *testing.T) {
	b := newBench(t, fakeMode{}, nil)
	exited := make(chan struct{})
	// It is no child of the host's, as if another process had started it.
	cmd := sleeper(t, string(b.id)+"/job/1")
	go func() { cmd.Wait(); close(exited) }()
	b.onUp = func(*Core) {
		select {
		case <-exited:
		case <-testrun.After(t):
			t.Error("a core is up and the earlier worker lives")
		}
	}
	b.start()
	b.up(1)
}

func TestNoStart(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"no program": func(c *Config) { c.Command = []string{"/no/such/core"} },
		"no core":    func(c *Config) { c.Command = []string{"/bin/sh", "-c", "echo I am a shell >&2; exit 7"} },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, fakeMode{}, func(c *Config) { c.Cores = 2; change(c) })
			b.start()
			err := b.ended()
			if !errors.Is(err, ErrNoStart) || name == "no core" && !strings.Contains(err.Error(), "I am a shell") {
				t.Errorf("Run: %v", err)
			}
			if e := b.await("failed", 0); e.cause == nil {
				t.Error("failed without a cause")
			}
			if name == "no core" {
				if r := b.await("crash", 0).crash; r.Exit != "exit code 7" || r.LastWords != "I am a shell" || r.Stderr != "I am a shell\n" {
					t.Errorf("report %+v", r)
				}
			}
			if b.seen("up", 0) || b.seen("down", 0) {
				t.Errorf("events %+v", b.events)
			}
		})
	}
}

func TestIncompatibleAtStart(t *testing.T) {
	for name, mode := range map[string]fakeMode{"another protocol": {Protocol: 99}, "refuses": {Refuse: true}} {
		t.Run(name, func(t *testing.T) { // a process has one host at a time: of two, each reaps what the other started
			b := newBench(t, mode, cores(2))
			b.start()
			if err := b.ended(); !errors.Is(err, ErrIncompatible) || mode.Protocol != 0 && !strings.Contains(err.Error(), "speaks protocol 99, this scheduler (test) speaks 1; install both from one release") {
				t.Errorf("Run: %v", err)
			}
			if b.seen("up", 0) || b.seen("crash", 0) {
				t.Errorf("events %+v", b.events)
			}
		})
	}
}

// Run ends soon whenever its ctx does, and leaves nothing.
func TestEndAtEachPhase(t *testing.T) {
	for _, tc := range []struct {
		name   string
		mode   fakeMode
		change func(*Config)
		reach  func(*bench)
	}{
		{"before the start", fakeMode{}, nil, func(*bench) {}},
		{"waiting for hello", fakeMode{Silent: true}, nil, func(b *bench) {
			b.awaitStatus(2, "starting", func(s Status) bool { return s.State == Starting && s.PID != 0 })
		}},
		{"up", fakeMode{}, nil, func(b *bench) { b.up(1, 2) }},
		{"in a slow heartbeat", fakeMode{}, nil, func(b *bench) {
			b.call(b.up(1)[0], fakeSlow, change{Wait: time.Hour}, nil)
			b.awaitStatus(1, "up", isUp)
		}},
		{"draining", fakeMode{RSS: 2}, func(c *Config) { c.MaxRSS = 1 }, func(b *bench) { b.await("draining", 1) }},
		{"just killed", fakeMode{}, nil, func(b *bench) { b.kill(b.up(1)[0].PID()) }},
		{"in the delay before the next", fakeMode{Say: "no"}, func(c *Config) { c.Delays = Delays{First: time.Hour, Max: time.Hour} }, func(b *bench) {
			b.await("failed", 1)
			b.awaitStatus(1, "down", func(s Status) bool { return s.State == Down })
		}},
		{"isolated", fakeMode{}, func(c *Config) { c.Intensity = Intensity{Count: 1, Isolate: time.Hour} }, func(b *bench) {
			for range 2 {
				b.kill(b.up(1)[0].PID())
			}
			b.await("isolated", 1)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, tc.mode, func(c *Config) {
				c.Cores = 2
				if tc.change != nil {
					tc.change(c)
				}
			})
			b.busy = true
			b.start()
			tc.reach(b)
			b.stop(errStopped)
			if err := b.ended(); !errors.Is(err, errStopped) {
				t.Errorf("Run: %v", err)
			}
			for _, s := range b.Cores() {
				if s.State == Up || s.PID != 0 {
					t.Errorf("after the end: %+v", s)
				}
			}
			if b.seen("crash", 0) && tc.mode.Say == "" && tc.name != "just killed" && tc.name != "isolated" {
				t.Errorf("a crash is reported: %+v", b.await("crash", 0).crash)
			}
		})
	}
}

func TestHurry(t *testing.T) {
	b := newBench(t, fakeMode{Stubborn: true}, cores(2))
	b.start()
	b.up(1, 2)
	b.stop(errStopped)
	// They take their time: only the one who hurries ends them.
	for _, c := range b.live() {
		b.leaving(c)
	}
	b.Hurry()
	if err := b.ended(); !errors.Is(err, errStopped) {
		t.Errorf("Run: %v", err)
	}
	for i := range 2 {
		if e := b.await("down", i+1); !errors.Is(e.cause, errStopped) || !strings.Contains(e.cause.Error(), "exit code 0") {
			t.Errorf("core %d: %v", i+1, e.cause)
		}
	}
}

// A core that was stopped after it had promised to end does not hold up who is
// in a hurry.
func TestHurryPastAStoppedCore(t *testing.T) {
	b := newBench(t, fakeMode{Stubborn: true}, hangAfter)
	b.start()
	c := b.up(1)[0]
	b.stop(errStopped)
	b.leaving(c)
	testrun.Freeze(t, c.PID())
	b.Hurry()
	if err := b.ended(); !errors.Is(err, errStopped) {
		t.Errorf("Run: %v", err)
	}
	if e := b.await("down", 1); !errors.Is(e.cause, ErrHung) {
		t.Errorf("the core ended with %v, want ErrHung", e.cause)
	}
}

// Hurry before the shutdown ends no core, and is remembered.
func TestHurryBeforeTheEnd(t *testing.T) {
	b := newBench(t, fakeMode{Stubborn: true}, cores(2))
	b.start()
	b.up(1, 2)
	b.Hurry()
	for _, c := range b.live() {
		c.TakeHeartbeats()
		for len(c.TakeHeartbeats()) == 0 && c.exit() == "" { // it goes on
			b.call(c, ipc.MethodHeartbeat, ipc.Heartbeat{}, nil)
		}
	}
	if b.seen("down", 0) {
		t.Errorf("events %+v", b.events)
	}
	b.stop(errStopped)
	if err := b.ended(); !errors.Is(err, errStopped) {
		t.Errorf("Run: %v", err)
	}
}

// leaving waits until the core was asked to shut down and has answered.
func (b *bench) leaving(c *Core) {
	b.t.Helper()
	if !testrun.Until(b.t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.leaving
	}) {
		b.t.Fatal("the core is not asked to end")
	}
}

// A core that hangs when it is asked to end is made to, and reported.
func TestHangAtTheEnd(t *testing.T) {
	b := newBench(t, fakeMode{}, hangAfter)
	b.start()
	c := b.up(1)[0]
	b.call(c, fakeHang, nil, nil)
	b.stop(errStopped)
	b.ended()
	if e := b.await("down", 1); !errors.Is(e.cause, ErrHung) {
		t.Errorf("down because of %v", e.cause)
	}
	if r := b.await("crash", 1).crash; !strings.HasPrefix(r.Dump, "SIGQUIT: quit\n") {
		t.Errorf("report %+v", r)
	}
}

func TestGhostEndsEverything(t *testing.T) {
	// What cannot be killed cannot be made without a kernel that helps: so the
	// kill gets no time at all.
	b := newBench(t, fakeMode{}, func(c *Config) { c.Cores = 2; c.Stop = proc.Stages{Kill: time.Nanosecond} })
	b.start()
	live := b.up(1, 2)
	b.startWorker(live[0], "daemon", asBoth+staying, 1)
	if err := syscall.Kill(live[0].PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := b.ended(); !errors.Is(err, proc.ErrGhost) {
		t.Errorf("Run: %v", err)
	}
	if b.seen("down", 1) {
		t.Error("told that the core is down though something of it lives")
	}
	if _, err := b.cfg.Host.SweepTag(context.Background(), string(b.id)); err != nil {
		t.Error(err)
	}
}
