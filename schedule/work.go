package schedule

import (
	"time"

	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/policy"
	"github.com/agentsched/agentsched/queue"
)

// Ready is what a Step asks for. Each Read, Claim and Work is asked for once and must be
// answered; an owner that cannot answer a Read or a Claim feeds Forget, or gives up.
type Ready struct {
	// Reads are to be passed to queue.Store.Heads, with Now set, and answered by HeadsRead.
	Reads []queue.HeadsSpec
	// Claims are to be passed to queue.Store.Claim after the Reads, and answered by Claimed.
	Claims []Claim
	// Work is what follows for single jobs, each to be answered by Done.
	Work []Work
	// Tell is what has happened and is not stored yet, such as the progress of runs.
	Tell []Told
	// Drained are cores that are to be replaced and have no run any more.
	Drained []CoreID
	// Resolve are workspaces whose real path is wanted, to be answered by FolderKnown as
	// soon as it is known. They are listed again with each Ready until then.
	Resolve []string
	// Wake is when the next Step is due if no event comes before; zero: never.
	Wake time.Time
	// Err is set once the store has failed to keep what had happened. What is not
	// recorded is run again by the next scheduler, which is better than going on with
	// a store that does not store.
	Err error
}

// Claim asks for entries to be dispatched. The machine counts them as in flight at once, so
// that no two Readys ask for one. The store refuses what is gone, held or not covered by a
// grant any more, all of it in the transaction of the claim.
type Claim struct {
	Batch job.BatchID // as in queue.HeadsSpec
	IDs   []job.ID
}

// Work is what follows from one decision about one job. Its owner does three things in
// this order, and then answers with one Done:
//
//	commit Ops, in one transaction ─► make Call ─► tell Tell
//
// If the commit fails nothing else is done. Works of different jobs do not wait for one
// another: their commits share the store's group commit. There is at most one Work of a
// job at a time, so that what is stored and told of it keeps its order.
//
// A crash between the three has one meaning. Before the commit the decision was not made.
// After it the next scheduler finds what is stored, and decides the same again: a call is
// idempotent by permit, attempt and fence, and a listener may hear again what it was told.
type Work struct {
	Job  job.ID
	Ops  []queue.Op // none: nothing is committed
	Call Call       // nil: none is made
	Tell []Told
}

// Call is something that another process, or something slow, is asked for.
type Call interface{ call() }

// Calls may be made again after a crash, and are safe to repeat:
//
//	Prepare        reads; what it draws is stored once and found again
//	AskPermit      a permit that is not used expires after 5 s and gives its room back
//	Submit         names a permit, which can be used once
//	CancelRun      a run that is stopping or gone is not stopped twice
//	CheckpointRun  likewise
//	CloseStream    the log of a pipeline has its own cursor
//	Park           an isolation that exists is not made again

// Prepare asks for what a claimed job needs that is stored elsewhere: the order of its
// workers by reputation, the stream of its stage. Done.Prepared answers it.
type Prepare struct{ Run *Run }

// AskPermit asks a core whether an attempt may run; Done.Permit answers it.
type AskPermit struct {
	Run     *Run
	Request ipc.PermitRequest
}

// Submit hands a run to its core, under its permit. Environ, HasSteps and Stream of Job are
// for the owner to fill in. If the call fails with an *ipc.Error the run did not begin; by any
// other error nobody knows, and the end of the core will tell.
type Submit struct {
	Run *Run
	Job ipc.SubmitJob
}

// CancelRun asks a core to stop a run. One that cannot be asked is dead or about to be: the
// run then ends with it.
type CancelRun struct {
	Run *Run
	How ipc.CancelJob
}

// CheckpointRun asks a core to have a run stop at the boundary of its next step. Done.Asked
// says whether its worker can.
type CheckpointRun struct {
	Run    *Run
	Reason string
}

// CloseStream ends the stream of a stage's run that has ended. Done.Closed answers it. Died is
// set if the run ended with its core.
type CloseStream struct {
	Run     *Run
	Outcome job.Outcome
	Died    error
}

// Park puts a kind of worker out of use until its usage limit is reset. The isolation must
// be among those that the machine knows when the call is answered.
type Park struct{ policy.Parking }

func (Prepare) call()       {}
func (AskPermit) call()     {}
func (Submit) call()        {}
func (CancelRun) call()     {}
func (CheckpointRun) call() {}
func (CloseStream) call()   {}
func (Park) call()          {}

// Done answers a Work. Only the answer to its Call is set, if it had one.
type Done struct {
	Job job.ID
	// Stored is the error of the commit. One that wraps queue.ErrFenced says that the claim is
	// somebody else's now: it ends this flight alone, and its run is stopped. Any other is
	// returned as Ready.Err, since a store that does not store ends the scheduler.
	Stored error
	// Called is the error of the call. An *ipc.Error is the core's own answer; any other says
	// nothing about whether the core has heard.
	Called error

	Prepared Prepared
	Permit   ipc.PermitAnswer
	Asked    bool
	Closed   Closed
}

// Prepared is what was found for a claimed job.
type Prepared struct {
	Spec    *job.Spec // with its workers in another order; nil: as it is
	Streams bool      // it is a stage that streams
	Op      queue.Op  // ends the claim, since there is nothing to run; nil: it goes on
}

// Closed is what the end of a stage's stream says of its run.
type Closed struct {
	Outcome job.Outcome // that of the run, or another if the stream was not at its end
	// Forgiven: the attempt does not count. Final: another has nothing left to do.
	Forgiven, Final bool
}

// Told is something that has happened to a job. A *Run in it never changes.
type Told interface{ told() }

// PermitTold says how a core answered a request for a permit. Reason is empty for a permit.
type PermitTold struct {
	Run    *Run
	Reason job.Reason
	Took   time.Duration
}

// Charged says that an attempt has spent something that counts in cost windows.
type Charged struct {
	Run   *Run
	USD   float64 // since it was told last
	Total float64 // of the attempt, as far as this machine has heard
}

// Begun says that an attempt is recorded and was handed to its core.
type Begun struct{ Run *Run }

// Progress is an event of a run. It is told before it is stored.
type Progress struct {
	Run   *Run
	Event job.Event
	Usage job.Usage // of the attempt up to now
}

// Stored says that events of a run are stored.
type Stored struct {
	Run    *Run
	Events []job.Event
}

// Over says that a claim has ended with Op, which is a Release, a Finish or an Await.
type Over struct {
	Run *Run
	Op  queue.Op
	// Checkpointed: the run stopped at a step's boundary, and goes on from there.
	Checkpointed bool
}

// Refused says that the store did not keep something of a run, since its claim has
// become somebody else's.
type Refused struct {
	Run *Run
	Err error
}

func (PermitTold) told() {}
func (Charged) told()    {}
func (Begun) told()      {}
func (Progress) told()   {}
func (Stored) told()     {}
func (Over) told()       {}
func (Refused) told()    {}
