//go:build linux

package faults

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/agentsched/agentsched/internal/proc"
	"github.com/agentsched/agentsched/internal/testrun"
)

// leftWithin is how long what was killed may take to be gone.
const leftWithin = 10 * time.Second

// left looks for what must not be left when the scheduler has ended: processes,
// cgroups, locks, sockets, and words of the programs that they are broken.
func (s *scene) left() (wrong []string) {
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	var left []proc.Proc
	if !testrun.Within(s.tb, leftWithin, func() bool { left = s.processes(); return len(left) == 0 }) {
		say("processes are left: %v", left)
	}
	alive := s.census.alive()
	for _, m := range alive {
		say("a %s of %s is left (pid %d)", m.Role, m.Job, m.pid)
	}
	if len(left) == 0 && len(alive) == 0 {
		s.census.settle()
	}
	for _, state := range append([]string{s.state}, s.states...) {
		locks, _ := filepath.Glob(filepath.Join(state, "locks", "*"))
		for _, path := range append(locks, filepath.Join(state, "lock")) {
			if err := lockable(path); err != nil {
				say("the lock %s is held: %v", path, err)
			}
		}
		if _, err := os.Lstat(filepath.Join(state, "scheduler.sock")); err == nil {
			say("the scheduler's socket %s is left", filepath.Join(state, "scheduler.sock"))
		}
	}
	for _, dir := range s.cgroups() {
		if !slices.ContainsFunc(s.idle, func(instance string) bool { return strings.Contains(dir, instance) }) {
			say("the cgroup %s is left", dir)
		}
	}
	races, _ := filepath.Glob(filepath.Join(s.dir, "race*"))
	for _, path := range races {
		text, _ := os.ReadFile(path)
		say("the race detector says:\n%s", text)
	}
	var texts []string
	for _, state := range append([]string{s.state}, s.states...) {
		log, _ := os.ReadFile(filepath.Join(state, "scheduler.log"))
		texts = append(texts, string(log))
	}
	for _, r := range s.runs {
		texts = append(texts, r.stderr.String())
		if len(r.bad) > 0 {
			say("%d lines of the output are not JSON, the first %q", len(r.bad), r.bad[0])
		}
	}
	for _, text := range texts {
		if at := broken.FindStringIndex(text); at != nil {
			say("a program broke:\n%s", text[at[0]:min(len(text), at[0]+4<<10)])
		}
	}
	return wrong
}

// broken matches how Go says that a program is broken.
var broken = regexp.MustCompile(`(?m)^(panic: |fatal error: |WARNING: DATA RACE|unexpected fault address)`)

// lockable tries to take the lock at path.
func lockable(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}

// processes lists what is alive of the scene: what carries its instance's tag,
// and what has its folder among its arguments or in its environment.
func (s *scene) processes() []proc.Proc {
	var found []proc.Proc
	for _, instance := range s.instances() {
		tagged, _ := proc.Alive(instance)
		found = append(found, tagged...)
	}
	known := map[int]bool{}
	for _, p := range found {
		known[p.Pid] = true
	}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		var pid int
		fmt.Sscanf(dir, "/proc/%d", &pid)
		args, _ := os.ReadFile(dir + "/cmdline")
		environ, _ := os.ReadFile(dir + "/environ")
		if folder := s.dir + "/"; !known[pid] && (strings.Contains(string(args), folder) || strings.Contains(string(environ), folder)) {
			found = append(found, proc.Proc{Pid: pid, Comm: strings.ReplaceAll(string(args), "\x00", " ")})
		}
	}
	return found
}

// cgroups lists the cgroups of the scene's instances.
func (s *scene) cgroups() (found []string) {
	instances := s.instances()
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		before, after, _ := strings.Cut(line, " - ")
		if fields := strings.Fields(before); len(instances) > 0 && strings.HasPrefix(after, "cgroup2 ") && len(fields) >= 5 {
			_ = filepath.WalkDir(fields[4], func(path string, d fs.DirEntry, err error) error {
				if err == nil && d.IsDir() && slices.ContainsFunc(instances, func(instance string) bool { return strings.Contains(d.Name(), instance) }) {
					found = append(found, path)
				}
				return nil // what vanishes meanwhile is not left
			})
			break
		}
	}
	return found
}
