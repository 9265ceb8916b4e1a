package agentcore_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/agentsched/agentsched/internal/agentcore"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
)

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		if err := beChild(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) == 2 && os.Args[1] == agentcore.FuseCommand {
		os.Exit(agentcore.FuseMain())
	}
	if os.Getenv(coreVariable) != "" {
		os.Exit(agentcore.Main(agentcore.Adapters()))
	}
	// The locks of folders lie in the user's home.
	home, err := os.MkdirTemp("", "agentcore-home-")
	if err == nil {
		err = os.Setenv("HOME", home)
	}
	if err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(home)
		os.Exit(code)
	}))
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
	c.configure(nil) // those that follow are void for another reason than their age, or not at all

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
	// Not the program mkfifo: the core's reaper would take it for an orphan.
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
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
