package schedule

import (
	"time"

	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/policy"
	"github.com/agentsched/agentsched/queue"
)

// Event is something that happened outside of the Machine. Slices and maps of an event
// belong to the Machine afterwards. An event about a job or a scope of which the machine
// knows nothing is ignored: after a Forget or a restart, answers to earlier questions may
// still be on their way.
type Event interface{ event() }

// Bounds are the limits on what runs at once. They take effect at once; what runs
// beyond them goes on. The cores enforce the same limits when they issue permits, and are
// the ones to believe; the machine counts so as not to claim what they would refuse.
type Bounds struct {
	Slots   int                    // jobs at once
	Workers map[job.WorkerKind]int // jobs at once of a kind; absent or 0: no bound
	Limits  ipc.Limits             // of which PerTenant, EachTenant, PerWorkspace and EachWorkspace count here
}

// Cores lists the cores that are up, all of them, in any order. Without one that takes
// jobs nothing is claimed: a claim that no core can serve would only wear out its lease.
type Cores []Core

// Core is one of them.
type Core struct {
	Takes bool // it takes new jobs
	// Concurrency is how many jobs at once it allows, all cores together, since the
	// host is overloaded; 0: no bound.
	Concurrency int
}

// Mode says whether anything may be started at all.
type Mode int

const (
	// Starting is the normal mode.
	Starting Mode = iota
	// Draining starts nothing until the mode changes; queued jobs stay queued. What is in
	// flight goes on. A scheduler drains while another one takes its place.
	Draining
	// Stopping starts nothing any more: the scheduler is about to end.
	Stopping
)

// Isolations lists what is out of use, the widest scope first. It replaces the list of
// before. One of scope Global keeps everything from starting. One that is narrower is
// asked about only the jobs that have met it: the core has the last word, and says so by
// Landed with Parked.
type Isolations []isolation.Isolation

// UsePolicy replaces the policy, as a reloaded configuration does. It must know what was used before; the jobs in flight
// are told to it here.
type UsePolicy struct {
	Policy policy.Policy
	Expect job.Expectation // of a job that does not say
}

// Reputation is the measured quality of a tenant's work, in [0, 1]. Only a policy that is a
// policy.Reputed hears of it, and only from then on.
type Reputation struct {
	Tenant job.Tenant
	Value  float64
}

// Changed says that lanes of the store may have changed. Many at once cost as much as one:
// what has changed is found by versions and not by the event.
type Changed struct{}

// Forget says that everything known of the store is void and is to be read again. The
// answer to a read that is under way is not wanted any more; claims that are under way
// are, since their jobs are in flight.
type Forget struct{}

// HeadsRead answers one of Ready.Reads. The store lists a lane in it with its first heads if
// it is newer than HeadsSpec.Since, all of them if it says All, and the pages that were asked
// for. The machine leaves out jobs whose claim is under way: they were read before it.
type HeadsRead struct {
	Batch job.BatchID
	queue.Heads
	// Folders maps the workspace paths of the heads to their real paths, as far as these
	// are known.
	Folders map[string]string
}

// FolderKnown tells the real path of a workspace that Ready.Resolve asked for.
type FolderKnown struct{ Path, Real string }

// Claimed answers one of Ready.Claims. What was asked for and is not among Entries was
// not claimed: it is gone, or may not run for a reason that the store knows.
type Claimed struct {
	Asked   []job.ID
	Entries []queue.Entry
}

// Moved says that a job in flight runs on another kind of worker than it was claimed for,
// one of its fallbacks: its slot of the one kind becomes one of the other.
type Moved struct {
	ID     job.ID
	Worker job.WorkerKind
}

// Landed says that a job is no longer in flight: it has ended, or went back to the queue, and
// the store has committed that. Before the commit its lane would still be read without it,
// and the job would be lost from sight.
type Landed struct {
	ID   job.ID
	Used job.Usage // by the attempt; zero if none was made
	Over bool      // the job has ended with it
	// Parked says that the job went back to the queue because something is isolated: it is
	// not claimed again while that keeps it from running.
	Parked bool
}

// Dropped says that a job has ended without having been in flight, by a cancellation say, so
// that nothing is remembered of it.
type Dropped struct{ ID job.ID }

// Tick only passes the time: it comes at Ready.Wake if nothing else has come before.
type Tick struct{}

func (Bounds) event()      {}
func (Cores) event()       {}
func (Mode) event()        {}
func (Isolations) event()  {}
func (UsePolicy) event()   {}
func (Reputation) event()  {}
func (Changed) event()     {}
func (Forget) event()      {}
func (HeadsRead) event()   {}
func (FolderKnown) event() {}
func (Claimed) event()     {}
func (Moved) event()       {}
func (Landed) event()      {}
func (Dropped) event()     {}
func (Tick) event()        {}

// Ready is what a Step asks for. Reads and Claims are asked for once and must be
// answered, Reads before Claims of the same Ready; an owner that cannot answer feeds
// Forget, or gives up.
type Ready struct {
	// Reads are to be passed to queue.Store.Heads, with Now set, and answered by HeadsRead.
	Reads []queue.HeadsSpec
	// Claims are to be passed to queue.Store.Take, and answered by Claimed.
	Claims []Claim
	// Start are jobs that are claimed now, in the order in which they were chosen.
	Start []Start
	// Resolve are workspaces whose real path is wanted, to be answered by FolderKnown as
	// soon as it is known. They are listed again with each Ready until then.
	Resolve []string
	// Wake is when the next Step is due if no event comes before; zero: never.
	Wake time.Time
}

// Claim asks for entries to be dispatched. The machine counts them as in flight at once, so
// that no two Readys ask for one. The store refuses what is gone, held or not covered by a
// grant any more, all of it in the transaction of the claim.
type Claim struct {
	Batch job.BatchID // as in queue.HeadsSpec
	IDs   []job.ID
}

// Start is a job that is in flight now: its claim is committed, and its lease runs.
type Start struct {
	Entry queue.Entry
	// Waited is how long the job was ready and only its workspace was taken.
	Waited time.Duration
}
