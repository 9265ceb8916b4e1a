package workertest

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// Config says what is checked, and how.
type Config struct {
	Adapter worker.Adapter
	Kind    job.WorkerKind

	// Settings are given to the adapter. If they name no command and the
	// program is not installed, an executable stand-in is named, which is
	// never run.
	Settings job.WorkerSettings

	// Prepare, if not nil, may change a task before it is started, e.g. give it
	// a model without which the adapter refuses to start.
	Prepare func(*worker.Task)

	// PlainOutput is set for a program whose output is text rather than a
	// protocol: it may succeed without a word.
	PlainOutput bool

	// Transcripts is a folder of NAME.jsonl files: a run's whole standard
	// output. NAME.stderr beside it is its standard error, if there is one.
	// Each must have an entry in Want, and each entry a file.
	Transcripts string
	Want        map[string]Want
}

// Want is what a transcript amounts to.
type Want struct {
	Exit    worker.Exit // how the program ended; Stderr is read from NAME.stderr
	Class   job.ErrorClass
	Answer  string // a part of it
	Session string // the last one that an event told
	Tokens  int64  // the sum over its usage events
}

// Now is the time that the suite gives every Step.
var Now = time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)

// Run checks the adapter. Its parts are subtests.
func Run(t *testing.T, c Config) {
	t.Run("Locate", c.testLocate)
	t.Run("Command", c.testCommand)
	t.Run("StartWritesOnlyItsFolders", c.testStartWrites)
	if _, ok := c.Adapter.(worker.Modelled); ok {
		t.Run("Confined", c.testConfined)
	}
	t.Run("SessionsAreIndependent", c.testIndependent)
	t.Run("Transcripts", c.testTranscripts)
	t.Run("NoOutput", c.testNoOutput)
	t.Run("FailedProgram", c.testFailedProgram)
	t.Run("Stopped", c.testStopped)
	t.Run("HostileLines", c.testHostileLines)
	t.Run("GreasedTranscripts", c.testGreased)
	t.Run("LineIsOnlyLent", c.testLineIsOnlyLent)
	t.Run("EveryInput", c.testEveryInput)
	t.Run("ManyGoroutines", c.testManyGoroutines)
}

func (c Config) testLocate(t *testing.T) {
	missing := c.Settings
	missing.Command = []string{filepath.Join(t.TempDir(), "no-such-program")}
	_, err := c.Adapter.Locate(missing)
	var not *worker.NotInstalledError
	if !errors.As(err, &not) {
		t.Fatalf("Locate of a missing program: error %v, want a *worker.NotInstalledError", err)
	}
	if not.Hint == "" || not.Program == "" {
		t.Errorf("error %+v does not name the program and how to get it", not)
	}
	task := c.task(t, "locate")
	path, err := c.Adapter.Locate(task.Settings)
	if err != nil {
		t.Fatal(err)
	}
	if !filepath.IsAbs(path) {
		t.Errorf("Locate returned %q, want an absolute path", path)
	}
	if got := c.start(t, task).Command().Path; got != path {
		t.Errorf("Start would use %q, Locate says %q", got, path)
	}
}

// outsideVariable stands in the environment of the test and not in a task's, as
// the scheduler's own variables do.
const outsideVariable = "WORKERTEST_OUTSIDE"

func (c Config) testCommand(t *testing.T) {
	t.Setenv(outsideVariable, "secret")
	task := c.task(t, "command")
	cmd := c.start(t, task).Command()
	if !filepath.IsAbs(cmd.Path) {
		t.Errorf("Path %q is not absolute", cmd.Path)
	}
	if cmd.Dir != task.Dir {
		t.Errorf("Dir is %q, want the workspace %q", cmd.Dir, task.Dir)
	}
	seen := map[string]bool{}
	for _, kv := range cmd.Env {
		name, value, ok := strings.Cut(kv, "=")
		if !ok || name == "" {
			t.Errorf("Env has %q, want NAME=VALUE", kv)
		}
		if seen[name] {
			t.Errorf("Env has %s twice", name)
		}
		if name == outsideVariable || value == "secret" {
			t.Errorf("Env has %s, which the task's environment has not", name)
		}
		seen[name] = true
	}
	if !seen["PATH"] {
		t.Error("Env has no PATH")
	}
	for _, word := range append([]string{cmd.Path}, cmd.Args...) {
		if strings.ContainsRune(word, 0) {
			t.Errorf("argument %q has a NUL byte and cannot be given to a program", word)
		}
	}
}

// task returns a task in folders of its own, below t.TempDir:
//
//	work/ home/ scratch/   the task's
//	user/ tmp/             HOME and TMPDIR of its environment and of this process
func (c Config) task(t testing.TB, name string) *worker.Task {
	t.Helper()
	base := t.TempDir()
	dir := func(name string) string {
		path := filepath.Join(base, name)
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	task := &worker.Task{
		Job: job.NewID(), Name: job.Name(name), Attempt: 1, Kind: c.Kind,
		Instructions: "echo " + name,
		Dir:          dir("work"), Home: dir("home"), Scratch: dir("scratch"),
		Capabilities: []job.Capability{job.CanRead, job.CanEdit, job.CanRunCommands},
		Environ:      []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir("user"), "TMPDIR=" + dir("tmp"), "LANG=C.UTF-8"},
		Lookup:       func(string) (string, bool) { return "", false },
		Settings:     c.Settings,
	}
	if _, err := c.Adapter.Locate(task.Settings); errors.Is(err, worker.ErrNotInstalled) && len(c.Settings.Command) == 0 {
		program := filepath.Join(dir("bin"), "stand-in")
		if err := os.WriteFile(program, []byte("#!/bin/sh\nexit 1\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		task.Settings.Command = []string{program}
	}
	if c.Prepare != nil {
		c.Prepare(task)
	}
	return task
}

func (c Config) start(t testing.TB, task *worker.Task) worker.Session {
	t.Helper()
	s, err := c.Adapter.Start(task)
	if err != nil {
		t.Fatalf("start %s: %v", task.Name, err)
	}
	return s
}

// sessions returns a function that starts further sessions of one task, each
// with its Command called, as the contract has it.
func (c Config) sessions(t testing.TB) func() worker.Session {
	t.Helper()
	task := c.task(t, "job")
	return func() worker.Session {
		s := c.start(t, task)
		s.Command()
		return s
	}
}
