// Package commandstest asks real shells what a script runs.
package commandstest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Shells returns the paths of those of the named shells that the host has.
func Shells(names ...string) []string {
	var shells []string
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			shells = append(shells, path)
		}
	}
	return shells
}

// Safe reports whether a script made up by a fuzzer does no harm when it is run, as
// far as redirections leave its folder or a function multiplies.
func Safe(script string) bool {
	return !strings.ContainsAny(script, "/\x00~") && !strings.Contains(script, "..") && !strings.Contains(script, "PWD") &&
		!(strings.Contains(script, "()") && strings.ContainsAny(script, "|&"))
}

// RunsCanary runs script in an empty folder, where PATH has two programs, ok and
// canary, and reports whether it ran the second.
func RunsCanary(t *testing.T, shell, script string) bool {
	t.Helper()
	dir := t.TempDir()
	bin, work, mark := filepath.Join(dir, "bin"), filepath.Join(dir, "work"), filepath.Join(dir, "called")
	for _, d := range []string{bin, work} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(bin, "ok"), "#!/bin/sh\n")
	write(t, filepath.Join(bin, "canary"), "#!/bin/sh\n: > "+mark+"\n")

	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, shell, "-c", script, "script") // as the shell worker does
	cmd.Dir, cmd.Env = work, []string{"PATH=" + bin}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()                                      // how the script ends does not matter here
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what it left in the background
	_, err := os.Stat(mark)
	return err == nil
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
}
