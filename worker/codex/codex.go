package codex

import (
	"context"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// Kind is the worker kind that this adapter drives by default.
const Kind job.WorkerKind = "codex"

const (
	program    = "codex"
	installCmd = "npm install -g @openai/codex"
	// maxPrompt is the most that Codex takes as input, in characters.
	maxPrompt = 1 << 20
)

// Adapter drives the Codex CLI. The zero value works.
type Adapter struct {
	// Now is the clock by which "try again at 7:40 PM" is read; nil is time.Now.
	Now func() time.Time
}

// Locate returns the path of the codex program.
func (a Adapter) Locate(s job.WorkerSettings) (string, error) {
	return worker.LocateProgram(Kind, s, program, installCmd)
}

// Version asks the program for its version, e.g. "0.169.0".
func (a Adapter) Version(ctx context.Context, path string) (string, error) {
	return worker.ProgramVersion(ctx, path)
}

// Start prepares a run: the private CODEX_HOME and the command line.
func (a Adapter) Start(t *worker.Task) (worker.Session, error) {
	path, err := a.Locate(t.Settings)
	if err != nil {
		return nil, err
	}
	if n := utf8.RuneCountInString(t.Instructions); n > maxPrompt {
		return nil, &worker.Failure{Class: job.Config,
			Message: fmt.Sprintf("instructions of %d characters: codex takes at most %d", n, maxPrompt),
			Hint:    "put the long part in a file of the workspace and name it in the instructions"}
	}
	g, err := grantOf(t)
	if err != nil {
		return nil, err
	}
	h, err := prepareHome(t, g)
	if err != nil {
		return nil, err
	}
	now := a.Now
	if now == nil {
		now = time.Now
	}
	s := newSession(t, h, now)
	s.command = worker.Command{
		Path: path, Args: arguments(t, g, h, s.resumes()), Env: h.env, Dir: t.Dir,
		Stdin: []byte(t.Instructions),
	}
	return s, nil
}

// arguments builds the command line. Everything that a task says in words
// goes through the configuration file or standard input, where neither length
// nor a leading dash matters; what protects the user is said here, where no
// configuration file can override it.
func arguments(t *worker.Task, g grant, h home, resume string) []string {
	var args []string
	if len(t.Settings.Command) > 1 {
		args = append(args, t.Settings.Command[1:]...)
	}
	args = append(args, "exec", "--json", "--skip-git-repo-check", "--color", "never",
		"--ignore-rules", // an allow rule would run its command outside the sandbox
		"--sandbox", g.sandbox, "--cd", t.Dir)
	for _, kv := range g.overrides {
		args = append(args, "-c", kv)
	}
	if model := modelOf(t); model != "" {
		args = append(args, "--model", model)
	}
	if h.schema != "" {
		args = append(args, "--output-schema", h.schema)
	}
	if resume != "" {
		args = append(args, "resume", resume)
	}
	return append(args, "-")
}

// modelOf returns the model to ask for, "" for the one of the user's configuration.
func modelOf(t *worker.Task) string {
	if t.Model != "" {
		return t.Model
	}
	return t.Settings.Model
}
