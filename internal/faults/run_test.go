//go:build linux

package faults

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/proc"
)

// run is one life of the scheduler.
type run struct {
	cmd    *exec.Cmd
	marks  *marks
	stderr tail
	ended  chan struct{} // closed when the process was waited for and its output was read
	struck []faultKind   // what struck it; of the scene's goroutine

	mu       sync.Mutex  // guards what follows
	bad      []string    // lines that are not JSON
	cores    []proc.Proc // that came up, each once
	terminal map[string]bool
	gap      bool     // some updates were not printed
	last     []string // of its updates
}

const keepUpdates = 60

func startRun(command []string, env []string, dir string, m *marks) (*run, error) {
	r := &run{marks: m, ended: make(chan struct{}), terminal: map[string]bool{}}
	r.cmd = exec.Command(command[0], command[1:]...)
	r.cmd.Env, r.cmd.Dir, r.cmd.Stderr = env, dir, &r.stderr
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := r.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(r.ended)
		lines := bufio.NewReader(out)
		for {
			line, err := lines.ReadBytes('\n')
			// Only a whole line counts: a scheduler may be killed in the middle of one.
			if err != nil {
				break
			}
			r.take(bytes.TrimSpace(line))
		}
		_ = r.cmd.Wait() // whoever waits looks at the state
	}()
	return r, nil
}

func (r *run) take(line []byte) {
	var u api.Update
	err := json.Unmarshal(line, &u)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.bad = append(r.bad, string(line[:min(len(line), 200)]))
		return
	}
	if u.Name == sentinel && u.Event != nil {
		return // it says that it waits, again and again
	}
	r.last = append(r.last[max(0, len(r.last)-keepUpdates):], brief(&u))
	if u.CorePID != 0 {
		if core, err := proc.Find(u.CorePID); err == nil { // else it has ended
			r.cores = append(r.cores, core)
		}
	}
	r.gap = r.gap || u.Kind == api.UpdateGap
	if u.Entry.Terminal() {
		r.terminal[string(u.Name)] = true
	}
	r.marks.add()
}

// brief is what matters of an update.
func brief(u *api.Update) string {
	s := fmt.Sprintf("%s %s", u.Time.Format("05.000"), u.Kind)
	if u.Name != "" {
		s += fmt.Sprintf(" %s/%d %s", u.Name, u.Attempt, u.State)
	}
	if u.Event != nil {
		return s + fmt.Sprintf(" #%d %s %.60q", u.Event.Seq, u.Event.Kind, u.Event.Text)
	}
	return s + fmt.Sprintf(" %s %.300s", u.ExitKind, u.Text)
}

// up reports whether the scheduler has said anything, which it does not before
// it heeds signals.
func (r *run) up() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.last) > 0
}

// core returns one of the cores that live.
func (r *run) core(n int) (int, bool) {
	all := r.alive()
	if len(all) == 0 {
		return 0, false
	}
	return all[n%len(all)], true
}

// alive returns the pids of the cores that live. A number may be another
// process's by now, which began at another time.
func (r *run) alive() (pids []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, core := range r.cores {
		if now, err := proc.Find(core.Pid); err == nil && now.Start == core.Start {
			pids = append(pids, core.Pid)
		}
	}
	return pids
}

// killAll kills scheduler and cores at one moment: none sees another die.
func (r *run) killAll() error {
	pids := append(r.alive(), r.cmd.Process.Pid)
	// The cores first, or one sees that the scheduler is dead before it is.
	pids = slices.DeleteFunc(pids, func(pid int) bool { return syscall.Kill(pid, syscall.SIGSTOP) != nil })
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return nil
}

// hasEnded reports whether the run was seen to say that a job has ended.
func (r *run) hasEnded(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.terminal[name]
}

// missed reports, once, that updates were not printed.
func (r *run) missed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	missed := r.gap
	r.gap = false
	return missed
}

// note says that a job has ended, which the run was not heard to say.
func (r *run) note(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.terminal[name] = true
}

func (r *run) over() bool {
	select {
	case <-r.ended:
		return true
	default:
		return false
	}
}

// String shows how the run went at its end.
func (r *run) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	state := "still running"
	if r.over() {
		state = r.cmd.ProcessState.String()
	}
	return fmt.Sprintf("scheduler %d: %s\nits last updates:\n%s\nstderr:\n%s", r.cmd.Process.Pid, state, strings.Join(r.last, "\n"), r.stderr.String())
}

// tail keeps the beginning and the end of what is written to it: races are told
// where they are met, a crash at the end.
type tail struct {
	mu         sync.Mutex
	head, last []byte
}

const tailSize = 64 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := min(len(p), tailSize-len(t.head))
	t.head = append(t.head, p[:n]...)
	t.last = append(t.last, p[n:]...)
	t.last = t.last[max(0, len(t.last)-tailSize):]
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.head) + string(t.last)
}
