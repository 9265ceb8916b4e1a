package shell_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/shell"
	"github.com/agentsched/agentsched/worker/workertest"
)

func conformance() workertest.Config {
	return workertest.Config{
		Adapter: shell.Adapter{}, Kind: "shell", PlainOutput: true,
		Transcripts: "testdata",
		Want: map[string]workertest.Want{
			"output":  {Answer: "building\n\nok  \texample/login\t0.21s\n{\"type\":\"result\",\"status\":\"failed\"}\ndone"},
			"failing": {Exit: worker.Exit{Code: 127}, Class: job.Config, Answer: "done"},
		},
	}
}

func TestConformance(t *testing.T) { workertest.Run(t, conformance()) }

func FuzzSession(f *testing.F) { workertest.Fuzz(f, conformance()) }

// newTask returns a task with folders of its own and the right to run anything.
func newTask(t *testing.T, script string) *worker.Task {
	t.Helper()
	return &worker.Task{
		Job: job.NewID(), Name: "job", Attempt: 1, Kind: "shell", Instructions: script,
		Dir: t.TempDir(), Home: t.TempDir(), Scratch: t.TempDir(),
		Capabilities: []job.Capability{job.CanRunCommands},
		Environ:      []string{"PATH=" + os.Getenv("PATH")},
	}
}

func TestRun(t *testing.T) {
	tests := []struct {
		name    string
		script  string
		class   job.ErrorClass
		answer  string
		message string // a part of it
	}{
		{"success", "echo one; echo two", job.NoError, "one\ntwo", ""},
		{"silent success", "true", job.NoError, "", ""},
		{"works in the workspace", "echo x > f; ls", job.NoError, "f", ""},
		{"last command decides", "false; echo on", job.NoError, "on", ""},
		{"set -e", "set -e; false; echo on", job.Unknown, "", "status 1"},
		{"exit status", "echo out; echo reason >&2; exit 3", job.Unknown, "out", "status 3: reason"},
		{"not found", "\n\nno-such-program", job.Config, "", "status 127: a program was not found or cannot be executed: script: 3: no-such-program"},
		{"not executable", ": > f; ./f", job.Config, "", "status 126"},
		{"syntax error", "if", job.Unknown, "", "status 2"},
		{"signal", "kill -9 $$", job.Crash, "", "killed"},
		{"signal to a command", "sh -c 'kill -9 $$'; exit $?", job.Unknown, "", "status 137, which usually means that signal 9"},
		{"stdin is empty", "wc -c | tr -d ' '", job.NoError, "0", ""},
		{"large script", "# " + strings.Repeat("x", 3<<20) + "\necho done", job.NoError, "done", ""},
		{"shebang of sh", "#!/usr/bin/env sh\necho x", job.NoError, "x", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, err := shell.Adapter{}.Start(newTask(t, tt.script))
			if err != nil {
				t.Fatal(err)
			}
			_, r := workertest.Drive(t, s, nil)
			if r.Class != tt.class || r.Answer != tt.answer || !strings.Contains(r.Message, tt.message) {
				t.Errorf("got %+v, want class %q, answer %q, message with %q", r, tt.class, tt.answer, tt.message)
			}
		})
	}
}

func TestStartRefuses(t *testing.T) {
	tests := []struct {
		name         string
		capabilities []job.Capability
		allow        []string
		command      []string
		script       string
		message      string // a part of it; "" starts
	}{
		{"no capability", []job.Capability{job.CanRead, job.CanEdit}, nil, nil, "echo x", "needs the capability run_commands"},
		{"tests only", []job.Capability{job.CanRunTests}, nil, nil, "go test ./...", ""},
		{"another with tests only", []job.Capability{job.CanRunTests}, nil, nil, "go test\nrm -rf x\n", `line 2: "rm -rf x" is not allowed; allowed: go test *, `},
		{"patterns limit run_commands", []job.Capability{job.CanRunCommands}, []string{"ls *"}, nil, "rm x", "allowed: ls *"},
		{"patterns without run_commands", nil, []string{"ls *"}, nil, "ls -l", ""},
		{"patterns and tests", []job.Capability{job.CanRunTests}, []string{"ls *"}, nil, "ls && go vet ./...", ""},
		{"patterns with another shell", nil, []string{"ls *"}, []string{os.Args[0]}, "ls", "not for"},
		{"python", []job.Capability{job.CanRunCommands}, nil, nil, "#!/usr/bin/env python3\nprint(1)\n", `begins with "#!/usr/bin/env python3"`},
		{"NUL", []job.Capability{job.CanRunCommands}, nil, nil, "echo \x00", "NUL"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			task := newTask(t, tt.script)
			task.Capabilities, task.AllowCommands, task.Settings.Command = tt.capabilities, tt.allow, tt.command
			_, err := shell.Adapter{}.Start(task)
			if tt.message == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			var f *worker.Failure
			if !errors.As(err, &f) || f.Class != job.Config || f.Hint == "" || !strings.Contains(f.Message, tt.message) {
				t.Fatalf("error %#v, want a failure of class CONFIG with a hint and %q in its message", err, tt.message)
			}
			if left, _ := filepath.Glob(filepath.Join(task.Scratch, "*")); len(left) > 0 {
				t.Errorf("a refused script was written to %v", left)
			}
		})
	}
}

// A shell reads a script as it goes; what was checked must not grow.
func TestCheckedScriptCannotAppendToItself(t *testing.T) {
	task := newTask(t, `for f in "$0" "$SCRIPTS"/*; do echo 'touch appended' >> "$f"; done`)
	task.Capabilities = []job.Capability{job.CanRunTests, job.CanEdit}
	task.Environ = append(task.Environ, "SCRIPTS="+task.Scratch)
	s, err := shell.Adapter{}.Start(task)
	if err != nil {
		t.Fatal(err)
	}
	_, r := workertest.Drive(t, s, nil)
	if _, err := os.Stat(filepath.Join(task.Dir, "appended")); err == nil {
		t.Errorf("the script ran what it appended; result %+v", r)
	}
}

func TestEvents(t *testing.T) {
	s, err := shell.Adapter{}.Start(newTask(t, "#!/bin/sh\n\n# greet\necho one; echo; printf two\n"))
	if err != nil {
		t.Fatal(err)
	}
	events, _ := workertest.Drive(t, s, nil)
	var got []string
	for _, e := range events {
		got = append(got, string(e.Kind)+" "+e.Command+e.Text)
	}
	want := "command echo one; echo; printf two|text one|text two|command echo one; echo; printf two"
	if strings.Join(got, "|") != want {
		t.Errorf("events %q, want %q", got, want)
	}
}

// The answer is the end of the output, whole lines of it.
func TestAnswerIsTail(t *testing.T) {
	s, err := shell.Adapter{}.Start(newTask(t, "i=0; while [ $i -lt 40000 ]; do echo line $i; i=$((i+1)); done"))
	if err != nil {
		t.Fatal(err)
	}
	_, r := workertest.Drive(t, s, nil)
	if r.Class != job.NoError || len(r.Answer) > job.MaxEventText || len(r.Answer) < job.MaxEventText/2 {
		t.Fatalf("class %q, answer of %d bytes", r.Class, len(r.Answer))
	}
	if !strings.HasPrefix(r.Answer, "line ") || !strings.HasSuffix(r.Answer, "\nline 39999") {
		t.Errorf("answer from %q to %q, want whole lines up to the last", r.Answer[:20], r.Answer[len(r.Answer)-20:])
	}
}
