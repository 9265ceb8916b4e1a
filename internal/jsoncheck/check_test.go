package jsoncheck_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/internal/jsoncheck"
)

func TestCheck(t *testing.T) {
	const events = `{"type": "object", "required": ["events"], "properties": {"events": {"type": "array", "items": {"required": ["type"], "properties": {"type": {"enum": ["num"]}}}}}}`
	for _, c := range []struct{ value, want string }{
		{`{"events": [{"type": "num"}]}`, ""},
		{`{}`, ": missing property 'events'"},
		{`{"events": [{"type": "other"}, {}]}`, "events/0/type: value must be 'num' events/1: missing property 'type'"},
	} {
		mistakes, err := jsoncheck.Check(json.RawMessage(events), []byte(c.value))
		if err != nil {
			t.Fatal(err)
		}
		var said []string
		for _, m := range mistakes {
			said = append(said, strings.Join(m.At, "/")+": "+m.Why)
		}
		if got := strings.Join(said, " "); got != c.want {
			t.Errorf("%s: %q, want %q", c.value, got, c.want)
		}
	}
	if _, err := jsoncheck.Check(json.RawMessage(events), []byte("no")); !errors.Is(err, jsoncheck.ErrNotJSON) {
		t.Errorf("what is no JSON: %v", err)
	}
}

// TestNothingIsRead: a schema cannot have a file of the host read.
func TestNothingIsRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "other.json")
	if err := os.WriteFile(path, []byte(`{"type": "string"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := jsoncheck.Compile(json.RawMessage(`{"$ref": "file://` + path + `"}`))
	if err == nil || !strings.Contains(err.Error(), "another document") {
		t.Errorf("a reference to %s: %v", path, err)
	}
}
