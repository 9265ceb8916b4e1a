package codex

import (
	"context"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/agentcli"
)

// Kind is the worker kind that this adapter drives by default.
const Kind job.WorkerKind = "codex"

// program is the CLI. Its own configuration may name another provider with a key
// of its own.
var program = agentcli.Program{
	Kind: Kind, Name: "codex", Install: "npm install -g @openai/codex", Login: loginHint,
	Keys:           []string{"CODEX_API_KEY", "OPENAI_API_KEY"},
	FolderVariable: "CODEX_HOME", Folder: ".codex",
	LoginFiles: []string{"auth.json", "config.toml"},
}

// maxPrompt is the most that Codex takes as input, in characters.
const maxPrompt = 1 << 20

// Adapter drives the Codex CLI.
type Adapter struct{}

// Locate returns the path of the codex program.
func (a Adapter) Locate(s job.WorkerSettings) (string, error) {
	return program.Locate(s)
}

// Version asks the program for its version, e.g. "0.169.0".
func (a Adapter) Version(ctx context.Context, path string) (string, error) {
	return program.Version(ctx, path)
}

// Credentials returns what to do where neither a login nor a key is found.
func (Adapter) Credentials(s job.WorkerSettings, getenv func(name string) string) string {
	return program.Credentials(s, getenv)
}

// Start prepares a run: the private CODEX_HOME and the command line.
func (a Adapter) Start(t *worker.Task) (worker.Session, error) {
	path, err := a.Locate(t.Settings)
	if err != nil {
		return nil, err
	}
	if err := tooLong(t); err != nil {
		return nil, err
	}
	g := grantOf(t)
	h, err := prepareHome(t, g)
	if err != nil {
		return nil, err
	}
	s := newSession(t, g, h.hasSession)
	s.Process = worker.Command{Path: path, Args: arguments(t, g), Env: h.env, Dir: t.Dir, KeepStdin: true, Write: h.login}
	return s, nil
}

// arguments builds the command line. Everything that a task says in words
// goes through the configuration file or standard input, where neither length
// nor a leading dash matters; what protects the user is said here and in what the
// thread is started with, where no configuration file can override it.
func arguments(t *worker.Task, g grant) []string {
	args := agentcli.Arguments(t, "app-server")
	for _, kv := range g.overrides {
		args = append(args, "-c", kv)
	}
	return args
}
