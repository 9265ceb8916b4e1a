package config

import (
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/agentsched/agentsched/internal/fields"
)

const (
	// variablePrefix is how the variables begin that may be overrides.
	variablePrefix = "AGENTSCHED_"
	// variableLevel stands between the names of a field's path.
	variableLevel = "__"
)

// Override is a field that a variable sets.
type Override struct {
	Variable string // e.g. "AGENTSCHED_LOG__LEVEL"
	Path     string // e.g. "log.level"
}

// VariableError is what is wrong with a variable that overrides the file.
type VariableError struct {
	Variable string // e.g. "AGENTSCHED_LOG__LEVEL"; "" if none is to blame alone
	Path     string // e.g. "log.level"; "" if it names no field
	Message  string // what it is and what would be right
}

// Error names the variable, its field, and what would be right.
func (e *VariableError) Error() string {
	var b strings.Builder
	for _, part := range []string{cmp.Or(e.Variable, "configuration of the environment"), e.Path} {
		if part != "" {
			b.WriteString(part + ": ")
		}
	}
	return b.String() + e.Message
}

// override is a variable that overrides the file.
type override struct {
	name, value string
	steps       []string // of its path, in upper case
}

// overrides returns the variables of environ that are overrides, in the order of
// their names. Of two of one name the last one counts, as in exec.Cmd.Env.
func overrides(environ []string) []override {
	last := map[string]override{}
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		if path, ok := strings.CutPrefix(name, variablePrefix); ok && strings.Contains(path, variableLevel) {
			last[name] = override{name, value, strings.Split(path, variableLevel)}
		}
	}
	var list []override
	for _, one := range last {
		list = append(list, one)
	}
	slices.SortFunc(list, func(a, b override) int { return strings.Compare(a.name, b.name) })
	return list
}

// environment sets what the variables set.
func (v *validator) environment(environ []string) {
	config := reflect.ValueOf(v.config).Elem()
	for _, one := range overrides(environ) {
		names, err := locate(config, one.steps)
		if err != nil {
			v.wrong = append(v.wrong, &VariableError{one.name, "", err.Error()})
			continue
		}
		path := pathOf(names)
		v.given = append(v.given, Override{one.name, path})
		if err := assign(config, names, one.value); err != nil {
			v.wrong = append(v.wrong, &VariableError{one.name, path, err.Error()})
		}
	}
}

// variable returns the variable that sets the field at path, or one below it.
func (v *validator) variable(path string) (name string, given bool) {
	for _, one := range v.given {
		if within(one.Path, path) {
			return one.Variable, true
		}
	}
	return "", false
}

// Has reports whether the file or a variable gives a value at path.
func (v *validator) Has(path string) bool {
	_, given := v.variable(path)
	return given || v.Doc.Has(path)
}

// place says where the value at path stands: "line 3", or a variable's name.
func (v *validator) place(path string) string {
	if name, given := v.variable(path); given {
		return name
	}
	return fmt.Sprintf("line %d", v.At(path).Line)
}

// Failf records a mistake in the value at path, of the variable that sets it or
// else of the file, unless one was recorded there, around it or within it before.
func (v *validator) Failf(path, format string, args ...any) {
	if v.isWrong(path) {
		return
	}
	name, blamed := v.culprit(path)
	switch {
	case !blamed:
		v.Doc.Failf(path, format, args...)
	case !v.Doc.Blamed(path):
		v.wrong = append(v.wrong, &VariableError{name, path, fmt.Sprintf(format, args...)})
	}
}

// culprit returns the variable to which a mistake at path goes back, and not to
// the file: it sets the value there, or is why there is anything around it. The
// name is "" if there is no file, and none that is to blame alone.
func (v *validator) culprit(path string) (name string, blamed bool) {
	for at := path; at != ""; at = at[:max(0, strings.LastIndexAny(at, ".["))] {
		if i := slices.IndexFunc(v.given, func(o Override) bool { return o.Path == at }); i >= 0 {
			return v.given[i].Variable, true
		}
		if v.Doc.Has(at) {
			return "", false
		}
		if name, given := v.variable(at); given {
			return name, true
		}
	}
	return "", v.noFile
}

// isWrong reports whether a mistake of a variable was recorded at path, around
// it or within it.
func (v *validator) isWrong(path string) bool {
	return slices.ContainsFunc(v.wrong, func(e *VariableError) bool {
		return e.Path != "" && (within(e.Path, path) || within(path, e.Path))
	})
}

// Blamed reports whether a mistake was recorded at path or around it.
func (v *validator) Blamed(path string) bool {
	return v.Doc.Blamed(path) || slices.ContainsFunc(v.wrong, func(e *VariableError) bool { return e.Path != "" && within(path, e.Path) })
}

// Err returns all mistakes, those of the file first; nil if there are none.
func (v *validator) Err() error {
	if len(v.wrong) == 0 {
		return v.Doc.Err()
	}
	errs := []error{v.Doc.Err()}
	for _, one := range v.wrong {
		errs = append(errs, one)
	}
	return errors.Join(errs...)
}

// locate returns the names of the field that steps lead to in v.
func locate(v reflect.Value, steps []string) (names []string, err error) {
	for _, step := range steps {
		if v.Kind() == reflect.Pointer {
			if v.IsNil() {
				v = reflect.New(v.Type().Elem())
			}
			v = v.Elem()
		}
		var name string
		switch v.Kind() {
		case reflect.Struct:
			f, err := fieldOf(v.Type(), step, pathOf(names))
			if err != nil {
				return nil, err
			}
			name, v = f.Name, v.FieldByIndex(f.Index)
		case reflect.Map:
			if name, err = entry(v, step); err != nil {
				return nil, err
			}
			one := v.MapIndex(keyOf(v, name))
			if !one.IsValid() {
				one = reflect.Zero(v.Type().Elem())
			}
			v = one
		default:
			return nil, fmt.Errorf("%q leads nowhere: %s is %s", step, pathOf(names), kindOf(v.Type()))
		}
		names = append(names, name)
	}
	return names, nil
}

