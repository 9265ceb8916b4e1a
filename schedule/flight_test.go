package schedule_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/policy"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/schedule"
)

// TestFlights plays testdata/flights/*.txt. A line is a time and what happens then; behind
// arrows stands what the machine asks for. What it asks for is not answered by itself.
func TestFlights(t *testing.T) {
	playAll(t, "testdata/flights/*.txt", fly)
}

func flightConfig() schedule.Config {
	return schedule.Config{
		Retry:  policy.NewRetry(time.Second, time.Minute, func() float64 { return 0.5 }),
		Bounds: schedule.Bounds{Slots: 8}, Windows: schedule.Windows{{Window: job.Duration(time.Hour), MaxUSD: 10}},
	}
}

func fly(t *testing.T, text string) string {
	var out strings.Builder
	p := newPilot(t)
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(strings.TrimSpace(line), "→") {
			continue
		}
		fmt.Fprintln(&out, line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		words := strings.Fields(line)
		at, err := time.ParseDuration(words[0])
		if err != nil || len(words) < 2 || midnight.Add(at).Before(p.now) {
			t.Fatalf("line %q: want a time that does not go back, and what happens: %v", line, err)
		}
		p.line, p.now = line, midnight.Add(at)
		p.step(p.happens(words[1], words[2:])...)
		for {
			for _, said := range p.said() {
				fmt.Fprintln(&out, arrow+said)
			}
			answers := p.answers()
			if len(answers) == 0 {
				break
			}
			p.step(answers...)
		}
	}
	return out.String()
}

// pilot turns the lines of a transcript of flights into events.
type pilot struct {
	*player
	work map[job.ID][]queue.Op // that is not answered
}

func newPilot(t testing.TB) *pilot {
	return &pilot{player: &player{world: newWorld(t, flightConfig())}, work: map[job.ID][]queue.Op{}}
}

// happens does what a line says. Beyond what a player knows:
//
//	cores 1 2 draining=1 starting=3
//	permit ID | reject ID REASON action=degrade after=2s | silent ID   the core's answer
//	done ID | fenced ID | broken ID     a Work is done; its commit was refused, or failed
//	refused ID late | unheard ID        the answer to a submission
//	can ID | cannot ID                  whether it stops at a step's boundary
//	event ID running | waits | goes on | usage=0.5 | session=s | text
//	ended ID completed | CLASS | checkpointed | cancelled
//	gone CORE replaced
//	withdraw ID | interrupt ID | atonce ID | boundary ID | leave ID
//	hold WHY | unhold | preempt | usedup TENANT
func (p *pilot) happens(verb string, words []string) []schedule.Event {
	first, rest := "", ""
	if len(words) > 0 {
		first = words[0]
		rest = strings.Join(words[1:], " ")
	}
	id := job.ID(first)
	done := schedule.Done{Job: id}
	stop := func(how schedule.How) []schedule.Event {
		return []schedule.Event{schedule.Stop{Job: id, How: how, Reason: "somebody asked"}}
	}
	switch verb {
	case "cores":
		return []schedule.Event{p.coresOf(words)}
	case "permit":
		done.Permit.Permit = &ipc.Permit{ID: "p-" + job.PermitID(id)}
	case "reject":
		done.Permit.Rejection = p.rejection(words[1:])
	case "silent":
		done.Called = errors.New("no answer")
	case "done":
	case "fenced":
		done.Stored = queue.ErrFenced
	case "broken":
		done.Stored = errors.New("the disk is full")
	case "refused":
		done.Called = &ipc.Error{Code: ipc.CodePermitUnknown, Message: "it has expired"}
	case "unheard":
		done.Called = errors.New("the core is gone")
	case "can":
		done.Asked = true
	case "cannot":
	case "event":
		return []schedule.Event{p.runEvent(id, rest)}
	case "ended":
		return []schedule.Event{schedule.Ended{Core: p.m.Lookup(id).Core, Job: id, Attempt: p.m.Lookup(id).Attempt, Outcome: outcome(rest, p.now)}}
	case "gone":
		n, _ := strconv.Atoi(first)
		return []schedule.Event{schedule.CoreGone{ID: schedule.CoreID(n), Cause: errors.New("killed"), Replaced: rest == "replaced"}}
	case "withdraw":
		return stop(schedule.Withdraw)
	case "interrupt":
		return stop(schedule.Interrupt)
	case "atonce":
		return stop(schedule.AtOnce)
	case "boundary":
		return stop(schedule.Boundary)
	case "leave":
		return stop(schedule.OnlyBoundary)
	case "hold":
		return []schedule.Event{schedule.Hold{Why: strings.Join(words, " ")}}
	case "unhold":
		return []schedule.Event{schedule.Hold{}}
	case "preempt":
		return []schedule.Event{schedule.Preempt{}}
	case "usedup":
		return []schedule.Event{schedule.UsedUp{{Tenant: job.Tenant(first)}}}
	default:
		return p.event(verb, words)
	}
	if done.Stored == nil {
		p.apply(p.work[id])
	}
	delete(p.work, id)
	return []schedule.Event{done, schedule.Changed{}}
}

