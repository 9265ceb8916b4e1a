package opencode

import (
	"bytes"
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
	config = map[string]any{
		"autoupdate": false, "share": "disabled",
		"snapshot": false, // what changed is read from git
		"agent": map[string]any{agentName: map[string]any{
			"mode": "primary", "description": "works on one job of the scheduler", "permission": permissions(t, dataDir),
		}},
	}
	*model = agentcli.Model(t)
	if t.Settings.BaseURL != "" {
		if *model = strings.TrimPrefix(*model, providerID+"/"); *model == "" {
			return nil, nil, &worker.Failure{Class: job.Config, Message: "opencode needs the name of a model for " + t.Settings.BaseURL,
				Hint: "set model in the job or in the settings of the worker"}
		}
		options := map[string]any{"baseURL": t.Settings.BaseURL}
		if key := t.Settings.KeyEnv; key != "" {
			options["apiKey"] = "{env:" + key + "}" // so that the key is in no file
			secrets = append(secrets, key)
		}
		config["provider"] = map[string]any{providerID: map[string]any{
			"npm": "@ai-sdk/openai-compatible", "name": providerID, "options": options,
			"models": map[string]any{*model: map[string]any{}},
		}}
		*model = providerID + "/" + *model
		config["small_model"] = *model
	} else {
		own, err := usersConfig(users)
		if err != nil {
			return nil, nil, err
		}
		agentcli.TakeOver(config, own, takenOver...)
		secrets = append(secrets, keysOf(*model, config)...)
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
		_ = json.Unmarshal(raw, &model) // not a string: no provider is known
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