// keyOf returns name as a key of the map m.
func keyOf(m reflect.Value, name string) reflect.Value {
	return reflect.ValueOf(name).Convert(m.Type().Key())
}

// pathOf returns the path of the field with these names.
func pathOf(names []string) string {
	path := ""
	for _, name := range names {
		path = fields.Join(path, name)
	}
	return path
}

// assign sets the field of v with these names, which locate has found.
func assign(v reflect.Value, names []string, value string) error {
	switch {
	case len(names) == 0:
		return assignScalar(v, value)
	case v.Kind() == reflect.Pointer:
		fresh := reflect.New(v.Type().Elem())
		if !v.IsNil() {
			fresh.Elem().Set(v.Elem())
		}
		v.Set(fresh)
		return assign(fresh.Elem(), names, value)
	case v.Kind() == reflect.Struct:
		for _, f := range fields.Of(v.Type()) {
			if f.Name == names[0] {
				return assign(v.FieldByIndex(f.Index), names[1:], value)
			}
		}
	}
	key, one := keyOf(v, names[0]), reflect.New(v.Type().Elem()).Elem()
	if old := v.MapIndex(key); old.IsValid() {
		one.Set(old)
	}
	if err := assign(one, names[1:], value); err != nil {
		return err
	}
	if v.IsNil() {
		v.Set(reflect.MakeMap(v.Type()))
	}
	v.SetMapIndex(key, one)
	return nil
}

// fieldOf returns which field of a struct, which stands at path, a step means.
func fieldOf(t reflect.Type, step, path string) (*fields.Field, error) {
	var known []string
	for _, f := range fields.Of(t) {
		if strings.ToUpper(f.Name) == step {
			return &f, nil
		}
		known = append(known, strings.ToUpper(f.Name))
	}
	of := ""
	if path != "" {
		of = " of " + path
	}
	if near := fields.Nearest(step, known); near != "" {
		return nil, fmt.Errorf("%q is no field%s; did you mean %s?", step, of, near)
	}
	return nil, fmt.Errorf("%q is no field%s; known here: %s", step, of, strings.Join(known, ", "))
}

// entry returns the name of the entry of a map that a step means: of one that is
// there and reads so, or else of a new one.
func entry(v reflect.Value, step string) (string, error) {
	if step == "" {
		return "", errors.New("a name is missing between two " + variableLevel)
	}
	var there []string
	for _, key := range v.MapKeys() {
		if asStep(key.String()) == strings.ToUpper(step) {
			there = append(there, key.String())
		}
	}
	switch slices.Sort(there); len(there) {
	case 0:
		return strings.ToLower(step), nil
	case 1:
		return there[0], nil
	}
	return "", fmt.Errorf("%q can mean %s; set it in the file", step, strings.Join(there, " or "))
}

// asStep returns how a variable names an entry: in upper case, with _ for
// whatever a variable's name cannot hold.
func asStep(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, strings.ToUpper(name))
}

// assignScalar sets a single value from a variable's.
func assignScalar(v reflect.Value, value string) error {
	if v.Kind() == reflect.Pointer {
		fresh := reflect.New(v.Type().Elem())
		if err := assignScalar(fresh.Elem(), value); err != nil {
			return err
		}
		v.Set(fresh)
		return nil
	}
	if value == "" && isScalar(v.Type()) {
		return errors.New("is empty; give a value or unset the variable")
	}
	if text, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		return text.UnmarshalText([]byte(value))
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(value)
	case reflect.Bool:
		if value != "true" && value != "false" {
			return fmt.Errorf("found %q, want true or false", value)
		}
		v.SetBool(value == "true")
	case reflect.Int, reflect.Int64:
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return fmt.Errorf("found %q, want a whole number", value)
		}
		v.SetInt(n)
	case reflect.Float64:
		n, err := strconv.ParseFloat(value, 64)
		if err != nil || math.IsInf(n, 0) || math.IsNaN(n) {
			return fmt.Errorf("found %q, want a number", value)
		}
		v.SetFloat(n)
	case reflect.Slice:
		if v.Type().Elem().Kind() != reflect.String {
			return fmt.Errorf("is %s, which no variable can set; set it in the file", kindOf(v.Type()))
		}
		v.Set(reflect.MakeSlice(v.Type(), 0, 1))
		for item := range strings.SplitSeq(value, ",") {
			v.Set(reflect.Append(v, reflect.ValueOf(item).Convert(v.Type().Elem())))
		}
	default:
		return fmt.Errorf("is %s, which no variable can set; set a field below it, or set it in the file", kindOf(v.Type()))
	}
	return nil
}

// isScalar reports whether a field of type t is a single value.
func isScalar(t reflect.Type) bool {
	if reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
		return true
	}
	switch t.Kind() {
	case reflect.Struct, reflect.Map, reflect.Slice:
		return false
	}
	return true
}

// kindOf names what a field of type t is.
func kindOf(t reflect.Type) string {
	switch {
	case isScalar(t):
		return "a single value"
	case t.Kind() == reflect.Slice:
		return "a list"
	}
	return "a group of fields"
}
