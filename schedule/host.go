package schedule

import (
	"cmp"
	"runtime"
	"slices"
	"time"

	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/job"
)

// Host is a machine on which cores run. Several cores may have the same, by its name. It
// must not be changed once the Machine was told.
type Host struct {
	Name     string
	OS, Arch string // as Go calls them
	Labels   map[string]string
	// Kinds are the kinds of workers that are there and logged in; nil: any, it does not say.
	Kinds []job.WorkerKind
	// Sandbox is the level at which it holds runs whose job names none, and Levels are those that a job may name
	// there; nil: any, it does not say.
	Sandbox job.SandboxLevel
	Levels  []job.SandboxLevel
	// Slots is how many jobs at once it takes, over all of its cores; 0: as many as there are.
	Slots int
	// Memory is what its jobs may have together, in bytes; 0: it does not say, and has any.
	Memory int64
	// Mirrors are those of repositories that it has, as job.Workspace.Mirror names them, sorted.
	Mirrors  []string
	Cordoned bool // it takes nothing new
	Isolated bool // likewise, because something is wrong with it
	// Out is what is isolated there. Of it the kinds of workers count here, for all tenants or for one;
	// Isolated says that it is all of the host.
	Out []isolation.Scope
}

// ownHost is the scheduler's own, where nobody describes it: it is bounded by Bounds alone.
var ownHost = Host{OS: runtime.GOOS, Arch: runtime.GOARCH}

// host is a Host with what is in flight on it.
type host struct {
	Host
	cores []*book // none: all are gone, and it is kept for what is in flight there
	takes bool    // one of them takes work

	flights int   // chosen for it and not ended
	memory  int64 // what these asked for
	// fresh is how many of them were chosen since its cores throttle: see mayProbe.
	fresh   int
	allows  int       // jobs at once while its cores throttle; 0: no bound
	probeAt time.Time // when to probe again after a core has refused that; zero: at once
}

// state is what a host can do for a job, the best first.
type state int

const (
	hasRoom    state = iota
	isFull           // all of its slots are taken
	overloaded       // its cores let no more jobs begin
	short            // too little memory is left
	idle             // its cores start or are replaced
	isolated
	cordoned
)

// slots is how many jobs at once it may have, of all that there are.
func (h *host) slots(all int) int {
	if h.Slots > 0 && h.Slots < all {
		return h.Slots
	}
	return all
}

// throttled reports whether its cores allow less than its slots.
func (h *host) throttled(all int) bool { return h.allows > 0 && h.allows < h.slots(all) }

// allowed is how many jobs at once it may have now.
func (h *host) allowed(all int) int {
	switch {
	case !h.throttled(all):
		return h.slots(all)
	case h.mayProbe(all):
		return max(h.allows, h.flights+1)
	}
	return h.allows
}

// mayProbe reports whether one job may start although the cores throttle: what ran before
// must not use up all that they leave, or nothing would show that the host fares well
// again. A core lets one through in the same way.
func (h *host) mayProbe(all int) bool {
	return h.fresh == 0 && h.probeAt.IsZero() && h.flights < h.slots(all)
}

// free is how many more jobs may start there now.
func (h *host) free(all int) int {
	if !h.takes || h.closed() {
		return 0
	}
	return max(h.allowed(all)-h.flights, 0)
}

// closed reports whether the host takes nothing new until somebody or something changes that.
func (h *host) closed() bool { return h.Cordoned || h.Isolated }

// stands says what the host can do for a job that asks for so much memory. alone: it is the
// only one, whose slots were looked at before.
func (h *host) stands(memory int64, all int, alone bool) state {
	switch {
	case h.Cordoned:
		return cordoned
	case h.Isolated:
		return isolated
	case !h.takes && !alone:
		return idle
	case !alone && h.flights >= h.slots(all):
		return isFull
	case !alone && h.free(all) == 0:
		return overloaded
	case h.Memory > 0 && memory > h.Memory-h.memory:
		return short
	}
	return hasRoom
}

// isOut reports whether the kind of worker is isolated there for the jobs of a tenant; "": for those of all.
func (h *host) isOut(kind job.WorkerKind, tenant job.Tenant) bool {
	return slices.ContainsFunc(h.Out, func(s isolation.Scope) bool {
		_, _, ok := s.Worker()
		return ok && s.Touches(isolation.Run{Kind: kind, Tenant: tenant})
	})
}

// has reports whether the kind of worker is there.
func (h *host) has(kind job.WorkerKind) bool {
	return h.Kinds == nil || kind == "" || slices.Contains(h.Kinds, kind)
}

