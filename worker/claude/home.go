package claude

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/agentcli"
)

// home is the private state of a run on disk.
type home struct {
	dir         string   // CLAUDE_CONFIG_DIR
	env         []string // the program's whole environment
	permissions string   // settings file with the permission rules
	system      string   // file with the system prompt, "" if there is none
}

// prepareHome makes the private CLAUDE_CONFIG_DIR of a run. The login is the
// user's own, in its place: a copy would leave the user with a refresh token
// that was used up, and so would a link, since the program replaces the file.
// HOME stays the user's, so that git, ssh and the like work in commands.
func prepareHome(t *worker.Task, g grant) (home, error) {
	h := home{dir: filepath.Join(t.Home, "claude"), permissions: filepath.Join(t.Scratch, "permissions.json")}
	if err := agentcli.MakeFolders(h.dir); err != nil {
		return h, err
	}
	users := t.Getenv("CLAUDE_CONFIG_DIR")
	account := filepath.Join(users, ".claude.json")
	if users == "" {
		users = filepath.Join(t.Getenv("HOME"), ".claude")
		account = filepath.Join(t.Getenv("HOME"), ".claude.json")
	}
	if t.Settings.BaseURL == "" { // another endpoint must not see the user's login
		if err := takeAccount(account, filepath.Join(h.dir, ".claude.json")); err != nil {
			return h, err
		}
	}
	if err := agentcli.Link(filepath.Join(users, "CLAUDE.md"), filepath.Join(h.dir, "CLAUDE.md")); err != nil {
		return h, fmt.Errorf("reuse the user's CLAUDE.md: %w", err)
	}
	if err := takeSettings(t, filepath.Join(users, "settings.json"), filepath.Join(h.dir, "settings.json")); err != nil {
		return h, err
	}
	if err := agentcli.WriteJSON(h.permissions, map[string]any{"permissions": map[string]any{"allow": append([]string{}, g.allow...)}}); err != nil {
		return h, err
	}
	var err error
	h.system, err = agentcli.SystemPrompt(t, "system-prompt.txt")
	h.env = environment(t, h.dir)
	return h, err
}

// endpointVariables are the variables by which the program finds its models.
var endpointVariables = []string{
	"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "ANTHROPIC_CUSTOM_HEADERS", "ANTHROPIC_MODEL",
	"ANTHROPIC_DEFAULT_OPUS_MODEL", "ANTHROPIC_DEFAULT_SONNET_MODEL", "ANTHROPIC_DEFAULT_HAIKU_MODEL", "CLAUDE_CODE_OAUTH_TOKEN",
	"CLAUDE_CODE_USE_BEDROCK", "ANTHROPIC_BEDROCK_BASE_URL", "AWS_BEARER_TOKEN_BEDROCK", "AWS_REGION", "AWS_PROFILE",
	"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
	"CLAUDE_CODE_USE_VERTEX", "ANTHROPIC_VERTEX_PROJECT_ID", "ANTHROPIC_VERTEX_BASE_URL", "CLOUD_ML_REGION", "GOOGLE_APPLICATION_CREDENTIALS",
	"CLAUDE_CODE_USE_FOUNDRY", "ANTHROPIC_FOUNDRY_API_KEY", "ANTHROPIC_FOUNDRY_RESOURCE", "ANTHROPIC_FOUNDRY_BASE_URL",
}

func environment(t *worker.Task, dir string) []string {
	env := t.Environ
	if url := t.Settings.BaseURL; url != "" {
		env = worker.SetEnv(env, "ANTHROPIC_BASE_URL", url)
		if key := t.Settings.KeyEnv; key != "" {
			env = worker.SetEnv(env, "ANTHROPIC_API_KEY", t.Getenv(key))
		}
	} else {
		// Where the login lies; "" is the program's default for HOME.
		env = worker.SetEnv(env, "CLAUDE_SECURESTORAGE_CONFIG_DIR", t.Getenv("CLAUDE_CONFIG_DIR"))
		env = agentcli.PassVariables(env, t, endpointVariables...)
	}
	return agentcli.SetVariables(env,
		"CLAUDE_CONFIG_DIR="+dir,
		// Retries are the scheduler's: the announcement of the first ends the run
		// (see Verdict). With 0 there is none, and it alone says when to come back.
		"CLAUDE_CODE_MAX_RETRIES=1",
		"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
		"DISABLE_AUTOUPDATER=1",
		"CLAUDE_CODE_DISABLE_BACKGROUND_TASKS=1", // a run is over when its last command is
		"CLAUDE_CODE_ADDITIONAL_DIRECTORIES_CLAUDE_MD=1",
	)
}

// takeSettings writes from the user's settings what says how models are
// reached. What could allow more than the job does stays behind: permissions,
// hooks, plugins, MCP servers.
func takeSettings(t *worker.Task, from, to string) error {
	users, err := agentcli.ReadJSON(from, "claude settings", nil)
	if err != nil {
		return err
	}
	own := map[string]any{"includeCoAuthoredBy": false}
	if t.Settings.BaseURL != "" {
		return agentcli.WriteJSON(to, own)
	}
	agentcli.TakeOver(own, users, "model", "apiKeyHelper", "awsAuthRefresh", "awsCredentialExport", "forceLoginMethod", "forceLoginOrgUUID")
	var vars map[string]string
	if json.Unmarshal(users["env"], &vars) == nil {
		kept := map[string]string{}
		for name, v := range vars {
			if endpoint(name) {
				kept[name] = v
			}
		}
		own["env"] = kept
	}
	return agentcli.WriteJSON(to, own)
}

// endpoint reports whether a variable says how models are reached.
func endpoint(name string) bool {
	return slices.Contains(endpointVariables, name) || strings.HasPrefix(name, "VERTEX_REGION_")
}

// takeAccount writes from the user's account file what a login needs, unless
// an earlier attempt of the job has left its own.
func takeAccount(from, to string) error {
	if _, err := os.Lstat(to); err == nil {
		return nil
	}
	users, err := agentcli.ReadJSON(from, "claude account", nil)
	var broken *worker.Failure
	if users == nil && err == nil || errors.As(err, &broken) {
		return nil // of a broken one the program would start anew, too
	}
	if err != nil {
		return err
	}
	own := map[string]any{"hasCompletedOnboarding": true}
	agentcli.TakeOver(own, users, "oauthAccount", "primaryApiKey", "userID")
	return agentcli.WriteJSON(to, own)
}

// hasSession reports whether the session was recorded in this home.
func (h home) hasSession(id string) bool {
	found, err := filepath.Glob(filepath.Join(h.dir, "projects", "*", id+".jsonl"))
	return err == nil && len(found) > 0
}
