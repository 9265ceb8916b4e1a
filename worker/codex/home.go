package codex

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/BurntSushi/toml"

	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/agentcli"
)

// home is the private state of a run on disk.
type home struct {
	dir   string   // CODEX_HOME
	env   []string // the program's whole environment
	login []string // the user's login, if the run gets that
}

// prepareHome makes the private CODEX_HOME of a run. The user's login is
// linked, not copied: Codex writes a refreshed token through the link, while a
// copy would leave the user with a token that was used up. HOME is as the task has
// it: the user's, so that git, ssh and the like work in commands, unless the run is
// confined.
func prepareHome(t *worker.Task, g grant) (home, error) {
	h := home{dir: filepath.Join(t.Home, "codex"), env: t.Environ}
	if err := agentcli.MakeFolders(t.Home, h.dir); err != nil {
		return h, err
	}
	// Rules of an earlier attempt's could allow commands that are to be asked about.
	if err := os.RemoveAll(filepath.Join(h.dir, "rules")); err != nil {
		return h, fmt.Errorf("remove rules of codex: %w", err)
	}
	users := program.UserFolder(t.UserEnv)
	if err := agentcli.Share(t, filepath.Join(users, "AGENTS.md"), filepath.Join(h.dir, "AGENTS.md")); err != nil {
		return h, fmt.Errorf("reuse AGENTS.md of codex: %w", err)
	}
	if err := h.shareLogin(t, filepath.Join(users, "auth.json")); err != nil {
		return h, fmt.Errorf("reuse auth.json of codex: %w", err)
	}
	config, secrets, err := configure(t, filepath.Join(users, "config.toml"))
	if err != nil {
		return h, err
	}
	if !t.Confined {
		if err := h.ownSandbox(t, g, config); err != nil {
			return h, err
		}
	}
	if err := writeTOML(filepath.Join(h.dir, "config.toml"), config); err != nil {
		return h, err
	}
	h.env = agentcli.SetVariables(h.env, "CODEX_HOME="+h.dir, logVariable+"="+cmp.Or(ownLogs(t), logDefault)+","+logFilter)
	if t.Models != nil {
		h.env = worker.SetEnv(worker.UnsetEnv(h.env, slices.Concat(program.Keys, []string{t.Settings.KeyEnv})...), worker.ModelKeyVariable, t.Models.Key)
		return h, nil
	}
	h.env = agentcli.PassVariables(h.env, t, secrets...)
	// A key in the environment is used where there is no login to reuse.
	if _, err := os.Stat(filepath.Join(h.dir, "auth.json")); errors.Is(err, fs.ErrNotExist) && t.Getenv("CODEX_API_KEY") == "" {
		if v := t.Getenv("OPENAI_API_KEY"); v != "" {
			h.env = worker.SetEnv(h.env, "CODEX_API_KEY", v)
		}
	}
	return h, nil
}

// shareLogin links the user's login, unless models are asked without it. A confined run
// needs that the sandbox lets it.
func (h *home) shareLogin(t *worker.Task, users string) error {
	own := filepath.Join(h.dir, "auth.json")
	if t.Models != nil {
		return os.RemoveAll(own) // an earlier attempt's, which may be anything
	}
	if t.Confined && agentcli.Regular(users) {
		h.login = []string{users}
	}
	return agentcli.Link(users, own)
}

// ownSandbox configures Codex's own sandbox. It may write in the workspace and, of
// our own, in a temporary folder and a cache without which `go test` cannot build.
// The common /tmp is left out: other runs' files may lie there.
func (h *home) ownSandbox(t *worker.Task, g grant, config map[string]any) error {
	tmp, cache := filepath.Join(t.Scratch, "tmp"), filepath.Join(t.Home, "go-build")
	if err := errors.Join(agentcli.MakeFolders(t.Scratch, tmp), agentcli.MakeFolders(t.Home, cache)); err != nil {
		return err
	}
	config["sandbox_workspace_write"] = map[string]any{
		"network_access": g.network, "exclude_slash_tmp": true, "exclude_tmpdir_env_var": true,
		"writable_roots": []string{tmp, cache},
	}
	h.env = worker.SetEnv(h.env, "TMPDIR", tmp)
	if t.Getenv("GOCACHE") == "" {
		h.env = worker.SetEnv(h.env, "GOCACHE", cache)
	}
	return nil
}

// ownLogs returns what the job or the settings pass through of what shall be
// logged. The scheduler's own variable does not count.
func ownLogs(t *worker.Task) string {
	passed := worker.Task{Environ: t.Environ}
	return passed.Getenv(logVariable)
}

func writeTOML(path string, config map[string]any) error {
	var b bytes.Buffer
	if err := toml.NewEncoder(&b).Encode(config); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return agentcli.WriteFile(path, b.Bytes())
}

// hasSession reports whether thread was recorded in this home.
func (h home) hasSession(thread string) bool {
	for _, dir := range []string{"sessions", "archived_sessions"} {
		found := false
		_ = filepath.WalkDir(filepath.Join(h.dir, dir), func(path string, d fs.DirEntry, err error) error {
			if ok, _ := filepath.Match("*"+thread+"*", filepath.Base(path)); err == nil && ok && !d.IsDir() {
				found = true
				return filepath.SkipAll
			}
			return nil
		})
		if found {
			return true
		}
	}
	return false
}
