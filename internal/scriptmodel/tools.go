package scriptmodel

import (
	"encoding/json"
	"strings"
)

// tool is one tool that a request declares.
type tool struct {
	name       string
	space      string // of Codex's: the name of the server that has it; "" of its own
	properties map[string]property
	schema     json.RawMessage
}

type property struct {
	Type any `json:"type"`
}

// call is a tool call that the model makes.
type call struct {
	id    string
	name  string
	space string
	args  json.RawMessage
}

// pollTool is Codex's tool that waits for a command which outlasted its call.
const pollTool = "write_stdin"

// structuredTool is the tool through which Claude Code wants the answer that --json-schema describes.
const structuredTool = "StructuredOutput"

func newTool(name string, schema json.RawMessage) tool {
	var s struct {
		Properties map[string]property `json:"properties"`
	}
	_ = json.Unmarshal(schema, &s) // a tool without readable schema has no properties
	return tool{name: name, properties: s.Properties, schema: schema}
}

func (c *conversation) tool(name string) (tool, bool) {
	for _, t := range c.tools {
		if t.name == name {
			return t, true
		}
	}
	return tool{}, false
}

// toolEnding finds a tool by its name, or by the end of a longer one.
func (c *conversation) toolEnding(name string) (tool, bool) {
	if t, ok := c.tool(name); ok {
		return t, true
	}
	for _, t := range c.tools {
		if strings.HasSuffix(t.name, "_"+name) {
			return t, true
		}
	}
	return tool{}, false
}

// shell finds the tool that runs a command: by the names known of CLIs, then by any name that sounds like a shell, as long
// as it takes a command.
func (c *conversation) shell() (tool, bool) {
	known := []string{"exec_command", "shell_command", "shell", "bash", "container.exec"}
	for _, name := range known {
		for _, t := range c.tools {
			if strings.EqualFold(t.name, name) && t.commandKey() != "" {
				return t, true
			}
		}
	}
	for _, t := range c.tools {
		name := strings.ToLower(t.name)
		sounds := strings.Contains(name, "shell") || strings.Contains(name, "bash") || strings.Contains(name, "exec")
		if sounds && t.commandKey() != "" {
			return t, true
		}
	}
	return tool{}, false
}

func (t tool) commandKey() string {
	for _, key := range []string{"cmd", "command"} {
		if _, ok := t.properties[key]; ok {
			return key
		}
	}
	return ""
}

// run is the arguments with which the tool runs a shell command, for as long as the tool allows.
func (t tool) run(command string) json.RawMessage {
	const longest = 600_000 // ms; the most that Claude Code accepts
	key := t.commandKey()
	args := object{key: command}
	if t.properties[key].Type == "array" {
		args[key] = []string{"bash", "-lc", command}
	}
	for name, value := range map[string]any{
		"description": "Step of a script", "timeout": longest, "timeout_ms": longest, "yield_time_ms": yieldMS,
	} {
		if _, ok := t.properties[name]; ok {
			args[name] = value
		}
	}
	return mustJSON(args)
}

// For how long Codex is asked to wait before it reports that a command still runs, in ms: the most it accepts for a command's
// start and for polling.
const (
	yieldMS = 30_000
	pollMS  = 300_000
)

// poll is the call that waits on for a running command.
func poll(id string, session int) *call {
	return &call{id: id, name: pollTool, args: mustJSON(object{"session_id": session, "chars": "", "yield_time_ms": pollMS})}
}
