package workertest

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// UserTask returns a task of a user whose home is a folder of the test and has
// the folders named, and whose program prints its version and does nothing else.
func UserTask(t *testing.T, program, version string, folders ...string) (task *worker.Task, home string) {
	t.Helper()
	dir := t.TempDir()
	bin := filepath.Join(dir, "bin", program)
	home = filepath.Join(dir, "user")
	for i, f := range folders {
		folders[i] = filepath.Join("user", f)
	}
	for _, sub := range append(folders, "bin", "home", "scratch", "ws") {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	Write(t, bin, "#!/bin/sh\necho '"+version+"'\n")
	if err := os.Chmod(bin, 0o700); err != nil {
		t.Fatal(err)
	}
	return &worker.Task{
		Instructions: "-do it", Dir: filepath.Join(dir, "ws"), Home: filepath.Join(dir, "home"), Scratch: filepath.Join(dir, "scratch"),
		Environ:  []string{"HOME=" + home, "PATH=/bin"},
		Settings: job.WorkerSettings{Command: []string{bin}},
	}, home
}

// Lookup is a scheduler's environment of one variable.
func Lookup(name, value string) func(string) (string, bool) {
	return func(n string) (string, bool) {
		if n != name {
			return "", false
		}
		return value, true
	}
}

// CheckProgram checks that a finds the program of a UserTask and its version, and
// says how to install one that is missing.
func CheckProgram(t *testing.T, a worker.Adapter, task *worker.Task, version, install string) {
	t.Helper()
	path, err := a.Locate(task.Settings)
	if err != nil {
		t.Fatal(err)
	}
	if v, err := a.Version(context.Background(), path); err != nil || v != version {
		t.Errorf("version %q, %v", v, err)
	}
	_, err = a.Locate(job.WorkerSettings{Command: []string{"/nowhere/" + filepath.Base(path)}})
	var missing *worker.NotInstalledError
	if !errors.As(err, &missing) || !strings.Contains(missing.Hint, install) {
		t.Errorf("missing program: %v", err)
	}
}

// Write writes a private file.
func Write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// ReadJSON returns the object in a file.
func ReadJSON(t *testing.T, path string) map[string]any {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal(Read(t, path), &v); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return v
}
