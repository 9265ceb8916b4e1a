package jobfile

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/internal/strictyaml/schematest"
	"github.com/agentsched/agentsched/job"
)

const (
	schemaFile    = "../../docs/job-file.schema.json"
	referenceFile = "../../docs/job-file.md"
	examples      = "../../examples/*.yaml"
)

// semantic names the files of testdata/bad.txtar that the schema accepts,
// since the rule that they break is about more than the form of one field.
var semantic = []string{
	"id-twice",
	"worker-missing", "worker-near", "worker-far", "worker-for-tool", "worker-for-llm", "type-maintenance", "fallback-unknown", "fallback-for-tool",
	"workspace-without-path", "workspace-path-missing", "workspace-path-is-a-file", "workspace-other-home", "workspace-none-with-path",
	"worktree-without-git", "base-without-worktree", "direct-without-capabilities", "llm-with-workspace", "llm-with-capabilities",
	"instructions-file-missing", "instructions-file-empty", "instructions-file-large", "instructions-file-binary", "instructions-file-is-a-folder",
	"allow-commands-without-capability",
	"deadline-past", "deadline-now", "runnable-after-deadline", "timeout-zero", "limits-tokens-huge", "limits-small",
	"turn-without-policy", "turn-beside-key", "reject-twice", "reject-twice-derived",
	"output-bad-type", "output-bad-pattern", "output-lookahead", "output-remote", "output-file",
	"output-no-such-def", "output-no-such-anchor", "output-unknown-draft", "output-infinite",
	"for-each-too-many", "loop-beside-for-each", "loop-command-for-llm",
	"from-not-among-needs", "from-direct", "on-conflict",
	"merge-without-workspace", "merge-without-worker", "merge-shell-without-instructions", "merge-direct", "merge-and-from",
	"best-without-candidates", "best-twice", "best-for-tool", "candidates-without-best",
	"oversight-uses", "evaluation-by-itself", "team-twice", "team-member-twice", "pipeline-twice", "pipeline-subscription",
	"agent-twice", "agent-near", "agent-widened", "agent-for-tool", "agent-input", "agents-file", "agents-file-missing", "agents-file-empty",
	"flow-unknown-job", "flow-cycle", "flow-cycle-by-merge", "flow-expressions", "flow-patch-of-nothing", "flow-teams", "flow-team-in-itself",
}

var enums = map[string][]string{
	"jobs[].workspace.on_conflict": {string(job.FailOnConflict), string(job.ResolveConflict)},
	"agents[].capabilities[]":      names(job.Capabilities()),
	"teams[].strategy":             names(job.Strategies()),
	"jobs[].type":                  names(job.Types()),
	"jobs[].workspace.isolation":   {string(job.Worktree), string(job.Direct), string(job.Copy), string(job.NoWorkspace)},
	"jobs[].capabilities[]":        names(job.Capabilities()),
	"jobs[].class":                 names(job.Classes()),
	"jobs[].on_duplicate":          names(job.DuplicatePolicies()),
}

func names[S ~string](list []S) []string {
	var names []string
	for _, s := range list {
		names = append(names, string(s))
	}
	return names
}

// ownTypes are the JSON types of the fields that decode themselves.
var ownTypes = schematest.Types{
	reflect.TypeFor[jobType]():      {"string"},
	reflect.TypeFor[choice]():       {"string"},
	reflect.TypeFor[moment]():       {"string"},
	reflect.TypeFor[instructions](): {"object", "string"},
	reflect.TypeFor[output]():       {"object", "string"},
	reflect.TypeFor[unsupported]():  nil,
	reflect.TypeFor[ids]():          {"array", "string"},
	reflect.TypeFor[items]():        {"array", "string"},
	reflect.TypeFor[forEach]():      {"array", "object", "string"},
	reflect.TypeFor[oversight]():    {"object", "string"},
	reflect.TypeFor[member]():       {"object", "string"},
	reflect.TypeFor[input]():        {"array", "object", "string"},
	reflect.TypeFor[payload]():      {"array", "boolean", "number", "object", "string"},
	reflect.TypeFor[schema]():       {"object"},
}