func (p *pilot) coresOf(words []string) (list schedule.Cores) {
	for _, w := range words {
		key, value, named := strings.Cut(w, "=")
		if !named {
			value = key
		}
		n, err := strconv.Atoi(value)
		if err != nil {
			p.Fatalf("line %q: %v", p.line, err)
		}
		list = append(list, schedule.Core{ID: schedule.CoreID(n), Index: n, Takes: !named, Draining: key == "draining"})
	}
	return list
}

func (p *pilot) rejection(words []string) *ipc.Rejection {
	r := &ipc.Rejection{Reason: job.Reason(words[0]), Message: "not now", RetryAfterMS: 1000}
	for _, w := range words[1:] {
		switch key, value, _ := strings.Cut(w, "="); key {
		case "action":
			r.Action = ipc.Action(value)
		case "after":
			d, err := time.ParseDuration(value)
			if err != nil {
				p.Fatalf("line %q: %v", p.line, err)
			}
			r.RetryAfterMS = d.Milliseconds()
		}
	}
	return r
}

func (p *pilot) runEvent(id job.ID, what string) schedule.RunEvent {
	run := p.m.Lookup(id)
	e := job.Event{Job: id, Attempt: run.Attempt, Kind: job.EventText, Text: what, Time: p.now}
	switch key, value, _ := strings.Cut(what, "="); key {
	case "running":
		e.Kind, e.State = job.EventState, job.Running
	case job.WaitsForJobs, job.WaitedForJobs:
		e.Kind, e.State, e.Change = job.EventState, job.Running, what
	case "session":
		e.Kind, e.Session = job.EventSession, value
	case "usage":
		usd, err := strconv.ParseFloat(value, 64)
		if err != nil {
			p.Fatalf("line %q: %v", p.line, err)
		}
		e.Kind, e.Usage = job.EventUsage, &job.Usage{CostUSD: usd, CostKnown: true}
	}
	return schedule.RunEvent{Core: run.Core, Event: e}
}

func outcome(what string, at time.Time) job.Outcome {
	o := job.Outcome{State: job.RunFailed, Class: job.ErrorClass(what), Message: "it failed", StartedAt: at, EndedAt: at}
	switch what {
	case "completed":
		o = job.Outcome{State: job.RunCompleted, StartedAt: at, EndedAt: at}
	case "checkpointed":
		o = job.Outcome{State: job.Checkpointed, Message: "somebody asked", StartedAt: at, EndedAt: at}
	case "cancelled":
		o = job.Outcome{State: job.RunCancelled, Class: job.CancelledClass, StartedAt: at, EndedAt: at}
	case "LIMIT":
		reset := at.Add(time.Hour)
		o.Class, o.RetryAt = job.RateLimit, &reset
	}
	return o
}

// said renders what the machine asks for, but for reads and claims.
func (p *pilot) said() (list []string) {
	for _, t := range p.ready.Tell {
		list = append(list, toldText(t))
	}
	for i := range p.ready.Work {
		w := &p.ready.Work[i]
		p.work[w.Job] = w.Ops
		parts := []string{string(w.Job) + ":"}
		for _, op := range w.Ops {
			parts = append(parts, p.opText(op))
		}
		if w.Call != nil {
			parts = append(parts, callText(w.Call))
		}
		for _, t := range w.Tell {
			parts = append(parts, toldText(t))
		}
		list = append(list, strings.Join(parts, " "))
	}
	for _, id := range p.ready.Drained {
		list = append(list, fmt.Sprintf("core %d is drained", id))
	}
	if p.ready.Err != nil {
		list = append(list, "failed: "+p.ready.Err.Error())
	}
	p.ready.Tell, p.ready.Drained, p.ready.Err = nil, nil, nil
	return list
}

