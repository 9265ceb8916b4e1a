package scheduler

import (
	"cmp"

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
