package opencode

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/agentcli"
)

// host is a provider that the program knows, at its usual address.
type host struct {
	api worker.ModelAPI
	url string
	key string // the usual variable
}

// hosts are those of the program's many providers that speak an API which a gateway
// serves, with a plain key.
var hosts = map[string]host{
	"anthropic":  {worker.AnthropicMessages, "https://api.anthropic.com", "ANTHROPIC_API_KEY"},
	"openai":     {worker.OpenAIResponses, "https://api.openai.com/v1", "OPENAI_API_KEY"},
	"openrouter": {worker.OpenAIChat, "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"},
	"groq":       {worker.OpenAIChat, "https://api.groq.com/openai/v1", "GROQ_API_KEY"},
	"mistral":    {worker.OpenAIChat, "https://api.mistral.ai/v1", "MISTRAL_API_KEY"},
	"deepseek":   {worker.OpenAIChat, "https://api.deepseek.com", "DEEPSEEK_API_KEY"},
	"xai":        {worker.OpenAIChat, "https://api.x.ai/v1", "XAI_API_KEY"},
}

// Upstream returns who answers the program's models: the endpoint of the settings, else
// the provider of the model, as the user's configuration, the program's own login
// and the usual variables say.
func (Adapter) Upstream(s job.WorkerSettings, getenv func(name string) string) (worker.Upstream, error) {
	if u, own := worker.SettingsUpstream(s, worker.OpenAIChat); own {
		u.Model = strings.TrimPrefix(u.Model, providerID+"/")
		return u, nil
	}
	users, err := usersConfig(filepath.Join(folder(getenv, "XDG_CONFIG_HOME", ".config"), program.Name))
	if err != nil {
		return worker.Upstream{}, err
	}
	model := cmp.Or(s.Model, text(users["model"]))
	provider, bare, _ := strings.Cut(model, "/")
	u := worker.Upstream{Model: bare}
	unserved := func(format string, args ...any) (worker.Upstream, error) {
		return u, &worker.UnservedError{Kind: Kind, Why: fmt.Sprintf(format, args...)}
	}
	if provider == "" {
		return unserved("no model is named, so that opencode chooses the provider itself; set model to PROVIDER/MODEL")
	}
	def := definition(users, provider)
	usual := hosts[provider]
	u.API, u.BaseURL = usual.api, usual.url
	if def.NPM != "" {
		u.API = ""
		for api, name := range packages {
			if name == def.NPM {
				u.API = api
			}
		}
	}
	if u.API == "" {
		return unserved("its provider %q is none whose API the gateway speaks", provider)
	}
	if url := expand(def.Options.BaseURL, getenv); url != "" {
		u.BaseURL = url
		if u.API == worker.AnthropicMessages {
			u.BaseURL = strings.TrimSuffix(strings.TrimSuffix(u.BaseURL, "/"), "/v1") // as its client has it
		}
	}
	if u.BaseURL == "" {
		return unserved("its provider %q has no baseURL", provider)
	}
	u.Headers = def.Options.Headers
	for name, value := range u.Headers {
		u.Headers[name] = expand(value, getenv)
	}
	stored, err := agentcli.ReadJSON(filepath.Join(folder(getenv, "XDG_DATA_HOME", ".local/share"), program.Name, "auth.json"), "opencode login", nil)
	if err != nil {
		return u, err
	}
	var login struct{ Type, Key string }
	if raw := stored[provider]; raw != nil && json.Unmarshal(raw, &login) != nil {
		return unserved("its login for %q has an unknown form", provider)
	}
	usualKeys := []string{usual.key}
	if usual.key == "" {
		usualKeys = keysOf(model, nil)
	}
	found := slices.IndexFunc(usualKeys, func(name string) bool { return getenv(name) != "" })
	switch key := def.Options.APIKey; {
	case envRef.MatchString(key) && envRef.FindString(key) == key:
		u.KeyEnv = envRef.FindStringSubmatch(key)[1]
	case strings.Contains(key, "{"):
		return unserved("the apiKey of its provider %q is neither a key nor one variable", provider)
	case key != "":
		u.Key = key
	case login.Type == "api":
		u.Key = login.Key
	case login.Type != "":
		return unserved("its login for %q is of type %q, which opencode refreshes itself", provider, login.Type)
	case found >= 0:
		u.KeyEnv = usualKeys[found]
	case usual.key != "" && u.BaseURL == usual.url:
		return u, &worker.Failure{Class: job.Auth, Message: fmt.Sprintf("opencode has neither a key nor a login for %q", provider),
			Hint: "run `opencode auth login`, or set " + usual.key + " in the scheduler's environment"}
	}
	return u, nil
}

// providerConfig is a provider as the user's configuration defines or changes it.
type providerConfig struct {
	NPM     string
	Options struct {
		BaseURL, APIKey string
		Headers         map[string]string
	}
	Models map[string]map[string]json.RawMessage
}

// expand puts the variables in that a text of the configuration names.
func expand(s string, getenv func(string) string) string {
	return envRef.ReplaceAllStringFunc(s, func(ref string) string { return getenv(envRef.FindStringSubmatch(ref)[1]) })
}

// definition returns what the user's configuration says of a provider.
func definition(users map[string]json.RawMessage, provider string) (def providerConfig) {
	var all map[string]json.RawMessage
	if json.Unmarshal(users["provider"], &all) == nil {
		agentcli.Decode(all[provider], &def)
	}
	return def
}

// defines reports whether the user's configuration says anything of a provider.
func defines(users map[string]json.RawMessage, provider string) bool {
	var all map[string]json.RawMessage
	return json.Unmarshal(users["provider"], &all) == nil && all[provider] != nil
}

// bounds returns what the user's configuration says of a model that is no matter of how
// it is reached.
func bounds(users map[string]json.RawMessage, provider, model string) map[string]json.RawMessage {
	kept := map[string]json.RawMessage{}
	for key, v := range definition(users, provider).Models[model] {
		if slices.Contains([]string{"name", "limit", "cost", "reasoning", "attachment", "temperature", "tool_call", "modalities"}, key) {
			kept[key] = v
		}
	}
	return kept
}

// text returns a string of the user's files; "" if it is something else.
func text(raw json.RawMessage) (s string) {
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}
