package jobfile

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/agentsched/agentsched/internal/strictyaml/schematest"
)

const (
	schemaFile    = "../../docs/job-file.schema.json"
	referenceFile = "../../docs/job-file.md"
	examples      = "../../examples/*.yaml"
)

// TestDescription: the schema and the tables of the reference are what the
// struct says.
func TestDescription(t *testing.T) {
	schematest.Format{
		Title: "Job file of the agent scheduler", About: "Jobs that are submitted together. docs/job-file.md explains each field.",
		Default: file{},
	}.Describe(t, schemaFile, referenceFile, flag.Lookup("update").Value.String() == "true")
}

// TestSchemaAccepts: an editor marks nothing that the scheduler takes.
func TestSchemaAccepts(t *testing.T) {
	schematest.Load(t, schemaFile).Accepts(t, "testdata/good.txtar")
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
