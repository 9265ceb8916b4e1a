package supervisor

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agentsched/agentsched/internal/proc"
	"github.com/agentsched/agentsched/internal/testrun"
)

// sleeper starts a process with a run's tag that the host knows nothing of.
func sleeper(t *testing.T, tag string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "300")
	cmd.Env = append(os.Environ(), proc.DefaultTag+"="+tag)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd
}

func TestCrashLoopIsIsolated(t *testing.T) {
	b := newBench(t, fakeMode{}, func(c *Config) {
		c.Cores = 2
		c.Intensity = Intensity{Count: 2, Within: time.Hour, Isolate: 50 * time.Millisecond, MaxIsolate: 150 * time.Millisecond}
	})
	b.onUp = func(c *Core) {
		if c.Index() == 1 {
			syscall.Kill(c.PID(), syscall.SIGKILL)
		}
	}
	b.start()
	other := b.up(2)[0]
	var down event
	for range 3 {
		down = b.await("down", 1)
	}
	for _, want := range []time.Duration{50, 100, 150, 150} {
		e := b.await("isolated", 1)
		// It begins between the two events.
		if want *= time.Millisecond; e.until.Sub(e.at) > want || e.until.Sub(down.at) < want {
			t.Errorf("isolated for %s to %s, want %s", e.until.Sub(e.at), e.until.Sub(down.at), want)
		}
		if !strings.Contains(e.cause.Error(), "killed") {
			t.Errorf("isolated because of %v", e.cause)
		}
		b.await("resumed", 1)
		down = b.await("down", 1)
	}
	if s := b.awaitStatus(1, "isolated", func(s Status) bool { return s.State == Isolated }); s.IsolatedUntil.IsZero() || s.PID != 0 || s.Restarts < 6 || !strings.Contains(s.Cause, "killed") {
		t.Errorf("isolated: %+v", s)
	}
	if s := b.Cores()[1]; s.State != Up || s.PID != other.PID() || s.Restarts != 0 || b.seen("isolated", 2) {
		t.Errorf("the other core: %+v", s)
	}
}

func TestResume(t *testing.T) {
	b := newBench(t, fakeMode{}, func(c *Config) {
		c.Cores = 2
		c.Intensity = Intensity{Count: 1, Within: time.Hour, Isolate: time.Hour}
	})
	b.start()
	first := b.up(1, 2)[0]
	b.setMode(fakeMode{Say: "broken"})
	b.kill(first.PID())
	// Each time, it takes as many crashes as the first time, however many starts
	// have failed: who vouches for the next core wants to see it tried.
	for range 4 {
		e := b.await("isolated", 1)
		if span := e.until.Sub(e.at); !strings.Contains(e.cause.Error(), "broken") || span < time.Hour-testrun.Patience || span > time.Hour {
			t.Errorf("isolated for %s because of %v", span, e.cause)
		}
		if b.seen("resumed", 1) || !b.Resume(1) {
			t.Error("not resumed by who may")
		}
		b.await("resumed", 1)
	}
	b.await("isolated", 1)
	b.setMode(fakeMode{})
	if b.Resume(2) || b.Resume(7) || !b.Resume(0) {
		t.Error("not resumed")
	}
	b.up(1)
	if b.Resume(1) || b.Resume(0) {
		t.Error("resumed a core that is up")
	}
}

func TestDrainOnMemory(t *testing.T) {
	b := newBench(t, fakeMode{RSS: 1 << 20}, func(c *Config) { c.Cores = 2; c.MaxRSS = 1 << 21 })
	b.busy = true
	b.start()
	live := b.up(1, 2)
	live[0].Drained() // nobody asked: that counts for nothing
	b.call(live[0], fakeGrow, change{RSS: 3 << 20}, nil)
	e := b.await("draining", 1)
	if e.core != live[0] || e.text != "it uses 3.0 MiB of memory, more than 2.0 MiB" {
		t.Errorf("draining %+v", e)
	}
	s := b.awaitStatus(1, "draining", func(s Status) bool { return s.State == Draining })
	if s.Cause != e.text || s.PID != live[0].PID() || s.RSSBytes == 0 {
		t.Errorf("status %+v", s)
	}
	worker := b.startWorker(live[0], "last", "echo $$; "+staying, 1)
	live[0].TakeHeartbeats()
	for len(live[0].TakeHeartbeats()) == 0 { // it is still looked after
		b.call(live[0], fakeGet, nil, nil)
	}
	if b.seen("down", 1) || len(alive(worker...)) != 2 {
		t.Error("it is not waited for")
	}
	// Memory does not wait until another core is drained.
	b.call(live[1], fakeGrow, change{RSS: 3 << 20}, nil)
	b.await("draining", 2)

	live[0].Drained()
	live[0].Drained()
	if e := b.await("down", 1); !errors.Is(e.cause, ErrReplaced) || !strings.Contains(e.cause.Error(), "3.0 MiB") {
		t.Errorf("down because of %v", e.cause)
	}
	if next := b.up(1)[0]; next == live[0] || next.PID() == live[0].PID() {
		t.Error("it is not replaced")
	}
	if b.seen("crash", 0) || b.seen("draining", 1) {
		t.Errorf("events %+v", b.events)
	}
}

