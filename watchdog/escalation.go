package watchdog

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/job"
)

// Signal is a fact that may have to be escalated: one of the types below.
type Signal interface{ signal() }

// WorkerCrash: a worker ended as CRASH.
type WorkerCrash struct {
	Kind   job.WorkerKind
	Tenant job.Tenant
	Job    job.ID
}

// Ghost: a process tree could not be emptied, so that promise two is broken.
// To be told once for each.
type Ghost struct{ Detail string }

// LatestWins: a run was cancelled because a newer job took its place.
type LatestWins struct{ Workspace string }

// CoreCrash: a core ended without a request to.
type CoreCrash struct{}

// DiskSpace: what is free on the disk of Path. A total of 0 is unknown.
type DiskSpace struct {
	Path                    string
	FreeBytes, TotalBytes   int64
	FreeInodes, TotalInodes int64
}

// ClockJump: the wall clock went on by By more than time passed; below zero it
// went back.
type ClockJump struct{ By time.Duration }

// Overload: the defence has come to its last stage.
type Overload struct{ Evidence string }

func (WorkerCrash) signal() {}
func (Ghost) signal()       {}
func (LatestWins) signal()  {}
func (CoreCrash) signal()   {}
func (DiskSpace) signal()   {}
func (ClockJump) signal()   {}
func (Overload) signal()    {}

// maxSubjects bounds the workspaces, kinds or disks that are remembered; the one
// that was quiet for longest is forgotten first.
const maxSubjects = 1024

// Escalations decides which signals are escalations. It is safe for concurrent use.
type Escalations struct {
	mu      sync.Mutex // guards what follows
	cfg     EscalationConfig
	crashes crashes
	latest  bursts[string]
	cores   bursts[struct{}]
	disks   map[string]time.Time // disks that are nearly full: when that was told last
}

// NewEscalations returns a decider. cfg must be valid.
func NewEscalations(cfg EscalationConfig) *Escalations {
	return &Escalations{
		cfg: cfg, crashes: crashes{}, latest: bursts[string]{}, cores: bursts[struct{}]{},
		disks: map[string]time.Time{},
	}
}

// Configure changes the settings from the next signal on. cfg must be valid.
func (e *Escalations) Configure(cfg EscalationConfig) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cfg = cfg
}

// Observe takes a signal and returns what it brings about. A condition that
// lasts is told Again before its cool-down ends.
func (e *Escalations) Observe(now time.Time, s Signal) []isolation.Escalation {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := &e.cfg
	switch s := s.(type) {
	case WorkerCrash:
		switch limit := c.WorkerCrashes; e.crashes.add(now, s, limit) {
		case ofKind:
			return tell(now, isolation.WorkerScope(s.Kind), isolation.CauseWorkerCrashes, isolation.IsolateKind, limit.CoolDown,
				"worker %s crashed %d times within %s, for several tenants", s.Kind, limit.Count, limit.Within)
		case ofTenant:
			return tell(now, isolation.TenantScope(s.Kind, s.Tenant), isolation.CauseWorkerCrashes, isolation.IsolateKind, limit.CoolDown,
				"worker %s crashed %d times within %s, in jobs of tenant %s alone", s.Kind, limit.Count, limit.Within, s.Tenant)
		}
	case LatestWins:
		if e.latest.add(s.Workspace, now, c.LatestWins) {
			return tell(now, isolation.WorkspaceScope(s.Workspace), isolation.CauseLatestWins, isolation.LockWorkspace, c.LatestWins.CoolDown,
				"%d runs in %s were cancelled for newer ones within %s; something submits in a loop", c.LatestWins.Count, s.Workspace, c.LatestWins.Within)
		}
	case CoreCrash:
		if e.cores.add(struct{}{}, now, c.CoreCrashes) {
			return tell(now, isolation.Global, isolation.CauseCoreCrashes, isolation.SafeStop, c.CoreCrashes.CoolDown,
				"the core crashed %d times within %s", c.CoreCrashes.Count, c.CoreCrashes.Within)
		}
	case Ghost:
		return tell(now, isolation.Global, isolation.CauseGhost, isolation.SafeStop, 0, "a process could not be killed: %s", s.Detail)
	case DiskSpace:
		return e.disk(now, s)
	case ClockJump:
		if limit := c.ClockJump.Above.Std(); limit > 0 && (s.By >= limit || s.By <= -limit) {
			return tell(now, isolation.Global, isolation.CauseClock, isolation.SafeStop, c.ClockJump.CoolDown, "%s", s.words())
		}
	case Overload:
		return tell(now, isolation.Global, isolation.CauseOverload, isolation.Notify, 0, "the host is overloaded: %s", s.Evidence)
	}
	return nil
}

