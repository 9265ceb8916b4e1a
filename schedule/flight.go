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
func (m *Machine) do(f *flight, w Work) {
	f.busy = true
	w.Job = f.run.Entry.ID
	m.ready.Work = append(m.ready.Work, w)
}

// board gives a job whose claim is committed to the core that has the least to do.
func (m *Machine) board(at time.Time, f *flight, e *queue.Entry) {
	choices := e.Spec.Choices()
	r := &Run{Entry: *e, Choice: choices[e.Choice], Index: e.Choice, Attempt: e.Attempts + 1, Core: m.pick(), Waited: f.waited}
	if since, waited := m.folderBusy[e.ID]; waited {
		r.Waited = at.Sub(since)
		delete(m.folderBusy, e.ID)
	}
	f.run, f.phase, f.cancelled = r, preparing, f.cancelled || e.CancelRequested
	if e.Spec.Flow.Best || e.Spec.Flow.Joined {
		m.do(f, Work{Call: Prepare{r}})
		return
	}
	m.request(at, f)
}

// done takes the answer to a Work.
func (m *Machine) done(at time.Time, e *Done) {
	f := m.flights[e.Job]
	if f == nil || !f.busy {
		return
	}
	f.busy = false
	if e.Stored != nil {
		m.lost(at, f, e.Stored)
		return
	}
	switch f.phase {
	case preparing:
		m.prepared(at, f, &e.Prepared)
	case asking:
		m.answered(at, f, e)
	case beginning:
		m.submitted(at, f, e.Called)
	case running:
		if stop := f.asks; stop.Reason != "" {
			f.asks = Stop{}
			m.checkpointAnswered(f, stop, e.Called == nil && e.Asked)
		}
		m.pursue(at, f)
	case closing:
		switch {
		case f.parks:
			f.parks = false
			m.record(at, f)
		case f.op != nil:
			m.land(at, f)
		default:
			f.end.closed = &e.Closed
			m.finish(at, f)
		}
	}
}

// prepared goes on with what was found for the job.
func (m *Machine) prepared(at time.Time, f *flight, p *Prepared) {
	r := *f.run
	if p.Spec != nil {
		r.Entry.Spec = *p.Spec
		r.Choice = r.Entry.Spec.Choices()[r.Index]
	}
	f.run, f.streams = &r, p.Streams
	if p.Op != nil && !f.cancelled {
		m.conclude(at, f, p.Op)
		return
	}
	m.request(at, f)
}

// request asks the flight's core for a permit, unless the job is not to run after all.
func (m *Machine) request(at time.Time, f *flight) {
	e := &f.run.Entry
	if op := m.withdrawn(at, f); op != nil {
		m.conclude(at, f, op)
		return
	}
	if f.run.Core == 0 {
		m.conclude(at, f, m.noAnswer(at, f))
		return
	}
	m.count(at, f)
	f.phase, f.asked, f.knows = asking, at, m.Elsewhere(f.run.Core)
	limits := e.Spec.Limits
	limits.MaxAttempts = e.MaxAttempts()
	m.do(f, Work{Call: AskPermit{Run: f.run, Request: ipc.PermitRequest{
		Job: e.ID, Tenant: e.Spec.Tenant, Attempt: f.run.Attempt, Counted: e.Counted, Choice: f.run.Choice,
		Workspace: e.Spec.Workspace, Limits: limits, Deadline: e.Deadline, Spent: e.Spent, SpentTime: e.SpentTime,
		Class: e.Spec.Class, Smaller: f.run.Index+1 < len(e.Spec.Choices()), Degraded: f.run.Index > e.Choice, Elsewhere: f.knows,
	}}})
}

// withdrawn returns the op that ends a claim whose job must not begin any more; nil if it
// may.
func (m *Machine) withdrawn(at time.Time, f *flight) queue.Op {
	e := &f.run.Entry
	switch {
	case f.cancelled:
		return queue.Finish{
			ID: e.ID, Fence: e.Fence, Now: wall(at), Exit: job.ExitCancelled,
			Outcome: job.Outcome{State: job.RunCancelled, Class: job.CancelledClass, Message: "cancelled before it started"},
		}
	case m.held[e.Batch] != "":
		return m.release(at, f, 0, e.Choice, job.Waiting{Reason: job.WaitCommand, Text: m.held[e.Batch]})
	case m.mode == Stopping || interrupts(f.stops):
		return m.release(at, f, 0, e.Choice, m.interrupted(f))
	}
	return nil
}

