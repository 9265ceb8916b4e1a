package config

import (
	"bytes"
	"fmt"
	"reflect"
	"regexp"
	"strings"

	"github.com/agentsched/agentsched/job"
)

var (
	sandboxLine = regexp.MustCompile(`(?m)^(?:sandbox|"sandbox"|'sandbox')[ \t]*:[ \t]*([^\r\n]*)\r?$`)
	childLine   = regexp.MustCompile(`^(?:[ \t]*(?:#[^\n]*)?\n)*([ \t]+)[^ \t\r\n#]`)
)

// SetSandboxLevel returns the text of a configuration file, which says nothing of sandbox.level, with that level. All else
// of it stays as it is, comments too. The error says that the text cannot be changed so.
func SetSandboxLevel(name string, data []byte, level job.SandboxLevel, opts Options) ([]byte, error) {
	opts.Environ = nil
	want, err := Decode(name, data, opts)
	if err != nil {
		return nil, err
	}
	want.Sandbox.Level = level
	changed := insertLevel(data, "level: "+string(level))
	if got, err := Decode(name, changed, opts); err != nil || !reflect.DeepEqual(got, want) {
		return nil, fmt.Errorf("configuration %s has a form that cannot be changed without loss; write into it yourself: sandbox: {level: %s}", name, level)
	}
	return changed, nil
}

// insertLevel returns the text with the entry in its sandbox, or with a sandbox of its own at the end.
func insertLevel(data []byte, entry string) []byte {
	end := "\n"
	if bytes.Contains(data, []byte("\r\n")) {
		end = "\r\n"
	}
	text := string(data)
	at := sandboxLine.FindStringSubmatchIndex(text)
	if at == nil {
		if text != "" && !strings.HasSuffix(text, "\n") {
			text += end
		}
		return []byte(text + "sandbox:" + end + "  " + entry + end)
	}
	if text[at[2]:at[3]] != "" && text[at[2]] == '{' {
		rest := text[at[2]+1:]
		if !strings.HasPrefix(strings.TrimLeft(rest, " \t"), "}") {
			entry += ", "
		}
		return []byte(text[:at[2]+1] + entry + rest)
	}
	indent, rest := "  ", strings.TrimPrefix(text[at[1]:], "\n")
	if child := childLine.FindStringSubmatch(strings.ReplaceAll(rest, "\r\n", "\n")); child != nil {
		indent = child[1]
	}
	before := strings.TrimSuffix(text[:at[1]], "\r")
	return []byte(before + end + indent + entry + end + rest)
}
