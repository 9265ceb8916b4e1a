package strictyaml_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/internal/strictyaml"
	"github.com/agentsched/agentsched/job"
)

// sample has a field of every sort that the decoder knows.
type sample struct {
	Name    string             `yaml:"name"`
	Count   int                `yaml:"count"`
	Big     int64              `yaml:"big"`
	Share   float64            `yaml:"share"`
	Cost    *float64           `json:"cost,omitempty"`
	On      bool               `yaml:"on"`
	Wait    job.Duration       `yaml:"wait"`
	List    []string           `yaml:"list"`
	Table   map[string]limits  `yaml:"table"`
	Limits  limits             `yaml:"limits"`
	Any     anything           `yaml:"any"`
	Rates   map[string]float64 `yaml:"rates"`
	Ignored string             `yaml:"-"`
}

type limits struct {
	Timeout  job.Duration `yaml:"timeout"`
	MaxSteps int          `yaml:"max_steps"`
}

type anything struct{ raw json.RawMessage }

func (a *anything) DecodeNode(n *strictyaml.Node) { a.raw = n.JSON() }

func decode(input string) (sample, *strictyaml.Doc, error) {
	var s sample
	doc, err := strictyaml.Parse("f.yaml", []byte(input))
	if err != nil {
		return s, nil, err
	}
	doc.Decode(&s)
	return s, doc, doc.Err()
}

func TestDecode(t *testing.T) {
	cost := 2.5
	for _, c := range []struct {
		name, in string
		want     sample
	}{
		{"all", "name: x\ncount: 3\nbig: 1e6\nshare: 2\ncost: 2.5\non: true\nwait: 1m\nlist: [a, 'b c']\n" +
			"table:\n  k.1: {timeout: 2s}\nlimits:\n  max_steps: 4\nrates: {gpt-5.1: 1}\n",
			sample{Name: "x", Count: 3, Big: 1000000, Share: 2, Cost: &cost, On: true, Wait: 60e9, List: []string{"a", "b c"},
				Table: map[string]limits{"k.1": {Timeout: 2e9}}, Limits: limits{MaxSteps: 4}, Rates: map[string]float64{"gpt-5.1": 1}}},
		{"windows line ends and byte order mark", "\ufeffname: |\r\n  one\r\n  two\r\ncount: 1\r\n", sample{Name: "one\ntwo\n", Count: 1}},
		{"anchor, alias and merge", "limits: &l {timeout: 1s, max_steps: 2}\ntable:\n  a: *l\n  b:\n    <<: *l\n    max_steps: 3\n",
			sample{Limits: limits{1e9, 2}, Table: map[string]limits{"a": {1e9, 2}, "b": {1e9, 3}}}},
		{"merge of a list, the first wins", "table:\n  a: &a {timeout: 1s}\n  b: &b {timeout: 2s, max_steps: 5}\n  c: {<<: [*a, *b]}\n",
			sample{Table: map[string]limits{"a": {Timeout: 1e9}, "b": {2e9, 5}, "c": {1e9, 5}}}},
		{"JSON keeps the order", "any: {z: [1, 2.5, true, null], a: {\"b\": \"<é>\"}, big: 9223372036854775807}\n",
			sample{Any: anything{json.RawMessage(`{"z":[1,2.5,true,null],"a":{"b":"<é>"},"big":9223372036854775807}`)}}},
		{"JSON is YAML", `{"name": "x", "list": ["y"]}`, sample{Name: "x", List: []string{"y"}}},
		{"yes is a text", "name: yes\n", sample{Name: "yes"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, _, err := decode(c.in)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
		})
	}
}

