package acp

import (
	"cmp"
	"context"
	"slices"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/agentcli"
)

// Adapter runs the agent that the settings' Command names, with its arguments.
type Adapter struct{}

var (
	_ worker.Adapter     = Adapter{}
	_ worker.Programless = Adapter{}
	_ worker.Conversing  = Adapter{}
	_ worker.Modelled    = Adapter{}
)

// Locate returns the path of the program that the settings name.
func (Adapter) Locate(s job.WorkerSettings) (string, error) {
	if len(s.Command) == 0 || s.Command[0] == "" {
		return "", &worker.Failure{
			Class: job.Config, Message: "the worker has no command",
			Hint: `name the agent in the worker's settings, e.g. command: [gemini, --acp]`,
		}
	}
	return worker.LocateProgram("acp", s, "", "install the agent, then give its absolute path in the worker's command")
}

// Version returns "": an agent tells its version when it is initialized.
func (Adapter) Version(context.Context, string) (string, error) { return "", nil }

// Programless holds: the settings name the program.
func (Adapter) Programless() {}

// Converses says what the protocol has. An agent that cannot fork a session refuses it.
func (Adapter) Converses() worker.Conversation {
	return worker.Conversation{Messages: true, Questions: true, Interrupts: true, Forks: true}
}

// Upstream returns the endpoint that the settings name, which must speak OpenAI's chat
// completions: what else an agent asks, and how, is not known here.
func (Adapter) Upstream(s job.WorkerSettings, _ func(string) string) (worker.Upstream, error) {
	u, own := worker.SettingsUpstream(s, worker.OpenAIChat)
	if !own {
		return u, &worker.UnservedError{Kind: "acp", Why: "its settings name no base_url"}
	}
	return u, nil
}

// Start prepares a session.
func (a Adapter) Start(t *worker.Task) (worker.Session, error) {
	path, err := a.Locate(t.Settings)
	if err != nil {
		return nil, err
	}
	s := &session{
		Run: agentcli.NewRun(t, "session", func(string) bool { return true }), task: t,
		pending: map[int64]func(reply){}, warned: map[string]bool{},
		calls: map[string]*call{}, asks: map[string]*ask{}, files: map[string]*fileRequest{}, questions: map[string]bool{},
		mayWrite: map[string]bool{}, wrote: map[string]bool{}, history: map[[32]byte]bool{},
	}
	s.Process = worker.Command{
		Path: path, Args: slices.Clone(t.Settings.Command[1:]),
		Env: environ(t), Dir: t.Dir, Stdin: s.initialize(), KeepStdin: true,
	}
	return s, nil
}

// environ returns the agent's environment. The protocol has no way to name an endpoint of
// models, so that one of the settings, or of a gateway, is in the variables by which most
// programs know OpenAI's.
func environ(t *worker.Task) []string {
	env := slices.Clone(t.Environ)
	s := t.Settings
	baseURL, key := s.BaseURL, ""
	if s.KeyEnv != "" {
		key = t.Getenv(s.KeyEnv)
	}
	if t.Models != nil {
		baseURL, key = t.Models.BaseURL(), t.Models.Key
	}
	set := func(name, value string) {
		if name != "" && value != "" {
			env = worker.SetEnv(env, name, value)
		}
	}
	set(cmp.Or(s.KeyEnv, "OPENAI_API_KEY"), key)
	if baseURL != "" {
		set("OPENAI_BASE_URL", baseURL)
		set("OPENAI_API_KEY", key)
		set("OPENAI_MODEL", agentcli.Model(t))
	}
	return env
}