// apply gives jobs back to the queue, or ends them, as the store does.
func (p *pilot) apply(ops []queue.Op) {
	back := func(id job.ID, at time.Time) {
		r := p.find(id)
		r.state, r.RunnableAt = job.Queued, at
		p.touch(r.lane)
	}
	for _, op := range ops {
		switch op := op.(type) {
		case queue.Begin:
			p.find(op.ID).attempts++
		case queue.Release:
			p.find(op.ID).choice = op.Choice
			back(op.ID, op.RunnableAt)
		case queue.Finish:
			r := p.find(op.ID)
			if !op.Lost && op.Attempt > 0 {
				r.counted++
			}
			r.Resumes, r.SessionNode = op.Retry.Session != "", op.Retry.SessionNode
			if r.session = op.Retry.Session; op.Exit == "" {
				back(op.ID, op.Retry.RunnableAt)
			} else {
				p.find(op.ID).state = job.Completed
			}
		}
	}
}

func (p *pilot) opText(op queue.Op) string {
	since := func(t time.Time) string { return t.Sub(midnight).String() }
	switch op := op.(type) {
	case queue.Begin:
		return fmt.Sprintf("begin(%d%s)", op.Attempt.Number, onNode(op.Attempt.Node))
	case queue.Append:
		return fmt.Sprintf("append(%d)", len(op.Events))
	case queue.Move:
		return fmt.Sprintf("move(%s)", strings.TrimSpace(string(op.To)+" "+op.Session))
	case queue.Release:
		return fmt.Sprintf("release(choice %d at %s, %s)", op.Choice, since(op.RunnableAt), op.Waiting)
	case queue.Finish:
		lost := ""
		if op.Lost {
			lost = ", lost"
		}
		if op.Exit == "" {
			return fmt.Sprintf("retry(%s %s%s, choice %d at %s, session %q%s, %s)", op.Outcome.State, op.Outcome.Class, lost, op.Retry.Choice, since(op.Retry.RunnableAt), op.Retry.Session, onNode(op.Retry.SessionNode), op.Retry.Waiting)
		}
		return fmt.Sprintf("finish(%s%s)", op.Exit, strings.TrimRight(" "+op.DeadLetter, " "))
	}
	return fmt.Sprintf("%T", op)
}

// onNode names a host other than the scheduler's own.
func onNode(name string) string {
	if name == "" {
		return ""
	}
	return " on " + name
}

func callText(c schedule.Call) string {
	switch c := c.(type) {
	case schedule.AskPermit:
		elsewhere := ""
		if e := c.Request.Elsewhere; e != nil {
			elsewhere = fmt.Sprintf(", elsewhere %d running %g spent", len(e.Running), e.Spent["t"])
		}
		return fmt.Sprintf("ask(core %d, %s, attempt %d%s)", c.Run.Core, c.Run.Choice.Worker, c.Run.Attempt, elsewhere)
	case schedule.Submit:
		session := ""
		if c.Run.Node != "" && c.Job.Session != "" {
			session = ", session " + c.Job.Session
		}
		return fmt.Sprintf("submit(core %d, %s%s)", c.Run.Core, c.Job.Permit, session)
	case schedule.CancelRun:
		return fmt.Sprintf("cancel(lost %t, now %t, %s)", c.How.Lost, c.How.Now, c.How.Reason)
	case schedule.CheckpointRun:
		return fmt.Sprintf("checkpoint(%s)", c.Reason)
	case schedule.Park:
		return fmt.Sprintf("park(%s until %s)", c.Kind, c.Until.Sub(midnight))
	}
	return fmt.Sprintf("%T", c)
}

func toldText(t schedule.Told) string {
	switch t := t.(type) {
	case schedule.PermitTold:
		return strings.TrimSpace(fmt.Sprintf("told %s: permit %s", t.Run.Entry.ID, t.Reason))
	case schedule.Charged:
		return fmt.Sprintf("told charged %g of %g", t.USD, t.Total)
	case schedule.Begun:
		return "told begun"
	case schedule.Progress:
		return fmt.Sprintf("told %s: %s", t.Run.Entry.ID, t.Event.Kind)
	case schedule.Stored:
		return fmt.Sprintf("told stored(%d)", len(t.Events))
	case schedule.Over:
		if t.Checkpointed {
			return "told over at a step"
		}
		return "told over"
	case schedule.Refused:
		return fmt.Sprintf("told %s: lost, %v", t.Run.Entry.ID, t.Err)
	}
	return fmt.Sprintf("%T", t)
}

