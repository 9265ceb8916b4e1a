package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/agentsched/agentsched/internal/proc"
	"github.com/agentsched/agentsched/internal/testrun"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
)

// event is one call of the Handler, Config.Crash or Config.Forget.
type event struct {
	kind  string // up, notify, draining, runs, down, failed, isolated, resumed, crash, forget
	index int
	core  *Core
	text  string
	cause error
	span  time.Duration
	until time.Time // of isolated
	at    time.Time // when it was noted
	crash *Report
}

// bench is a supervisor of fake cores under test, and its Handler.
type bench struct {
	*Supervisor
	t    *testing.T
	id   job.InstanceID
	mode string // path of the fakeMode
	stop context.CancelCauseFunc
	done chan error // what Run returned

	// Set before run, called in the goroutine of a core.
	onUp, onDown func(*Core)
	busy         bool        // cores that are drained have a run
	works        atomic.Bool // heartbeats renew permits

	mu       sync.Mutex // guards what follows
	events   []event
	changed  chan struct{}
	runs     map[int][]string // tags, by core
	settings ipc.Configure
}

// newBench builds a supervisor; change, if set, has the last word on its Config.
func newBench(t *testing.T, mode fakeMode, change func(*Config)) *bench {
	t.Helper()
	leaks := goleak.IgnoreCurrent()
	dir := t.TempDir()
	b := &bench{
		t: t, id: job.NewInstanceID(), mode: filepath.Join(dir, "mode"), done: make(chan error, 1),
		changed: make(chan struct{}), runs: map[int][]string{}, settings: testSettings(4),
	}
	if mode.Cgroup != "" { // as every instance has its own
		mode.Cgroup += "-" + string(b.id)
	}
	b.setMode(mode)
	host, err := proc.NewHost(proc.Config{Cgroup: mode.Cgroup, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := host.Close(); err != nil {
			t.Error(err)
		}
		if left, err := proc.Alive(string(b.id)); err != nil || len(left) > 0 {
			t.Errorf("alive after the test: %v, %v", left, err)
		}
		goleak.VerifyNone(t, leaks)
	})
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{
		Command: []string{exe}, Env: append(os.Environ(), fakeEnv+"="+b.mode, "GORACE=atexit_sleep_ms=0"), Host: host, Instance: b.id, StateDir: dir,
		Version: "test", Handler: b, Log: zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.WarnLevel),
		Heartbeat: 20 * time.Millisecond, HangAfter: time.Minute, Stop: proc.Stages{Terminate: 5 * time.Second},
		Delays: Delays{First: time.Millisecond, Max: 10 * time.Millisecond},
		Crash:  func(r *Report) { b.note(event{kind: "crash", index: r.Core, crash: r, text: r.Cause}) },
		Forget: func(tags []string) {
			b.note(event{kind: "forget", text: fmt.Sprint(tags), span: time.Duration(len(tags))})
		},
	}
	if change != nil {
		change(&cfg)
	}
	b.Supervisor = New(cfg)
	return b
}

// start runs the supervisor until the test ends.
func (b *bench) start() {
	ctx, stop := context.WithCancelCause(context.Background())
	b.stop = stop
	go func() { b.done <- b.Run(ctx) }()
	b.t.Cleanup(func() {
		b.stop(errStopped)
		b.ended()
	})
}

var errStopped = errors.New("the test is over")

// ended waits for the end of Run and returns what it returned.
func (b *bench) ended() error {
	b.t.Helper()
	select {
	case err := <-b.done:
		b.done <- err
		return err
	case <-testrun.After(b.t):
		b.t.Fatalf("Run did not end; %v", b.Cores())
		return nil
	}
}

