package fields

import (
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Error is a value that breaks a rule.
type Error struct {
	Field   string // path as a file writes it, e.g. "limits.timeout"
	Message string // the value and what would be right
}

// Error returns "field: message".
func (e *Error) Error() string {
	if e.Field == "" {
		return e.Message
	}
	return e.Field + ": " + e.Message
}

// Check returns the values at and below v, a struct or a Tagged value or a
// pointer to one, that break the rules of their tags, in the order of the fields. given tells what a file
// gives: there an optional value is looked at even if it is zero; nil is for a
// value that comes from no file.
func Check(v any, given func(path string) bool) []*Error {
	c := checker{given: given}
	of := reflect.Indirect(reflect.ValueOf(v))
	c.value(nil, of, planOf(of.Type(), tagOf(of.Type(), "")))
	return c.errs
}

// Errors returns what Check says about a value that comes from no file.
func Errors(v any) []error {
	var errs []error
	for _, e := range Check(v, nil) {
		errs = append(errs, e)
	}
	return errs
}

// Validate returns Errors, joined.
func Validate(v any) error { return errors.Join(Errors(v)...) }

type checker struct {
	given func(string) bool
	errs  []*Error
}

// step is the last part of a path.
type step struct {
	before *step
	name   string
	index  int
	isItem bool // of a list, at index
}

func (s *step) String() string {
	switch {
	case s == nil:
		return ""
	case s.isItem:
		return fmt.Sprintf("%s[%d]", s.before.String(), s.index)
	}
	return Join(s.before.String(), s.name)
}

func (c *checker) bad(at *step, format string, args ...any) {
	c.errs = append(c.errs, &Error{at.String(), fmt.Sprintf(format, args...)})
}

func (c *checker) value(at *step, v reflect.Value, p *plan) {
	for v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return
		}
		v = v.Elem()
	}
	switch {
	case !p.rules:
	case v.Kind() == reflect.String:
		p.text(c, at, v.String())
	case v.CanInt():
		p.number(c, at, v, float64(v.Int()))
	case v.CanFloat():
		p.number(c, at, v, v.Float())
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range p.fields {
			c.field(at, v, &p.fields[i])
		}
	case reflect.Slice:
		if p.elem != nil {
			for i := range v.Len() {
				c.value(&step{before: at, index: i, isItem: true}, v.Index(i), p.elem)
			}
		}
	case reflect.Map:
		if p.elem == nil {
			return
		}
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for _, key := range keys {
			entry := &step{before: at, name: key.String()}
			if p.key.rules {
				p.key.text(c, entry, key.String())
			}
			c.value(entry, v.MapIndex(key), p.elem)
		}
	}
}

func (c *checker) field(at *step, of reflect.Value, f *fieldPlan) {
	if !f.look {
		return
	}
	v, inner := of.FieldByIndex(f.Index), &step{before: at, name: f.Name}
	if v.IsZero() && (f.Optional || f.required != "") {
		given := c.given != nil && c.given(inner.String())
		switch {
		case !given && f.required != "":
			c.bad(inner, "is missing, want %s", f.required)
			return
		case !given:
			return
		}
	}
	if v.Kind() == reflect.Slice && v.Len() < f.items && (f.required != "" || c.given != nil && c.given(inner.String())) {
		c.bad(inner, "is empty, want %s", cmp.Or(f.required, f.Tag.Get("want")))
		return
	}
	c.value(inner, v, f.plan)
}

// plan is what is to look at in a value of a type with a tag.
type plan struct {
	rules   bool // it has rules of its own
	matters bool // it or something below it has
	fields  []fieldPlan
	elem    *plan // of a list or a map
	key     *plan // of a map

	tag             reflect.StructTag
	enum            []string
	pattern         *regexp.Regexp
	min, max, above float64 // infinite if there is no bound
	zero            bool
	wanted          string
}

type fieldPlan struct {
	*Field
	*plan
	required string
	items    int
	look     bool // the field matters
}

type planKey struct {
	t   reflect.Type
	tag reflect.StructTag
}

var plans sync.Map // planKey to *plan

// planOf returns the plan of a type with a tag, which has the rules for the
// values of a list or a map too.
func planOf(t reflect.Type, tag reflect.StructTag) *plan {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if p, ok := plans.Load(planKey{t, tag}); ok {
		return p.(*plan)
	}
	p := &plan{tag: tag}
	switch {
	case t.Implements(reflect.TypeFor[Custom]()):
	case isText(t):
		p.rule(t)
	case t.Kind() == reflect.Struct:
		list := Of(t)
		for i := range list {
			f := &list[i]
			inner := fieldPlan{Field: f, plan: planOf(f.Type, f.Tag), required: f.Tag.Get("need")}
			inner.items, _ = strconv.Atoi(f.Tag.Get("items"))
			inner.look = inner.matters || inner.required != "" || inner.items > 0
			p.matters = p.matters || inner.look
			p.fields = append(p.fields, inner)
		}
	case t.Kind() == reflect.Slice, t.Kind() == reflect.Map:
		p.elem = planOf(t.Elem(), rulesOf(tagOf(t.Elem(), tag)))
		p.matters = p.elem.matters
		if t.Kind() == reflect.Map {
			p.key = planOf(t.Key(), tagOf(t.Key(), reflect.StructTag(tag.Get("keys"))))
			p.matters = p.matters || p.key.matters
		}
	default:
		p.rule(t)
	}
	plans.Store(planKey{t, tag}, p)
	return p
}

