package workertest_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// These two stand here and not in package worker, whose test binary owns its
// children through a proc.Host: a program started beside it could lose its
// exit code to the reaper.
func TestLocateProgram(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"tool", "other"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
	for _, tt := range []struct {
		command []string
		want    string // "" means that it is not there
	}{
		{nil, "tool"},
		{[]string{"other", "--flag"}, "other"},
		{[]string{filepath.Join(dir, "other")}, "other"},
		{[]string{"no-such-tool"}, ""},
		{[]string{filepath.Join(dir, "none")}, ""},
	} {
		got, err := worker.LocateProgram("kind", job.WorkerSettings{Command: tt.command}, "tool", "buy it")
		var missing *worker.NotInstalledError
		switch {
		case tt.want != "" && (err != nil || got != filepath.Join(dir, tt.want)):
			t.Errorf("%q: %q, %v", tt.command, got, err)
		case tt.want == "" && (!errors.As(err, &missing) || missing.Program != tt.command[0] || !strings.Contains(err.Error(), "buy it")):
			t.Errorf("%q: %q, %v", tt.command, got, err)
		}
	}
}

func TestProgramVersion(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string]string{
		"echo 2.1.197 '(Claude Code)'": "2.1.197", "echo codex-cli 0.169.0": "0.169.0", "echo nothing": "", "exit 1": "",
	} {
		path := filepath.Join(dir, "tool")
		if err := os.WriteFile(path, []byte("#!/bin/sh\n[ \"$1\" = --version ] && "+text+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		got, err := worker.ProgramVersion(t.Context(), path)
		if got != want || (err == nil) != (want != "") || err != nil && !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %q, %v; want %q", text, got, err, want)
		}
	}
}
