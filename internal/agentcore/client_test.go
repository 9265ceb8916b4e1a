package agentcore_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/internal/agentcore"
	"github.com/agentsched/agentsched/internal/proc"
	"github.com/agentsched/agentsched/internal/testrun"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/shell"
)

// client is a scheduler of few words: it says what a test tells it to.
type client struct {
	t        *testing.T
	peer     *ipc.Peer
	instance job.InstanceID
	state    string

	events    chan job.Event
	completed chan ipc.JobCompleted
	circuits  chan ipc.Circuits
	cancelled chan ipc.JobCancelled
	escalated chan ipc.Escalation
	metrics   chan ipc.Metrics

	steps   stepStore   // answers the core's calls
	stream  streamTaker // likewise
	parcels parcelStore // likewise
	patches parcelStore // likewise, by path
	kids    *family     // likewise; nil: there are none
	asked   chan ipc.Question
	talked  chan ipc.ReportTalk

	core    chan error // what the core's Run returned
	stopped chan error // what our peer's Run returned
}

func (c *client) HandleCall(_ context.Context, method string, params json.RawMessage) (any, error) {
	switch method {
	case ipc.MethodSubmitChild, ipc.MethodListChildren, ipc.MethodReadChild, ipc.MethodCancelChild, ipc.MethodNotes:
		return c.kids.answer(method, params)
	case ipc.MethodStreamLines:
		return c.stream.take(params)
	case ipc.MethodReadParcel:
		return c.parcels.read(params)
	case ipc.MethodReadPatch:
		return c.patches.readPatch(params)
	case ipc.MethodAskPerson:
		var r ipc.AskPerson
		err := json.Unmarshal(params, &r)
		c.asked <- r.Question
		return ipc.AskPersonResult{}, err
	case ipc.MethodReportTalk:
		var r ipc.ReportTalk
		err := json.Unmarshal(params, &r)
		c.talked <- r
		return ipc.Empty{}, err
	}
	return c.steps.answer(method, params)
}

func (c *client) HandleNotify(_ context.Context, method string, params json.RawMessage) {
	decode := func(v any) {
		if err := json.Unmarshal(params, v); err != nil {
			c.t.Errorf("notification %s: %v", method, err)
		}
	}
	switch method {
	case ipc.NotifyWorkerEvent:
		var n ipc.WorkerEvent
		decode(&n)
		c.events <- n.Event
	case ipc.NotifyJobCompleted:
		var n ipc.JobCompleted
		decode(&n)
		c.completed <- n
	case ipc.NotifyCircuits:
		var n ipc.Circuits
		decode(&n)
		c.circuits <- n
	case ipc.NotifyEscalation:
		var n ipc.Escalation
		decode(&n)
		c.escalated <- n
	case ipc.NotifyMetrics:
		var n ipc.Metrics
		decode(&n)
		c.metrics <- n
	case ipc.NotifyJobCancelled:
		var n ipc.JobCancelled
		decode(&n)
		c.cancelled <- n
	}
}

// start starts a core in this process and a client that speaks with it.
func start(t *testing.T, changes ...func(*agentcore.Config)) *client {
	t.Helper()
	toCore, fromClient, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	toClient, fromCore, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c := newClient(t, toClient, fromClient)
	cfg := agentcore.Config{
		In: toCore, Out: fromCore, Log: zerolog.Nop(), Version: "test", Environ: os.Environ(), Lookup: os.LookupEnv,
		Adapters: map[string]worker.Adapter{"shell": shell.Adapter{}, "parrot": parrot{}, "codex": provided("openai"), "claude": provided("anthropic")},
	}
	for _, change := range changes {
		change(&cfg)
	}
	core := agentcore.New(cfg)
	go func() { c.core <- core.Run(context.Background()) }()
	go func() { c.stopped <- c.peer.Run(context.Background()) }()
	return c
}

// newClient makes one that speaks with a core by a pair of pipes, once its peer runs.
func newClient(t *testing.T, in, out *os.File) *client {
	c := &client{
		t: t, instance: job.NewInstanceID(), state: t.TempDir(),
		events: make(chan job.Event, 1000), completed: make(chan ipc.JobCompleted, 10), cancelled: make(chan ipc.JobCancelled, 10), circuits: make(chan ipc.Circuits, 100),
		escalated: make(chan ipc.Escalation, 100), metrics: make(chan ipc.Metrics, 1000),
		asked: make(chan ipc.Question, 100), talked: make(chan ipc.ReportTalk, 100),
		core: make(chan error, 1), stopped: make(chan error, 1),
	}
	c.peer = ipc.NewPeer(in, out, ipc.Config{Name: "agentcore", Log: zerolog.Nop(), Handler: c})
	return c
}

