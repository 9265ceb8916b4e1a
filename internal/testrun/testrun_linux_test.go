package testrun

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// leaverVariable makes the test binary one that leaves a process.
const leaverVariable = "TESTRUN_LEAVER"

func TestMain(m *testing.M) {
	if os.Getenv(leaverVariable) != "" || os.Getenv(keeperVariable) != "" {
		os.Exit(leave())
	}
	os.Exit(m.Run())
}

// leave starts a process that lives for long, in a session of its own, with
// nothing of the folder but its working directory, tells both and never ends.
func leave() int {
	_, err := Keep()
	dir := ""
	if err == nil {
		dir, err = os.MkdirTemp("", "left")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	cmd := exec.Command("sleep", "3600")
	cmd.Dir, cmd.Env = dir, []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(cmd.Process.Pid, dir)
	select {}
}

// A test binary that is killed leaves neither its processes nor its files, also where
// nobody reads any more what its keeper says of them.
func TestKeeper(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), leaverVariable+"=1")
	unread, said, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	unread.Close()
	defer said.Close()
	cmd.Stderr = said
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	var pid int
	var dir string
	if _, err := fmt.Fscan(bufio.NewReader(out), &pid, &dir); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, 0); err != nil {
		t.Fatalf("what was started does not run: %v", err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if !Until(t, func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) || zombie(pid) }) {
		t.Errorf("process %d is alive", pid)
	}
	if !Until(t, func() bool { _, err := os.Stat(filepath.Dir(dir)); return errors.Is(err, os.ErrNotExist) }) {
		t.Errorf("%s is left", filepath.Dir(dir))
	}
}

// zombie: nobody here reaps what init adopts in some containers.
func zombie(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	var name string
	var state rune
	_, scanned := fmt.Sscanf(string(data), "%d %s %c", new(int), &name, &state)
	return err != nil || scanned == nil && state == 'Z'
}

func TestShare(t *testing.T) {
	for _, tt := range []struct {
		loadavg string
		want    float64
	}{
		{"0.42 0.36 0.30 1/812 4711\n", 1},
		{"0.42 0.36 0.30 2/812 4711\n", 1},
		{"9.42 0.36 0.30 10/812 4711\n", 0.2},
		{"9.42 0.36", 1},
		{"9.42 0.36 0.30 x/812 4711\n", 1},
	} {
		if got := shareOf([]byte(tt.loadavg), 2); got != tt.want {
			t.Errorf("%q: got %g, want %g", tt.loadavg, got, tt.want)
		}
	}
}

func TestTimerRunsOut(t *testing.T) {
	if Within(t, 10*time.Millisecond, func() bool { return false }) {
		t.Error("what never holds does")
	}
	ctx, cancel := Context(t, t.Context(), time.Millisecond, errors.ErrUnsupported)
	defer cancel()
	<-ctx.Done()
	timer := NewTimer(t, time.Hour)
	timer.Stop()
	timer.Stop()
	select {
	case <-timer.C:
		t.Error("a stopped timer ran out")
	default:
	}
}
