package schedule

import (
	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/policy"
	"github.com/agentsched/agentsched/queue"
)

// Events come from five sides:
//
//	the store      Changed, Forget, HeadsRead, Claimed, Done, Dropped, Recall, LeftBehind, Lapsed
//	the cores      Cores, CoreGone, TakenOver, RunEvent, Ended, and the answers within Done
//	people, and    Stop, Hold, Mode, and what they change: Bounds, Isolations, UsePolicy, UseRetry,
//	their settings Windows, Reputation
//	the file       FolderKnown
//	system
//	the clock      Tick, Preempt, UsedUp
//
// An event that comes twice changes nothing the second time: lists replace what they list, an
// answer is taken once, the first end of an attempt counts, and a stop that was asked for is
// asked again at worst. Events of a run name its core and attempt, and are ignored if either
// is not the current one: what a core says of a run that was given up for dead is void.

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
// Gone with Parked.
type Isolations []isolation.Isolation

// UsePolicy replaces the policy, as a reloaded configuration does. It must know what was used before; the jobs in flight
// are told to it here.
type UsePolicy struct {
	Policy policy.Policy
	Expect job.Expectation // of a job that does not say
}

// UseRetry replaces the policy of retries, for the attempts that end from now on.
type UseRetry struct{ *policy.Retry }

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

// Dropped says that a job has ended without having been in flight, by a cancellation say, so
// that nothing is remembered of it. It may also come for a job whose end was decided here, before
// or after that has left flight.
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
func (Gone) event()        {}
func (Dropped) event()     {}
func (Tick) event()        {}
func (UseRetry) event()    {}
func (Windows) event()     {}
func (LeftBehind) event()  {}
func (TakenOver) event()   {}
func (Lapsed) event()      {}
func (Recall) event()      {}
func (CoreGone) event()    {}
func (Done) event()        {}
func (RunEvent) event()    {}
func (Ended) event()       {}
func (Stop) event()        {}
func (Hold) event()        {}
func (Preempt) event()     {}
func (UsedUp) event()      {}