func (b *bench) setMode(mode fakeMode) {
	b.t.Helper()
	text, err := json.Marshal(mode)
	if err == nil {
		err = os.WriteFile(b.mode, text, 0o600)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) note(e event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e.at = time.Now()
	b.events = append(b.events, e)
	close(b.changed)
	b.changed = make(chan struct{})
}

// await takes the first event of a kind about a core (0: any) off the list,
// when it has come.
func (b *bench) await(kind string, index int) event {
	b.t.Helper()
	late := testrun.NewTimer(b.t, testrun.Patience)
	defer late.Stop()
	for {
		b.mu.Lock()
		i := b.find(kind, index)
		if i >= 0 {
			e := b.events[i]
			b.events = slices.Delete(b.events, i, i+1)
			b.mu.Unlock()
			return e
		}
		changed := b.changed
		b.mu.Unlock()
		select {
		case <-changed:
		case <-late.C:
			b.t.Fatalf("no %q of core %d; the cores are %+v", kind, index, b.Cores())
		}
	}
}

func (b *bench) find(kind string, index int) int {
	return slices.IndexFunc(b.events, func(e event) bool { return e.kind == kind && (index == 0 || e.index == index) })
}

// seen reports whether such an event has come and was not taken.
func (b *bench) seen(kind string, index int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.find(kind, index) >= 0
}

// up waits until the cores are up and returns them.
func (b *bench) up(indices ...int) []*Core {
	b.t.Helper()
	var cores []*Core
	for _, i := range indices {
		cores = append(cores, b.await("up", i).core)
	}
	return cores
}

// awaitStatus waits until a core's status is as the check wants it.
func (b *bench) awaitStatus(index int, what string, ok func(Status) bool) Status {
	b.t.Helper()
	late := testrun.NewTimer(b.t, testrun.Patience)
	defer late.Stop()
	for {
		b.Supervisor.mu.Lock()
		status, changed := b.seats[index-1].statusLocked(), b.Supervisor.changed
		b.Supervisor.mu.Unlock()
		if ok(status) {
			return status
		}
		select {
		case <-changed:
		case <-late.C:
			b.t.Fatalf("core %d is never %s: %+v", index, what, status)
		}
	}
}

func (b *bench) call(c *Core, method string, params, result any) {
	b.t.Helper()
	ctx, cancel := testrun.Context(b.t, context.Background(), testrun.Patience, errors.New("no answer"))
	defer cancel()
	if err := c.Call(ctx, method, params, result); err != nil {
		b.t.Fatal(err)
	}
}

// startWorker starts a worker of a run on the core and returns its pids.
func (b *bench) startWorker(c *Core, name, script string, pids int) []int {
	b.t.Helper()
	run := job.RunTag(b.id, job.ID(name), c.Index())
	b.mu.Lock()
	b.runs[c.Index()] = append(b.runs[c.Index()], run)
	b.mu.Unlock()
	var started []int
	b.call(c, fakeStart, startParams{run, script, pids}, &started)
	return started
}

func (b *bench) Settings(*Core) ipc.Configure {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.settings
}

func (b *bench) CoreUp(c *Core) {
	b.note(event{kind: "up", index: c.Index(), core: c})
	if b.onUp != nil {
		b.onUp(c)
	}
}

func (b *bench) CoreCall(_ context.Context, _ *Core, method string, _ json.RawMessage) (any, error) {
	return nil, ipc.MethodNotFound(method)
}

func (b *bench) CoreNotify(c *Core, method string, _ json.RawMessage) {
	b.note(event{kind: "notify", index: c.Index(), core: c, text: method})
}

func (b *bench) RenewPermits() bool { return b.works.Load() }

func (b *bench) CoreDraining(c *Core, why string, _ bool) {
	b.note(event{kind: "draining", index: c.Index(), core: c, text: why})
	if !b.busy {
		c.Drained()
	}
}

func (b *bench) CoreRuns(c *Core) []string {
	b.note(event{kind: "runs", index: c.Index(), core: c})
	b.mu.Lock()
	defer b.mu.Unlock()
	runs := b.runs[c.Index()]
	b.runs[c.Index()] = nil
	return runs
}

func (b *bench) CoreDown(c *Core, cause error) {
	if b.onDown != nil {
		b.onDown(c)
	}
	b.note(event{kind: "down", index: c.Index(), core: c, cause: cause})
}

func (b *bench) CoreFailed(index int, cause error) {
	b.note(event{kind: "failed", index: index, cause: cause})
}

func (b *bench) CoreIsolated(index int, until time.Time, cause error) {
	if until.IsZero() {
		b.note(event{kind: "resumed", index: index})
		return
	}
	b.note(event{kind: "isolated", index: index, cause: cause, until: until})
}

// kill sends SIGKILL to a process of ours.
func (b *bench) kill(pid int) {
	b.t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		b.t.Fatal(err)
	}
}

// alive tells which of the processes live. The remains of a dead one do not.
func alive(pids ...int) (living []int) {
	for _, pid := range pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue
		}
		if _, rest, _ := strings.Cut(string(text), ") "); rest != "" && rest[0] != 'Z' && rest[0] != 'X' {
			living = append(living, pid)
		}
	}
	return living
}

func isUp(s Status) bool { return s.State == Up }
