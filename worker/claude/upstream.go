package claude

import (
	"cmp"
	"encoding/json"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/agentcli"
)

const anthropic = "https://api.anthropic.com"

// clouds are the variables that make the program use a cloud's models, which are
// reached by other protocols and signatures.
var clouds = map[string]string{"CLAUDE_CODE_USE_BEDROCK": "Amazon Bedrock", "CLAUDE_CODE_USE_VERTEX": "Google Vertex AI", "CLAUDE_CODE_USE_FOUNDRY": "Microsoft Foundry"}

// Upstream returns who answers the program's models: the endpoint of the settings, else
// what the user's settings and variables name, with the key or login that the program
// itself would use (its documentation: "Authentication precedence").
func (Adapter) Upstream(s job.WorkerSettings, getenv func(name string) string) (worker.Upstream, error) {
	files := usersFiles(getenv)
	users, err := agentcli.ReadJSON(filepath.Join(files.folder, "settings.json"), "claude settings", nil)
	if err != nil {
		return worker.Upstream{}, err
	}
	vars := settingsVariables(users)
	env := func(name string) string { return cmp.Or(vars[name], getenv(name)) }
	u, own := worker.SettingsUpstream(s, worker.AnthropicMessages)
	u.Model = cmp.Or(s.Model, env("ANTHROPIC_MODEL"), text(users["model"]))
	if own {
		return u, nil
	}
	for name, cloud := range clouds {
		if v := env(name); v != "" && v != "0" && !strings.EqualFold(v, "false") {
			return u, &worker.UnservedError{Kind: Kind, Why: "claude is set to use " + cloud + " (" + name + ")"}
		}
	}
	u.BaseURL = cmp.Or(env("ANTHROPIC_BASE_URL"), anthropic)
	u.Headers = headers(env("ANTHROPIC_CUSTOM_HEADERS"))
	// key takes a variable that holds a credential, from where it is.
	key := func(name string) bool {
		switch {
		case vars[name] != "":
			u.Key = vars[name]
		case getenv(name) != "":
			u.KeyEnv = name
		default:
			return false
		}
		return true
	}
	if key("ANTHROPIC_AUTH_TOKEN") {
		u.Bearer = true
		return u, nil
	}
	if key("ANTHROPIC_API_KEY") {
		return u, nil
	}
	if u.KeyCommand = text(users["apiKeyHelper"]); u.KeyCommand != "" {
		return u, nil
	}
	if key("CLAUDE_CODE_OAUTH_TOKEN") {
		u.Login, u.Bearer = "claude", true
		return u, nil
	}
	return u, login(&u, files)
}

// login adds the login that the program has stored.
func login(u *worker.Upstream, files users) error {
	file := filepath.Join(files.folder, ".credentials.json")
	stored, err := agentcli.ReadJSON(file, "claude login", nil)
	if err != nil {
		return err
	}
	if _, ok := stored["claudeAiOauth"]; ok {
		u.Login, u.LoginFile, u.Bearer = "claude", file, true
		return nil
	}
	account, err := agentcli.ReadJSON(files.account, "claude account", nil)
	if err != nil {
		return err
	}
	switch u.Key = text(account["primaryApiKey"]); {
	case u.Key != "":
		return nil
	case runtime.GOOS == "darwin":
		return &worker.UnservedError{Kind: Kind, Why: "claude keeps its login in the keychain"}
	}
	return &worker.Failure{Class: job.Auth, Message: "claude has neither a key nor a login", Hint: loginHint}
}

// text returns a string of the user's files; "" if it is something else.
func text(raw json.RawMessage) (s string) {
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

// headers reads ANTHROPIC_CUSTOM_HEADERS: "Name: Value", one a line.
func headers(lines string) map[string]string {
	var all map[string]string
	for line := range strings.Lines(lines) {
		name, value, ok := strings.Cut(line, ":")
		if name = strings.TrimSpace(name); !ok || name == "" {
			continue
		}
		if all == nil {
			all = map[string]string{}
		}
		all[name] = strings.TrimSpace(value)
	}
	return all
}
