package schedule

import (
	"errors"
	"fmt"
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

// phase is how far a flight has come.
//
//	claiming ─► preparing ─► asking ─► beginning ─► running ─► closing ─► (landed)
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
	waited time.Duration // Run.Waited
	// earlier is set if it was chosen before the cores began to throttle, and probe if it
	// was beyond what they had told; see mayProbe.
	earlier, probe bool

	phase phase
	run   *Run // nil while it is claimed
	busy  bool // a Work of it is not answered

	held  bool     // a permit was asked for or is held: it counts elsewhere
	told  []CoreID // where its request counts
	asked time.Time
	knows *ipc.Elsewhere // what its core was told with the request

	cancelled bool       // the job is to be cancelled: the store knows
	stops     []Stop     // not asked of the core yet
	asks      Stop       // the one that is being asked
	preempted bool       // it was asked to stop at a step's boundary for the sake of others
	stays     bool       // it was, and its worker keeps no steps
	yieldsTo  job.Tenant // the contracted tenant for whose sake it was; "" none
	leaving   bool       // it stops at a step's boundary since the scheduler ends

	streams bool
	started bool        // its event of running has come: the workspace is made
	moved   bool        // the attempt's move to Running is recorded, or about to be
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

	buffered int       // events that are not stored
	flushAt  time.Time // when they are to be stored; zero: there are none
}

// flies reports whether the flight's claim is committed.
func (f *flight) flies() bool { return f.phase > claiming }

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

// board gives a job whose claim is committed to the core that has the least to do.
func (fs *flights) board(at time.Time, f *flight, e *queue.Entry) {
	choices := e.Spec.Choices()
	r := &Run{Entry: *e, Choice: choices[e.Choice], Index: e.Choice, Attempt: e.Attempts + 1, Core: fs.cores.pick(), Waited: f.waited}
	if since, waited := fs.verdicts.folderBusy[e.ID]; waited {
		r.Waited = at.Sub(since)
		delete(fs.verdicts.folderBusy, e.ID)
	}
	f.run, f.phase, f.cancelled = r, preparing, f.cancelled || e.CancelRequested
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
			fs.land(at, f)
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
		r.Choice = r.Entry.Spec.Choices()[r.Index]
	}
	f.run, f.streams = &r, p.Streams
	if p.Op != nil && !f.cancelled {
		fs.conclude(at, f, p.Op)
		return
	}
	fs.request(at, f)
}

// request asks the flight's core for a permit, unless the job is not to run after all.
func (fs *flights) request(at time.Time, f *flight) {
	e := &f.run.Entry
	if op := fs.verdicts.withdrawn(at, f); op != nil {
		fs.conclude(at, f, op)
		return
	}
	if f.run.Core == 0 {
		fs.conclude(at, f, fs.verdicts.noAnswer(at, f))
		return
	}
	fs.cores.count(at, f)
	f.phase, f.asked, f.knows = asking, at, fs.cores.elsewhere(f.run.Core)
	limits := e.Spec.Limits
	limits.MaxAttempts = e.MaxAttempts()
	fs.do(f, Work{Call: AskPermit{Run: f.run, Request: ipc.PermitRequest{
		Job: e.ID, Tenant: e.Spec.Tenant, Attempt: f.run.Attempt, Counted: e.Counted, Choice: f.run.Choice,
		Workspace: e.Spec.Workspace, Limits: limits, Deadline: e.Deadline, Spent: e.Spent, SpentTime: e.SpentTime,
		Class: e.Spec.Class, Smaller: f.run.Index+1 < len(e.Spec.Choices()), Degraded: f.run.Index > e.Choice, Elsewhere: f.knows,
	}}})
}

// withdrawn returns the op that ends a claim whose job must not begin any more; nil if it
// may.
func (v *verdicts) withdrawn(at time.Time, f *flight) queue.Op {
	e := &f.run.Entry
	switch {
	case f.cancelled:
		return queue.Finish{
			ID: e.ID, Fence: e.Fence, Now: wall(at), Exit: job.ExitCancelled,
			Outcome: job.Outcome{State: job.RunCancelled, Class: job.CancelledClass, Message: "cancelled before it started"},
		}
	case v.held[e.Batch] != "":
		return v.release(at, f, 0, e.Choice, job.Waiting{Reason: job.WaitCommand, Text: v.held[e.Batch]})
	case v.room.mode == Stopping || interrupts(f.stops):
		return v.release(at, f, 0, e.Choice, v.interrupted(f))
	}
	return nil
}

