package schedule

import (
	"slices"
	"time"

	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/policy"
	"github.com/agentsched/agentsched/queue"
)

// Run is a claimed job on its way through one attempt. It is a snapshot: what is known
// later stands in another one.
type Run struct {
	Entry   queue.Entry
	Choice  job.Choice
	Index   int    // of Choice among the entry's; it differs from the entry's own where a core asked for another
	Because string // why it did
	Attempt int    // the attempt that this claim makes, begun or not
	Core    CoreID // that it was given to; 0: none took work
	Node    string // the name of the host that it runs on
	// Waited is how long the job was ready and only its workspace was taken.
	Waited time.Duration
	Began  time.Time // when the attempt was recorded to begin
}

// Resume returns the session that the attempt goes on with, or "".
func (r *Run) Resume() string {
	if r.Entry.SessionWorker == r.Choice.Worker {
		return r.Entry.Session
	}
	return ""
}

// Moved reports whether that lies on another host. The core begins anew if its files were not kept.
func (r *Run) Moved() bool { return r.Resume() != "" && r.Entry.SessionNode != r.Node }

// Smaller says, for the user, on what the attempt runs instead of its job's own choice; ""
// if it does not.
func (r *Run) Smaller() string {
	if r.Index == r.Entry.Choice {
		return ""
	}
	name := string(r.Choice.Worker)
	if r.Choice.Model != "" {
		name += ":" + r.Choice.Model
	}
	return "on " + name + " instead, since " + r.Because
}

// choose makes the choice at Index the run's, or the next that its host has a worker for: the
// order of the workers may have changed since the host was chosen.
func (r *Run) choose(h *host) {
	choices := r.Entry.Spec.Choices()
	i := slices.IndexFunc(choices[r.Index:], func(c job.Choice) bool { return h.has(c.Worker) })
	if i > 0 {
		r.Index, r.Because = r.Index+i, h.title()+" has no "+string(choices[r.Index].Worker)
	}
	r.Choice = choices[r.Index]
}

// phase is how far a flight has come.
//
// Each phase but running has exactly one Work (or claim) under way, whose answer ends it; while
// running there is at most one: events being stored, or a stop being asked for.
//
//	claiming ─► preparing ─► asking ─► beginning ─► running ─► closing ─► (gone)
//	               │           │           │                     ▲
//	               └───────────┴───────────┴── release, refusal ─┘
type phase int

const (
	claiming  phase = iota // it was chosen; its claim is not committed
	preparing              // it is claimed; its owner looks for what it needs
	asking                 // its core was asked for a permit
	beginning              // its attempt is being recorded and handed to the core
	running                // the core has it
	closing                // the op that ends the claim is being committed, or what comes before that
)

// flight is a job that is being claimed or is claimed. It holds its slot, its place in its
// folder and its part of the policy's count from the moment it was chosen, or two jobs
// would be chosen for one slot.
type flight struct {
	lane   job.Lane
	ask    policy.Demand // what the policy was told
	uses   use
	host   *host
	memory int64         // that it asks for there
	waited time.Duration // Run.Waited
	// earlier is set if it was chosen before the cores of its host began to throttle, and
	// probe if it was beyond what they had told; see mayProbe.
	earlier, probe bool

	phase phase
	run   *Run // nil while it is claimed
	busy  bool // a Work of it is not answered

	held  bool // a permit was asked for or is held: it counts elsewhere
	asked time.Time
	knows *ipc.Elsewhere // what its core was told with the request

	cancelled bool       // the job is to be cancelled: the store knows
	stops     []Stop     // not asked of the core yet
	asks      Stop       // the one that is being asked
	preempted bool       // it was asked to stop at a step's boundary for the sake of others
	stays     bool       // it was, and its worker keeps no steps
	yieldsTo  job.Tenant // the contracted tenant for whose sake it was; "" none
	leaving   bool       // it stops at a step's boundary since the scheduler ends
	awaited   bool       // its host has not come: its claim was left behind; nothing is asked of it
	left      bool       // it is let go of once its Work is answered: its run outlives the scheduler

	streams bool
	started bool        // its event of running has come: the workspace is made
	moved   bool        // the attempt's move to Running is recorded, or about to be
	lent    bool        // it waits for jobs of its own, and holds no slot
	asking  bool        // so is one from there to WaitingApproval: its worker waits for a person
	events  []job.Event // not stored yet
	since   time.Time   // when the first of them came
	early   []Told      // progress that came before the answer to its submission
	usage   job.Usage   // seen in events: what a dead core cannot report any more
	session string      // likewise
	charged float64     // US dollars of the attempt that are booked

	end          *ending
	checkpointed bool
	op           queue.Op // that ends the claim
	parks        bool     // first, its kind of worker is put out of use
	parked       bool     // it goes back because something is isolated
}

// flights are the jobs in flight.
type flights struct {
	all      map[job.ID]*flight
	backlog  *backlog
	room     *room
	cores    *coreBooks
	verdicts *verdicts
	ready    *Ready

	buffered int                // events that are not stored
	unstored map[job.ID]*flight // of these flights
	flushAt  time.Time          // when they are to be stored; zero: there are none
}

