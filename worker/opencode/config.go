package opencode

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/agentcli"
)

const (
	agentName  = "agentsched" // the agent whose permissions are the job's
	providerID = "agentsched" // the provider of the settings' base_url
)

// takenOver are the settings of the user that say which model is used and how
// it is reached. All others stay behind, above all those that could grant more
// than the job does: agents, permissions, plugins, MCP servers.
var takenOver = []string{"provider", "model", "small_model", "disabled_providers", "enabled_providers"}

// configure returns the configuration of a run and the names of the variables
// that hold keys, and sets model. users is the user's own configuration folder.
func configure(t *worker.Task, users, dataDir string, model *string) (config map[string]any, secrets []string, err error) {
	granted := permissions(t, dataDir)
	agents := map[string]any{}
	for name, a := range t.Settings.Subagents {
		agents[name] = map[string]any{"mode": "subagent", "description": a.When, "prompt": cmp.Or(a.Instructions, a.When), "permission": narrowed(granted, t, t.Of(&a))}
	}
	agents[agentName] = map[string]any{"mode": "primary", "description": "works on one job of the scheduler", "permission": granted}
	agents["explore"] = map[string]any{"permission": explorer(granted)}
	config = map[string]any{
		"autoupdate": false, "share": "disabled",
		"snapshot":     false,                                         // what changed is read from git
		"experimental": map[string]any{"continue_loop_on_deny": true}, // a refusal is for one call, and no end
		// The program's own agents have rules of their own, which these come after; those of an agent come last.
		"permission": granted,
		"agent":      agents,
	}
	if t.Tools != nil {
		config["mcp"] = map[string]any{t.Tools.Name: map[string]any{
			"type": "remote", "url": t.Tools.URL, "enabled": true, "oauth": false, "timeout": toolTimeout,
			"headers": map[string]string{"Authorization": "Bearer {env:" + worker.ToolKeyVariable + "}"},
		}}
	}
	*model = agentcli.Model(t)
	own, err := usersConfig(users)
	if err != nil {
		return nil, nil, err
	}
	switch {
	case t.Models != nil:
		if *model == "" {
			*model = text(own["model"])
		}
		err = useEndpoint(config, t.Models, own, model)
	case t.Settings.BaseURL != "":
		secrets, err = useSettings(config, t.Settings, model)
	default:
		agentcli.TakeOver(config, own, takenOver...)
		secrets = keysOf(*model, config)
	}
	if err != nil {
		return nil, nil, err
	}
	instructions, err := instructionFiles(t)
	if err != nil {
		return nil, nil, err
	}
	if len(instructions) > 0 {
		config["instructions"] = instructions
	}
	return config, secrets, nil
}

// toolTimeout is for how long the program waits for a tool, in ms.
const toolTimeout = 4_000_000

// useSettings configures the endpoint of the settings as the only provider of model.
func useSettings(config map[string]any, s job.WorkerSettings, model *string) (secrets []string, err error) {
	if *model = strings.TrimPrefix(*model, providerID+"/"); *model == "" {
		return nil, noModel(s.BaseURL)
	}
	options := map[string]any{"baseURL": s.BaseURL}
	if s.KeyEnv != "" {
		options["apiKey"] = "{env:" + s.KeyEnv + "}" // so that the key is in no file
		secrets = []string{s.KeyEnv}
	}
	setProvider(config, providerID, *model, map[string]any{"npm": packages[worker.OpenAIChat], "name": providerID, "options": options}, nil)
	*model = providerID + "/" + *model
	config["small_model"] = *model
	return secrets, nil
}

// packages are the program's clients of each API, all of which it has built in.
var packages = map[worker.ModelAPI]string{
	worker.OpenAIResponses: "@ai-sdk/openai", worker.OpenAIChat: "@ai-sdk/openai-compatible", worker.AnthropicMessages: "@ai-sdk/anthropic",
}

// useEndpoint configures the run's endpoint as the only provider. A provider that the
// program knows keeps its name, by which the program knows the bounds and prices of its
// models; own is the user's configuration, which may say them too.
func useEndpoint(config map[string]any, e *worker.ModelEndpoint, own map[string]json.RawMessage, model *string) error {
	provider, bare, _ := strings.Cut(*model, "/")
	if hosts[provider].api == "" && !defines(own, provider) {
		provider, bare = providerID, strings.TrimPrefix(*model, providerID+"/")
	}
	if bare == "" {
		return noModel("the run's endpoint")
	}
	base := e.BaseURL()
	if e.API == worker.AnthropicMessages {
		base += "/v1" // as its client has it
	}
	setProvider(config, provider, bare, map[string]any{"npm": packages[e.API], "name": provider,
		"options": map[string]any{"baseURL": base, "apiKey": "{env:" + worker.ModelKeyVariable + "}"}}, bounds(own, provider, bare))
	config["enabled_providers"] = []string{provider}
	*model = provider + "/" + bare
	config["small_model"] = *model
	return nil
}