// rulesOf keeps of a tag what holds for the items of a list or a map.
func rulesOf(tag reflect.StructTag) reflect.StructTag {
	var b strings.Builder
	for _, name := range []string{"words", "min", "max", "above", "zero", "match", "is", "want", "secret"} {
		if value, ok := tag.Lookup(name); ok {
			fmt.Fprintf(&b, "%s:%q ", name, value)
		}
	}
	return reflect.StructTag(b.String())
}

// rule reads the rules of a single value.
func (p *plan) rule(t reflect.Type) {
	p.min, p.max, p.above = math.Inf(-1), math.Inf(1), math.Inf(-1)
	for _, bound := range []struct {
		name string
		to   *float64
	}{{"min", &p.min}, {"max", &p.max}, {"above", &p.above}} {
		if text, ok := p.tag.Lookup(bound.name); ok {
			*bound.to = numberOf(t, text)
			p.rules = true
		}
	}
	p.enum = strings.Fields(p.tag.Get("words"))
	if text := p.tag.Get("match"); text != "" && t.Kind() == reflect.String {
		p.pattern = regexp.MustCompile(text)
	}
	_, p.zero = p.tag.Lookup("zero")
	p.rules = p.rules || len(p.enum) > 0 || p.pattern != nil
	p.matters = p.rules
	p.wanted = p.want(t)
}

// numberOf returns a bound as a value of the type has it.
func numberOf(t reflect.Type, text string) float64 {
	v := reflect.New(t)
	if own, ok := v.Interface().(encoding.TextUnmarshaler); ok && t.Kind() != reflect.String {
		if err := own.UnmarshalText([]byte(text)); err != nil {
			panic(fmt.Sprintf("fields: bound %q of %s: %v", text, t, err)) // the programmer's mistake
		}
		return float64(v.Elem().Int())
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		panic(fmt.Sprintf("fields: bound %q of %s: %v", text, t, err))
	}
	return n
}

// want says what would be right.
func (p *plan) want(t reflect.Type) string {
	want, own := p.tag.Lookup("want")
	if !own {
		a := ""
		switch {
		case p.tag.Get("type") != "":
			a = "a " + p.tag.Get("type") + " "
		case t.Kind() == reflect.Float64:
			a = "a number "
		}
		low, high, above := p.tag.Get("min"), p.tag.Get("max"), p.tag.Get("above")
		switch {
		case len(p.enum) > 1 && len(p.enum) <= few:
			last := len(p.enum) - 1
			want = strings.Join(p.enum[:last], ", ") + " or " + p.enum[last]
		case len(p.enum) > 0:
			want = "one of " + strings.Join(p.enum, ", ")
		case low != "" && high != "":
			want = cond(a, a+"from ", "") + low + " to " + high
		case low != "":
			want = cond(a, a+"of ", "") + low + " or more"
		case above != "" && high != "":
			want = a + "above " + above + " and at most " + high
		case above != "":
			want = a + "above " + above
		case high != "":
			want = cond(a, a+"of ", "") + "at most " + high
		}
	}
	if meaning := p.tag.Get("zero"); meaning != "" {
		want += ", or 0 for " + meaning
	}
	return want
}

// few words are listed even if one of them is likely meant.
const few = 3

func cond(noun, with, without string) string {
	if noun != "" {
		return with
	}
	return without
}

func (p *plan) text(c *checker, at *step, s string) {
	switch {
	case len(p.enum) > 0 && !slices.Contains(p.enum, s):
		if near := Nearest(s, p.enum); near != "" && len(p.enum) > few {
			c.bad(at, "%q is unknown; did you mean %s?", Clip(s), near)
			return
		}
		c.bad(at, "%q is unknown, want %s", Clip(s), p.wanted)
	case float64(len(s)) > p.max:
		c.bad(at, "has %d bytes, at most %.0f are allowed", len(s), p.max)
	case p.pattern != nil && !p.pattern.MatchString(s):
		if p.tag.Get("secret") != "" {
			c.bad(at, "want %s", p.wanted)
			return
		}
		c.bad(at, "%q is not %s, want %s", Clip(s), p.tag.Get("is"), p.wanted)
	}
}

func (p *plan) number(c *checker, at *step, v reflect.Value, n float64) {
	if n >= p.min && n <= p.max && n > p.above && !math.IsInf(n, 0) || p.zero && n == 0 {
		return
	}
	c.bad(at, "is %v, want %s", v.Interface(), p.wanted)
}

// isText reports whether a file writes values of the type as a text of their own.
func isText(t reflect.Type) bool {
	return t.Kind() != reflect.String && reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}