// answered takes the core's answer to a request for a permit. A core that is overloaded may
// ask for something smaller: then the job's next choices are tried at once.
func (m *Machine) answered(at time.Time, f *flight, e *Done) {
	answer := e.Permit
	if e.Called != nil || answer.Permit == nil {
		m.uncount(f)
	}
	if e.Called == nil && answer.Permit == nil && answer.Rejection == nil {
		e.Called = errors.New("the core answered with neither permit nor rejection")
	}
	if e.Called != nil {
		m.Untold(at, f.run.Core, f.knows)
		m.conclude(at, f, m.noAnswer(at, f))
		return
	}
	told := PermitTold{Run: f.run, Took: at.Sub(f.asked)}
	if answer.Permit == nil {
		told.Reason = answer.Rejection.Reason
	}
	m.ready.Tell = append(m.ready.Tell, told)
	switch {
	case answer.Permit == nil && answer.Rejection.Action == ipc.ActionDegrade && m.degrade(f, answer.Rejection):
		m.request(at, f)
	case answer.Permit == nil:
		m.conclude(at, f, m.rejected(at, f, answer.Rejection))
	default:
		m.begin(at, f, answer.Permit)
	}
}

// degrade moves the flight to its job's next choice, for this attempt. It reports false if
// there is none.
func (m *Machine) degrade(f *flight, r *ipc.Rejection) bool {
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
	m.room.give(f.uses)
	f.uses.worker = moved.Choice.Worker
	m.room.take(f.uses)
	m.again()
	return true
}