func noModel(endpoint string) error {
	return &worker.Failure{Class: job.Config, Message: "opencode needs the name of a model for " + endpoint,
		Hint: "set model in the job or in the settings of the worker"}
}

// setProvider defines the only provider, which has one model.
func setProvider(config map[string]any, id, model string, def map[string]any, known map[string]json.RawMessage) {
	if known == nil {
		known = map[string]json.RawMessage{}
	}
	def["models"] = map[string]any{model: known}
	config["provider"] = map[string]any{id: def}
}

// usersConfig reads the user's own configuration; empty if there is none.
func usersConfig(folder string) (map[string]json.RawMessage, error) {
	own := map[string]json.RawMessage{}
	for _, name := range []string{"config.json", "opencode.json", "opencode.jsonc"} { // the later wins
		more, err := agentcli.ReadJSON(filepath.Join(folder, name), "opencode configuration", plainJSON)
		if err != nil {
			return nil, err
		}
		maps.Copy(own, more)
	}
	return own, nil
}

var envRef = regexp.MustCompile(`\{env:([A-Za-z_][A-Za-z0-9_]*)\}`)

// keysOf names the variables that may hold the key of the model's provider:
// those that the configuration names, and the usual one of each provider.
func keysOf(model string, config map[string]any) []string {
	var names []string
	for _, key := range takenOver {
		if raw, ok := config[key].(json.RawMessage); ok {
			for _, m := range envRef.FindAllSubmatch(raw, -1) {
				names = append(names, string(m[1]))
			}
		}
	}
	if raw, ok := config["model"].(json.RawMessage); ok && model == "" {
		model = text(raw)
	}
	provider, _, _ := strings.Cut(model, "/")
	switch provider {
	case "":
		names = append(names, "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENROUTER_API_KEY", "OPENCODE_API_KEY",
			"GEMINI_API_KEY", "GOOGLE_GENERATIVE_AI_API_KEY", "GROQ_API_KEY", "MISTRAL_API_KEY", "DEEPSEEK_API_KEY", "XAI_API_KEY")
	case "google":
		names = append(names, "GOOGLE_GENERATIVE_AI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY")
	case "google-vertex", "google-vertex-anthropic":
		names = append(names, "GOOGLE_VERTEX_PROJECT", "GOOGLE_CLOUD_PROJECT", "GOOGLE_VERTEX_LOCATION", "GOOGLE_APPLICATION_CREDENTIALS")
	case "amazon-bedrock":
		names = append(names, "AWS_REGION", "AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_BEARER_TOKEN_BEDROCK")
	case "azure":
		names = append(names, "AZURE_API_KEY", "AZURE_RESOURCE_NAME")
	default:
		names = append(names, strings.ToUpper(strings.ReplaceAll(provider, "-", "_"))+"_API_KEY")
	}
	return names
}

// instructionFiles names the files that the model is told besides the prompt:
// the system prompt, and the repository's own, which the program leaves out
// together with the repository's configuration.
func instructionFiles(t *worker.Task) ([]string, error) {
	var files []string
	for _, name := range []string{"AGENTS.md", "CLAUDE.md"} {
		path := filepath.Join(t.Dir, name)
		if _, err := os.Stat(path); err == nil {
			files = append(files, path)
			break
		}
	}
	system, err := agentcli.SystemPrompt(t, "system-prompt.md")
	if system != "" {
		files = append(files, system)
	}
	return files, err
}

// plainJSON turns JSON with comments and trailing commas into plain JSON.
func plainJSON(in []byte) []byte {
	out := make([]byte, 0, len(in))
	comma := -1 // where in out a comma stands that nothing but space has followed
	for i := 0; i < len(in); i++ {
		switch c := in[i]; {
		case c == '"':
			start := i
			for i++; i < len(in) && in[i] != '"'; i++ {
				if in[i] == '\\' {
					i++
				}
			}
			out = append(out, in[start:min(i+1, len(in))]...)
			comma = -1
		case c == '/' && i+1 < len(in) && in[i+1] == '/':
			for i < len(in) && in[i] != '\n' {
				i++
			}
			out = append(out, '\n')
		case c == '/' && i+1 < len(in) && in[i+1] == '*':
			end := bytes.Index(in[i+2:], []byte("*/"))
			if end < 0 {
				return out
			}
			i += 2 + end + 1
		case c == ',':
			comma = len(out)
			out = append(out, c)
		case c == '}' || c == ']':
			if comma >= 0 {
				out[comma] = ' '
			}
			comma = -1
			out = append(out, c)
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			out = append(out, c)
		default:
			comma = -1
			out = append(out, c)
		}
	}
	return out
}
