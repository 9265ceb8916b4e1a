package mcp

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/google/uuid"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
)

// submitIn is a job, or a job file.
type submitIn struct {
	Name         string   `json:"name,omitempty" jsonschema:"what the job is called: 1 to 64 of a-z A-Z 0-9 and, not first, - _ ."`
	Instructions string   `json:"instructions,omitempty" jsonschema:"what the agent is to do, at most 256 KiB"`
	Worker       string   `json:"worker,omitempty" jsonschema:"the kind of worker: codex, claude, opencode, shell or another of the configuration; the tool status lists them"`
	Model        string   `json:"model,omitempty" jsonschema:"the model, as the worker's program calls it; absent: the worker's own"`
	Workspace    string   `json:"workspace,omitempty" jsonschema:"the folder to work on, on the scheduler's host; absent: an empty one"`
	Isolation    string   `json:"isolation,omitempty" jsonschema:"worktree, copy, direct or none; absent: a worktree inside a git repository, else a copy"`
	Tenant       string   `json:"tenant,omitempty" jsonschema:"the project in whose name it runs; absent: default"`
	Verify       string   `json:"verify,omitempty" jsonschema:"a shell command that must exit 0 in the workspace afterwards"`
	Capabilities []string `json:"capabilities,omitempty" jsonschema:"what it may do: read, edit, run_commands, run_tests, network"`
	Network      []string `json:"network,omitempty" jsonschema:"hosts that it may reach, or presets: crates, github, go, npm, pypi"`
	Ask          []string `json:"ask,omitempty" jsonschema:"about what it asks a person where it was not granted it: commands, writes, reads, hosts, tools, words"`
	Timeout      string   `json:"timeout,omitempty" jsonschema:"wall time of one attempt, such as 30m"`
	MaxTokens    int64    `json:"max_tokens,omitempty" jsonschema:"tokens over all attempts"`
	MaxCostUSD   float64  `json:"max_cost_usd,omitempty" jsonschema:"US dollars over all attempts"`

	Fields map[string]any `json:"fields,omitempty" jsonschema:"any other fields of a job as they stand in a job file (docs/job-file.md): fallback, limits, retry, output and so on"`
	File   string         `json:"file,omitempty" jsonschema:"the text of a whole job file, YAML or JSON, in place of the fields above"`
	Key    string         `json:"idempotency_key,omitempty" jsonschema:"the same key and jobs are submitted once, however often this is called: 1 to 255 printable ASCII characters"`
}

// submitJob submits what a job file would: the scheduler reads and checks it as one.
func submitJob(ctx context.Context, c *call, in submitIn) (jobList, error) {
	text, err := in.text()
	if err != nil {
		return jobList{}, err
	}
	key := in.Key
	if key == "" {
		key = "mcp-" + uuid.NewString() // so that the client may send it again
	}
	done, err := c.SubmitFile(ctx, api.JobFile{Name: "job", Dir: c.server.opt.Dir, Text: text}, client.WithKey(key))
	return jobList{Jobs: linesOf(done.Jobs), Total: done.Total, Notice: notice}, err
}

// text returns the job file.
func (in *submitIn) text() (string, error) {
	spec := map[string]any{}
	limits := map[string]any{}
	set := func(to map[string]any, name string, value any, given bool) {
		if given {
			to[name] = value
		}
	}
	set(spec, "id", in.Name, in.Name != "")
	set(spec, "instructions", in.Instructions, in.Instructions != "")
	set(spec, "worker", in.Worker, in.Worker != "")
	set(spec, "model", in.Model, in.Model != "")
	set(spec, "verify", in.Verify, in.Verify != "")
	set(spec, "capabilities", in.Capabilities, in.Capabilities != nil)
	set(spec, "network", in.Network, in.Network != nil)
	set(spec, "ask", map[string]any{"for": in.Ask}, in.Ask != nil)
	workspace := map[string]any{}
	set(workspace, "path", in.Workspace, in.Workspace != "")
	set(workspace, "isolation", in.Isolation, in.Isolation != "")
	set(spec, "workspace", workspace, len(workspace) > 0)
	set(limits, "timeout", in.Timeout, in.Timeout != "")
	set(limits, "max_tokens", in.MaxTokens, in.MaxTokens != 0)
	set(limits, "max_cost_usd", in.MaxCostUSD, in.MaxCostUSD != 0)
	set(spec, "limits", limits, len(limits) > 0)
	if in.File != "" {
		if len(spec) > 0 || len(in.Fields) > 0 || in.Tenant != "" {
			return "", wrong("file", "is given beside fields of a single job: give one or the other")
		}
		return in.File, nil
	}
	for _, name := range slices.Sorted(maps.Keys(in.Fields)) {
		if _, twice := spec[name]; twice {
			return "", wrong("fields", "%s is given as an argument, too: give all of it in one of the two", name)
		}
		spec[name] = in.Fields[name]
	}
	if spec["id"] == nil {
		return "", wrong("name", "is missing: call the job something, such as fix-login, or give a whole job file as file")
	}
	file := map[string]any{"jobs": []any{spec}}
	set(file, "tenant", in.Tenant, in.Tenant != "")
	text, err := json.Marshal(file)
	return string(text), err
}
