package schedule

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/job"
)

// room counts what the jobs in flight hold, so that no job is claimed for which a core
// has no place. It only avoids useless requests: the cores enforce all of it.
type room struct {
	bounds     Bounds
	mode       Mode
	isolations Isolations
	parked     map[job.ID]bool // refused by an isolation when they were asked for last
	flights    map[job.ID]*flight
	cores      *coreBooks

	// sessions are since when jobs wait for the host that has their session, and sessionAt
	// when the first of them has waited for long enough; zero: none waits.
	sessions  map[job.ID]time.Time
	sessionAt time.Time

	lent     int // flights that wait for others and hold no slot
	workers  map[job.WorkerKind]int
	tenants  map[job.Tenant]int
	folders  map[string]int // real paths of workspaces
	direct   []string       // those of them in which a job works directly
	alone    []string       // those of jobs of type MAINTENANCE, in which nobody else works
	reserved []string       // those for which such jobs wait until the others have ended
}

// use is what one job in flight holds.
type use struct {
	worker job.WorkerKind
	tenant job.Tenant
	folder string // the real path of its workspace; "": none
	direct bool   // it works in the folder itself
	alone  bool   // nobody else may work there meanwhile
}

func newRoom(b Bounds, all map[job.ID]*flight, cores *coreBooks) room {
	return room{bounds: b, parked: map[job.ID]bool{}, sessions: map[job.ID]time.Time{}, flights: all, cores: cores,
		workers: map[job.WorkerKind]int{}, tenants: map[job.Tenant]int{}, folders: map[string]int{}}
}

// take counts what a flight holds, from its claim on.
func (r *room) take(u use) {
	r.workers[u.worker]++
	r.tenants[u.tenant]++
	if u.folder == "" {
		return
	}
	r.folders[u.folder]++
	if u.direct {
		r.direct = append(r.direct, u.folder)
	}
	if u.alone {
		r.alone = append(r.alone, u.folder)
	}
}

// give counts it back. u is what take was told, after a Moved with the other kind.
func (r *room) give(u use) {
	less(r.workers, u.worker)
	less(r.tenants, u.tenant)
	if u.folder == "" {
		return
	}
	less(r.folders, u.folder)
	if u.direct {
		r.direct = without(r.direct, u.folder)
	}
	if u.alone {
		r.alone = without(r.alone, u.folder)
	}
}

// lend gives back the slots of a flight that waits for others: n is 1, or -1 when it takes them
// again, which it may where none is free. It keeps its folder to itself if it works directly there.
func (r *room) lend(u use, n int) {
	r.lent += n
	r.workers[u.worker] -= n
	r.tenants[u.tenant] -= n
	if u.folder != "" {
		r.folders[u.folder] -= n
	}
}

// reserve keeps jobs that come later out of a folder for which maintenance waits.
func (r *room) reserve(folder string) { r.reserved = append(r.reserved, folder) }

// release forgets the reservations: they are made anew while heads are passed over, by
// those that still wait.
func (r *room) release() { r.reserved = nil }

// less counts one down, and forgets what is not held any more.
func less[K comparable](m map[K]int, key K) {
	if m[key]--; m[key] <= 0 {
		delete(m, key)
	}
}

// without removes one of the texts that are equal to text.
func without(list []string, text string) []string {
	if i := slices.Index(list, text); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}

// slots returns how many more jobs may start now, and if none may, what they wait for.
func (r *room) slots(at time.Time) (int, job.Waiting) {
	hosts, all := &r.cores.hosts, r.bounds.Slots
	switch {
	case r.mode == Stopping:
		return 0, job.Waiting{Reason: job.WaitScheduler, Text: "the one that runs is about to end"}
	case r.mode == Draining:
		return 0, job.Waiting{Reason: job.WaitScheduler, Text: "the one that runs begins nothing until it is replaced"}
	case !slices.ContainsFunc(hosts.list, func(h *host) bool { return h.takes }):
		return 0, job.Waiting{Reason: job.WaitCore, Text: "none takes work"}
	}
	if i, blocked := r.blocked(at, isolation.Run{}); blocked && i.Scope == isolation.Global {
		return 0, i.Waiting()
	}
	n := all - r.taken()
	if h := hosts.alone(); h != nil && !h.closed() && n >= h.allowed(all)-h.flights {
		why := job.WaitSlot
		if h.throttled(all) {
			why = job.WaitLoad
		}
		return h.free(all), job.Waiting{Reason: why, Text: taken(h.flights, h.allowed(all), "")}
	}
	why := job.Waiting{Reason: job.WaitSlot, Text: taken(r.taken(), all, "")}
	if n > 0 {
		if n = hosts.free(n, all); n == 0 {
			why = hosts.nowhere(hosts.all(), all)
		}
	}
	return max(n, 0), why
}

// taken is how many slots are.
func (r *room) taken() int { return len(r.flights) - r.lent }

// free is how many more jobs may start now, on whatever host.
func (r *room) free(at time.Time) int {
	n, _ := r.slots(at)
	return n
}