// answered takes the core's answer to a request for a permit. A core that is overloaded may
// ask for something smaller: then the job's next choices are tried at once.
func (fs *flights) answered(at time.Time, f *flight, e *Done) {
	answer := e.Permit
	if e.Called != nil || answer.Permit == nil {
		fs.cores.uncount(f)
	}
	if e.Called == nil && answer.Permit == nil && answer.Rejection == nil {
		e.Called = errors.New("the core answered with neither permit nor rejection")
	}
	if e.Called != nil {
		fs.cores.untold(at, f.run.Core, f.knows)
		fs.conclude(at, f, fs.verdicts.noAnswer(at, f))
		return
	}
	told := PermitTold{Run: f.run, Took: at.Sub(f.asked)}
	if answer.Permit == nil {
		told.Reason = answer.Rejection.Reason
	}
	fs.ready.Tell = append(fs.ready.Tell, told)
	switch {
	case answer.Permit == nil && answer.Rejection.Action == ipc.ActionDegrade && fs.degrade(f, answer.Rejection):
		fs.request(at, f)
	case answer.Permit == nil:
		fs.conclude(at, f, fs.verdicts.rejected(at, f, answer.Rejection))
	default:
		fs.begin(at, f, answer.Permit)
	}
}

// degrade moves the flight to its job's next choice, for this attempt. It reports false if
// there is none.
func (fs *flights) degrade(f *flight, r *ipc.Rejection) bool {
	choices := f.run.Entry.Spec.Choices()
	if f.run.Index+1 >= len(choices) {
		return false
	}
	moved := *f.run
	moved.Because = "the host is overloaded"
	if r.Reason == job.CircuitOpen {
		moved.Because = string(moved.Choice.Worker) + " is out of use"
	}
	moved.Index++
	moved.Choice = choices[moved.Index]
	f.run = &moved
	fs.room.give(f.uses)
	f.uses.worker = moved.Choice.Worker
	fs.room.take(f.uses)
	fs.backlog.again()
	return true
}

// begin records the attempt and hands it to its core.
func (fs *flights) begin(at time.Time, f *flight, p *ipc.Permit) {
	if op := fs.verdicts.withdrawn(at, f); op != nil { // the permit expires by itself
		fs.conclude(at, f, op)
		return
	}
	began := *f.run
	began.Began = wall(at)
	f.run, f.phase = &began, beginning
	e := &began.Entry
	fs.do(f, Work{
		Ops: []queue.Op{queue.Begin{ID: e.ID, Fence: e.Fence, Attempt: job.Attempt{
			Job: e.ID, Number: began.Attempt, Fence: e.Fence, Choice: began.Choice, State: job.Pending, Started: began.Began,
		}}},
		Call: Submit{Run: f.run, Job: ipc.SubmitJob{
			Permit: p.ID, Job: e.ID, Attempt: began.Attempt, Choice: began.Choice, Spec: e.Spec,
			Session: began.Resume(), Feedback: e.Feedback, Resolved: e.Resolved,
			QueueLagMS: max(began.Began.Sub(e.RunnableAt), 0).Milliseconds(), LockWaitMS: began.Waited.Milliseconds(),
		}},
		Tell: []Told{Begun{f.run}},
	})
}

// submitted takes the answer to a submission. Any error but an *ipc.Error is the core's
// death or silence: its job may run, and only CoreGone, after the reaping, says that it does
// not.
func (fs *flights) submitted(at time.Time, f *flight, err error) {
	f.phase = running
	fs.ready.Tell = append(fs.ready.Tell, f.early...)
	f.early = nil
	var refused *ipc.Error
	switch {
	case errors.As(err, &refused):
		fs.settle(at, f, refusal(at, refused))
		return
	case err == nil:
		delete(fs.verdicts.lateStarts, f.run.Entry.ID)
	}
	if why := fs.verdicts.held[f.run.Entry.Batch]; why != "" {
		f.stops = append(f.stops, Stop{How: Boundary, Reason: why})
	}
	fs.pursue(at, f)
}

// refusal is the end of an attempt that the core did not start.
func refusal(at time.Time, e *ipc.Error) ending {
	o := job.Outcome{State: job.RunFailed, Class: job.Config, Message: "the core refused the job: " + e.Message, ExitCode: -1, StartedAt: wall(at), EndedAt: wall(at)}
	if e.Code == ipc.CodePermitUnknown || e.Code == ipc.CodeShuttingDown {
		// Too late, or at a bad moment: nobody's fault.
		o.State, o.Class = job.RunCancelled, job.CancelledClass
	}
	return ending{outcome: o, late: e.Code == ipc.CodePermitUnknown}
}

