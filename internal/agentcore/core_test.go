package agentcore_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/agentsched/agentsched/internal/agentcore"
	"github.com/agentsched/agentsched/internal/proc"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/shell"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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

	core    chan error // what the core's Run returned
	stopped chan error // what our peer's Run returned
}

func (c *client) HandleCall(_ context.Context, method string, _ json.RawMessage) (any, error) {
	return nil, ipc.MethodNotFound(method)
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
	case ipc.NotifyJobCancelled:
		var n ipc.JobCancelled
		decode(&n)
		c.cancelled <- n
	}
}

// start starts a core in this process and a client that speaks with it.
func start(t *testing.T) *client {
	t.Helper()
	toCore, fromClient, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	toClient, fromCore, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c := &client{
		t: t, instance: job.NewInstanceID(), state: t.TempDir(),
		events: make(chan job.Event, 1000), completed: make(chan ipc.JobCompleted, 10), cancelled: make(chan ipc.JobCancelled, 10), circuits: make(chan ipc.Circuits, 100),
		core: make(chan error, 1), stopped: make(chan error, 1),
	}
	c.peer = ipc.NewPeer(toClient, fromClient, ipc.Config{Name: "agentcore", Log: zerolog.Nop(), Handler: c})
	core := agentcore.New(agentcore.Config{
		In: toCore, Out: fromCore, Log: zerolog.Nop(), Version: "test", Environ: os.Environ(), Lookup: os.LookupEnv,
		Adapters: map[string]worker.Adapter{"shell": shell.Adapter{}, "parrot": parrot{}},
	})
	go func() { c.core <- core.Run(context.Background()) }()
	go func() { c.stopped <- c.peer.Run(context.Background()) }()
	return c
}

