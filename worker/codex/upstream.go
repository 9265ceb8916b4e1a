package codex

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/agentcli"
)

const (
	openAI  = "https://api.openai.com/v1"
	chatGPT = "https://chatgpt.com/backend-api/codex" // where Codex asks with a subscription
)

// local are Codex's built-in providers on the user's own machine.
var local = map[string]string{"ollama": "http://localhost:11434/v1", "lmstudio": "http://localhost:1234/v1"}

// Upstream returns who answers Codex's models: the endpoint of the settings, else the
// provider of the user's configuration, else OpenAI with the key or login that Codex
// itself would use.
func (Adapter) Upstream(s job.WorkerSettings, getenv func(name string) string) (worker.Upstream, error) {
	folder := program.UserFolder(getenv)
	users, err := usersConfig(filepath.Join(folder, "config.toml"))
	if err != nil {
		return worker.Upstream{}, err
	}
	u, own := worker.SettingsUpstream(s, worker.OpenAIResponses)
	model, _ := users["model"].(string)
	u.Model = cmp.Or(s.Model, model)
	if own {
		return u, nil
	}
	name, _ := users["model_provider"].(string)
	all, _ := users["model_providers"].(map[string]any)
	def, defined := all[name].(map[string]any)
	switch url := local[name]; {
	case defined:
		return definedUpstream(u, name, def, getenv)
	case url != "":
		u.BaseURL = url
		return u, nil
	case name != "" && name != "openai":
		return u, &worker.UnservedError{Kind: Kind, Why: fmt.Sprintf("codex is set to use its provider %q, which is none of OpenAI's API", name)}
	}
	url, _ := users["openai_base_url"].(string)
	u.BaseURL = cmp.Or(url, openAI)
	if getenv("CODEX_API_KEY") != "" {
		u.KeyEnv = "CODEX_API_KEY"
		return u, nil
	}
	login, err := readLogin(filepath.Join(folder, "auth.json"))
	switch {
	case err != nil:
		return u, err
	case login.tokens():
		u.Login, u.LoginFile, u.BaseURL = "codex", filepath.Join(folder, "auth.json"), chatGPT
		if url, _ := users["chatgpt_base_url"].(string); url != "" {
			return u, &worker.UnservedError{Kind: Kind, Why: "codex is set to use a ChatGPT at another address, chatgpt_base_url"}
		}
	case login.Key != "":
		u.Key = login.Key
	case getenv("OPENAI_API_KEY") != "":
		u.KeyEnv = "OPENAI_API_KEY"
	case users["cli_auth_credentials_store"] == "keyring":
		return u, &worker.UnservedError{Kind: Kind, Why: "codex keeps its login in the system's keyring"}
	default:
		return u, &worker.Failure{Class: job.Auth, Message: "codex has neither a key nor a login", Hint: loginHint}
	}
	return u, nil
}

// definedUpstream returns a provider that the user's configuration defines.
func definedUpstream(u worker.Upstream, name string, def map[string]any, getenv func(string) string) (worker.Upstream, error) {
	unserved := func(why string) (worker.Upstream, error) {
		return u, &worker.UnservedError{Kind: Kind, Why: fmt.Sprintf("codex's provider %q %s", name, why)}
	}
	text := func(key string) string { v, _ := def[key].(string); return v }
	switch wire := text("wire_api"); {
	case wire == "chat":
		u.API = worker.OpenAIChat
	case wire != "" && wire != "responses":
		return unserved(fmt.Sprintf("speaks %q, neither responses nor chat", wire))
	}
	switch auth, _ := def["requires_openai_auth"].(bool); {
	case auth:
		return unserved("takes OpenAI's login (requires_openai_auth)")
	case def["query_params"] != nil:
		return unserved("adds query_params to its requests, as those of Azure do")
	case def["auth"] != nil || def["aws"] != nil:
		return unserved("gets its credentials from a command or a cloud's account")
	case text("base_url") == "":
		return unserved("has no base_url")
	}
	u.BaseURL, u.KeyEnv, u.Key = text("base_url"), text("env_key"), text("experimental_bearer_token")
	headers := map[string]string{}
	fixed, _ := def["http_headers"].(map[string]any)
	for header, v := range fixed {
		headers[header], _ = v.(string)
	}
	named, _ := def["env_http_headers"].(map[string]any)
	for header, v := range named {
		if variable, _ := v.(string); variable != "" && getenv(variable) != "" {
			headers[header] = getenv(variable)
		}
	}
	maps.DeleteFunc(headers, func(_, v string) bool { return v == "" })
	if len(headers) > 0 {
		u.Headers = headers
	}
	return u, nil
}

// login is what auth.json holds: a key, or the tokens of a subscription.
type login struct {
	Mode   string `json:"auth_mode"`
	Key    string `json:"OPENAI_API_KEY"`
	Tokens struct {
		Access string `json:"access_token"`
	} `json:"tokens"`
}

// tokens reports whether Codex would use the tokens and not the key.
func (l login) tokens() bool {
	return l.Tokens.Access != "" && l.Mode != "apikey" && (l.Mode != "" || l.Key == "")
}

// readLogin reads the login at path; it is empty if there is none.
func readLogin(path string) (l login, err error) {
	fields, err := agentcli.ReadJSON(path, "codex login", nil)
	if err != nil || fields == nil {
		return l, err
	}
	for key, to := range map[string]any{"auth_mode": &l.Mode, "OPENAI_API_KEY": &l.Key, "tokens": &l.Tokens} {
		if raw := fields[key]; raw != nil {
			_ = json.Unmarshal(raw, to) // null, or of another version: as if it were not there
		}
	}
	return l, nil
}
