package codex

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/BurntSushi/toml"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/agentcli"
)

// providerID is the name of our own definition of a model provider. The names
// of Codex's built-in ones are reserved, their retries cannot be set.
const providerID = "agentsched"

// takenOver are the settings of the user that say which model is used and how
// it is reached. All others stay behind, above all those that could grant more
// than the job does: MCP servers, hooks, rules, trusted projects, sandbox.
var (
	takenOver = []string{
		"model", "model_reasoning_effort", "model_reasoning_summary", "model_verbosity",
		"model_context_window", "model_max_output_tokens", "model_auto_compact_token_limit", "service_tier",
	}
	// reaching are those that say how: none of them counts where a gateway stands between.
	reaching = []string{
		"model_provider", "model_catalog_json", "preferred_auth_method", "forced_login_method", "forced_chatgpt_workspace_id",
		"cli_auth_credentials_store", "chatgpt_base_url", "openai_base_url", "oss_provider",
	}
)

// configure returns the configuration of a run, from the user's at path and
// the task, and the names of the variables that hold keys.
func configure(t *worker.Task, path string) (config map[string]any, secrets []string, err error) {
	users, err := usersConfig(path)
	if err != nil {
		return nil, nil, err
	}
	config = map[string]any{
		"check_for_update_on_startup": false,
		"analytics":                   map[string]any{"enabled": false},
		"history":                     map[string]any{"persistence": "none"},
		"projects":                    untrusted(t.Dir),
		// Of the one with which the agent may ask for words.
		"suppress_unstable_features_warning": true,
	}
	agentcli.TakeOver(config, users, takenOver...)
	if t.Models == nil {
		agentcli.TakeOver(config, users, reaching...)
	}
	if t.SystemPrompt != "" {
		config["developer_instructions"] = t.SystemPrompt
	}
	provider, name, secrets := providerOf(t, users)
	config["model_provider"] = name
	if provider != nil {
		// Retries are the scheduler's.
		provider["request_max_retries"], provider["stream_max_retries"] = 0, 0
		config["model_providers"] = map[string]any{name: provider}
	}
	secrets = append(secrets, "CODEX_API_KEY")
	if t.Tools != nil {
		config["mcp_servers"] = map[string]any{t.Tools.Name: map[string]any{
			"url": t.Tools.URL, "bearer_token_env_var": worker.ToolKeyVariable, "tool_timeout_sec": toolTimeout, "default_tools_approval_mode": "approve",
		}}
		secrets = append(secrets, worker.ToolKeyVariable)
	}
	// The program needs its keys, the commands that the agent runs do not. What
	// it shall log is not what they shall.
	shell := map[string]any{"inherit": "all", "exclude": slices.Concat(secrets, []string{"CODEX_HOME", logVariable})}
	if own := ownLogs(t); own != "" {
		shell["set"] = map[string]any{logVariable: own}
	}
	config["shell_environment_policy"] = shell
	return config, secrets, nil
}

// toolTimeout is for how long the program waits for a tool, in seconds.
const toolTimeout = 4000

// untrusted says that nothing of the workspace configures Codex: it would trust the folder by
// itself, and then run the MCP servers and keep to the rules that lie in its .codex.
func untrusted(dir string) map[string]any {
	projects := map[string]any{dir: map[string]any{"trust_level": "untrusted"}}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		projects[real] = projects[dir]
	}
	return projects
}

// usersConfig reads the user's own configuration; empty if there is none.
func usersConfig(path string) (users map[string]any, err error) {
	if _, err := toml.DecodeFile(path, &users); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, &worker.Failure{Class: job.Config,
			Message: fmt.Sprintf("read the user's codex configuration: %v", err), Hint: "repair " + path}
	}
	return users, nil
}

// providerOf returns the definition and name of the provider to use: that of the
// task, of the settings, else the user's own, else OpenAI with the user's login. The
// definition is nil for a built-in one that stays as it is.
func providerOf(t *worker.Task, users map[string]any) (def map[string]any, name string, secrets []string) {
	url, key := t.Settings.BaseURL, t.Settings.KeyEnv
	if t.Models != nil {
		url, key = t.Models.BaseURL(), worker.ModelKeyVariable
	}
	if url != "" {
		def = map[string]any{"name": providerID, "base_url": url, "wire_api": "responses"}
		if key != "" {
			def["env_key"] = key
			secrets = append(secrets, key)
		}
		return def, providerID, secrets
	}
	name, _ = users["model_provider"].(string)
	all, _ := users["model_providers"].(map[string]any)
	if own, ok := all[name].(map[string]any); ok {
		if key, _ := own["env_key"].(string); key != "" {
			secrets = append(secrets, key)
		}
		headers, _ := own["env_http_headers"].(map[string]any)
		for _, v := range headers {
			if key, _ := v.(string); key != "" {
				secrets = append(secrets, key)
			}
		}
		return own, name, secrets
	}
	if name != "" && name != "openai" {
		return nil, name, nil
	}
	// The same as the built-in one, which finds its address by the login, but
	// over HTTP and without retries. Its display name decides what Codex may
	// use of OpenAI's own features.
	def = map[string]any{"name": "OpenAI", "wire_api": "responses", "requires_openai_auth": true}
	if url, _ := users["openai_base_url"].(string); url != "" {
		def["base_url"] = url
	}
	return def, providerID, nil
}
