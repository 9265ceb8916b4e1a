package config

import (
	"reflect"
	"slices"
	"strings"

	"github.com/agentsched/agentsched/internal/strictyaml"
)

// fixed are the sections that are read once, when the cores are first started.
func fixed() []string { return []string{"heartbeat", "cores", "webhooks"} }

// Changes returns the paths of the fields that differ between two
// configurations, in the order in which the fields are declared: those that a
// running scheduler takes over, and those for which it must be started anew. An
// entry of a map that only one of them has, and a list, is one path.
func Changes(old, next Config) (reload, restart []string) {
	for _, path := range differences("", reflect.ValueOf(old), reflect.ValueOf(next)) {
		section, _, _ := strings.Cut(path, ".")
		if slices.Contains(fixed(), section) {
			restart = append(restart, path)
		} else {
			reload = append(reload, path)
		}
	}
	return reload, restart
}

// differences returns the paths in which a and b, of one type, differ.
func differences(path string, a, b reflect.Value) []string {
	var list []string
	switch a.Kind() {
	case reflect.Struct:
		for i := range a.NumField() {
			name := strictyaml.FieldName(a.Type().Field(i))
			list = append(list, differences(strictyaml.Entry(path, name), a.Field(i), b.Field(i))...)
		}
		return list
	case reflect.Map:
		for _, name := range names(a, b) {
			inA, inB := a.MapIndex(name), b.MapIndex(name)
			at := strictyaml.Entry(path, name.String())
			if !inA.IsValid() || !inB.IsValid() {
				list = append(list, at)
				continue
			}
			list = append(list, differences(at, inA, inB)...)
		}
		return list
	case reflect.Slice:
		if a.Len() == 0 && b.Len() == 0 { // none is none
			return nil
		}
	}
	if reflect.DeepEqual(a.Interface(), b.Interface()) {
		return nil
	}
	return []string{path}
}

// names returns the keys, which are texts, of two maps, each once, sorted.
func names(maps ...reflect.Value) []reflect.Value {
	var all []reflect.Value
	for _, m := range maps {
		all = append(all, m.MapKeys()...)
	}
	slices.SortFunc(all, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
	return slices.CompactFunc(all, func(a, b reflect.Value) bool { return a.String() == b.String() })
}
