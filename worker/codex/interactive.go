package codex

import (
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/agentcli"
)

// Interactive returns `codex resume ID`, with the sandbox and the settings of a run.
func (a Adapter) Interactive(t *worker.Task) (worker.Command, error) {
	path, err := a.Locate(t.Settings)
	if err != nil {
		return worker.Command{}, err
	}
	g := grantOf(t)
	h, err := prepareHome(t, g)
	if err != nil {
		return worker.Command{}, err
	}
	if err := agentcli.HasSession(t, "thread", h.hasSession); err != nil {
		return worker.Command{}, err
	}
	// Its terminal knows no way to ask about each command: what holds the run is what the person can rely on.
	args := agentcli.Arguments(t, "resume", "--no-daemon", "--cd="+t.Dir, "--sandbox="+g.sandbox, "--ask-for-approval=on-request")
	if model := agentcli.Model(t); model != "" {
		args = append(args, "--model="+model)
	}
	for _, kv := range g.overrides {
		args = append(args, "-c", kv)
	}
	env := worker.UnsetEnv(h.env, logVariable) // it is for what the adapter reads
	if own := ownLogs(t); own != "" {
		env = worker.SetEnv(env, logVariable, own)
	}
	return worker.Command{Path: path, Args: append(args, "--", t.Session), Env: env, Dir: t.Dir, Write: h.login}, nil
}
