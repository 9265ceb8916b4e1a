package config

import (
	"reflect"
	"slices"
	"strings"

	"github.com/agentsched/agentsched/internal/fields"
)

// fixed are the sections, and the fields of others, that are read once, when the
// program or its cores are first started.
func fixed() []string {
	return []string{"heartbeat", "cores", "webhooks", "api", "fleet", "log.format", "telemetry", "audit"}
}

// isFixed reports whether the field at path is read once.
func isFixed(path string) bool {
	return slices.ContainsFunc(fixed(), func(f string) bool { return within(path, f) })
}

// within reports whether path is that of the field at, or of one below it.
func within(path, at string) bool {
	rest, found := strings.CutPrefix(path, at)
	return found && (rest == "" || at == "" || rest[0] == '.' || rest[0] == '[')
}

// Changes returns the paths of the fields that differ between two
// configurations, in the order in which the fields are declared: those that a
// running scheduler takes over, and those for which it must be started anew. An
// entry of a map that only one of them has, and a list, is one path.
func Changes(old, next Config) (reload, restart []string) {
	for _, path := range differences("", reflect.ValueOf(old), reflect.ValueOf(next)) {
		if isFixed(path) {
			restart = append(restart, path)
		} else {
			reload = append(reload, path)
		}
	}
	return reload, restart
}

// Reloaded returns what is in force in a program that was started with c and has
// read next: next, but for what is read only once.
func (c Config) Reloaded(next Config) Config {
	next.Heartbeat, next.Cores, next.Webhooks = c.Heartbeat, c.Cores, c.Webhooks
	next.API, next.Fleet, next.Telemetry, next.Audit = c.API, c.Fleet, c.Telemetry, c.Audit
	next.Log.Format = c.Log.Format
	return next
}

// differences returns the paths in which a and b, of one type, differ.
func differences(path string, a, b reflect.Value) []string {
	var list []string
	switch a.Kind() {
	case reflect.Struct:
		for _, f := range fields.Of(a.Type()) {
			list = append(list, differences(fields.Join(path, f.Name), a.FieldByIndex(f.Index), b.FieldByIndex(f.Index))...)
		}
		return list
	case reflect.Map:
		for _, name := range names(a, b) {
			inA, inB := a.MapIndex(name), b.MapIndex(name)
			at := fields.Join(path, name.String())
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