// tell makes an escalation; a coolDown of 0 lasts until an operator ends it.
func tell(now time.Time, scope isolation.Scope, cause isolation.Cause, action isolation.Remedy, coolDown job.Duration, format string, args ...any) []isolation.Escalation {
	x := isolation.Escalation{Scope: scope, Cause: cause, Message: fmt.Sprintf(format, args...), Action: action, Time: now.UTC()}
	if coolDown > 0 {
		x.Until = x.Time.Add(coolDown.Std())
	}
	return []isolation.Escalation{x}
}

func (j ClockJump) words() string {
	if j.By < 0 {
		return fmt.Sprintf("the wall clock went back by %s", -j.By)
	}
	return fmt.Sprintf("the wall clock jumped ahead by %s, or the machine slept that long", j.By)
}

// disk tells that a disk is nearly full, and again in the middle of each
// cool-down as long as it is, so that the stop does not lapse meanwhile.
func (e *Escalations) disk(now time.Time, s DiskSpace) []isolation.Escalation {
	c := e.cfg.Disk
	told, low := e.disks[s.Path]
	switch {
	case c.MinFreeBytes <= 0, low && !c.short(s, 2), !low && !c.short(s, 1):
		delete(e.disks, s.Path)
		return nil
	case low && now.Sub(told) < c.CoolDown.Std()/2:
		return nil
	case !low && len(e.disks) >= maxSubjects:
		delete(e.disks, slices.MinFunc(slices.Sorted(maps.Keys(e.disks)), func(a, b string) int { return e.disks[a].Compare(e.disks[b]) }))
	}
	e.disks[s.Path] = now
	out := tell(now, isolation.Global, isolation.CauseDisk, isolation.SafeStop, c.CoolDown, "the disk of %s is nearly full: %s", s.Path, s.words())
	out[0].Again = low
	return out
}

// short reports whether less than times the least is free.
func (c Disk) short(s DiskSpace, times int64) bool {
	limit := c.MinFreeRatio * float64(times)
	bytes := s.TotalBytes > 0 && s.FreeBytes < c.MinFreeBytes*times && float64(s.FreeBytes) < limit*float64(s.TotalBytes)
	inodes := s.TotalInodes > 0 && float64(s.FreeInodes) < limit/2*float64(s.TotalInodes)
	return bytes || inodes
}

func (s DiskSpace) words() string {
	text := fmt.Sprintf("%d of %d MiB are free", s.FreeBytes>>20, s.TotalBytes>>20)
	if s.TotalInodes > 0 {
		text += fmt.Sprintf(", and %d of %d inodes", s.FreeInodes, s.TotalInodes)
	}
	return text
}

// bursts keeps the times of the last events of each subject.
type bursts[K comparable] map[K][]time.Time

// add records an event, and reports whether it completes a burst; the next
// burst begins empty.
func (b bursts[K]) add(k K, now time.Time, limit Burst) bool {
	if limit.Count <= 0 {
		return false
	}
	old := func(t time.Time) bool { return now.Sub(t) >= limit.Within.Std() }
	if _, known := b[k]; !known && len(b) >= maxSubjects {
		b.forget(old)
	}
	times := append(slices.DeleteFunc(b[k], old), now)
	if len(times) >= limit.Count {
		delete(b, k)
		return true
	}
	b[k] = times
	return false
}

// forget drops the subjects without a recent event, or else the one whose last
// event is oldest.
func (b bursts[K]) forget(old func(time.Time) bool) {
	var quietest K
	var last time.Time
	for k, times := range b {
		t := times[len(times)-1]
		if old(t) {
			delete(b, k)
		} else if last.IsZero() || t.Before(last) {
			quietest, last = k, t
		}
	}
	if len(b) >= maxSubjects {
		delete(b, quietest)
	}
}
