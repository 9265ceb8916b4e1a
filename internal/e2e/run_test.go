package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/testrun"
)

// run is a scheduler process whose updates are read as they are printed.
type run struct {
	b      *bench
	cmd    *exec.Cmd
	stderr lockedBuffer
	// terminal is the one that it has, nil if none.
	terminal *terminal
	ended    chan struct{} // closed when the process has been waited for and its output is read

	mu      sync.Mutex // guards what follows
	updates []api.Update
	bad     []string      // lines that are not JSON
	more    chan struct{} // closed and replaced whenever there is another update
	cores   []int         // pids of the agentcores that came up
}

func newRun(b *bench, args []string) *run {
	b.t.Helper()
	r := &run{b: b, ended: make(chan struct{}), more: make(chan struct{})}
	command := slices.Concat(b.within, []string{schedulerProgram()}, args)
	r.cmd = exec.Command(command[0], command[1:]...)
	r.cmd.Env, r.cmd.Dir = b.env, b.dir
	r.cmd.SysProcAttr = b.as(&syscall.SysProcAttr{Setsid: true})
	r.cmd.Stderr = &r.stderr
	if b.terminal != nil {
		r.terminal = b.terminal
		r.cmd.Stdin, r.cmd.SysProcAttr.Setctty = b.terminal.slave, true // Ctty is 0: its stdin
	}
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	go func() {
		defer close(r.ended)
		lines := bufio.NewReader(out)
		for {
			line, err := lines.ReadBytes('\n')
			if line = bytes.TrimSpace(line); len(line) > 0 {
				r.take(line)
			}
			if err != nil {
				break
			}
		}
		_ = r.cmd.Wait() // exit looks at the code
	}()
	return r
}

// take keeps one line of the output.
func (r *run) take(line []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var u api.Update
	if err := json.Unmarshal(line, &u); err != nil {
		r.bad = append(r.bad, string(line))
		return
	}
	r.updates = append(r.updates, u)
	if u.CorePID != 0 {
		r.cores = append(r.cores, u.CorePID)
	}
	close(r.more)
	r.more = make(chan struct{})
}

// await blocks until match returns true for an update, and returns that. match
// is called once for each update, in order, from the first of the run on.
func (r *run) await(what string, match func(*api.Update) bool) api.Update {
	r.b.t.Helper()
	timer := testrun.NewTimer(r.b.t, testrun.Patience)
	defer timer.Stop()
	ended := false
	for next := 0; ; {
		r.mu.Lock()
		fresh, more := r.updates[next:], r.more
		r.mu.Unlock()
		for i := range fresh {
			if match(&fresh[i]) {
				return fresh[i]
			}
		}
		if next += len(fresh); len(fresh) > 0 {
			timer.Reset()
		}
		if ended {
			r.fatalf("the scheduler ended (%v) before this was seen: %s", r.cmd.ProcessState, what)
		}
		select {
		case <-more:
		case <-r.ended:
			ended = true // look once more
		case <-timer.C:
			r.fatalf("not seen: %s", what)
		}
	}
}

// seen counts the updates so far that match.
func (r *run) seen(match func(*api.Update) bool) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for i := range r.updates {
		if match(&r.updates[i]) {
			n++
		}
	}
	return n
}

// exit waits for the scheduler's end by itself and checks its exit code, and
// that everything it printed was JSON Lines.
func (r *run) exit(code int) {
	r.b.t.Helper()
	timer := testrun.NewTimer(r.b.t, testrun.Patience)
	defer timer.Stop()
	for ended := false; !ended; {
		r.mu.Lock()
		more := r.more
		r.mu.Unlock()
		select {
		case <-r.ended:
			ended = true
		case <-more:
			timer.Reset()
		case <-timer.C:
			r.fatalf("the scheduler did not end")
		}
	}
	if got := r.cmd.ProcessState.ExitCode(); got != code {
		r.fatalf("the scheduler ended with %v, want exit code %d", r.cmd.ProcessState, code)
	}
	r.mu.Lock()
	bad := r.bad
	r.mu.Unlock()
	if len(bad) > 0 {
		r.fatalf("%d lines of the output are not JSON, the first: %.300q", len(bad), bad[0])
	}
}

