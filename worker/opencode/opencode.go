package opencode

import (
	"cmp"
	"context"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/agentcli"
)

// Kind is the worker kind that this adapter drives by default.
const Kind job.WorkerKind = "opencode"

// program is the CLI. It has keys of many providers, which are not looked for.
var program = agentcli.Program{Kind: Kind, Name: "opencode", Install: "npm install -g opencode-ai"}

// Adapter drives OpenCode.
type Adapter struct{}

// Locate returns the path of the opencode program.
func (a Adapter) Locate(s job.WorkerSettings) (string, error) {
	return program.Locate(s)
}

// Version asks the program for its version, e.g. "1.18.33".
func (a Adapter) Version(ctx context.Context, path string) (string, error) {
	return program.Version(ctx, path)
}

// Start prepares a run: the private folders, the configuration and the
// command line.
func (a Adapter) Start(t *worker.Task) (worker.Session, error) {
	path, err := a.Locate(t.Settings)
	if err != nil {
		return nil, err
	}
	h, err := prepareHome(t)
	if err != nil {
		return nil, err
	}
	s := newSession(t, h)
	s.Process = worker.Command{
		Path: path, Args: arguments(t, h, s.Resume), Env: h.env, Dir: t.Dir,
		Stdin: []byte(prompt(t)), Write: h.login,
	}
	return s, nil
}

// arguments builds the command line. The prompt comes by standard input: as an
// argument it could be no longer than 128 KiB, would reach the model in quotes
// and could be taken for a flag.
func arguments(t *worker.Task, h home, resume string) []string {
	title := cmp.Or(string(t.Name), agentName)
	args := agentcli.Arguments(t, "run", "--format=json", "--pure",
		"--print-logs", "--log-level=ERROR", // else it repeats failed requests in silence
		"--dir="+t.Dir, "--agent="+agentName,
		"--title="+title) // without one, the model is asked for it
	if h.model != "" {
		args = append(args, "--model="+h.model)
	}
	if resume != "" {
		args = append(args, "--session="+resume)
	}
	return args
}

// prompt returns the instructions, with the schema of the answer if there is
// one: the program has no option for it. The core validates the answer.
func prompt(t *worker.Task) string {
	if len(t.Output) == 0 {
		return t.Instructions
	}
	return t.Instructions + "\n\nYour last message must be one JSON value, without any other word and without a code fence, " +
		"that satisfies this JSON schema:\n" + string(t.Output) + "\n"
}
