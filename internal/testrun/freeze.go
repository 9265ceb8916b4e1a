package testrun

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// Freeze stops a process by SIGSTOP and returns when all its threads stand still (where
// /proc tells). Until then a signal that is sent after it may be taken before it.
func Freeze(t testing.TB, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatalf("stop process %d: %v", pid, err)
	}
	if runtime.GOOS == "linux" && !Until(t, func() bool { return Frozen(pid) }) {
		t.Fatalf("process %d does not stand still", pid)
	}
}

// Frozen reports whether every thread of a process is stopped, as /proc tells.
func Frozen(pid int) bool {
	states := Threads(pid)
	return states != "" && strings.Trim(states, "T") == ""
}

// Threads returns the letters of the states of a process's threads, as in proc(5), in no
// order; "" if it is gone.
func Threads(pid int) string {
	var states strings.Builder
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, file := range files {
		stat, _ := os.ReadFile(file) // a thread that ended has none
		if _, after, ok := strings.Cut(string(stat), ") "); ok {
			states.WriteByte(after[0])
		}
	}
	return states.String()
}
