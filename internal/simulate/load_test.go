package simulate

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/agentsched/agentsched/internal/strictyaml"
	"github.com/agentsched/agentsched/internal/strictyaml/schematest"
	"github.com/agentsched/agentsched/policy"
)

var update = flag.Bool("update", false, "rewrite the answers in testdata")

const (
	schemaFile    = "../../docs/workload.schema.json"
	referenceFile = "../../docs/simulate.md"
	examples      = "../../examples/workloads/*.yaml"
)

func TestGood(t *testing.T) {
	schematest.Golden(t, "testdata/good.txtar", *update, func(t *testing.T, name string, data []byte) string {
		w, err := Decode(name, data)
		if err != nil {
			t.Fatal(err)
		}
		settings, err := json.MarshalIndent(w.Policy, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf("slots %d, duration %s, jobs %d, seed %d, measure %q\n%s\n", w.Slots, w.Duration, w.Jobs, w.Seed, w.Measure, settings)
		for _, n := range w.tenants {
			text += fmt.Sprintf("%s: size %+v, declared %+v, priorities %+v\n", n.Name, n.Size, n.Declared, n.priorities)
			for _, a := range n.Arrivals {
				text += fmt.Sprintf("  %+v\n", a)
			}
		}
		return text
	})
}

func TestBad(t *testing.T) {
	schematest.Golden(t, "testdata/bad.txtar", *update, func(t *testing.T, name string, data []byte) string {
		w, err := Decode(name, data)
		if err == nil {
			t.Fatalf("accepted: %+v", w)
		}
		var list strictyaml.Errors
		if !errors.As(err, &list) {
			t.Errorf("error of type %T", err)
		}
		return err.Error() + "\n"
	})
}

func TestLoadSaysWhyAFileCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	for path, want := range map[string]string{filepath.Join(dir, "nothing.yaml"): "no such file or directory", dir: "is not a regular file"} {
		if _, err := Load(path); err == nil || err.Error() != "read workload "+path+": "+want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if _, err := Load(filepath.Join(dir, "nothing.yaml")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v is not os.ErrNotExist", err)
	}
}

// TestDescription: the schema and the tables of the reference are what the
// struct says.
func TestDescription(t *testing.T) {
	schematest.Format{
		Title: "Workload file of the agent scheduler", About: "Tenants and their jobs, on which `scheduler simulate` tries policies. docs/simulate.md explains each field.",
		Default: file{Policy: policy.Default()},
	}.Describe(t, schemaFile, referenceFile, *update)
	schematest.Load(t, schemaFile).Accepts(t, "testdata/good.txtar")
}

// TestExamples tries each policy on each example, and on each that stands in the
// reference.
func TestExamples(t *testing.T) {
	files := map[string][]byte{}
	paths, err := filepath.Glob(examples)
	if err != nil || len(paths) < 3 {
		t.Fatalf("found %v, %v", paths, err)
	}
	for _, path := range paths {
		if files[path], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	reference, err := os.ReadFile(referenceFile)
	if err != nil {
		t.Fatal(err)
	}
	for i, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(reference, -1) {
		files[fmt.Sprintf("%s, example %d", referenceFile, i+1)] = block[1]
	}
	if len(files) <= len(paths) {
		t.Errorf("%s has no example", referenceFile)
	}
	schema := schematest.Load(t, schemaFile)
	for path, data := range files {
		if parsed, err := schema.Validate(data); !parsed || err != nil {
			t.Errorf("%s: the schema refuses it: %v", path, err)
		}
		w, err := Decode(path, data)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, name := range policy.Names() {
			if r, err := w.Run(name, policy.New); err != nil || r.Done < 10 {
				t.Errorf("%s: %+v, %v", path, r, err)
			}
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, archive := range []string{"testdata/good.txtar", "testdata/bad.txtar"} {
		for _, data := range schematest.Inputs(f, archive) {
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		w, err := Decode("f", data)
		var list strictyaml.Errors
		switch {
		case err != nil && (!errors.As(err, &list) || len(list) == 0):
			t.Fatalf("error of type %T: %v", err, err)
		case err == nil:
			c := w.Policy
			c.Name = policy.NameDRF
			if _, err := policy.New(c); err != nil {
				t.Fatalf("accepted what the policy refuses: %v", err)
			}
		}
	})
}
