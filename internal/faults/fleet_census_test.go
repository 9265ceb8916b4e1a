//go:build linux

package faults

import (
	"strconv"
	"strings"
	"time"

	"github.com/agentsched/agentsched/internal/proc"
)

// span is for how long a run had processes.
type span struct {
	job          string
	attempt      int
	born         time.Time // when its first process was started
	began, ended time.Time // when that said so; ended: zero while it has some
	frozen       time.Time // when its host was frozen, if another run has taken its place since then
}

func newSpan(m *member) *span {
	s := &span{job: m.Job, began: time.Now()}
	s.attempt, _ = strconv.Atoi(m.Run[strings.LastIndexByte(m.Run, '/')+1:])
	s.born = s.began
	if p, err := proc.Find(m.pid); err == nil { // in hundredths of a second since the boot
		s.born = s.began.Add(time.Duration(p.Start)*10*time.Millisecond - proc.Uptime())
	}
	return s
}

// fleetNode is a host of a fleet, as the census knows it.
type fleetNode struct {
	name   string
	slots  int
	frozen time.Time // as a whole; zero: never
	thawed time.Time // before frozen: it stands still now
	slowly bool      // it is being stopped, one process after the other
}

func (n *fleetNode) still() bool { return n.frozen.After(n.thawed) }

// thawedRun is how long a run may last when its host, which was frozen as a whole, goes on: the core gives
// it half of the validity of its permit, and then it is stopped; the fuse comes an eighth of both later (docs/fleet.md).
// The rest is for a machine that is busy: all processes of the host wake up at once, beside those of another scenario.
func (p *plan) thawedRun() time.Duration {
	return fleetValidity/2 + fleetStop + (fleetValidity+fleetStop)/8 + 3*time.Second
}

// hostLocked returns the host of a run, nil where there is but one.
func (c *census) hostLocked(run string) *fleetNode {
	instance, _, _ := strings.Cut(run, "/")
	return c.hosts[instance]
}

// excusedLocked reports whether a process cannot know that its job may have been given to another host: its own is
// frozen as a whole, or was when the process was there already and goes on for a moment only.
func (c *census) excusedLocked(m *member) bool {
	host := c.hostLocked(m.Run)
	if host == nil || host.frozen.IsZero() || c.spans[m.Run] == nil || c.spans[m.Run].born.After(host.frozen) && !host.slowly {
		return false
	}
	return host.still() || time.Since(host.thawed) < c.plan.thawedRun()
}

// overtakenLocked notes that a run of a host that is or was frozen has a successor.
func (c *census) overtakenLocked(m *member) {
	own := c.spans[m.Run]
	for other := range c.live {
		if other.Job == m.Job && c.spans[other.Run].attempt > own.attempt {
			own.frozen = c.hostLocked(m.Run).frozen
		}
	}
}

// goneLocked notes the end of a process, and that of its run if it was the last.
func (c *census) goneLocked(m *member) {
	if !c.live[m] {
		return
	}
	delete(c.live, m)
	for other := range c.live {
		if other.Run == m.Run {
			return
		}
	}
	own := c.spans[m.Run]
	own.ended = time.Now()
	host := c.hostLocked(m.Run)
	if host == nil || own.frozen.IsZero() || host.still() {
		return
	}
	window := own.ended.Sub(host.thawed)
	c.window = max(c.window, window)
	if most := c.plan.thawedRun(); window > most {
		c.wrongLocked("run %s of %s lived for %s after its host was thawed, beside its successor; at most %s are promised", m.Run, m.Job, window, most)
	}
}

// freeze notes that a host is being stopped from now on, stood that it stands still, with what has begun meanwhile, and
// thaw that it goes on.
func (c *census) freeze(n *fleetNode) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n.frozen, n.slowly = time.Now(), true
}

func (c *census) stood(n *fleetNode) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n.frozen, n.slowly = time.Now(), false
}

func (c *census) thaw(n *fleetNode) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n.thawed, n.slowly = time.Now(), false
}

// know says which instance a host's runs carry the tag of.
func (c *census) know(instance string, n *fleetNode) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hosts == nil {
		c.hosts = map[string]*fleetNode{}
	}
	c.hosts[instance] = n
}
