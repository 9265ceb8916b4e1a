package supervisor

import (
	"context"
	"encoding/json"
	"time"

	"github.com/agentsched/agentsched/ipc"
)

// Handler hears what becomes of the cores. The calls about one core come one
// after the other; those about different cores come at the same time. The
// supervisor holds no lock while it calls.
type Handler interface {
	// Settings returns what a core shall enforce. It is asked anew for each core
	// that starts, and for each live one by Reconfigure.
	Settings(c *Core) ipc.Configure
	// CoreUp is told of a core that is configured and takes work.
	CoreUp(c *Core)
	// CoreNotify is told each notification of the core, in order, between its
	// CoreUp and its CoreRuns. It must not wait for the core.
	CoreNotify(c *Core, method string, params json.RawMessage)
	// CoreCall answers what the core asks, between its CoreUp and its CoreRuns. It may
	// take its time. Calls of one core come at the same time, also as its other ones.
	CoreCall(ctx context.Context, c *Core, method string, params json.RawMessage) (any, error)
	// RenewPermits reports whether heartbeats renew the permits of the cores' runs: not
	// while what runs do could not be recorded. It must not wait.
	RenewPermits() bool
	// CoreDraining says that the core is about to be replaced: it shall get no new
	// work, and c.Drained is to be called when its last run has ended, at once if
	// it has none. If wait is false its runs are stopped at once, and that call
	// changes nothing.
	CoreDraining(c *Core, why string, wait bool)
	// CoreRuns returns the tags (job.RunTag) of the runs that the core, which is
	// dead, may have had. What is left of them is killed.
	CoreRuns(c *Core) []string
	// CoreDown is told when the core and everything that it left is dead. If that
	// cannot be reached (proc.ErrGhost), it is not told and Run ends. The cause is
	// ErrReplaced if the core ended because it was replaced.
	CoreDown(c *Core, cause error)
	// CoreFailed is told of a core that did not come up; another is tried.
	CoreFailed(index int, cause error)
	// CoreIsolated is told that no core is started in this place until then, and,
	// with a zero until, that this is over.
	CoreIsolated(index int, until time.Time, cause error)
}

// Lapser is a Handler that holds a lease itself: by which permits may have lapsed before the cores
// notice, which grant themselves some time after they stood still.
type Lapser interface {
	// PermitsLapsed reports whether nobody can have renewed the permits of the cores' runs in time.
	// It must not wait.
	PermitsLapsed() bool
}
