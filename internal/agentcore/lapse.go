package agentcore

import (
	"fmt"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// lapsePermits stops the runs whose permits the scheduler has not renewed in time,
// until done is closed. Their ends are reported when it reads again.
func (c *Core) lapsePermits(done <-chan struct{}) {
	for {
		look := time.NewTimer(c.gate.LookEvery())
		select {
		case <-done:
			look.Stop()
			return
		case <-look.C:
		}
		stop := &worker.Stop{Class: job.CancelledClass, Lost: true, Message: fmt.Sprintf("the permit lapsed: the scheduler did not renew it within %s", c.validity())}
		// The log goes through a pipe that the scheduler may not read: it comes last.
		if n := c.gate.Lapse(Uptime(), stop); n > 0 {
			c.cfg.Log.Error().Int("permits", n).Stringer("permit_validity", c.validity()).Msg("permits lapsed, their runs are stopped: the scheduler has not renewed them")
		}
	}
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