// core returns the process id of the newest agentcore, and waits for it.
func (r *run) core() int {
	r.b.t.Helper()
	r.awaitCore(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cores[len(r.cores)-1]
}

// awaitCore blocks until the n-th agentcore of the run is up.
func (r *run) awaitCore(n int) {
	r.b.t.Helper()
	r.await(fmt.Sprintf("agentcore number %d", n), func(u *api.Update) bool {
		if u.CorePID != 0 {
			n--
		}
		return n == 0
	})
}

// killCore kills the newest agentcore with SIGKILL.
func (r *run) killCore() {
	r.b.t.Helper()
	if err := syscall.Kill(r.core(), syscall.SIGKILL); err != nil {
		r.fatalf("kill the core: %v", err)
	}
}

// signal sends the scheduler a signal.
func (r *run) signal(sig syscall.Signal) {
	r.b.t.Helper()
	if err := r.cmd.Process.Signal(sig); err != nil {
		r.fatalf("signal the scheduler: %v", err)
	}
}

// kill kills the scheduler with SIGKILL and waits until it is dead.
func (r *run) kill() {
	r.b.t.Helper()
	r.signal(syscall.SIGKILL)
	<-r.ended
}

// killAll kills scheduler and core at one moment: neither sees the other die. A
// run whose jobs have just ended may end by itself before that; a test for which
// this matters keeps a job waiting.
func (r *run) killAll() {
	r.b.t.Helper()
	r.signalBoth(r.stopBoth(), syscall.SIGKILL)
	<-r.ended
}

// stopBoth stops scheduler and core, and returns when both stand still or are gone: SIGSTOP takes effect a moment after
// it was sent, and until then either could see what becomes of the other. It returns the core's process id.
func (r *run) stopBoth() (core int) {
	r.b.t.Helper()
	core = r.core()
	r.signalBoth(core, syscall.SIGSTOP)
	r.b.eventually("scheduler and core stand still", func() bool {
		select {
		case <-r.ended:
			return standsStill(core)
		default:
			return standsStill(r.cmd.Process.Pid) && standsStill(core)
		}
	})
	return core
}

// standsStill reports whether no thread of a process runs, as /proc tells, where there is one.
func standsStill(pid int) bool { return strings.Trim(testrun.Threads(pid), "TtZX") == "" }

// signalBoth sends scheduler and core a signal, if they are there.
func (r *run) signalBoth(core int, sig syscall.Signal) {
	r.b.t.Helper()
	if err := r.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		r.fatalf("%s to the scheduler: %v", sig, err)
	}
	if err := syscall.Kill(core, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		r.fatalf("%s to the core: %v", sig, err)
	}
}

// close kills the scheduler and its cores if they are still there.
func (r *run) close() {
	select {
	case <-r.ended:
	default:
		if !r.b.t.Failed() {
			r.b.t.Errorf("the test left its scheduler running")
		}
		_ = r.cmd.Process.Kill()
		<-r.ended
	}
}

func (r *run) fatalf(format string, args ...any) {
	r.b.t.Helper()
	const shown = 25
	r.mu.Lock()
	var last []string
	for _, u := range r.updates[max(0, len(r.updates)-shown):] {
		line, _ := json.Marshal(u)
		last = append(last, string(line[:min(len(line), 300)]))
	}
	r.mu.Unlock()
	r.b.fatalf(format+"\nstderr:\n%s\nits last updates:\n%s", append(args, r.stderr.String(), strings.Join(last, "\n"))...)
}

// lockedBuffer may be read while it is written to.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