// holds reports whether it can hold a run as its job asks, and may; "" is as the host does by itself.
func (h *host) holds(level job.SandboxLevel) bool {
	return h.Levels == nil || slices.Contains(h.Levels, cmp.Or(level, h.Sandbox))
}

// least returns the core that takes work and has the least to do; nil if none does.
func (h *host) least() (best *book) {
	for _, b := range h.cores {
		if b.core.Takes && (best == nil || b.flights < best.flights) {
			best = b
		}
	}
	return best
}

// hosts are the hosts of the cores.
type hosts struct {
	list  []*host // that have cores, in the order of these
	named map[string]*host
	told  bool // somebody has described one
	pack  bool

	// version changes with the list, and freed with each event that may make room on one.
	version, freed uint64
	classes        map[string]*class
	any            class     // of jobs that require nothing
	probeAt        time.Time // the earliest of the hosts'; zero: none
}

// describe takes the hosts of the cores, which are in order, and returns those whose cores
// throttle since.
func (s *hosts) describe(books []*book) (throttle []*host) {
	before := make(map[*host]int, len(s.named))
	for _, h := range s.named {
		before[h] = h.allows
		h.cores, h.takes, h.allows = nil, false, 0
	}
	s.list, s.told = nil, false
	for _, b := range books {
		told := &ownHost
		if b.core.Host != nil {
			told, s.told = b.core.Host, true
		}
		h := s.named[told.Name]
		if h == nil {
			h = &host{}
			s.named[told.Name] = h
		}
		if h.cores == nil {
			s.list = append(s.list, h)
			h.Host = *told
		}
		h.cores = append(h.cores, b)
		h.takes = h.takes || b.core.Takes
		if n := b.core.Concurrency; n > 0 && (h.allows == 0 || n < h.allows) {
			h.allows = n
		}
	}
	for name, h := range s.named {
		if len(h.cores) == 0 && h.flights == 0 {
			delete(s.named, name)
		}
	}
	for _, h := range s.list {
		if before[h] == 0 && h.allows > 0 {
			throttle = append(throttle, h)
		}
	}
	s.version++
	s.freed++
	return throttle
}

// take counts a flight on a host, from the moment it is chosen.
func (s *hosts) take(h *host, f *flight, memory int64) {
	f.host, f.memory = h, memory
	f.probe = h.allows > 0 && h.flights >= h.allows
	h.flights++
	h.fresh++
	h.memory += memory
}

// await counts a flight on a host that may not have come: it was chosen by an earlier scheduler.
func (s *hosts) await(name string, f *flight, memory int64) {
	h := s.named[name]
	if h == nil {
		h = &host{Host: Host{Name: name}}
		s.named[name] = h
	}
	s.take(h, f, memory)
	f.probe, f.earlier = false, true
	h.fresh--
}

// give counts it back.
func (s *hosts) give(f *flight) {
	h := f.host
	h.flights--
	h.memory -= f.memory
	if !f.earlier {
		h.fresh--
	}
	if len(h.cores) == 0 && h.flights == 0 {
		delete(s.named, h.Name)
	}
	s.freed++
}

// lend gives back the slot of a flight that goes on waiting there: n is 1, or -1 when it takes it
// again. Its memory stays its own.
func (s *hosts) lend(h *host, n int) {
	h.flights -= n
	s.freed++
}

// probed has a host be probed again at the time.
func (s *hosts) probed(h *host, at time.Time) {
	h.probeAt = at
	s.probeAt = earlier(s.probeAt, at)
}

// mayProbe lets hosts be probed again whose time has come.
func (s *hosts) mayProbe(at time.Time) {
	s.probeAt = time.Time{}
	for _, h := range s.named {
		if due(h.probeAt, at) {
			h.probeAt = time.Time{}
		}
		s.probeAt = earlier(s.probeAt, h.probeAt)
	}
	s.freed++
}

// alone returns the host if there is only one, else nil.
func (s *hosts) alone() *host {
	if len(s.list) == 1 {
		return s.list[0]
	}
	return nil
}

// free is how many more jobs may start on all hosts together, counted up to most.
func (s *hosts) free(most, all int) (n int) {
	for _, h := range s.list {
		if n += h.free(all); n >= most {
			return most
		}
	}
	return n
}

// slots is how many jobs at once all hosts together may have, at most all.
func (s *hosts) slots(all int) (n int) {
	for _, h := range s.list {
		if n += h.slots(all); n >= all {
			return all
		}
	}
	return n
}