// TestElsewhere tells each core once of what the others spent, and always of what they hold.
func TestElsewhere(t *testing.T) {
	p := newPilot(t)
	do := func(line string) {
		words := strings.Fields(line)
		p.line = line
		p.rest(p.happens(words[0], words[1:])...)
	}
	told := func(when string, id schedule.CoreID, want string) {
		t.Helper()
		got := ""
		if e := p.m.Elsewhere(id); e != nil {
			got = fmt.Sprintf("%d running %g spent", len(e.Running), e.Spent["t"])
		}
		if got != want {
			t.Errorf("%s: core %d is told %q, want %q", when, id, got, want)
		}
	}
	do("cores 1 2")
	do("add a tenant=t")
	told("a asks", 2, "1 running 0 spent")
	told("a is no news to its own core", 1, "")
	do("reject a GLOBAL_SHED after=1h")
	do("done a")
	told("a was refused", 2, "")
	do("add b tenant=t")
	do("add c tenant=t")
	if b, c := p.m.Lookup("b"), p.m.Lookup("c"); b.Core != 1 || c.Core != 2 {
		t.Fatalf("b is on core %d and c on %d, want the idle ones", b.Core, c.Core)
	}
	do("permit c")
	do("done c")
	do("event c usage=0.25")
	told("c runs and spends", 1, "1 running 0.25 spent")
	told("its money is no news to its own core", 2, "1 running 0 spent")
	// A core that starts is told what the last minute's rates have to count.
	do("cores 1 2 starting=3")
	told("a new core", 3, "2 running 0 spent")
	do("reject b GLOBAL_SHED after=1h")
	told("a core that came after the question", 3, "1 running 0 spent")
	windows := p.m.Spent(p.now, []ipc.CostWindow{{Window: job.Duration(time.Hour)}})
	if s := windows[0].Spent; len(s) != 1 || s[0].USD != 0.25 {
		t.Errorf("a core that starts is told of spendings %+v", s)
	}
}

// TestKept tells claims that somebody else took from those that end because their job does.
func TestKept(t *testing.T) {
	p := newPilot(t)
	do := func(line string) {
		words := strings.Fields(line)
		p.line = line
		p.rest(p.happens(words[0], words[1:])...)
	}
	do("cores 1")
	do("add a")
	run := p.m.Lookup("a")
	if !p.m.Kept(run) {
		t.Error("a claim that asks for its permit is not kept")
	}
	do("permit a")
	do("done a")
	do("ended a completed")
	if p.m.Kept(run) {
		t.Error("a claim whose end is being recorded is kept")
	}
	do("done a")
	if p.m.Kept(run) || p.m.InFlight() != 0 {
		t.Error("a claim whose end is recorded is kept")
	}
}

// isolated is what the machine knows to be out of use after a Park.
func isolated(c schedule.Park) schedule.Isolations {
	return schedule.Isolations{{Scope: isolation.WorkerScope(c.Kind), Until: c.Until}}
}

// TestParkedFirst: an isolation by which a usage limit parks a kind of worker is known before
// its job is in the queue again.
func TestParkedFirst(t *testing.T) {
	p := newPilot(t)
	p.rest(p.coresOf([]string{"1"}))
	p.line = "add a"
	p.rest(p.event("add", []string{"a"})...)
	p.rest(p.happens("permit", []string{"a"})...)
	p.rest(p.happens("done", []string{"a"})...)
	p.step(p.happens("ended", []string{"a", "LIMIT"})...)
	i := slices.IndexFunc(p.ready.Work, func(w schedule.Work) bool { _, parks := w.Call.(schedule.Park); return parks && len(w.Ops) == 0 })
	if i < 0 {
		t.Fatalf("no Park in %+v", p.ready.Work)
	}
	p.step(isolated(p.ready.Work[i].Call.(schedule.Park)), schedule.Done{Job: "a"})
	if len(p.ready.Work) != 1 || len(p.ready.Work[0].Ops) == 0 {
		t.Errorf("after the isolation %+v, want the op that ends the claim", p.ready.Work)
	}
}