// begin records the attempt and hands it to its core.
func (m *Machine) begin(at time.Time, f *flight, p *ipc.Permit) {
	if op := m.withdrawn(at, f); op != nil { // the permit expires by itself
		m.conclude(at, f, op)
		return
	}
	began := *f.run
	began.Began = wall(at)
	f.run, f.phase = &began, beginning
	e := &began.Entry
	m.do(f, Work{
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
func (m *Machine) submitted(at time.Time, f *flight, err error) {
	f.phase = running
	m.ready.Tell = append(m.ready.Tell, f.early...)
	f.early = nil
	var refused *ipc.Error
	switch {
	case errors.As(err, &refused):
		m.settle(at, f, refusal(at, refused))
		return
	case err == nil:
		delete(m.lateStarts, f.run.Entry.ID)
	}
	if why := m.held[f.run.Entry.Batch]; why != "" {
		f.stops = append(f.stops, Stop{How: Boundary, Reason: why})
	}
	m.pursue(at, f)
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
func (m *Machine) pursue(at time.Time, f *flight) {
	switch {
	case f.busy || f.phase != running:
	case f.end != nil && f.streams:
		f.phase = closing
		m.do(f, Work{Call: CloseStream{Run: f.run, Outcome: f.end.outcome, Died: f.end.died}})
	case f.end != nil:
		f.phase = closing
		m.finish(at, f)
	case len(f.stops) > 0:
		f.asks, f.stops = f.stops[0], f.stops[1:]
		m.askToStop(f)
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
func (m *Machine) settle(at time.Time, f *flight, e ending) {
	if f.end == nil {
		f.end = &e
	}
	m.pursue(at, f)
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
func (m *Machine) runEvent(at time.Time, e RunEvent) {
	f := m.flights[e.Event.Job]
	if f == nil || f.run == nil || f.run.Attempt != e.Event.Attempt || f.run.Core != e.Core || f.phase < beginning {
		return
	}
	if len(f.events) == 0 {
		f.since = at
	}
	f.events = append(f.events, e.Event)
	m.buffered++
	switch e.Event.Kind {
	case job.EventUsage:
		if u := e.Event.Usage; u != nil {
			f.usage = f.usage.Add(*u)
			m.charge(at, f, u.CostUSD)
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
	m.ready.Tell = append(m.ready.Tell, told)
}

// Buffered returns how many events are not stored and not about to be. An owner that lets
// it grow without end runs out of memory.
func (m *Machine) Buffered() int { return m.buffered }

// flush stores the events of all flights once the oldest has waited for long enough: they
// share a commit then.
func (m *Machine) flush(at time.Time) {
	m.flushAt = time.Time{}
	for _, f := range m.flights {
		if len(f.events) > 0 && !f.busy && f.phase == running {
			m.flushAt = earlier(m.flushAt, f.since.Add(flushAfter))
		}
	}
	if !due(m.flushAt, at) {
		return
	}
	m.flushAt = time.Time{}
	for _, id := range sorted(m.flights) {
		if f := m.flights[id]; len(f.events) > 0 && !f.busy && f.phase == running {
			ops, told := m.takeEvents(f)
			m.do(f, Work{Ops: ops, Tell: told})
		}
	}
}

// takeEvents returns, as ops, the events of a flight that wait to be stored, with the moves
// of state and session that they bring.
func (m *Machine) takeEvents(f *flight) ([]queue.Op, []Told) {
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
	m.buffered -= len(f.events)
	f.events = nil
	return ops, told
}

// conclude ends a claim with an op.
func (m *Machine) conclude(at time.Time, f *flight, op queue.Op) {
	f.phase, f.op = closing, op
	m.record(at, f)
}

// record makes the op durable that ends a claim, together with the attempt's last events.
func (m *Machine) record(at time.Time, f *flight) {
	ops, told := m.takeEvents(f)
	ops = append(ops, f.beforeEnd()...)
	ops = append(ops, f.op)
	if m.with != nil {
		ops = append(ops, m.with(f.run, f.op)...)
	}
	m.do(f, Work{Ops: ops, Tell: append(told, Over{Run: f.run, Op: f.op, Checkpointed: f.checkpointed})})
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
func (m *Machine) land(at time.Time, f *flight) {
	var used job.Usage
	over := false
	switch end := f.op.(type) {
	case queue.Finish:
		used, over = end.Outcome.Usage, end.Exit != ""
	case queue.Await:
		used, over = end.Outcome.Usage, true
	}
	m.landed(at, Landed{ID: f.run.Entry.ID, Used: used, Over: over, Parked: f.parked})
}

// lost ends a flight whose claim has become somebody else's, or whose store has failed. What
// its core still runs of it is stopped, and counts for nothing.
func (m *Machine) lost(at time.Time, f *flight, err error) {
	if !errors.Is(err, queue.ErrFenced) && m.ready.Err == nil {
		m.ready.Err = fmt.Errorf("record job %s: %w", f.run.Entry.ID, err)
	}
	m.ready.Tell = append(m.ready.Tell, Refused{f.run, err})
	if f.phase == running {
		m.do(f, Work{Call: CancelRun{f.run, ipc.CancelJob{
			Job: f.run.Entry.ID, Attempt: f.run.Attempt, Class: job.CancelledClass, Reason: "its claim has ended", Lost: true,
		}}})
	}
	m.landed(at, Landed{ID: f.run.Entry.ID})
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
func (m *Machine) landed(at time.Time, e Landed) {
	if e.Parked {
		m.parked[e.ID] = true
	}
	if e.Over {
		m.forget(e.ID)
	}
	f := m.flights[e.ID]
	if f == nil {
		return
	}
	if f.probe && !e.Over && e.Used == (job.Usage{}) {
		m.probeAt = at.Add(probePause)
	}
	m.buffered -= len(f.events)
	m.leave(f)
	m.end(at, e.ID, f, policy.Demand{Tokens: float64(e.Used.Tokens()), CostUSD: e.Used.CostUSD}, e.Over)
}

// forget forgets what was noted of a job: it has ended.
func (m *Machine) forget(id job.ID) {
	delete(m.parked, id)
	delete(m.folderBusy, id)
	delete(m.lateStarts, id)
}

// InFlight returns how many jobs are claimed or being claimed.
func (m *Machine) InFlight() int { return len(m.flights) }

// Lookup returns the run of a job in flight; nil if its claim is not committed, or it is not
// in flight.
func (m *Machine) Lookup(id job.ID) *Run {
	if f := m.flights[id]; f != nil {
		return f.run
	}
	return nil
}

// Runs returns what is in flight and claimed, by job.
func (m *Machine) Runs() (list []*Run) {
	for _, id := range sorted(m.flights) {
		if f := m.flights[id]; f.run != nil {
			list = append(list, f.run)
		}
	}
	return list
}

// Kept reports whether a run's claim is still its own: its end is not being recorded.
func (m *Machine) Kept(r *Run) bool {
	f := m.flights[r.Entry.ID]
	return f != nil && f.run != nil && f.run.Attempt == r.Attempt && f.phase < closing
}

// OnCore returns how many jobs were given to a core.
func (m *Machine) OnCore(id CoreID) int {
	if b := m.book(id); b != nil {
		return b.flights
	}
	return 0
}
