package supervisor

import (
	"context"
	"errors"
	"time"

	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
)

// Away is a core on another host, which a supervisor there keeps alive.
type Away struct {
	Node  string // the host's name
	Index int    // of the core, among all that a Handler hears of
	Place int    // its index on its host
	PID   int    // on its host
	Info  ipc.HelloResult
	Peer  *ipc.Peer // by way of its host
	// Host returns what the host offers now; nil: unknown. It must not wait.
	Host func() *Host
	// Past: the core is dead, and only the ends of its runs are still to be told.
	Past bool
	// Recorded is called when what the core has told of a run is stored: events up to a
	// number, or the end of the attempt, after which nothing is stored of it any more. It must
	// not wait.
	Recorded func(id job.ID, attempt int, events int64, over bool)
}

// Host is what another host offers. It is never changed.
type Host struct {
	Name     string
	OS, Arch string // as Go names them
	Labels   map[string]string
	Kinds    []job.WorkerKind   // that are there, and logged in
	Sandbox  job.SandboxLevel   // at which it holds runs whose job names none
	Levels   []job.SandboxLevel // that a job may name; nil: it does not say
	Slots    int                // jobs at once
	Memory   int64              // bytes for jobs; 0: unknown
	Mirrors  []string           // of repositories, that are there; see job.Workspace.Mirror. Sorted
	Closed   bool               // it takes no new jobs
}

// AwayHandler is a Handler that hears of cores on other hosts, too.
type AwayHandler interface {
	Handler
	// CoresTakeOver says which runs the cores of a node have that is there again, each with
	// its core, of which CoreUp was told. It returns for each whether it still counts, after
	// which the core may tell of it. What the node had and does not name is lost.
	CoresTakeOver(ctx context.Context, node string, runs []HeldRun) ([]Verdict, error)
	// CoreHas reports whether a run is a core's.
	CoreHas(c *Core, id job.ID, attempt int) bool
	// NodeIsolated says that all cores of a node are in a crash loop, so that none is started there until then, and
	// why; with a zero until, that one is tried again, or that the node was started again.
	NodeIsolated(node string, until time.Time, why string)
	// CoresChanged says that what Away.Host returns of some core has changed.
	CoresChanged()
}

// HeldRun is a run that a node has, or whose end it has to tell.
type HeldRun struct {
	Job     job.ID
	Attempt int
	Core    *Core
}

// Verdict says what the scheduler knows of a HeldRun.
type Verdict struct {
	Counts bool  // it goes on; else it is to be stopped, and forgotten
	Events int64 // the number of the last event that is stored
}

// ErrLost is the cause with which a core is down whose host was lost: its runs are nobody's
// fault.
var ErrLost = errors.New("its host was lost")

var errCoreGone = errors.New("the core is not up any more")

// Join returns a core on another host: whoever hears of it tells a Handler of it.
func Join(a Away) *Core {
	return &Core{away: &a, index: a.Index, pid: a.PID, peer: a.Peer, Info: a.Info}
}

// Node returns the name of the other host that the core is on; "" if it is on this one.
func (c *Core) Node() string {
	if c.away == nil {
		return ""
	}
	return c.away.Node
}

// Place returns the core's index on its host.
func (c *Core) Place() int {
	if c.away == nil {
		return c.index
	}
	return c.away.Place
}

// Host returns what the other host offers that the core is on; nil if it is on this one.
func (c *Core) Host() *Host {
	if c.away == nil || c.away.Host == nil {
		return nil
	}
	return c.away.Host()
}

// Past reports whether the core is dead, and only the ends of its runs are still to be told.
func (c *Core) Past() bool { return c.away != nil && c.away.Past }

// Recorded tells the core what is stored of one of its runs; see Away.Recorded.
func (c *Core) Recorded(id job.ID, attempt int, events int64, over bool) {
	if c.away != nil && c.away.Recorded != nil {
		c.away.Recorded(id, attempt, events, over)
	}
}
