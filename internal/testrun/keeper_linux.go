package testrun

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// keeperVariable makes the test binary a keeper of the folder that it names.
const keeperVariable = "AGENTSCHED_TEST_KEEPER"

// Keep makes a temporary folder for all that this test binary makes (it sets
// TMPDIR) and starts the folder's keeper: the same binary as another process,
// which outlives this one. When this process ends, however it does, the keeper
// kills what still runs in the folder or was started with its path, and removes it.
// A TestMain calls it first. The result ends the keeper and waits for it.
func Keep() (end func(), err error) {
	if root := os.Getenv(keeperVariable); root != "" {
		keep(root)
		os.Exit(0)
	}
	root, err := os.MkdirTemp("", "t")
	if err != nil {
		return nil, err
	}
	// Links resolved: the paths that processes are found by are the kernel's.
	if root, err = filepath.EvalSymlinks(root); err != nil {
		return nil, err
	}
	// Not of os.Pipe: its files are closed when nobody refers to them any more.
	var ends [2]int
	if err := syscall.Pipe2(ends[:], syscall.O_CLOEXEC); err != nil {
		return nil, err
	}
	r := os.NewFile(uintptr(ends[0]), "keeper's standard input")
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = []string{keeperVariable + "=" + root, "AGENTSCHED_KEEP=" + os.Getenv("AGENTSCHED_KEEP")}
	cmd.Dir, cmd.Stdin, cmd.Stderr = "/", r, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C ends the tests, not their keeper
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the keeper of %s: %w", root, err)
	}
	r.Close()
	if err := os.Setenv("TMPDIR", root); err != nil {
		return nil, err
	}
	return func() { _ = syscall.Close(ends[1]); _ = cmd.Wait() }, nil
}

// keep waits until nobody holds the other end of its standard input, and clears up.
func keep(root string) {
	signal.Ignore(syscall.SIGPIPE) // who reads what it says may have gone before the tests
	_, _ = io.Copy(io.Discard, os.Stdin)
	for range 100 { // what is forking is gone after a few rounds
		left := within(root)
		if len(left) == 0 {
			break
		}
		for _, pid := range left {
			fmt.Fprintf(os.Stderr, "left by the tests, and killed: process %d\n", pid)
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		<-time.After(20 * time.Millisecond)
	}
	if os.Getenv("AGENTSCHED_KEEP") == "" {
		_ = os.RemoveAll(root)
	}
}

// within lists the processes that work in a folder, run a program of it, or
// have its path among their arguments or variables.
func within(root string) (found []int) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || pid == os.Getpid() {
			continue
		}
		for _, file := range []string{"cmdline", "environ"} {
			if data, _ := os.ReadFile(filepath.Join(dir, file)); bytes.Contains(data, []byte(root)) {
				found = append(found, pid)
				break
			}
		}
		if len(found) > 0 && found[len(found)-1] == pid {
			continue
		}
		for _, file := range []string{"cwd", "exe"} {
			if path, _ := os.Readlink(filepath.Join(dir, file)); len(path) >= len(root) && path[:len(root)] == root {
				found = append(found, pid)
				break
			}
		}
	}
	return found
}
