package agentcore_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/agentsched/agentsched/internal/agentcore"
	"github.com/agentsched/agentsched/internal/testrun"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker/exec"
)

// streamTaker is a scheduler's end of a stream: it has no room for a call the
// first time, and takes it the second.
type streamTaker struct {
	mu    sync.Mutex
	calls int
	sizes []int
	text  []byte
	grown chan struct{} // capacity 1; nil: it takes nothing
}

func (s *streamTaker) take(params json.RawMessage) (any, error) {
	var r ipc.StreamLines
	if err := ipc.DecodeParams(params, &r); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.grown == nil {
		return nil, &ipc.Error{Code: ipc.CodeInternal, Message: "nobody listens"}
	}
	if s.calls++; s.calls%2 == 1 {
		return ipc.StreamResult{Full: true}, nil
	}
	s.sizes = append(s.sizes, len(r.Data))
	s.text = append(s.text, r.Data...)
	select {
	case s.grown <- struct{}{}:
	default:
	}
	return ipc.StreamResult{}, nil
}

// line returns the n-th line that was taken, waiting for it.
func (s *streamTaker) line(t *testing.T, n int) string {
	t.Helper()
	late := testrun.NewTimer(t, testrun.Patience)
	defer late.Stop()
	for { // looks before it waits: what tells of one line may tell of the next as well
		s.mu.Lock()
		lines := bytes.Split(s.text, []byte("\n"))
		s.mu.Unlock()
		if len(lines) > n+1 { // the last one has no end yet
			return string(lines[n])
		}
		select {
		case <-s.grown:
		case <-late.C:
			t.Fatalf("line %d did not come, %d whole lines did", n, len(lines)-1)
		}
	}
}

// streamer is a worker in shell: it passes on what comes, and publishes a line of
// 1.2 MB at the event "big".
const streamer = `read task
while read -r line; do
	case $line in
	*big*) printf '{"type":"publish","event":"e","data":"'; head -c 1200000 /dev/zero | tr '\0' x; echo '","for":1}';;
	*end*) echo '{"type":"ack","seq":0}'; break;;
	*) echo '{"type":"publish","event":"e","data":'"$line"',"for":1}'; echo '{"type":"text","text":"beside"}';;
	esac
done
echo '{"type":"result","status":"completed","answer":"bye"}'`

// TestStream: what a worker prints about its stream comes whole and in order, and
// only there; what is written before it was started reaches it.
func TestStream(t *testing.T) {
	c := start(t, func(cfg *agentcore.Config) { cfg.Adapters["exec"] = exec.Adapter{} })
	defer c.end()
	c.stream.grown = make(chan struct{}, 1)
	c.hello()
	c.configure(func(s *ipc.Configure) {
		s.Workers = map[job.WorkerKind]job.WorkerSettings{"mine": {Adapter: "exec", Command: []string{"/bin/sh", "-c", streamer}}}
	})
	id := c.streams("mine")
	write := func(text string) {
		t.Helper()
		var r ipc.StreamResult
		c.must(ipc.MethodStreamWrite, ipc.StreamWrite{Job: id, Attempt: 1, Data: []byte(text)}, &r)
		if r.Full {
			t.Fatalf("there is no room for %q", text)
		}
	}
	// At once, whether the worker is there or not, and a line in two pieces.
	write("{\"n\":")
	write("1}\n{\"n\":2}\n")
	for i, want := range []string{`"data":{"n":1}`, `"data":{"n":2}`} {
		if got := c.stream.line(t, i); !strings.Contains(got, want) {
			t.Errorf("line %d is %s, want %s", i, got, want)
		}
	}
	if e := c.await(saying("beside")); e.Attempt != 1 {
		t.Errorf("event %+v", e)
	}
	write("{\"big\":1}\n")
	var big struct{ Data string }
	if err := json.Unmarshal([]byte(c.stream.line(t, 2)), &big); err != nil || len(big.Data) != 1_200_000 {
		t.Errorf("the long line has %d bytes of data, %v", len(big.Data), err)
	}
	write("end\n")
	if o := c.outcome(); o.State != job.RunCompleted || o.Answer != "bye" {
		t.Errorf("outcome %+v", o)
	}
	if got := c.stream.line(t, 3); got != `{"type":"ack","seq":0}` {
		t.Errorf("the last line is %s", got)
	}
	for _, n := range c.stream.sizes {
		if n > ipc.MaxStream {
			t.Errorf("a call had %d bytes", n)
		}
	}
	for len(c.events) > 0 {
		if e := <-c.events; e.Kind == job.EventWarning {
			t.Errorf("warning %q: a line about the stream is none", e.Text)
		}
	}
	c.wantCode(ipc.CodeInternal, ipc.MethodStreamWrite, ipc.StreamWrite{Job: id, Attempt: 1, Data: []byte("x\n")})
}

