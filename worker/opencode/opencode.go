package opencode

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/agentcli"
	"github.com/agentsched/agentsched/worker/opencode/relay"
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

// Start prepares a run: the private folders, the configuration and the command line, which is that of a relay: this program
// itself, which must call relay.Main where its arguments say so.
func (a Adapter) Start(t *worker.Task) (worker.Session, error) {
	path, err := a.Locate(t.Settings)
	if err != nil {
		return nil, err
	}
	h, err := prepareHome(t)
	if err != nil {
		return nil, err
	}
	self, err := relay.Program()
	if err != nil {
		return nil, err
	}
	s := newSession(t, h)
	if n := len(encode(s.text)); n > maxPrompt {
		return nil, agentcli.TooLong(program.Name, n, maxPrompt, "bytes of JSON")
	}
	s.Process = worker.Command{
		Path: self, Args: append([]string{relay.Command, path}, arguments(t)...), Programs: []string{path}, Env: h.env, Dir: t.Dir,
		KeepStdin: true, Write: h.login,
	}
	return s, nil
}

// maxPrompt is the most bytes of a prompt, as JSON: what the Runner keeps for a program that has not begun to read.
const maxPrompt = 3 << 20

// Converses says that runs can be told things, asked and interrupted, and begin as copies of others.
func (Adapter) Converses() worker.Conversation {
	return worker.Conversation{Messages: true, Questions: true, Interrupts: true, Forks: true}
}

// arguments are those of the program's server.
func arguments(t *worker.Task) []string {
	return agentcli.Arguments(t, "serve", "--hostname=127.0.0.1", "--port=0", "--pure",
		"--print-logs", "--log-level=ERROR") // for the run's log
}

// newSetup says what the run's requests are made of.
func newSetup(t *worker.Task, h home) setup {
	s := setup{
		title: cmp.Or(string(t.Name), agentName), // without one, the model is asked for it
		text:  instructions(t), name: promptName(fmt.Sprintf("job %s, attempt %d", t.Job, t.Attempt)), fork: t.Fork,
	}
	if provider, model, ok := strings.Cut(h.model, "/"); ok {
		s.model = &modelName{provider, model}
	}
	return s
}

// instructions returns the instructions, with the schema of the answer if there is
// one: the program has no option for it. The core validates the answer.
func instructions(t *worker.Task) string {
	if len(t.Output) == 0 {
		return t.Instructions
	}
	return t.Instructions + "\n\nYour last message must be one JSON value, without any other word and without a code fence, " +
		"that satisfies this JSON schema:\n" + string(t.Output) + "\n"
}
