package browser

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/internal/testrun"
)

const goneWithin = 10 * time.Second

// process is one that runs or ran: a pid alone may be somebody else's later.
type process struct {
	pid, parent int
	began       string // clock ticks since the host started
	name        string
}

// identify returns what is known of a process; its zero value if it is gone.
func identify(pid int) process {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return process{}
	}
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	fields := strings.Fields(string(stat[end+1:])) // from the third, proc(5)
	if len(fields) < 20 || fields[0] == "Z" {
		return process{}
	}
	parent, _ := strconv.Atoi(fields[1])
	return process{pid: pid, parent: parent, began: fields[19], name: string(stat[open+1 : end])}
}

// descendants returns the children of processes, their children and so on.
func descendants(of ...process) []process {
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	children := map[int][]process{}
	for _, f := range files {
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		if p := identify(pid); p.pid != 0 {
			children[p.parent] = append(children[p.parent], p)
		}
	}
	var all []process
	for rest := slices.Clone(of); len(rest) > 0; rest = rest[1:] {
		if rest[0].pid != 0 {
			all, rest = append(all, children[rest[0].pid]...), append(rest, children[rest[0].pid]...)
		}
	}
	return all
}

// gone waits until processes are gone; those that stay are killed, and an error.
func gone(t *testing.T, all []process) {
	t.Helper()
	if testrun.Within(t, goneWithin, func() bool {
		all = slices.DeleteFunc(all, func(p process) bool { return p.pid == 0 || identify(p.pid).began != p.began })
		return len(all) == 0
	}) {
		return
	}
	for _, p := range all {
		t.Errorf("%s (pid %d) is still alive after %s", p.name, p.pid, goneWithin)
		if proc, err := os.FindProcess(p.pid); err == nil {
			_ = proc.Kill()
		}
	}
}