// refuses returns what a head would wait for if it were claimed, or else where it would run;
// false: there is room. The reasons are in the order in which a user can do most about them: a
// grant, an isolation, the limits of worker and tenant, its node, and last the folder, which
// frees itself.
func (r *room) refuses(at time.Time, t job.Tenant, h *head) (spot, bool) {
	if w, refused := r.refusesOwner(at, t, h); refused {
		return spot{waiting: w}, true
	}
	where := r.place(at, t, h)
	if where.waiting.Reason != "" {
		return where, true
	}
	if w, refused := r.refusesFolder(h); refused {
		return spot{waiting: w}, true
	}
	return where, false
}

// wouldRun reports whether a head would run if a host that suits it had a slot.
func (r *room) wouldRun(at time.Time, t job.Tenant, h *head) bool {
	_, refused := r.refusesOwner(at, t, h)
	if !refused && r.cores.hosts.suits(h) {
		_, refused = r.refusesFolder(h)
		return !refused
	}
	return false
}

// refusesOwner looks at all that has to do neither with a host nor with a folder.
func (r *room) refusesOwner(at time.Time, t job.Tenant, h *head) (job.Waiting, bool) {
	if r.flights[h.ID] != nil {
		return job.Waiting{Reason: job.WaitTurn}, true // its end is on its way here
	}
	if h.Over {
		return job.Waiting{Reason: job.WaitBudget, Text: "a grant or the credits are used up"}, true
	}
	if r.parked[h.ID] {
		if i, blocked := r.blocked(at, isolation.Run{Kind: h.Worker, Tenant: t, Workspace: h.real}); blocked {
			return i.Waiting(), true
		}
	}
	if limit := r.bounds.Workers[h.Worker]; full(limit, r.workers[h.Worker]) {
		return job.Waiting{Reason: job.WaitSlot, Text: "all slots of worker " + string(h.Worker) + " are taken"}, true
	}
	limits := &r.bounds.Limits
	if limit := bound(limits.PerTenant, t, limits.EachTenant); full(limit, r.tenants[t]) {
		return job.Waiting{Reason: job.WaitSlot, Text: taken(r.tenants[t], limit, " of tenant "+string(t))}, true
	}
	return job.Waiting{}, false
}

// refusesFolder looks at the workspace alone.
func (r *room) refusesFolder(h *head) (job.Waiting, bool) {
	wait := func(text string) (job.Waiting, bool) { return job.Waiting{Reason: job.WaitFolder, Text: text}, true }
	switch {
	case h.Workspace.Path == "":
		return job.Waiting{}, false
	case !h.known: // soon, without anybody waiting for a file system here
		return wait(h.Workspace.Path + " is being looked up")
	}
	limits, path := &r.bounds.Limits, h.real
	if limit := bound(limits.PerWorkspace, path, limits.EachWorkspace); full(limit, r.folders[path]) {
		return wait(taken(r.folders[path], limit, " of "+path))
	}
	if h.Workspace.Isolation == job.Direct {
		if other, found := overlapping(r.direct, path); found {
			return wait("another job works in " + other)
		}
	}
	if other, found := overlapping(r.alone, path); found {
		return wait("maintenance of " + other + " goes first")
	}
	if !h.Joined { // what others of its batch may wait for must not wait for it
		if other, found := overlapping(r.reserved, path); found {
			return wait("maintenance of " + other + " goes first")
		}
	}
	if h.Type == job.Maintenance {
		if other, found := overlapping(slices.Sorted(maps.Keys(r.folders)), path); found {
			return wait("jobs work from " + other)
		}
	}
	return job.Waiting{}, false
}

// bound returns a limit by name, or else that of each; 0 is none.
func bound[K comparable](named map[K]int, name K, each int) int {
	if limit, ok := named[name]; ok {
		return limit
	}
	return each
}

// full reports whether a bound, 0 is none, is reached.
func full(limit, taken int) bool { return limit > 0 && taken >= limit }

// taken says in words that slots are.
func taken(n, of int, whose string) string {
	return fmt.Sprintf("%d of %d slots%s are taken", n, of, whose)
}

// overlapping returns the first of the paths that overlaps path.
func overlapping(paths []string, path string) (string, bool) {
	i := slices.IndexFunc(paths, func(p string) bool { return overlap(p, path) })
	if i < 0 {
		return "", false
	}
	return paths[i], true
}

// overlap reports whether one path is the other, or lies below it. Both are real and clean.
func overlap(a, b string) bool {
	return a == b || strings.HasPrefix(a, withSlash(b)) || strings.HasPrefix(b, withSlash(a))
}

// withSlash ends a path with one slash, so that /srv/shop does not lie in /srv/sh.
func withSlash(path string) string { return strings.TrimSuffix(path, "/") + "/" }

// blocked returns the isolation that keeps a run from running at the time.
func (r *room) blocked(at time.Time, run isolation.Run) (isolation.Isolation, bool) {
	for _, i := range r.isolations {
		if !due(i.Until, at) && i.Scope.Touches(run) {
			return i, true
		}
	}
	return isolation.Isolation{}, false
}

// blockedOn is blocked for a run that was placed on a node: its kind of worker may be isolated there.
func (r *room) blockedOn(at time.Time, node string, run isolation.Run) (isolation.Isolation, bool) {
	if i, blocked := r.blocked(at, run); blocked {
		return i, true
	}
	for _, i := range r.isolations {
		name, what, ok := i.Scope.Host()
		if _, _, worker := what.Worker(); ok && worker && name == node && !due(i.Until, at) && what.Touches(run) {
			return i, true
		}
	}
	return isolation.Isolation{}, false
}
