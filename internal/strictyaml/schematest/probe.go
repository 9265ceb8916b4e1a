package schematest

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/internal/strictyaml"
)

// wrong are values that few fields take, as YAML.
var wrong = []string{"~", "''", "x y", "-1", "0", "1.5", "1e12", "true", "[]", "{}", "{zz: 1}", "0s", "8760h"}

// Probe gives every field that the schema at path names each of a list of
// values, and its name twice and misspelt, and compares what try says of each
// such file with the golden file; with update it rewrites that. try is given
// a file of one line, e.g. "{stop: {kill: 0s}}".
//
// entries are examples by path, such as "jobs[]" or "workers.*": what stands
// beside a field of that mapping, and for a map its key.
func Probe(t *testing.T, path, golden string, update bool, entries map[string]Entry, try func(file string) error) {
	t.Helper()
	p := prober{schema: Load(t, path), entries: entries, try: try, seen: map[string]bool{}}
	p.value(p.schema.root, "", func(inner string) string { return inner })
	if update {
		if err := os.WriteFile(golden, []byte(p.out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	differences := 0
	was := strings.Split(string(want), "\n")
	for i, line := range strings.Split(p.out.String(), "\n") {
		if i >= len(was) || line != was[i] {
			t.Errorf("%s:%d: got\n%s\nwant\n%s", golden, i+1, line, was[min(i, len(was)-1)])
			if differences++; differences == 20 {
				t.Fatal("and so on; -update rewrites the file, git diff shows the rest")
			}
		}
	}
	if got := strings.Count(p.out.String(), "\n") + 1; got != len(was) {
		t.Errorf("%s: got %d lines, want %d", golden, got, len(was))
	}
}

// Entry is an example of an entry of a list or a map.
type Entry struct {
	Key    string            // of a map
	Beside map[string]string // what it needs, as YAML, by name
}

type prober struct {
	schema  *Schema
	entries map[string]Entry
	try     func(file string) error
	seen    map[string]bool
	out     strings.Builder
}

// value probes what is below the value at path; around returns the file in
// which that is inner.
func (p *prober) value(s map[string]any, path string, around func(inner string) string) {
	if ref, ok := s["$ref"].(string); ok {
		if p.seen[ref] {
			return // the same fields as elsewhere
		}
		p.seen[ref] = true
	}
	s = p.schema.resolve(s)
	alternatives, _ := s["oneOf"].([]any)
	for _, one := range alternatives {
		p.value(one.(map[string]any), path, around)
	}
	if each, ok := s["items"].(map[string]any); ok {
		p.value(each, path+"[]", func(inner string) string { return around("[" + inner + "]") })
	}
	if each, ok := s["additionalProperties"].(map[string]any); ok {
		key := p.entries[path+".*"].Key
		if key == "" {
			key = "some-name"
		}
		inside := func(inner string) string { return around("{" + key + ": " + inner + "}") }
		p.each(path+".*", inside)
		p.value(each, path+".*", inside)
	}
	properties, _ := s["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		full := strings.TrimPrefix(path+"."+name, ".")
		field := func(name, inner string) string {
			list := []string{}
			beside := p.entries[path].Beside
			for _, other := range slices.Sorted(maps.Keys(beside)) {
				if other != name {
					list = append(list, other+": "+beside[other])
				}
			}
			return around("{" + strings.Join(append(list, name+": "+inner), ", ") + "}")
		}
		inside := func(inner string) string { return field(name, inner) }
		p.each(full, inside)
		p.one("misspelt", full, field(name[:len(name)-1], "1"))
		p.one("twice", full, field(name, "1, "+name+": 1"))
		p.value(properties[name].(map[string]any), full, inside)
	}
}

func (p *prober) each(path string, around func(inner string) string) {
	fmt.Fprintf(&p.out, "%s\n", path)
	for _, value := range wrong {
		p.one(value, path, around(value))
	}
}

// one tries a file and writes down its mistakes, without those that are about
// other fields.
func (p *prober) one(label, path, file string) {
	err := p.try(file)
	var list strictyaml.Errors
	if !errors.As(err, &list) {
		fmt.Fprintf(&p.out, "  %-8s %s\n", label, map[bool]string{true: "ok", false: fmt.Sprint(err)}[err == nil])
		return
	}
	of := plainPath(path)
	kept := slices.DeleteFunc(slices.Clone(list), func(e *strictyaml.Error) bool {
		at := plainPath(e.Path)
		return label != "misspelt" && at != "" && !strings.HasPrefix(at, of) && !strings.HasPrefix(of, at)
	})
	if len(kept) == 0 {
		kept = list
	}
	for _, e := range kept {
		fmt.Fprintf(&p.out, "  %-8s %d:%d: %s: %s\n", label, e.Line, e.Column, e.Path, e.Message)
	}
}

// plainPath is a path without the indices of lists.
func plainPath(path string) string {
	return strings.NewReplacer("[]", "", "[0]", "", ".*", "").Replace(path)
}

// resolve follows a local reference; what stands beside it is kept.
func (s *Schema) resolve(of map[string]any) map[string]any {
	ref, ok := of["$ref"].(string)
	if !ok {
		return of
	}
	at := any(s.root)
	for _, step := range strings.Split(strings.TrimPrefix(ref, "#/"), "/") {
		at = at.(map[string]any)[step]
	}
	merged := maps.Clone(at.(map[string]any))
	maps.Copy(merged, of)
	return merged
}