// streams submits a job that streams to a worker, and returns its id.
func (c *client) streams(kind job.WorkerKind) job.ID {
	c.t.Helper()
	id := job.NewID()
	s := spec("work", func(s *job.Spec) { s.Type, s.Worker = job.WorkerTask, kind })
	var a ipc.PermitAnswer
	c.must(ipc.MethodRequestPermit, ipc.PermitRequest{Job: id, Tenant: s.Tenant, Attempt: 1, Choice: job.Choice{Worker: kind}, Workspace: s.Workspace, Limits: s.Limits}, &a)
	if a.Permit == nil {
		c.t.Fatalf("refused: %+v", a.Rejection)
	}
	c.must(ipc.MethodSubmitJob, ipc.SubmitJob{
		Permit: a.Permit.ID, Job: id, Attempt: 1, Choice: job.Choice{Worker: kind}, Spec: s,
		Stream: &ipc.Stream{Pipeline: "line", Stage: "second"},
	}, nil)
	return id
}

// TestStreamUnread: a worker that reads nothing is given a bounded amount, and one
// whose lines nobody takes goes on.
func TestStreamUnread(t *testing.T) {
	c := start(t, func(cfg *agentcore.Config) { cfg.Adapters["exec"] = exec.Adapter{} })
	defer c.end()
	c.hello()
	deaf := `read task; echo '{"type":"ack","seq":1}'; echo '{"type":"text","text":"ready"}'; exec sleep 300`
	c.configure(func(s *ipc.Configure) {
		s.Workers = map[job.WorkerKind]job.WorkerSettings{"mine": {Adapter: "exec", Command: []string{"/bin/sh", "-c", deaf}}}
	})
	id := c.streams("mine")
	c.await(saying("ready"))
	piece := bytes.Repeat([]byte("x"), ipc.MaxStream)
	var r ipc.StreamResult
	n := 0
	for ; !r.Full && n < 100; n++ {
		c.must(ipc.MethodStreamWrite, ipc.StreamWrite{Job: id, Attempt: 1, Data: piece}, &r)
	}
	if n == 100 || n < 8 {
		t.Errorf("%d pieces of %d bytes were taken", n, len(piece))
	}
	c.must(ipc.MethodCancelJob, ipc.CancelJob{Job: id, Attempt: 1, Reason: "enough", Now: true}, nil)
	if o := c.outcome(); o.State != job.RunCancelled {
		t.Errorf("outcome %+v", o)
	}
}

// TestStreamNeedsExec: another adapter's worker cannot be that of a stage which
// streams.
func TestStreamNeedsExec(t *testing.T) {
	c := start(t)
	defer c.end()
	c.hello()
	c.configure(nil)
	c.streams("shell")
	if o := c.outcome(); o.Class != job.Config || !strings.Contains(o.Message, `stage "second" of pipeline "line" streams; worker shell cannot stream`) || o.Hint == "" {
		t.Errorf("outcome %+v", o)
	}
}
