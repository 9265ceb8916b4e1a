package agentcore

import (
	"fmt"
	"time"

	"github.com/agentsched/agentsched/internal/proc"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/permit"
	"github.com/agentsched/agentsched/worker"
)

// fuseStop ends the attempts whose processes the fuse has killed.
var fuseStop = &worker.Stop{Class: job.CancelledClass, Lost: true, Message: "the permit lapsed while the core stood still: its fuse has ended the run"}

// lapsePermits stops the runs whose permits the scheduler has not renewed in time,
// until done is closed. Their ends are reported when it reads again.
func (c *Core) lapsePermits(done <-chan struct{}) {
	for {
		look := time.NewTimer(c.gate.LookEvery())
		select {
		case <-done:
			look.Stop()
			return
		case <-c.reconfigured: // the next look may be due earlier
		case <-look.C:
		}
		look.Stop()
		blown := c.heedFuse()
		stop := &worker.Stop{Class: job.CancelledClass, Lost: true, Message: fmt.Sprintf("the permit lapsed: the scheduler did not renew it within %s", c.validity())}
		n := c.gate.Lapse(proc.Uptime(), stop)
		if c.gate.Lapsed() && !c.working() {
			c.fuse().rest()
		}
		// The log goes through a pipe that the scheduler may not read: it comes last.
		if n > 0 {
			c.cfg.Log.Error().Int("permits", n).Stringer("permit_validity", c.validity()).Msg("permits lapsed, their runs are stopped: the scheduler has not renewed them")
		}
		c.logBlown(blown)
		c.fuse().check()
	}
}

// lapse stops the runs, since whoever renews the permits knows that they have lapsed.
func (c *Core) lapse() {
	stop := &worker.Stop{Class: job.CancelledClass, Lost: true, Message: "the permit lapsed: the host was out of the scheduler's reach for too long"}
	if n := c.gate.Void(stop); n > 0 {
		c.cfg.Log.Error().Int("permits", n).Msg("permits have lapsed while this host stood still or was cut off: their runs are stopped")
	}
}

// renew makes the permits valid for another validity, from when the scheduler said so: sent,
// by proc.Uptime, or now if that is 0. Words may have waited while the host, or this process,
// stood still; those that are worth nothing any more revive nothing.
func (c *Core) renew(sent time.Duration) {
	defer c.logBlown(c.heedFuse()) // a permit that has lapsed is not revived
	at, lease := proc.Uptime(), c.lease()
	if sent > 0 && sent < at {
		if at-sent >= lease.Validity {
			return
		}
		at = sent
	}
	c.gate.Renew(at)
	c.fuse().renew(lease, at)
}

// heedFuse revokes the permits of runs that the fuse has ended while this process stood
// still, and returns how many. Whoever judges the end of a run calls it before.
func (c *Core) heedFuse() int {
	c.heeding.Lock()
	defer c.heeding.Unlock()
	if !c.fuse().hasBlown() {
		return 0
	}
	return c.gate.Void(fuseStop)
}

func (c *Core) logBlown(permits int) {
	if permits > 0 {
		c.cfg.Log.Error().Int("permits", permits).Msg("this process stood still until its permits had lapsed, and its fuse has ended the runs")
	}
}

func (c *Core) fuse() *fuse {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session == nil {
		return nil
	}
	return c.session.fuse
}

// lease is that of the fuse: it leaves time to stop the runs, each as the settings that it
// began with say.
func (c *Core) lease() permit.Lease {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.settings == nil {
		return permit.Lease{}
	}
	l := ipc.Lease{Validity: c.settings.PermitValidity.Std(), Stop: c.settings.Stop.Longest()}
	for _, e := range c.live {
		l.Stop = max(l.Stop, e.settings.Stop.Longest())
	}
	return permit.Lease{Validity: l.Validity, Margin: l.Fuse() - l.Validity}
}

// working says whether a run has processes, or may have, that must not go on without a
// permit.
func (c *Core) working() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.live {
		if e.working.Load() && e.submit.Spec.Limits.OnPartition != job.FinishOnPartition {
			return true
		}
	}
	return false
}

// validity is how long permits stay valid without a renewal; 0: for ever.
func (c *Core) validity() job.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.settings == nil {
		return 0
	}
	return c.settings.PermitValidity
}