func TestMistakes(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"unknown field, near", "limit: {}\n", "f.yaml:1:1: limit: unknown field; did you mean limits?"},
		{"unknown field, other case", "Max-Steps: 1\nlimits: {maxSteps: 1}\n",
			"f.yaml:1:1: Max-Steps: unknown field; known here: name, count, big, share, cost, on, wait, list, table, limits, any, rates\n" +
				"f.yaml:2:10: limits.maxSteps: unknown field; did you mean max_steps?"},
		{"number for text", "name: 12\n", `f.yaml:1:7: name: found the number 12, want text; write "12" with quotes around it`},
		{"bool for text", "name: true\n", `f.yaml:1:7: name: found true, want text; write "true" with quotes around it`},
		{"list for text", "é: 1\nname:\n  - x\n", "f.yaml:1:1: é: unknown field; known here: name, count, big, share, cost, on, wait, list, table, limits, any, rates\nf.yaml:2:1: name: found a list, want text"},
		{"empty text", "name: ''\n", "f.yaml:1:7: name: is empty; give a value or leave it out"},
		{"no value", "count: 1\nname:\n", "f.yaml:2:1: name: has no value; give one or leave it out"},
		{"text for number", "count: three\n", `f.yaml:1:8: count: found the text "three", want a whole number`},
		{"fraction for whole number", "count: 1.5\n", "f.yaml:1:8: count: found the number 1.5, want a whole number"},
		{"too large", "big: 9223372036854775808\n", "f.yaml:1:6: big: found the number 9223372036854775808, want a whole number in the range of 64 bits"},
		{"beyond 64 bits", "big: 99999999999999999999\n", "f.yaml:1:6: big: found the number 99999999999999999999, want a whole number in the range of 64 bits"},
		{"infinite", "share: .inf\n", "f.yaml:1:8: share: found the number .inf, want a number"},
		{"text for bool", "on: yes\n", `f.yaml:1:5: on: found the text "yes", want true or false`},
		{"text for list", "list: read\n", `f.yaml:1:7: list: found the text "read", want a list such as [read]`},
		{"text for mapping", "limits: 5m\n", `f.yaml:1:9: limits: found the text "5m", want a mapping with the fields timeout, max_steps`},
		{"bare number for duration", "limits:\n  timeout: 30\n", `f.yaml:2:12: limits.timeout: "30" is not a duration, want a number with a unit such as 90s, 15m or 1h30m`},
		{"zero for duration", "wait: 0\n", `f.yaml:1:7: wait: found the number 0, want text; write "0" with quotes around it`},
		{"path with quotes", "rates:\n  gpt-5.1: x\n", `f.yaml:2:12: rates["gpt-5.1"]: found the text "x", want a number`},
		{"duplicate key", "name: a\ncount: 1\nname: b\n", "f.yaml:3:1: name: is given twice, first in line 1; remove one"},
		{"several, in order", "count: x\nname: 1\nlimit: 1\n",
			`f.yaml:1:8: count: found the text "x", want a whole number` + "\n" +
				`f.yaml:2:7: name: found the number 1, want text; write "1" with quotes around it` + "\n" +
				"f.yaml:3:1: limit: unknown field; did you mean limits?"},
		{"unknown alias", "name: *x\n", "f.yaml:1:7: name: anchor &x is not defined above; put quotes around a text that begins with *"},
		{"alias in itself", "list: &a [*a]\n", "f.yaml:1:11: list[0]: anchor &a is not defined above; put quotes around a text that begins with *"},
		{"merge of no mapping", "limits:\n  <<: 3\n", `f.yaml:2:7: limits.<<: only a mapping can be merged, as in "<<: *name"`},
		{"tag", "name: !!str 1\n", "f.yaml:1:7: name: tags such as !!str are not supported; remove it"},
		{"null as name", "~: 1\n", `f.yaml:1:1: a name is expected here, as in "name: value"`},
		{"text alone", "just text", `f.yaml:1:1: found the text "just text", want a mapping with the fields name, count, big, share, cost, on, wait, list, table, limits, any, rates`},
		{"list alone", "- a\n", "f.yaml:1:1: found a list, want a mapping with the fields name, count, big, share, cost, on, wait, list, table, limits, any, rates"},
		{"empty", "", "f.yaml:1:1: the file is empty: there is nothing in it but white space and comments"},
		{"only a comment", "# nothing\n", "f.yaml:1:1: the file is empty: there is nothing in it but white space and comments"},
		{"two documents", "name: a\n---\nname: b\n", "f.yaml:3:1: a second document begins here; put one document into a file and remove the line ---"},
		{"directive", "%YAML 1.1\n---\nname: a\n", "f.yaml:1:1: directives are not supported; remove this line"},
		{"tab", "limits:\n\ttimeout: 1s\n", "f.yaml:2:1: a tab stands here where YAML wants spaces; indent with spaces"},
		{"tab at the first line", "\tname: x\n", "f.yaml:1:1: a tab stands here where YAML wants spaces; indent with spaces"},
		{"tab in a block", "name: |\n\tx\n", "f.yaml:2:1: a tab stands here where YAML wants spaces; indent with spaces"},
		{"double quote", "name: \"x\n", "f.yaml:1:7: the quote \" that opens here is never closed"},
		{"single quote", "name: 'x\ncount: 1\n", "f.yaml:1:7: the quote ' that opens here is never closed"},
		{"bracket", "list: [a, b\n", "f.yaml:1:7: the bracket [ that opens here is never closed, or a comma is missing in it"},
		{"brace", "limits: {timeout: 1s\n", "f.yaml:1:9: the brace { that opens here is never closed, or a comma is missing in it"},
		{"closing bracket", "list: ]\n", "f.yaml:1:7: the bracket ] closes nothing"},
		{"two colons", "name: fix: it\n", "f.yaml:1:7: a colon and a space make a second value here; put quotes around a text that contains \": \", or check the indentation of the next line"},
		{"dash after colon", "list: - a\n", "f.yaml:1:7: a list's dash cannot follow on the same line; begin the list on the next line"},
		{"bad indentation", "limits:\n  timeout: 1s\n max_steps: 2\n", "f.yaml:3:2: this line does not fit its surroundings; check its indentation against the lines above"},
		{"no colon", "name x\ncount: 1\n", "f.yaml:1:1: a colon and a space are missing after the name, as in \"name: value\""},
		{"complex key", "? [a]\n: b\n", "f.yaml:2:1: a name cannot be a list or a mapping; write \"name: value\""},
		{"at sign", "name: @x\n", "f.yaml:1:7: a text cannot begin with this character; put quotes around it"},
		{"percent", "name: %x\n", "f.yaml:1:7: a text cannot begin with %; put quotes around it"},
		{"escape", `name: "C:\dir"`, "f.yaml:1:11: this backslash means nothing between double quotes; write \\\\ for a backslash or use single quotes"},
		{"anchor alone", "name: &x\n", "f.yaml:1:7: an anchor (&name) must be followed by a value"},
		{"binary", "\x7fELF\x02", "f.yaml:1:1: control character 0x7f stands here; is this a YAML file?"},
		{"not UTF-8", "name: \xff\n", "f.yaml:1:7: byte 0xff is not text in UTF-8; is this a YAML file?"},
		{"UTF-16", "\xff\xfen\x00", "f.yaml:1:1: the file is text in UTF-16; save it as UTF-8"},
		{"too deep", "list: " + strings.Repeat("[", 60), "f.yaml:1:57: more than 50 brackets are open here"},
		{"too deep a block", strings.Repeat("- ", 200), "f.yaml:1:201: this is indented too deep"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := decode(c.in)
			if err == nil {
				t.Fatal("no error")
			}
			if err.Error() != c.want {
				t.Errorf("got  %s\nwant %s", err, c.want)
			}
			var one *strictyaml.Error
			if !errors.As(err, &one) || one.File != "f.yaml" || one.Line < 1 || one.Column < 1 {
				t.Errorf("no typed error with a position: %#v", one)
			}
		})
	}
}