// pursue does what is next for a run that its core has: what has ended is recorded, who is
// to stop is asked to.
func (fs *flights) pursue(at time.Time, f *flight) {
	switch {
	case f.busy || f.phase != running:
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

// RunEvent is an event of a run, as its core has told it.
type RunEvent struct {
	Core  CoreID
	Event job.Event
}

// flushAfter is how long an event may wait to be stored: long enough that a burst shares
// one commit.
const flushAfter = 50 * time.Millisecond

// runEvent takes one event.
func (fs *flights) runEvent(at time.Time, e RunEvent) {
	f := fs.all[e.Event.Job]
	if f == nil || f.run == nil || f.run.Attempt != e.Event.Attempt || f.run.Core != e.Core || f.phase < beginning {
		return
	}
	if len(f.events) == 0 {
		f.since = at
	}
	f.events = append(f.events, e.Event)
	fs.buffered++
	switch e.Event.Kind {
	case job.EventUsage:
		if u := e.Event.Usage; u != nil {
			f.usage = f.usage.Add(*u)
			fs.cores.charge(at, f, u.CostUSD)
		}
	case job.EventSession:
		f.session = e.Event.Session
	case job.EventState:
		f.started = f.started || e.Event.State == job.Running
	}
	told := Progress{f.run, e.Event, f.usage}
	if f.phase == beginning {
		f.early = append(f.early, told)
		return
	}
	fs.ready.Tell = append(fs.ready.Tell, told)
}

// Buffered returns how many events are not stored and not about to be. An owner that lets
// it grow without end runs out of memory.
func (m *Machine) Buffered() int { return m.air.buffered }

// flush stores the events of all flights once the oldest has waited for long enough: they
// share a commit then.
func (fs *flights) flush(at time.Time) {
	fs.flushAt = time.Time{}
	for _, f := range fs.all {
		if len(f.events) > 0 && !f.busy && f.phase == running {
			fs.flushAt = earlier(fs.flushAt, f.since.Add(flushAfter))
		}
	}
	if !due(fs.flushAt, at) {
		return
	}
	fs.flushAt = time.Time{}
	for _, id := range sorted(fs.all) {
		if f := fs.all[id]; len(f.events) > 0 && !f.busy && f.phase == running {
			ops, told := fs.takeEvents(f)
			fs.do(f, Work{Ops: ops, Tell: told})
		}
	}
}

// takeEvents returns, as ops, the events of a flight that wait to be stored, with the moves
// of state and session that they bring.
func (fs *flights) takeEvents(f *flight) ([]queue.Op, []Told) {
	if len(f.events) == 0 {
		return nil, nil
	}
	ops := []queue.Op{queue.Append{Events: f.events}}
	for i := range f.events {
		e := &f.events[i]
		move := queue.Move{ID: f.run.Entry.ID, Fence: f.run.Entry.Fence, Attempt: f.run.Attempt, Session: e.Session}
		if e.Kind == job.EventState && e.State == job.Running && !f.moved {
			f.moved, move.To = true, job.Running
		}
		if move.To != "" || move.Session != "" {
			ops = append(ops, move)
		}
	}
	told := []Told{Stored{f.run, f.events}}
	fs.buffered -= len(f.events)
	f.events = nil
	return ops, told
}

// conclude ends a claim with an op.
func (fs *flights) conclude(at time.Time, f *flight, op queue.Op) {
	f.phase, f.op = closing, op
	fs.record(at, f)
}

// record makes the op durable that ends a claim, together with the attempt's last events.
func (fs *flights) record(at time.Time, f *flight) {
	ops, told := fs.takeEvents(f)
	ops = append(ops, f.beforeEnd()...)
	ops = append(ops, f.op)
	if fs.verdicts.with != nil {
		ops = append(ops, fs.verdicts.with(f.run, f.op)...)
	}
	fs.do(f, Work{Ops: ops, Tell: append(told, Over{Run: f.run, Op: f.op, Checkpointed: f.checkpointed})})
}

// beforeEnd returns the move to Running before the end of an attempt of which the core told
// no such move: a run fails from Running, not from Pending.
func (f *flight) beforeEnd() (ops []queue.Op) {
	ended := false
	switch end := f.op.(type) {
	case queue.Finish:
		ended = end.Attempt > 0 && end.Outcome.State != job.RunCancelled
	case queue.Await:
		ended = true
	}
	move := queue.Move{ID: f.run.Entry.ID, Fence: f.run.Entry.Fence, Attempt: f.run.Attempt, To: job.Running}
	if (ended || f.checkpointed) && !f.moved {
		f.moved = true
		ops = append(ops, move)
	}
	if f.checkpointed {
		move.To = job.Checkpointed
		ops = append(ops, move)
	}
	return ops
}

// land ends a flight whose claim has ended, and tells the policy what the attempt used.
func (fs *flights) land(at time.Time, f *flight) {
	var used job.Usage
	over := false
	switch end := f.op.(type) {
	case queue.Finish:
		used, over = end.Outcome.Usage, end.Exit != ""
	case queue.Await:
		used, over = end.Outcome.Usage, true
	}
	fs.landed(at, Landed{ID: f.run.Entry.ID, Used: used, Over: over, Parked: f.parked})
}

// lost ends a flight whose claim has become somebody else's, or whose store has failed. What
// its core still runs of it is stopped, and counts for nothing.
func (fs *flights) lost(at time.Time, f *flight, err error) {
	if !errors.Is(err, queue.ErrFenced) && fs.ready.Err == nil {
		fs.ready.Err = fmt.Errorf("record job %s: %w", f.run.Entry.ID, err)
	}
	fs.ready.Tell = append(fs.ready.Tell, Refused{f.run, err})
	if f.phase == running {
		fs.do(f, Work{Call: CancelRun{f.run, ipc.CancelJob{
			Job: f.run.Entry.ID, Attempt: f.run.Attempt, Class: job.CancelledClass, Reason: "its claim has ended", Lost: true,
		}}})
	}
	fs.landed(at, Landed{ID: f.run.Entry.ID})
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

// landed ends a flight with what its attempt used. A job that landed because something is
// isolated is remembered as long as an isolation exists, and asked about again only then.
func (fs *flights) landed(at time.Time, e Landed) {
	if e.Parked {
		fs.room.parked[e.ID] = true
	}
	if e.Over {
		fs.forget(e.ID)
	}
	f := fs.all[e.ID]
	if f == nil {
		return
	}
	if f.probe && !e.Over && e.Used == (job.Usage{}) {
		fs.room.probeAt = at.Add(probePause)
	}
	fs.buffered -= len(f.events)
	fs.cores.leave(f)
	fs.end(at, e.ID, f, policy.Demand{Tokens: float64(e.Used.Tokens()), CostUSD: e.Used.CostUSD}, e.Over)
}

// forget forgets what was noted of a job: it has ended.
func (fs *flights) forget(id job.ID) {
	delete(fs.room.parked, id)
	delete(fs.verdicts.folderBusy, id)
	delete(fs.verdicts.lateStarts, id)
}

// InFlight returns how many jobs are claimed or being claimed.
func (m *Machine) InFlight() int { return len(m.air.all) }

// Lookup returns the run of a job in flight; nil if its claim is not committed, or it is not
// in flight.
func (m *Machine) Lookup(id job.ID) *Run {
	if f := m.air.all[id]; f != nil {
		return f.run
	}
	return nil
}

// Runs returns what is in flight and claimed, by job.
func (m *Machine) Runs() (list []*Run) {
	for _, id := range sorted(m.air.all) {
		if f := m.air.all[id]; f.run != nil {
			list = append(list, f.run)
		}
	}
	return list
}

// Kept reports whether a run's claim is still its own: its end is not being recorded.
func (m *Machine) Kept(r *Run) bool {
	f := m.air.all[r.Entry.ID]
	return f != nil && f.run != nil && f.run.Attempt == r.Attempt && f.phase < closing
}

// OnCore returns how many jobs were given to a core.
func (m *Machine) OnCore(id CoreID) int {
	if b := m.cores.book(id); b != nil {
		return b.flights
	}
	return 0
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
		if f == nil || f.flies() {
			continue
		}
		if entry := got[id]; entry != nil {
			fs.board(at, f, entry)
			continue
		}
		// It was withdrawn, has expired, or its owner has used up a grant: its lane tells.
		fs.end(at, id, f, policy.Demand{}, false)
		fs.backlog.reload(fs.backlog.laneOf(f.lane))
	}
}

// end gives back what a flight holds, tells the policy what was used instead of what was
// expected, and looks again at what was passed over.
func (fs *flights) end(at time.Time, id job.ID, f *flight, used policy.Demand, over bool) {
	delete(fs.all, id)
	fs.room.give(f.uses)
	fs.backlog.policy.End(f.lane.Tenant, f.ask, used, over, wall(at))
	fs.backlog.again()
}