// inner are the forms within the fields that decode themselves, by the name of
// their definition in the schema.
var inner = map[string]struct {
	fields any
	enums  map[string][]string
	field  string // where the reference explains them
}{
	"for_each":    {forEachFields{}, nil, "for_each."},
	"oversight":   {oversightFields{}, map[string][]string{"mode": names(job.OversightModes()), "default": {"approve", "reject"}}, "oversight."},
	"member":      {memberFields{}, map[string][]string{"restart": names(job.RestartTypes())}, ""},
	"agents_file": {agentsFile{}, map[string][]string{"agents[].capabilities[]": names(job.Capabilities())}, "agents[]."},
}

func TestSchemaAndDecoderKnowTheSameFields(t *testing.T) {
	explained := map[string]bool{}
	for _, path := range schematest.Load(t, schemaFile).Compare(t, file{}, ownTypes, enums) {
		explained[path] = true
	}
	for name, def := range inner {
		for _, path := range definition(t, name).Compare(t, def.fields, ownTypes, def.enums) {
			explained[def.field+strings.TrimPrefix(path, "agents[].")] = true
		}
	}
	reference, err := os.ReadFile(referenceFile)
	if err != nil {
		t.Fatal(err)
	}
	for path := range explained {
		path = strings.TrimSuffix(path, "[]")
		for _, list := range []string{"jobs[].", "agents[].", "teams[].", "pipelines[].", "stages[]."} {
			path = strings.TrimPrefix(path, list)
		}
		if path != "" && !strings.Contains(string(reference), "`"+path+"`") {
			t.Errorf("%s does not explain `%s`", referenceFile, path)
		}
	}
}

// definition returns the definition of that name as a schema of its own.
func definition(t *testing.T, name string) *schematest.Schema {
	t.Helper()
	data, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	var whole struct {
		Defs map[string]map[string]any `json:"$defs"`
	}
	if err := json.Unmarshal(data, &whole); err != nil {
		t.Fatal(err)
	}
	one := maps.Clone(whole.Defs[name])
	if one == nil {
		t.Fatalf("%s has no definition of %s", schemaFile, name)
	}
	one["$defs"] = whole.Defs
	if data, err = json.Marshal(one); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), name+".json")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return schematest.Load(t, path)
}

func TestSchemaAndDecoderAgree(t *testing.T) {
	schematest.Load(t, schemaFile).Agree(t, "testdata/good.txtar", "testdata/bad.txtar", semantic)
}

func TestExamples(t *testing.T) {
	schema := schematest.Load(t, schemaFile)
	paths, err := filepath.Glob(examples)
	if err != nil || len(paths) < 2 {
		t.Fatalf("found %v, %v, want hello.yaml and three-agents.yaml at least", paths, err)
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if parsed, err := schema.Validate(data); !parsed || err != nil {
			t.Errorf("%s: the schema refuses it: %v", path, err)
		}
		if _, err := Load(path, Options{Now: time.Now(), Workers: []string{"codex", "claude", "opencode", "shell"}}); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestReferenceExamples reads each example of the reference that is a whole
// job file.
func TestReferenceExamples(t *testing.T) {
	data, err := os.ReadFile(referenceFile)
	if err != nil {
		t.Fatal(err)
	}
	schema := schematest.Load(t, schemaFile)
	base := t.TempDir()
	for _, dir := range []string{"site/.git", "notes"} {
		if err := os.MkdirAll(filepath.Join(base, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(base, "task.md"), []byte("Do it.\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(data, -1)
	if len(blocks) < 3 {
		t.Fatalf("found %d examples in %s", len(blocks), referenceFile)
	}
	for _, block := range blocks {
		if parsed, err := schema.Validate(block[1]); !parsed || err != nil {
			t.Errorf("the schema refuses\n%s%v", block[1], err)
		}
		now := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
		if _, err := Decode("example", block[1], Options{Now: now, Workers: []string{"codex", "claude", "opencode", "shell"}, BaseDir: base}); err != nil {
			t.Errorf("%s%v", block[1], err)
		}
	}
}
