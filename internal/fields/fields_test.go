package fields_test

import (
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/agentsched/agentsched/internal/fields"
)

type name string

func (name) FieldTag() reflect.StructTag {
	return `match:"^[a-z]+$" is:"a name" want:"letters from a to z"`
}

type colour string

func (colour) FieldTag() reflect.StructTag {
	return fields.Enum[colour]("red", "green", "blue", "yellow")
}

type inner struct {
	Part  float64 `json:"part" above:"0" max:"1"`
	Shown name    `json:"shown,omitempty"`
}

type outer struct {
	inner
	Part  float64        `json:"part" min:"0"`
	Named *inner         `json:"named,omitempty"`
	Count int            `json:"count,omitempty" min:"2" max:"9" zero:"any"`
	Most  int            `json:"most,omitempty" min:"1"`
	List  []colour       `json:"list,omitempty" items:"1" want:"a colour such as red"`
	Table map[name]int   `json:"table,omitempty" min:"1"`
	Key   string         `json:"key" need:"a key" match:"^k" secret:"true" want:"what begins with k"`
	Free  map[string]any `json:"free,omitempty" yaml:"-"`
}

func TestOf(t *testing.T) {
	var got []string
	for _, f := range fields.Of(reflect.TypeFor[outer]()) {
		got = append(got, f.Name)
		if f.Name == "part" && len(f.Index) != 1 {
			t.Error("the deeper field of two with one name counts")
		}
	}
	if want := []string{"part", "shown", "named", "count", "most", "list", "table", "key"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestCheck(t *testing.T) {
	right := outer{Key: "k"}
	for _, c := range []struct {
		change func(*outer)
		given  string // the path that a file gives
		want   string
	}{
		{func(*outer) {}, "", ""},
		{func(o *outer) { o.Part = -1 }, "", "part: is -1, want a number of 0 or more"},
		{func(o *outer) { o.Part = math.NaN() }, "", "part: is NaN, want a number of 0 or more"},
		{func(o *outer) { o.Part = math.Inf(1) }, "", "part: is +Inf, want a number of 0 or more"},
		{func(o *outer) { o.Named = &inner{} }, "", "named.part: is 0, want a number above 0 and at most 1"},
		{func(o *outer) { o.Shown = "A" }, "", `shown: "A" is not a name, want letters from a to z`},
		{func(o *outer) { o.Count = 1 }, "", "count: is 1, want 2 to 9, or 0 for any"},
		{func(*outer) {}, "count", ""},
		{func(*outer) {}, "most", "most: is 0, want 1 or more"},
		{func(*outer) {}, "list", "list: is empty, want a colour such as red"},
		{func(o *outer) { o.List = []colour{"blue", "gren"} }, "", `list[1]: "gren" is unknown; did you mean green?`},
		{func(o *outer) { o.List = []colour{"pink"} }, "", `list[0]: "pink" is unknown, want a colour such as red`},
		{func(o *outer) { o.Table = map[name]int{"b": 0, "A": 1} }, "", "table.A: \"A\" is not a name, want letters from a to z\ntable.b: is 0, want 1 or more"},
		{func(o *outer) { o.Key = "" }, "", "key: is missing, want a key"},
		{func(o *outer) { o.Key = "x" }, "", "key: want what begins with k"},
	} {
		o := right
		c.change(&o)
		got := ""
		for _, e := range fields.Check(o, func(path string) bool { return path == c.given }) {
			got += "\n" + e.Error()
		}
		if c.want != "" {
			c.want = "\n" + c.want
		}
		if got != c.want {
			t.Errorf("%+v with %q given:%s\nwant%s", o, c.given, got, c.want)
		}
	}
	if err := fields.Validate(name("A")); err == nil || err.Error() != `"A" is not a name, want letters from a to z` {
		t.Errorf("a value by itself: %v", err)
	}
}

func TestNearest(t *testing.T) {
	known := []string{"codex", "claude", "opencode", "shell"}
	for word, want := range map[string]string{"codx": "codex", "Claude": "claude", "clade": "claude", "open-code": "opencode", "vim": "", "": "", "sh": ""} {
		if got := fields.Nearest(word, known); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", word, got, want)
		}
	}
}
