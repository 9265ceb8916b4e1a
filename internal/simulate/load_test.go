package simulate

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
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

// A tenant has all the settings that the configuration knows, under their names.
func TestTenantHasEverySetting(t *testing.T) {
	own := map[string]reflect.Type{}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[tenant]()) {
		own[strictyaml.FieldName(f)] = f.Type
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[policy.Tenant]()) {
		if name := strictyaml.FieldName(f); own[name] != f.Type {
			t.Errorf("%s: type %v, want %v", name, own[name], f.Type)
		}
	}
	full := tenant{Weight: 1, Credits: 2, Contracted: true, Reputation: 0.5, MaxConcurrent: 3, Budget: policy.Budget{Tokens: 4}}
	v := reflect.ValueOf(full.settings())
	for i := range v.NumField() {
		if v.Field(i).IsZero() {
			t.Errorf("settings leaves out %s", v.Type().Field(i).Name)
		}
	}
}

// semantic names the files of testdata/bad.txtar that the schema accepts, since
// the rule that they break is about more than the form of one field.
var semantic = []string{
	"duration-zero", "duration-long", "policy-window", "tenant-twice", "tenant-set-twice",
	"every-zero", "from-late", "until-early",
	"run-time-zero", "uniform-backwards", "exponential-zero", "lognormal-median",
}

func TestSchemaAndDecoderAgree(t *testing.T) {
	schematest.Load(t, schemaFile).Agree(t, "testdata/good.txtar", "testdata/bad.txtar", semantic)
}

func TestSchemaAndDecoderKnowTheSameFields(t *testing.T) {
	var measures []string
	for _, m := range Measures() {
		measures = append(measures, string(m))
	}
	paths := schematest.Load(t, schemaFile).Compare(t, file{},
		schematest.Types{reflect.TypeFor[runTime](): {"object", "string"}, reflect.TypeFor[amount](): {"number", "object"}},
		map[string][]string{"measure": measures, "policy.name": policy.Names(), "policy.tiers": {policy.TiersStrict, policy.TiersWeighted}})
	reference, err := os.ReadFile(referenceFile)
	if err != nil {
		t.Fatal(err)
	}
	each := regexp.MustCompile(`^(tenants\[\]|policy\.each|policy\.tenants\.\*|tenants\[\]\.arrivals\[\])\.`)
	for _, path := range paths {
		path = strings.TrimSuffix(strings.TrimSuffix(path, "[]"), ".*")
		for short := each.ReplaceAllString(path, ""); short != path; short = each.ReplaceAllString(path, "") {
			path = short
		}
		path = strings.TrimPrefix(path, "arrivals[].")
		if path != "" && !strings.Contains(string(reference), "`"+path+"`") {
			t.Errorf("%s does not explain `%s`", referenceFile, path)
		}
	}
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
