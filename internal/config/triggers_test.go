package config_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/agentsched/agentsched/internal/config"
	"github.com/agentsched/agentsched/internal/jobfile"
	"github.com/agentsched/agentsched/internal/strictyaml/schematest"
	"github.com/agentsched/agentsched/job"
)

// TestTriggerPaths: they start from the configuration file's folder, whatever
// the current one is.
func TestTriggerPaths(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "config.yaml")
	text := "triggers: {a: {watch: {paths: [src, /abs]}, job: jobs/a.yaml}, b: {command: {run: ls, every: 1m}, job: /b.yaml}}\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	for _, given := range []string{path, "config.yaml"} {
		c, err := config.Load(given, options)
		if err != nil {
			t.Fatal(err)
		}
		a, b := c.Triggers["a"], c.Triggers["b"]
		if a.Job != filepath.Join(dir, "jobs/a.yaml") || !slices.Equal(a.Watch.Paths, []string{filepath.Join(dir, "src"), "/abs"}) || b.Job != "/b.yaml" || b.Command.Dir != dir {
			t.Errorf("%s: got %+v and %+v", given, a, b)
		}
	}
}

// TestTriggerExample reads the example as a user would, and the job files that
// it names.
func TestTriggerExample(t *testing.T) {
	const example = "../../examples/triggers/config.yaml"
	c, err := config.Load(example, options)
	if err != nil {
		t.Fatal(err)
	}
	sources := map[string]bool{}
	for name, s := range c.Triggers {
		sources[s.Source()] = true
		specs, err := jobfile.Load(s.Job, jobfile.Options{Now: time.Now(), Workers: options.Adapters})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, spec := range specs {
			if err := s.Accepts(spec, func(kind job.WorkerKind) bool { return c.AdapterOf(kind) == "shell" }); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if len(sources) != 5 {
		t.Errorf("sources %v, want one of each", sources)
	}
	data, err := os.ReadFile(example)
	if err != nil {
		t.Fatal(err)
	}
	if parsed, err := schematest.Load(t, schemaFile).Validate(data); !parsed || err != nil {
		t.Errorf("the schema refuses it: %v", err)
	}
}
