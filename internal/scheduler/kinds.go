package scheduler

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/agentsched/agentsched/internal/fields"
	"github.com/agentsched/agentsched/job"
)

// kinds says what the adapters of the configured kinds of worker are like.
type kinds struct {
	adapters map[string]job.WorkerTraits // by adapter
	workers  func() map[job.WorkerKind]job.WorkerSettings
}

// traits returns what the adapter of a kind of worker says of it.
func (k kinds) traits(kind job.WorkerKind) job.WorkerTraits {
	return k.adapters[cmp.Or(k.workers()[kind].Adapter, string(kind))]
}

// forking returns the kinds of worker that can go on from a copy of a session.
func (k kinds) forking() []string {
	var list []string
	for name, t := range k.adapters {
		if t.Forks && !t.NeedsCommand {
			list = append(list, name)
		}
	}
	for kind, w := range k.workers() {
		if k.traits(kind).Forks && w.Adapter != "" {
			list = append(list, string(kind))
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// check returns an error if there is no such kind of worker. A kind is an adapter's, or
// one that the configuration gives another name.
func (k kinds) check(kind job.WorkerKind) error {
	var known []string
	for name := range k.adapters {
		known = append(known, name)
	}
	for name := range k.workers() {
		known = append(known, string(name))
	}
	slices.Sort(known)
	if known = slices.Compact(known); slices.Contains(known, string(kind)) {
		return nil
	}
	hint := ""
	if near := fields.Nearest(string(kind), known); near != "" {
		hint = fmt.Sprintf("; did you mean %s?", near)
	}
	return fmt.Errorf("there is no worker %q, want one of %s%s", kind, strings.Join(known, ", "), hint)
}

// shells returns the kinds of worker that are shells by another name.
func (k kinds) shells() []job.WorkerKind {
	var list []job.WorkerKind
	for name, t := range k.adapters {
		if t.Script {
			list = append(list, job.WorkerKind(name))
		}
	}
	for kind, w := range k.workers() {
		if k.adapters[w.Adapter].Script {
			list = append(list, kind)
		}
	}
	return list
}