func (c *client) call(method string, params, result any) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
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
	s := ipc.Configure{MaxConcurrent: 4, Stop: ipc.Stages{
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
	c.must(ipc.MethodRequestPermit, ipc.PermitRequest{Job: id, Attempt: attempt, Choice: shellChoice, Workspace: s.Workspace, Limits: s.Limits}, &a)
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
	deadline := time.After(30 * time.Second)
	for {
		select {
		case e := <-c.events:
			if want(e) {
				return e
			}
		case <-deadline:
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
	case <-time.After(30 * time.Second):
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

// TestNoRunWithoutPermit tries every way round the gate that a client on the
// wire has.
func TestNoRunWithoutPermit(t *testing.T) {
	c := start(t)
	s := spec("touch "+filepath.Join(t.TempDir(), "ran")+"; echo ran", nil)
	submit := func(permit job.PermitID, id job.ID, attempt int) ipc.SubmitJob {
		return ipc.SubmitJob{Permit: permit, Job: id, Attempt: attempt, Choice: shellChoice, Spec: s}
	}
	c.wantCode(ipc.CodeNotConfigured, ipc.MethodSubmitJob, submit("x", "a", 1))
	c.hello()
	c.wantCode(ipc.CodeNotConfigured, ipc.MethodRequestPermit, ipc.PermitRequest{Job: "a", Attempt: 1})
	c.configure(func(s *ipc.Configure) { s.PermitTTL = job.Duration(200 * time.Millisecond) })
	c.wantCode(ipc.CodePermitUnknown, ipc.MethodSubmitJob, submit("", "a", 1))
	c.wantCode(ipc.CodePermitUnknown, ipc.MethodSubmitJob, submit("01a1fcce-6b90-7022-94af-83e4d513c5ef", "a", 1))

	p := c.permit("a", 1, s)
	c.wantCode(ipc.CodePermitUnknown, ipc.MethodSubmitJob, submit(p.ID, "b", 1))
	c.wantCode(ipc.CodePermitUnknown, ipc.MethodSubmitJob, submit(p.ID, "a", 2))
	<-time.After(time.Until(p.ExpiresAt) + 50*time.Millisecond)
	c.wantCode(ipc.CodePermitUnknown, ipc.MethodSubmitJob, submit(p.ID, "a", 1))

	p = c.permit("a", 2, s)
	other := submit(p.ID, "a", 2)
	other.Choice = job.Choice{Worker: "codex"}
	c.wantCode(ipc.CodePermitUnknown, ipc.MethodSubmitJob, other)
	if len(c.completed) > 0 {
		t.Fatalf("something ran: %+v", <-c.completed)
	}

	p = c.permit("a", 3, s)
	c.must(ipc.MethodSubmitJob, submit(p.ID, "a", 3), nil)
	c.wantCode(ipc.CodePermitUnknown, ipc.MethodSubmitJob, submit(p.ID, "a", 3))
	if o := c.outcome(); !o.Succeeded() || o.Answer != "ran" {
		t.Errorf("the one run that was permitted: %+v", o)
	}
	c.end()
	if len(c.completed) > 0 {
		t.Errorf("a second run: %+v", <-c.completed)
	}
}

func TestAnotherProtocolIsRefused(t *testing.T) {
	c := start(t)
	c.wantCode(ipc.CodeVersion, ipc.MethodHello, ipc.Hello{Protocol: ipc.ProtocolVersion + 1, Version: "future"})
	if err := <-c.core; !errors.Is(err, agentcore.ErrVersion) || !strings.Contains(err.Error(), "future") {
		t.Errorf("the core ended with %v", err)
	}
	<-c.stopped
}

func TestRunReportsEverything(t *testing.T) {
	c := start(t)
	c.hello()
	c.configure(nil)
	c.run("a", spec("echo one > file; echo said; (setsid sleep 300 &)", func(s *job.Spec) { s.Trace = "trace-1" }))
	e := c.await(saying("said"))
	if e.Job != "a" || e.Attempt != 1 || e.Trace != "trace-1" || e.Seq < 2 {
		t.Errorf("event %+v", e)
	}
	o := c.outcome()
	if !o.Succeeded() || len(o.Files) != 1 || o.Files[0].Path != "file" || len(o.LeftBehind) != 1 {
		t.Errorf("outcome %+v", o)
	}
	var patch string
	for _, a := range o.Artifacts {
		if a.Name == job.ArtifactPatch {
			patch = a.Path
		}
	}
	if text, err := os.ReadFile(patch); err != nil || !strings.Contains(string(text), "+one") {
		t.Errorf("patch %q: %s, %v", patch, text, err)
	}
	c.end()
}

func TestCancelStopsTheTree(t *testing.T) {
	c := start(t)
	c.hello()
	c.configure(nil)
	c.run("a", spec("setsid sleep 300 & sleep 301 & echo up; wait", nil))
	c.await(saying("up"))
	c.must(ipc.MethodCancelJob, ipc.CancelJob{Job: "a", Attempt: 1, Class: job.CancelledClass, Reason: "enough"}, nil)
	if o := c.outcome(); o.State != job.RunCancelled || o.Message != "enough" || o.StopMillis == 0 {
		t.Errorf("outcome %+v", o)
	}
	select {
	case n := <-c.cancelled:
		if n.Job != "a" || n.LatencyMS == 0 {
			t.Errorf("cancelled: %+v", n)
		}
	default:
		t.Error("on_job_cancelled did not come before on_job_completed")
	}
	c.nothingLeft()
	c.must(ipc.MethodCancelJob, ipc.CancelJob{Job: "a", Attempt: 1}, nil) // it has ended: no error
	c.end()
}

func TestDeadlineIsATimeout(t *testing.T) {
	c := start(t)
	c.hello()
	c.configure(nil)
	c.run("a", spec("sleep 300", func(s *job.Spec) { s.Limits.Timeout = job.Duration(300 * time.Millisecond) }))
	if o := c.outcome(); o.State != job.RunFailed || o.Class != job.Timeout || !strings.Contains(o.Message, "timeout of 300ms") {
		t.Errorf("outcome %+v", o)
	}
	c.end()
}

func TestVerify(t *testing.T) {
	c := start(t)
	c.hello()
	c.configure(nil)
	c.run("a", spec("echo 41 > answer", func(s *job.Spec) { s.Verify = "echo checking >&2; grep -q 42 answer" }))
	o := c.outcome()
	if o.State != job.RunFailed || o.Class != job.VerifyFailed || !strings.Contains(o.Message, "checking") || len(o.Files) != 1 {
		t.Errorf("outcome %+v", o)
	}
	c.run("b", spec("echo 42 > answer", func(s *job.Spec) { s.Verify = "grep -q 42 answer" }))
	if o := c.outcome(); !o.Succeeded() {
		t.Errorf("outcome %+v", o)
	}
	c.end()
}

func TestOutputSchema(t *testing.T) {
	schema := json.RawMessage(`{"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}`)
	for answer, want := range map[string]job.ErrorClass{
		`echo '{"n": 1}'`: job.NoError,
		`printf '%s\n' '\x60' ` + "'```json' '{\"n\": 2}' '```' | tail -n 3": job.NoError,
		`echo '{"n": "one"}'`: job.InvalidOutput,
		`echo hello`:          job.InvalidOutput,
	} {
		c := start(t)
		c.hello()
		c.configure(nil)
		c.run("a", spec(answer, func(s *job.Spec) { s.Output = schema }))
		if o := c.outcome(); o.Class != want {
			t.Errorf("%s: outcome %+v, want class %q", answer, o, want)
		}
		c.end()
	}
}

func TestWorkspaceIsHeldUntilTheEnd(t *testing.T) {
	c := start(t)
	c.hello()
	c.configure(nil)
	dir := t.TempDir()
	direct := func(s *job.Spec) { s.Workspace = job.Workspace{Path: dir, Isolation: job.Direct} }
	c.run("a", spec("echo up; read line < fifo", func(s *job.Spec) { direct(s); mkfifo(t, filepath.Join(dir, "fifo")) }))
	c.await(saying("up"))
	a := c.request("b", 1, spec("true", direct))
	if a.Rejection == nil || a.Rejection.Reason != job.WorkspaceBusy || a.Rejection.RetryAfterMS == 0 {
		t.Errorf("second job on the folder: %+v", a)
	}
	if err := os.WriteFile(filepath.Join(dir, "fifo"), []byte("go\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.outcome()
	if a := c.request("b", 1, spec("true", direct)); a.Permit == nil {
		t.Errorf("after the end: %+v", a.Rejection)
	}
	c.end()
}

func mkfifo(t *testing.T, path string) {
	t.Helper()
	if out, err := exec.Command("mkfifo", path).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func TestShutdownStopsRunsAndReportsThem(t *testing.T) {
	c := start(t)
	c.hello()
	c.configure(nil)
	c.run("a", spec("trap 'echo bye; exit 0' INT; echo up; while :; do sleep 300 & wait $!; done", nil))
	c.await(saying("up"))
	c.end()
	if o := c.outcome(); o.State != job.RunCancelled {
		t.Errorf("outcome %+v", o)
	}
}

// TestSchedulerDies closes the wire as a dead scheduler's kernel does.
func TestSchedulerDies(t *testing.T) {
	c := start(t)
	c.hello()
	c.configure(nil)
	c.run("a", spec("setsid sleep 300 & echo up; sleep 300", nil))
	c.await(saying("up"))
	c.peer.Stop(nil)
	if err := <-c.core; !errors.Is(err, ipc.ErrEOF) {
		t.Errorf("the core ended with %v", err)
	}
	<-c.stopped
	c.nothingLeft()
}

func TestUnknownWorker(t *testing.T) {
	c := start(t)
	c.hello()
	c.configure(func(s *ipc.Configure) {
		s.Workers = map[job.WorkerKind]job.WorkerSettings{"shell": {Adapter: "no-such-adapter"}}
	})
	c.run("a", spec("true", nil))
	if o := c.outcome(); o.Class != job.Config || !strings.Contains(o.Message, "no-such-adapter") {
		t.Errorf("outcome %+v", o)
	}
	c.end()
}
