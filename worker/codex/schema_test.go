package codex

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/workertest"
)

// TestWire checks what the transcripts hold of the wire, ours and the program's, against the schemas that the pinned
// program prints of it. TestTranscripts checks that the session still writes what they hold.
func TestWire(t *testing.T) {
	path, dir := cli(t), t.TempDir()
	cmd := exec.CommandContext(t.Context(), path, "app-server", "generate-json-schema", "--out", dir)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "CODEX_HOME=" + dir}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	compiler := jsonschema.NewCompiler()
	schemas := map[string]*jsonschema.Schema{}
	check := func(name string, value json.RawMessage) {
		t.Helper()
		if schemas[name] == nil {
			s, err := compiler.Compile(filepath.Join(dir, name+".json"))
			if err != nil {
				t.Fatal(err)
			}
			schemas[name] = s
		}
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(string(value)))
		if err == nil {
			err = schemas[name].Validate(v)
		}
		if err != nil {
			t.Errorf("%s: %.300s: %v", name, value, err)
		}
	}
	files, err := filepath.Glob("testdata/*.transcript")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, file := range files {
		asked := map[string]string{} // the program's requests
		_, entries := workertest.ReadTranscript(t, workertest.Read(t, file))
		for _, e := range entries {
			if e.Mark != "<" && e.Mark != ">" {
				continue
			}
			var f struct {
				ID     json.RawMessage
				Method string
				Result json.RawMessage
				Error  json.RawMessage
			}
			if err := json.Unmarshal([]byte(e.What), &f); err != nil {
				t.Fatal(err)
			}
			ours := e.Mark == ">"
			seen[e.Mark+f.Method] = true
			switch {
			case f.Method == "" && ours && f.Error == nil:
				check(resultSchemas[asked[string(f.ID)]], f.Result)
				seen[asked[string(f.ID)]+" answered"] = true
			case f.Method == "":
			case f.ID == nil && ours:
				check("ClientNotification", json.RawMessage(e.What))
			case f.ID == nil:
				check("ServerNotification", json.RawMessage(e.What))
			case ours:
				check("ClientRequest", json.RawMessage(e.What))
			default:
				asked[string(f.ID)] = f.Method
				check("ServerRequest", json.RawMessage(e.What))
			}
		}
	}
	for _, want := range []string{
		">initialize", ">initialized", ">thread/start", ">thread/resume", ">thread/fork", ">turn/start", ">turn/steer", ">turn/interrupt", ">thread/items/list",
		askCommand + " answered", askChange + " answered", askWords + " answered",
		"<turn/completed", "<thread/tokenUsage/updated", "<item/completed", "<serverRequest/resolved", "<error",
	} {
		if !seen[want] {
			t.Errorf("no transcript has %q", want)
		}
	}
	// No model of ours causes this request: it must read as we expect all the same.
	grant, err := json.Marshal((&question{method: askPermissions, inRun: true}).result(worker.Answer{Decision: worker.AllowInRun}))
	if err != nil {
		t.Fatal(err)
	}
	check(resultSchemas[askPermissions], grant)
	methods := string(workertest.Read(t, filepath.Join(dir, "ServerNotification.json")))
	for _, name := range unread {
		if !strings.Contains(methods, `"`+name+`"`) {
			t.Errorf("%s is no notification of the program's", name)
		}
	}
}

var resultSchemas = map[string]string{
	askCommand: "CommandExecutionRequestApprovalResponse", askChange: "FileChangeRequestApprovalResponse",
	askPermissions: "PermissionsRequestApprovalResponse", askWords: "ToolRequestUserInputResponse",
}
