package claude

import (
	"path/filepath"
	"strings"

	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/agentcli"
)

// Interactive returns `claude --resume ID`, with the rules, tools and settings of a run.
func (a Adapter) Interactive(t *worker.Task) (worker.Command, error) {
	path, err := a.Locate(t.Settings)
	if err != nil {
		return worker.Command{}, err
	}
	g, err := grantOf(t)
	if err != nil {
		return worker.Command{}, err
	}
	h, err := prepareHome(t, g)
	if err != nil {
		return worker.Command{}, err
	}
	if err := agentcli.HasSession(t, "session", h.hasSession); err != nil {
		return worker.Command{}, err
	}
	if err := h.welcome(t); err != nil {
		return worker.Command{}, err
	}
	args := agentcli.Arguments(t, "--permission-mode=default", "--setting-sources=user", "--strict-mcp-config", "--tools="+strings.Join(g.tools, ","))
	if len(g.allow)+len(g.ask) > 0 {
		args = append(args, "--settings="+h.permissions)
	}
	if model := agentcli.Model(t); model != "" {
		args = append(args, "--model="+model)
	}
	if h.system != "" {
		args = append(args, "--append-system-prompt-file="+h.system)
	}
	// Retries and what runs in the background are the person's to look at.
	env := worker.UnsetEnv(h.env, "CLAUDE_CODE_MAX_RETRIES", "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS")
	return worker.Command{Path: path, Args: append(args, "--resume="+t.Session), Env: env, Dir: t.Dir, Read: h.read, Write: h.login}, nil
}

// keyEnd is how many of the last characters of a key the program remembers.
const keyEnd = 20

// welcome answers what the program asks people at its first start: whether it may work in the folder, and use the key. That the
// folder's own settings stay out is said on the command line.
func (h home) welcome(t *worker.Task) error {
	file := filepath.Join(h.dir, ".claude.json")
	own := map[string]any{}
	for name, value := range agentcli.ReadOwnJSON(file) {
		own[name] = value
	}
	own["hasCompletedOnboarding"] = true
	projects := map[string]any{}
	for _, dir := range agentcli.Folders(t) {
		projects[dir] = map[string]any{"hasTrustDialogAccepted": true, "hasCompletedProjectOnboarding": true}
	}
	own["projects"] = projects
	var approved []string
	if key := (&worker.Task{Environ: h.env}).Getenv("ANTHROPIC_API_KEY"); key != "" {
		approved = append(approved, key[max(0, len(key)-keyEnd):])
	}
	own["customApiKeyResponses"] = map[string]any{"approved": approved, "rejected": []string{}}
	return agentcli.WriteJSON(file, own)
}
