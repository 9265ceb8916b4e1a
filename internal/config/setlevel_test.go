package config

import (
	"strings"
	"testing"

	"github.com/agentsched/agentsched/job"
)

func TestSetSandboxLevel(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"nothing":                 {"", "sandbox:\n  level: none\n"},
		"comments alone":          {"# mine\n", "# mine\nsandbox:\n  level: none\n"},
		"others":                  {"# mine\nconcurrency: {max: 2} # two", "# mine\nconcurrency: {max: 2} # two\nsandbox:\n  level: none\n"},
		"lines of Windows":        {"concurrency:\r\n  max: 2\r\n", "concurrency:\r\n  max: 2\r\nsandbox:\r\n  level: none\r\n"},
		"a block":                 {"sandbox: # held\n\n    # what\n    read: [/srv]\nconcurrency: {max: 2}\n", "sandbox: # held\n    level: none\n\n    # what\n    read: [/srv]\nconcurrency: {max: 2}\n"},
		"a block of Windows":      {"sandbox:\r\n   read: [/srv]\r\n", "sandbox:\r\n   level: none\r\n   read: [/srv]\r\n"},
		"a block without an end":  {"sandbox:\n  login: hidden", "sandbox:\n  level: none\n  login: hidden"},
		"braces":                  {"sandbox: {read: [/srv]} # held\n", "sandbox: {level: none, read: [/srv]} # held\n"},
		"empty braces":            {"\"sandbox\": { }\n", "\"sandbox\": {level: none }\n"},
		"braces over lines":       {"sandbox: {\n  read: [/srv],\n}\n", "sandbox: {level: none, \n  read: [/srv],\n}\n"},
		"all in braces":           {"{concurrency: {max: 2}}\n", ""},
		"the end of the document": {"concurrency: {max: 2}\n...\n", ""},
		"an anchor":               {"sandbox: &s\n  read: [/srv]\n", "sandbox: &s\n  level: none\n  read: [/srv]\n"},
		"a mistake":               {"sandbox: {level: most}\n", ""},
	} {
		got, err := SetSandboxLevel("c.yaml", []byte(c.text), job.SandboxNone, Options{})
		if string(got) != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: %v\n%q, want\n%q", name, err, got, c.want)
		}
		if err != nil && !strings.Contains(err.Error(), "c.yaml") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