func TestFailfIsPlacedAndSaidOnce(t *testing.T) {
	_, doc, err := decode("name: x\ncount: y\nlimits:\n  max_steps: 3\ntable: {a: {}}\n")
	if err == nil {
		t.Fatal("the bad count was not reported")
	}
	doc.Failf("table.a.timeout", "is missing")   // stands at what is around it
	doc.Failf("limits.max_steps", "is too many") // stands at its value
	doc.Failf("count", "must not be shown: its form is wrong already")
	doc.Failf("count.more", "must not be shown either")
	doc.Failf("gone", "is missing")
	want := "f.yaml:1:1: gone: is missing\n" +
		"f.yaml:2:8: count: found the text \"y\", want a whole number\n" +
		"f.yaml:4:14: limits.max_steps: is too many\n" +
		"f.yaml:5:12: table.a.timeout: is missing"
	if got := doc.Err().Error(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if !doc.Has("limits.max_steps") || doc.Has("limits.timeout") {
		t.Error("Has does not tell what the file gives")
	}
}

func TestSlipCountsAsGiven(t *testing.T) {
	_, doc, _ := decode("nmae: x\n")
	doc.Failf("name", "is missing")
	if want := "f.yaml:1:1: nmae: unknown field; did you mean name?"; doc.Err().Error() != want {
		t.Errorf("got %s, want only %s", doc.Err(), want)
	}
}

func TestEmptyIsASentinel(t *testing.T) {
	if _, err := strictyaml.Parse("f", []byte("# a\n---\n")); !errors.Is(err, strictyaml.ErrEmpty) {
		t.Errorf("got %v, want ErrEmpty", err)
	}
}

func TestBombsEnd(t *testing.T) {
	var laughs strings.Builder
	laughs.WriteString("any:\n  - &a0 [x, x, x, x, x, x, x, x]\n")
	for i := range 20 {
		fmt.Fprintf(&laughs, "  - &a%d [%s*a%d]\n", i+1, strings.Repeat(fmt.Sprintf("*a%d, ", i), 7), i)
	}
	for name, in := range map[string]string{
		"aliases of aliases": laughs.String(),
		"too many bytes":     "name: " + strings.Repeat("x", strictyaml.MaxBytes),
		"brackets":           strings.Repeat("[", 1<<15),
		"dashes":             strings.Repeat("- ", 1<<14),
		"many mistakes":      strings.Repeat("x: \n", 1000),
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := decode(in)
			if err == nil {
				t.Fatal("no error")
			}
			if n := strings.Count(err.Error(), "\n"); n > 30 {
				t.Errorf("%d lines of error", n)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"name: x\n", "a: &x [*x]\n", "<<: [a]\n", "? a\n", "- - -\n", "%Y\n---\n", "any: {a: [1, .nan]}\n", "a: |\n  b\n", "limits: {<<: {timeout: 1}}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, doc, err := decode(string(data))
		if err != nil {
			var list strictyaml.Errors
			if !errors.As(err, &list) {
				t.Fatalf("error of type %T: %v", err, err)
			}
			return
		}
		if s.Any.raw != nil && !json.Valid(s.Any.raw) {
			t.Fatalf("not JSON: %s", s.Any.raw)
		}
		if !json.Valid(doc.Root().JSON()) {
			t.Fatalf("not JSON: %s", doc.Root().JSON())
		}
	})
}
