package supervisor

import (
	"context"
	"fmt"
	"time"

	"github.com/agentsched/agentsched/internal/proc"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
)

// serve watches the core until it dies, hangs, is replaced or ctx ends.
func (st *seat) serve(ctx context.Context, c *Core) error {
	tick := time.NewTicker(st.s.cfg.Heartbeat)
	defer tick.Stop()
	judge := health{cfg: &st.s.cfg}
	for seq := int64(1); ; {
		if r := st.takeWanted(); r != nil {
			if st.drain(c, r.why, r.drain); !r.drain {
				return c.shutdown(c.replaced)
			}
		}
		select {
		case <-c.peer.ReadDone():
			<-c.peerDone
			return c.peerErr
		case <-c.tree.Exited():
			return c.exitError()
		case <-ctx.Done():
			return c.shutdown(context.Cause(ctx))
		case <-c.drained:
			return c.shutdown(c.replaced)
		case <-st.poke:
		case <-tick.C:
			complaint, err := c.heartbeat(ctx, seq, &judge)
			if err != nil && ctx.Err() == nil {
				return err
			}
			seq++
			if complaint != nil {
				st.replaceAiling(c, *complaint)
			}
		}
	}
}

// takeWanted returns what somebody asked for since it was called last.
func (st *seat) takeWanted() *replacement {
	st.s.mu.Lock()
	defer st.s.mu.Unlock()
	r := st.wanted
	st.wanted = nil
	return r
}

// replaceAiling drains a core that crosses a limit. Where it can wait, it waits
// until no other core is drained: a slow host makes all of them slow.
func (st *seat) replaceAiling(c *Core, why complaint) {
	st.s.mu.Lock()
	for _, other := range st.s.seats {
		if other == st && st.state == Draining || other.state == Draining && !why.urgent {
			st.s.mu.Unlock()
			return
		}
	}
	st.s.mu.Unlock()
	c.ailing = true
	st.drain(c, why.why, true)
}

// drain lets the core end when its last run has. A core that is drained
// already goes on with that.
func (st *seat) drain(c *Core, why string, wait bool) {
	st.s.mu.Lock()
	already := st.state == Draining
	if !already {
		st.moveLocked(Draining, why)
	}
	st.s.mu.Unlock()
	if already {
		return
	}
	c.replaced = fmt.Errorf("%w: %s", ErrReplaced, why)
	c.mu.Lock()
	c.draining = true
	c.mu.Unlock()
	c.log.Info().Str("why", why).Bool("wait", wait).Msg("agentcore is to be replaced")
	st.s.cfg.Handler.CoreDraining(c, why, wait)
}

// heartbeat asks whether the core is alive, and renews the permits of its runs; no
// answer within HangAfter means that it hangs. A core that answers may still fare
// badly.
func (c *Core) heartbeat(ctx context.Context, seq int64, judge *health) (*complaint, error) {
	limit := c.s.cfg.HangAfter
	ctx, cancel := withOwnTime(ctx, limit, fmt.Errorf("%w: no heartbeat for %s", ErrHung, limit))
	defer cancel()
	sent := time.Now()
	var r ipc.HeartbeatResult
	beat := ipc.Heartbeat{Seq: seq, Sent: job.Duration(proc.Uptime()), Renew: c.s.cfg.Handler.RenewPermits()}
	if h, ok := c.s.cfg.Handler.(Lapser); ok {
		beat.Lapse = h.PermitsLapsed()
	}
	if err := c.peer.Call(ctx, ipc.MethodHeartbeat, beat, &r); err != nil {
		return nil, err
	}
	now := time.Now()
	pulse, complaint := judge.beat(now, now.Sub(sent), r)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pulse = pulse
	if c.beats = append(c.beats, pulse.took); len(c.beats) > maxBeats {
		c.beats = c.beats[1:]
	}
	return complaint, nil
}

// withOwnTime returns a context that ends with cause when this process has run for d.
// A time in which it stood still (SIGSTOP, a host that sleeps) counts as a tenth of d
// at most: the answer may have come meanwhile.
func withOwnTime(parent context.Context, d time.Duration, cause error) (context.Context, context.CancelFunc) {
	const parts = 10
	ctx, cancel := context.WithCancelCause(parent)
	left := parts
	var ran func()
	ran = func() {
		switch left--; {
		case ctx.Err() != nil:
		case left == 0:
			cancel(cause)
		default:
			time.AfterFunc(d/parts, ran)
		}
	}
	time.AfterFunc(d/parts, ran)
	return ctx, func() { cancel(nil) }
}

// maxBeats bounds the heartbeats that nobody takes.
const maxBeats = 1000
