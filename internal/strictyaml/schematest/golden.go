package schematest

import (
	"os"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// Golden runs try on each NAME.yaml of a txtar archive and compares what it
// returns with NAME.want, which must follow; with update it rewrites that.
func Golden(t *testing.T, archive string, update bool, try func(t *testing.T, name string, data []byte) string) {
	t.Helper()
	a, err := txtar.ParseFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	if len(a.Files) == 0 || len(a.Files)%2 != 0 {
		t.Fatalf("%s: %d files, want pairs of NAME.yaml and NAME.want", archive, len(a.Files))
	}
	for i := 0; i < len(a.Files); i += 2 {
		in, want := a.Files[i], &a.Files[i+1]
		name := strings.TrimSuffix(in.Name, ".yaml")
		if want.Name != name+".want" {
			t.Fatalf("%s: %s follows %s", archive, want.Name, in.Name)
		}
		t.Run(name, func(t *testing.T) {
			got := try(t, in.Name, in.Data)
			if update {
				want.Data = []byte(got)
			} else if got != string(want.Data) {
				t.Errorf("got\n%s\nwant\n%s", got, want.Data)
			}
		})
	}
	if update {
		if err := os.WriteFile(archive, txtar.Format(a), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// Inputs returns the YAML files of an archive by name, without ".yaml".
func Inputs(t testing.TB, archive string) map[string][]byte {
	t.Helper()
	a, err := txtar.ParseFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	inputs := map[string][]byte{}
	for _, f := range a.Files {
		if name, ok := strings.CutSuffix(f.Name, ".yaml"); ok {
			inputs[name] = f.Data
		}
	}
	return inputs
}

// Accepts fails the test if the schema refuses a file of the archive.
func (s *Schema) Accepts(t *testing.T, archive string) {
	t.Helper()
	for name, data := range Inputs(t, archive) {
		if parsed, err := s.Validate(data); !parsed || err != nil {
			t.Errorf("%s: the schema refuses it: %v", name, err)
		}
	}
}