func (c *client) call(method string, params, result any) error {
	ctx, cancel := testrun.Context(c.t, context.Background(), testrun.Patience, errors.New("no answer"))
	defer cancel()
	return c.peer.Call(ctx, method, params, result)
}

func (c *client) must(method string, params, result any) {
	c.t.Helper()
	if err := c.call(method, params, result); err != nil {
		c.t.Fatal(err)
	}
}

// wantCode checks that the core refuses with the code.
func (c *client) wantCode(code int, method string, params any) {
	c.t.Helper()
	err := c.call(method, params, nil)
	var refused *ipc.Error
	if !errors.As(err, &refused) || refused.Code != code {
		c.t.Errorf("%s: got %v, want code %d", method, err, code)
	}
}

func (c *client) hello() {
	c.t.Helper()
	c.must(ipc.MethodHello, ipc.Hello{Protocol: ipc.ProtocolVersion, Instance: c.instance, StateDir: c.state}, nil)
}

func (c *client) configure(change func(*ipc.Configure)) {
	c.t.Helper()
	// A permit lives until it is used, however busy the machine is.
	s := ipc.Configure{MaxConcurrent: 4, PermitTTL: job.Duration(time.Hour), Stop: ipc.Stages{
		Interrupt: job.Duration(2 * time.Second), Terminate: job.Duration(2 * time.Second), Kill: job.Duration(10 * time.Second),
	}}
	if change != nil {
		change(&s)
	}
	c.must(ipc.MethodConfigure, s, nil)
}

var shellChoice = job.Choice{Worker: "shell"}

func spec(script string, change func(*job.Spec)) job.Spec {
	s := job.Spec{
		Name: "test", Tenant: "t", Type: job.Tool, Worker: "shell", Instructions: script,
		Workspace: job.Workspace{Isolation: job.NoWorkspace}, Capabilities: []job.Capability{job.CanRunCommands},
		Limits: job.Limits{MaxAttempts: 3, Timeout: job.Duration(time.Minute)},
	}
	if change != nil {
		change(&s)
	}
	return s
}

func (c *client) request(id job.ID, attempt int, s job.Spec) ipc.PermitAnswer {
	c.t.Helper()
	var a ipc.PermitAnswer
	c.must(ipc.MethodRequestPermit, ipc.PermitRequest{Job: id, Tenant: s.Tenant, Attempt: attempt, Choice: shellChoice, Workspace: s.Workspace, Limits: s.Limits}, &a)
	return a
}

func (c *client) permit(id job.ID, attempt int, s job.Spec) *ipc.Permit {
	c.t.Helper()
	a := c.request(id, attempt, s)
	if a.Permit == nil {
		c.t.Fatalf("permit for %s refused: %+v", id, a.Rejection)
	}
	return a.Permit
}

// run asks for a permit and submits the job.
func (c *client) run(id job.ID, s job.Spec) {
	c.t.Helper()
	p := c.permit(id, 1, s)
	c.must(ipc.MethodSubmitJob, ipc.SubmitJob{Permit: p.ID, Job: id, Attempt: 1, Choice: shellChoice, Spec: s}, nil)
}

// await returns the next event that is wanted.
func (c *client) await(want func(job.Event) bool) job.Event {
	c.t.Helper()
	late := testrun.NewTimer(c.t, testrun.Patience)
	defer late.Stop()
	for {
		select {
		case e := <-c.events:
			if want(e) {
				return e
			}
		case <-late.C:
			c.t.Fatal("the event did not come")
		}
	}
}

func saying(text string) func(job.Event) bool {
	return func(e job.Event) bool { return e.Kind == job.EventText && e.Text == text }
}

func (c *client) outcome() job.Outcome {
	c.t.Helper()
	select {
	case n := <-c.completed:
		return n.Outcome
	case <-testrun.After(c.t):
		c.t.Fatal("the run did not end")
		panic("unreachable")
	}
}

// end shuts the core down and checks that nothing is left.
func (c *client) end() {
	c.t.Helper()
	c.peer.ExpectEOF()
	c.must(ipc.MethodShutdown, ipc.Shutdown{Reason: "end of test"}, nil)
	if err := <-c.core; err != nil {
		c.t.Errorf("the core ended with %v", err)
	}
	if err := <-c.stopped; !errors.Is(err, ipc.ErrClosed) {
		c.t.Errorf("the conversation ended with %v", err)
	}
	c.nothingLeft()
}

func (c *client) nothingLeft() {
	c.t.Helper()
	if left, err := proc.Alive(string(c.instance)); err != nil || len(left) > 0 {
		c.t.Errorf("processes are left: %v, %v", left, err)
	}
}