// isClaimed reports whether the flight's claim is committed.
func (f *flight) isClaimed() bool { return f.phase > claiming }

// ending is how an attempt has ended.
type ending struct {
	outcome  job.Outcome
	died     error // the core died; outcome is then empty
	replaced bool  // it was replaced
	late     bool  // the core did not know the permit any more
	closed   *Closed
}

// do asks for a Work of a flight.
func (fs *flights) do(f *flight, w Work) {
	f.busy = true
	w.Job = f.run.Entry.ID
	fs.ready.Work = append(fs.ready.Work, w)
}

// assign gives a job whose claim is committed to the core of its host that has the least to do.
func (fs *flights) assign(at time.Time, f *flight, e *queue.Entry) {
	choices := e.Spec.Choices()
	r := &Run{Entry: *e, Choice: choices[e.Choice], Index: e.Choice, Attempt: e.Attempts + 1, Waited: f.waited}
	r.Core, r.Node = fs.cores.pick(f.host), f.host.Name
	if since, waited := fs.verdicts.folderBusy[e.ID]; waited {
		r.Waited = at.Sub(since)
		delete(fs.verdicts.folderBusy, e.ID)
	}
	f.run, f.phase, f.cancelled = r, preparing, f.cancelled || e.CancelRequested
	if f.host.Name != "" && f.host.closed() { // since it was chosen
		f.stops = append(f.stops, Stop{Job: e.ID, How: Interrupt, Reason: f.host.title() + " takes no new jobs any more"})
	}
	if e.Spec.Flow.Best || e.Spec.Flow.Joined {
		fs.do(f, Work{Call: Prepare{r}})
		return
	}
	fs.request(at, f)
}

// done takes the answer to a Work.
func (fs *flights) done(at time.Time, e *Done) {
	f := fs.all[e.Job]
	if f == nil || !f.busy {
		return
	}
	f.busy = false
	if e.Stored != nil {
		fs.lost(at, f, e.Stored)
		return
	}
	switch f.phase {
	case preparing:
		fs.prepared(at, f, &e.Prepared)
	case asking:
		fs.answered(at, f, e)
	case beginning:
		fs.submitted(at, f, e.Called)
	case running:
		if stop := f.asks; stop.Reason != "" {
			f.asks = Stop{}
			fs.checkpointAnswered(f, stop, e.Called == nil && e.Asked)
		}
		fs.pursue(at, f)
	case closing:
		switch {
		case f.parks:
			f.parks = false
			fs.record(at, f)
		case f.op != nil:
			fs.close(at, f)
		default:
			f.end.closed = &e.Closed
			fs.finish(at, f)
		}
	}
}

// prepared goes on with what was found for the job.
func (fs *flights) prepared(at time.Time, f *flight, p *Prepared) {
	r := *f.run
	if p.Spec != nil {
		r.Entry.Spec = *p.Spec
		r.choose(f.host)
	}
	f.run, f.streams = &r, p.Streams
	if p.Op != nil && !f.cancelled {
		fs.conclude(at, f, p.Op)
		return
	}
	fs.request(at, f)
}

// pursue does what is next for a run that its core has: what has ended is recorded, who is
// to stop is asked to.
func (fs *flights) pursue(at time.Time, f *flight) {
	switch {
	case f.busy || f.phase != running:
	case f.left && f.end == nil:
		fs.gone(at, Gone{ID: f.run.Entry.ID})
	case f.awaited:
	case f.end != nil && f.streams:
		f.phase = closing
		fs.do(f, Work{Call: CloseStream{Run: f.run, Outcome: f.end.outcome, Died: f.end.died}})
	case f.end != nil:
		f.phase = closing
		fs.finish(at, f)
	case len(f.stops) > 0:
		f.asks, f.stops = f.stops[0], f.stops[1:]
		fs.askToStop(f)
	}
}

// Ended says how a run has ended: its process tree is empty.
type Ended struct {
	Core    CoreID
	Job     job.ID
	Attempt int
	Outcome job.Outcome
}

// settle gives a flight its end; the first one counts.
func (fs *flights) settle(at time.Time, f *flight, e ending) {
	if f.end == nil {
		f.end = &e
	}
	fs.pursue(at, f)
}

// claimed takes what became of a claim. A flight of which nothing came is ended as if it had
// used nothing, and its lane is read again from the beginning.
func (fs *flights) claimed(at time.Time, e *Claimed) {
	got := make(map[job.ID]*queue.Entry, len(e.Entries))
	for i := range e.Entries {
		got[e.Entries[i].ID] = &e.Entries[i]
	}
	for _, id := range e.Asked {
		f := fs.all[id]
		if f == nil || f.isClaimed() {
			continue
		}
		if entry := got[id]; entry != nil {
			fs.assign(at, f, entry)
			continue
		}
		// It was withdrawn, has expired, or its owner has used up a grant: its lane tells.
		fs.end(at, id, f, policy.Demand{}, false)
		fs.backlog.reload(fs.backlog.laneOf(f.lane))
	}
}
