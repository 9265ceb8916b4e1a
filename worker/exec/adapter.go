package exec

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// Adapter runs the program that the settings' Command names, with its
// arguments, and talks the worker protocol with it. Give paths that are
// absolute or on PATH: the program's working directory is the job's workspace.
type Adapter struct{}

var (
	_ worker.Adapter       = Adapter{}
	_ worker.Streaming     = Adapter{}
	_ worker.Programless   = Adapter{}
	_ worker.Stepping      = Adapter{}
	_ worker.Checkpointing = Adapter{}
	_ worker.Conversing    = Adapter{}
)

// Locate returns the path of the program that the settings name.
func (Adapter) Locate(s job.WorkerSettings) (string, error) {
	if len(s.Command) == 0 || s.Command[0] == "" {
		return "", &worker.Failure{
			Class: job.Config, Message: "the worker has no command",
			Hint: `name the program in the worker's settings, e.g. command: ["/opt/agents/mine", "--worker"]`,
		}
	}
	return worker.LocateProgram("exec", s, "", "install it, then give its absolute path in the worker's command")
}

// Version returns "": a program tells its version in its hello, if it likes.
func (Adapter) Version(context.Context, string) (string, error) { return "", nil }

// Streaming holds: the protocol has lines for it.
func (Adapter) Streaming() {}

// Stepping holds: a step line with a result is a durable step.
func (Adapter) Stepping() {}

// Checkpointing holds: the protocol has a line for it.
func (Adapter) Checkpointing() {}

// Converses says all: the protocol has lines for it. What a program takes of it is in
// its hello.
func (Adapter) Converses() worker.Conversation {
	return worker.Conversation{Messages: true, Questions: true, Interrupts: true, Forks: true}
}

// Programless holds: the settings name the program.
func (Adapter) Programless() {}

// Upstream returns the endpoint that the settings name: what else a program asks, and
// how, is not known here. The endpoint must speak OpenAI's chat completions.
func (Adapter) Upstream(s job.WorkerSettings, _ func(string) string) (worker.Upstream, error) {
	u, own := worker.SettingsUpstream(s, worker.OpenAIChat)
	if !own {
		return u, &worker.UnservedError{Kind: "exec", Why: "its settings name no base_url"}
	}
	return u, nil
}

// Start prepares the task line.
func (a Adapter) Start(t *worker.Task) (worker.Session, error) {
	path, err := a.Locate(t.Settings)
	if err != nil {
		return nil, err
	}
	task := taskLine(t)
	if err := giveSteps(&task, t); err != nil {
		return nil, err
	}
	line, err := json.Marshal(task)
	if err != nil {
		return nil, fmt.Errorf("write the task of job %s: %w", t.Job, err)
	}
	env := slices.Clone(t.Environ)
	if name := task.KeyEnv; t.Models != nil {
		env = worker.SetEnv(env, name, t.Models.Key)
	} else if key := t.Getenv(name); name != "" && key != "" {
		env = worker.SetEnv(env, name, key)
	}
	return &run{
		dir:    t.Dir,
		schema: len(t.Output) > 0, streams: t.Streams,
		command: worker.Command{
			Path: path, Args: slices.Clone(t.Settings.Command[1:]),
			Env: env, Dir: t.Dir,
			Stdin: append(line, '\n'), KeepStdin: true,
		},
		warned: map[string]bool{},
		open:   map[string]string{},
		talk:   talk{told: map[string]worker.MessageState{}, open: map[string]bool{}},
	}, nil
}

func taskLine(t *worker.Task) Task {
	patterns, any := t.CommandPatterns()
	if any || patterns == nil {
		patterns = []string{}
	}
	capabilities := t.Capabilities
	if capabilities == nil {
		capabilities = []job.Capability{}
	}
	baseURL, keyEnv := t.Settings.BaseURL, t.Settings.KeyEnv
	if t.Models != nil {
		baseURL, keyEnv = t.Models.BaseURL(), cmp.Or(keyEnv, worker.ModelKeyVariable)
	}
	return Task{
		Type: "task", Protocol: Protocol,
		Job: t.Job, Name: t.Name, Attempt: t.Attempt,
		Instructions: t.Instructions, SystemPrompt: t.SystemPrompt,
		Model: t.Model, BaseURL: baseURL, KeyEnv: keyEnv, Session: t.Session, Fork: t.Fork,
		Dir: t.Dir, Home: t.Home, Scratch: t.Scratch,
		Capabilities: capabilities, AllowCommands: patterns, AnyCommand: any, Asked: t.Asked,
		OutputSchema: t.Output,
		Limits: Limits{
			TimeoutMillis:    t.Limits.Timeout.Std().Milliseconds(),
			MaxSteps:         t.Limits.MaxSteps,
			MaxCommandMillis: t.Limits.MaxCommandTime.Std().Milliseconds(),
			MaxTokens:        t.Limits.MaxTokens,
			MaxCostUSD:       t.Limits.MaxCostUSD,
			MaxAttempts:      t.Limits.MaxAttempts,
		},
	}
}