// Where it can wait, one core is drained at a time.
func TestDrainOfSlowCores(t *testing.T) {
	b := newBench(t, fakeMode{}, func(c *Config) { c.Cores = 2; c.SlowHeartbeat = 20 * time.Millisecond })
	b.busy = true
	b.start()
	live := b.up(1, 2)
	for _, c := range live {
		b.call(c, fakeSlow, change{Wait: 30 * time.Millisecond}, nil)
	}
	first := b.await("draining", 0)
	second := live[2-first.index]
	second.TakeHeartbeats()
	for beats := 0; beats < 2*slowBeats; { // slow, all of them
		beats += len(second.TakeHeartbeats())
		b.call(second, fakeGet, nil, nil)
	}
	if b.seen("draining", 0) {
		t.Error("both are drained at once")
	}
	first.core.Drained()
	b.await("down", first.index)
	e := b.await("draining", 0)
	for ; e.core != second; e = b.await("draining", 0) { // a slow host makes the first one's successor slow
		e.core.Drained()
	}
	if !strings.Contains(e.text, "heartbeats in a row took longer than 20ms") {
		t.Errorf("draining %+v", e)
	}
}

func TestDrainOnCPU(t *testing.T) {
	b := newBench(t, fakeMode{CPUPerBeat: time.Second}, func(c *Config) { c.MaxCPU = 2; c.CPUFor = 50 * time.Millisecond })
	b.start()
	b.up(1)
	if e := b.await("draining", 1); !strings.Contains(e.text, "of a CPU over 50ms, more than 2.00") {
		t.Errorf("draining %+v", e)
	}
	b.up(1)
}

func TestRollingRestart(t *testing.T) {
	b := newBench(t, fakeMode{}, cores(2))
	b.busy = true
	b.start()
	live := b.up(1, 2)
	restarted := make(chan error, 1)
	go func() { restarted <- b.Restart(t.Context(), 0, true) }()
	for i, c := range live {
		b.await("draining", i+1)
		if b.seen("draining", 2-i) && i == 0 {
			t.Error("both are drained at once")
		}
		b.awaitStatus(2-i, "up", isUp)
		c.Drained()
		if e := b.await("down", i+1); !errors.Is(e.cause, ErrReplaced) {
			t.Errorf("down because of %v", e.cause)
		}
		b.up(i + 1)
	}
	if err := <-restarted; err != nil {
		t.Error(err)
	}

	// Without drain nobody is asked whether it has runs.
	before := b.Cores()
	if err := b.Restart(t.Context(), 2, false); err != nil {
		t.Error(err)
	}
	after := b.Cores()
	if after[0].PID != before[0].PID || after[1].PID == before[1].PID || after[1].State != Up || after[1].Restarts != 2 {
		t.Errorf("before %+v, after %+v", before, after)
	}
	// A drain that takes too long is cut short by a restart that does not wait.
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() { restarted <- b.Restart(ctx, 1, true) }()
	b.await("draining", 1)
	cancel(errStopped)
	if err := <-restarted; !errors.Is(err, errStopped) {
		t.Errorf("restart: %v", err)
	}
	if err := b.Restart(t.Context(), 1, false); err != nil {
		t.Error(err)
	}
	for _, index := range []int{-1, 3} {
		if err := b.Restart(t.Context(), index, true); err == nil {
			t.Errorf("restarted core %d", index)
		}
	}
	if b.seen("crash", 0) || b.seen("failed", 0) || b.seen("isolated", 0) {
		t.Errorf("events %+v", b.events)
	}
	b.stop(errStopped)
	b.ended()
	if err := b.Restart(t.Context(), 1, true); !errors.Is(err, ErrNotRunning) {
		t.Errorf("after the end: %v", err)
	}
}

// An upgrade to a core that cannot talk to this scheduler costs one core and
// stops there.
func TestRestartIntoAnIncompatibleCore(t *testing.T) {
	b := newBench(t, fakeMode{}, cores(2))
	if err := b.Restart(t.Context(), 0, true); !errors.Is(err, ErrNotRunning) {
		t.Errorf("before the start: %v", err)
	}
	b.start()
	live := b.up(1, 2)
	b.setMode(fakeMode{Protocol: 99})
	err := b.Restart(t.Context(), 0, true)
	if err == nil || !strings.Contains(err.Error(), "restart agentcore 1: it did not come up again: ") || !strings.Contains(err.Error(), "speaks protocol 99") {
		t.Errorf("restart: %v", err)
	}
	if e := b.await("isolated", 1); !errors.Is(e.cause, ErrIncompatible) {
		t.Errorf("isolated because of %v", e.cause)
	}
	if s := b.Cores()[1]; s.State != Up || s.PID != live[1].PID() {
		t.Errorf("the other core: %+v", s)
	}
	// With the right one in place again, a restart ends the isolation.
	b.setMode(fakeMode{})
	if err := b.Restart(t.Context(), 1, true); err != nil {
		t.Error(err)
	}
	b.await("resumed", 1)
	b.up(1)
	if b.seen("crash", 0) {
		t.Errorf("events %+v", b.events)
	}
	// Without another core there is nothing to go on with.
	b.setMode(fakeMode{Protocol: 99})
	b.kill(live[1].PID())
	b.await("isolated", 2)
	b.kill(b.Cores()[0].PID)
	if err := b.ended(); !errors.Is(err, ErrIncompatible) {
		t.Errorf("Run: %v", err)
	}
}
