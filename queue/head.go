package queue

import (
	"fmt"
	"time"

	"github.com/agentsched/agentsched/job"
)

// Head is a queued entry at the front of its lane, as far as a dispatcher needs it
// to decide. It is a small part of an Entry, so that the heads of 10⁴ lanes fit in
// memory.
type Head struct {
	ID         job.ID
	RunnableAt time.Time // may lie ahead
	Agent      job.AgentID
	Worker     job.WorkerKind // of the entry's current Choice
	Type       job.Type
	Workspace  job.Workspace
	Joined     bool // job.Flow.Joined
	Expect     job.Expectation
	// Node is what is required of the host, Memory how much of its memory is asked for.
	Node   job.Node
	Memory job.Size
	// Sandbox is how the job asks to be held, "" as its host says.
	Sandbox job.SandboxLevel
	// Resumes is set if the next attempt goes on with a session, which lies on SessionNode.
	Resumes     bool
	SessionNode string
	// Over is set if the tenant or the agent has used up a Grant, or the tenant's Balance
	// is too small: Claim would pass the entry over.
	Over bool
}

// HeadOf returns the Head of an entry. It leaves Over unset: the ledger knows that.
func HeadOf(e *Entry) Head {
	choices := e.Spec.Choices()
	h := Head{
		ID: e.ID, RunnableAt: e.RunnableAt, Agent: e.Spec.Agent, Worker: choices[min(e.Choice, len(choices)-1)].Worker,
		Type: e.Spec.Type, Workspace: e.Spec.Workspace, Joined: e.Spec.Flow.Joined, Expect: e.Spec.Expect,
		Node: e.Spec.Node, Memory: e.Spec.Memory(), Sandbox: e.Spec.Sandbox.Level,
	}
	if e.Session != "" && e.SessionWorker == h.Worker {
		h.Resumes, h.SessionNode = true, e.SessionNode
	}
	return h
}

// Place is the position of an entry in its lane: lanes are ordered by RunnableAt, then
// by ID. The zero Place is before every entry.
type Place struct {
	RunnableAt time.Time
	ID         job.ID
}

// Place returns the position of the entry in its lane.
func (h *Head) Place() Place { return Place{h.RunnableAt, h.ID} }

// HeadsSpec says which heads to read.
type HeadsSpec struct {
	// Batch is the private batch whose lanes to read; "" reads what is shared.
	Batch job.BatchID
	// Since is the Version of an earlier answer for the same Batch. Lanes that have not
	// changed since then are left out. 0 reads all lanes.
	Since uint64
	// Each is how many heads to read of each of these lanes, 1 or more.
	Each int
	// Pages asks for entries further back, in any lanes.
	Pages []Page
	Now   time.Time // entries whose deadline is not after it expire
}

// Page asks for the entries of a lane behind After, at most Max of them.
type Page struct {
	Lane  job.Lane // of HeadsSpec.Batch, and without Only: such a lane has one entry
	After Place
	Max   int // 1 or more
}

// Validate returns why nothing can be read as s says, or nil.
func (s *HeadsSpec) Validate() error {
	if s.Each < 1 {
		return fmt.Errorf("read %d heads of each lane, want 1 or more", s.Each)
	}
	for _, p := range s.Pages {
		switch {
		case p.Max < 1:
			return fmt.Errorf("read a page of %d entries of tenant %s, priority %d; want 1 or more", p.Max, p.Lane.Tenant, p.Lane.Priority)
		case p.Lane.Batch != s.Batch:
			return fmt.Errorf("read a page of a lane of batch %q with the lanes of batch %q", p.Lane.Batch, s.Batch)
		case p.Lane.Only != "":
			return fmt.Errorf("read a page of the lane of job %s alone", p.Lane.Only)
		}
	}
	return nil
}

// Heads is the answer to a HeadsSpec. All of it is from one moment.
type Heads struct {
	// Version is the HeadsSpec.Since of the next call. It is good until the store is
	// closed; to a store that is opened later it is unknown.
	Version uint64
	// All is set if Lanes has every lane of the batch that is not empty. It is set for
	// Since 0, and if the store does not know what has changed since then.
	All bool
	// Lanes are the changed lanes with their first heads, ordered by job.Lane.Compare. A
	// lane without heads is empty now. A lane may be listed that has not changed. Lanes
	// of a single entry (job.Lane.Only) are always listed, all of them; one that is not
	// has gone.
	Lanes []LaneHeads
	// Pages answers HeadsSpec.Pages, in its order.
	Pages []LaneHeads
	// Expired are the entries that this call found past their deadline and moved to
	// Expired. There may be some even where the call returns an error.
	Expired []job.ID
	// NextAt is the first deadline after Now of a queued entry of the batch, held ones
	// included; zero if there is none.
	NextAt time.Time
}

// LaneHeads are consecutive entries of a lane.
type LaneHeads struct {
	Lane  job.Lane
	Heads []Head
	More  bool // there are entries behind the last of Heads
}
