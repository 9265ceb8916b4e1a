package agentcore_test

import (
	"testing"
	"time"

	"github.com/agentsched/agentsched/internal/agentcore"
	"github.com/agentsched/agentsched/internal/testrun"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker/exec"
)

// asker asks about the command make, twice by the same id, and says what it was answered.
const asker = `read task
ask() {
	echo '{"type":"question","id":"1","kind":"command","command":"make","text":"run make?","decisions":["allow","deny"],"input":{"command":"make"}}'
	read answer
	case $answer in
	*'"decision":"allow"'*) echo "{\"type\":\"text\",\"text\":\"$1 allowed\"}";;
	*) echo "{\"type\":\"text\",\"text\":\"$1 denied\"}";;
	esac
}
echo '{"type":"hello","protocol":1,"converses":["questions"]}'
ask first
ask second
ask third
echo '{"type":"result","status":"completed"}'
`

// conversing starts a core with the worker asker.
func conversing(t *testing.T, script string) *client {
	t.Helper()
	c := start(t, func(cfg *agentcore.Config) { cfg.Adapters["exec"] = exec.Adapter{} })
	c.hello()
	c.configure(func(s *ipc.Configure) {
		s.Workers = map[job.WorkerKind]job.WorkerSettings{"mine": {Adapter: "exec", Command: []string{"/bin/sh", "-c", script}}}
	})
	return c
}

// runAsking has a job run whose commands a person is asked about.
func (c *client) runAsking(change func(*job.Spec)) job.ID {
	c.t.Helper()
	id := job.NewID()
	s := spec("work", func(s *job.Spec) {
		s.Type, s.Worker, s.Capabilities, s.Ask.For = job.WorkerTask, "mine", nil, []job.AskFor{job.AskCommands}
		if change != nil {
			change(s)
		}
	})
	choice := job.Choice{Worker: "mine"}
	var a ipc.PermitAnswer
	c.must(ipc.MethodRequestPermit, ipc.PermitRequest{Job: id, Tenant: s.Tenant, Attempt: 1, Choice: choice, Workspace: s.Workspace, Limits: s.Limits}, &a)
	if a.Permit == nil {
		c.t.Fatalf("refused: %+v", a.Rejection)
	}
	c.must(ipc.MethodSubmitJob, ipc.SubmitJob{Permit: a.Permit.ID, Job: id, Attempt: 1, Choice: choice, Spec: s}, nil)
	return id
}

// question returns what a person is asked next.
func (c *client) question() ipc.Question {
	c.t.Helper()
	select {
	case q := <-c.asked:
		return q
	case <-testrun.After(c.t):
		c.t.Fatal("nothing was asked")
		panic("unreachable")
	}
}

// TestQuestionsOfOneID: an answer that holds once is given to no other question, also if the program uses an id
// again; what is allowed for good answers the question that waits.
func TestQuestionsOfOneID(t *testing.T) {
	c := conversing(t, asker)
	defer c.end()
	id := c.runAsking(nil)
	answer := func(tell ipc.TellRun) {
		t.Helper()
		tell.Job, tell.Attempt = id, 1
		var r ipc.TellRunResult
		if c.must(ipc.MethodTellRun, tell, &r); !r.Taken {
			t.Errorf("the run did not take %+v: %s", tell, r.Why)
		}
	}
	first := c.question()
	answer(ipc.TellRun{Answers: []ipc.Answer{{Question: first.ID, Decision: "allow"}}})
	c.await(saying("first allowed"))
	second := c.question()
	if second.ID == first.ID || second.Key != first.Key {
		t.Errorf("asked %+v and then %+v, want two of one key", first, second)
	}
	answer(ipc.TellRun{Answers: []ipc.Answer{{Question: first.ID, Decision: "allow"}, {Question: second.ID, Decision: "deny"}}})
	c.await(saying("second denied"))
	c.question()
	answer(ipc.TellRun{Rules: &[]job.AskRule{{Command: "make", Answer: job.AllowAsked}}})
	c.await(saying("third allowed"))
	if o := c.outcome(); o.State != job.RunCompleted {
		t.Errorf("outcome %+v", o)
	}
}

// TestLongQuestion: what a question takes of events is bounded as what a person is shown.
func TestLongQuestion(t *testing.T) {
	c := conversing(t, `read task
echo '{"type":"hello","protocol":1,"converses":["questions"]}'
long=$(head -c 20000 /dev/zero | tr '\0' x)
echo "{\"type\":\"question\",\"id\":\"1\",\"kind\":\"command\",\"command\":\"make $long\",\"text\":\"run $long?\",\"decisions\":[\"allow\",\"deny\"]}"
read answer
echo '{"type":"result","status":"completed"}'
`)
	defer c.end()
	c.runAsking(func(s *job.Spec) { s.Ask.Wait = job.Duration(100 * time.Millisecond) })
	e := c.await(func(e job.Event) bool { return e.Kind == job.EventQuestion })
	if q := c.question(); e.Text != q.Text || e.Command != q.Command || len(q.Text) > 9000 {
		t.Errorf("the event has %d and %d bytes, the question %d and %d", len(e.Text), len(e.Command), len(q.Text), len(q.Command))
	}
	if o := c.outcome(); o.State != job.RunCompleted {
		t.Errorf("outcome %+v", o)
	}
}

// TestNobodyAnswers: the time that a run waits for a person is not the job's, and is over when the job says.
func TestNobodyAnswers(t *testing.T) {
	c := conversing(t, asker)
	defer c.end()
	c.runAsking(func(s *job.Spec) { s.Ask.Wait = job.Duration(100 * time.Millisecond) })
	for _, want := range []string{"first denied", "second denied", "third denied"} {
		c.question()
		c.await(saying(want))
	}
	o := c.outcome()
	if o.State != job.RunCompleted || o.AskedMillis < 300 {
		t.Errorf("outcome %+v, want a run that waited three times for 100 ms", o)
	}
	if r := <-c.talked; len(r.Closed) == 0 || r.Closed[0].How != ipc.ClosedExpired {
		t.Errorf("told %+v", r)
	}
}
