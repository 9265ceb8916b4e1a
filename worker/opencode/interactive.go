package opencode

import (
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/agentcli"
)

// Interactive returns `opencode --session ID`, with the agent and the settings of a run.
func (a Adapter) Interactive(t *worker.Task) (worker.Command, error) {
	path, err := a.Locate(t.Settings)
	if err != nil {
		return worker.Command{}, err
	}
	h, err := prepareHome(t)
	if err != nil {
		return worker.Command{}, err
	}
	if err := agentcli.HasSession(t, "session", h.hasSession); err != nil {
		return worker.Command{}, err
	}
	args := agentcli.Arguments(t, "--pure", "--agent="+agentName)
	if h.model != "" {
		args = append(args, "--model="+h.model)
	}
	return worker.Command{Path: path, Args: append(args, "--session="+t.Session), Env: h.env, Dir: t.Dir, Write: h.login}, nil
}
