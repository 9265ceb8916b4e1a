package e2e

// A person is asked, and what they say counts: whether a scheduler runs or not,
// and whatever was killed meanwhile.

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
)

// waiting returns the names of the jobs that wait for a person.
func (b *bench) waiting() string {
	b.t.Helper()
	out, errs, code := b.command("approvals", "ls", "--json")
	var list api.Jobs
	if err := json.Unmarshal([]byte(out), &list); err != nil || code != 0 {
		b.fatalf("approvals ls: exit code %d, %v\n%s%s", code, err, out, errs)
	}
	var names []string
	for _, e := range list.Jobs {
		names = append(names, string(e.Spec.Name))
	}
	return strings.Join(names, " ")
}

// TestApproval: work waits for a person without a worker, over a kill of the
// scheduler; a rejection has it done again with the feedback; what needs it
// begins when it is approved; where nobody answers in time the default does.
func TestApproval(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.config["escalation"] = obj{"command": []string{"/bin/sh", "-c", "cat >> " + b.folder("told") + "; echo >> " + b.folder("told")}}
	overseen := func(more obj) obj { return obj{"oversight": with(obj{"mode": "supervised", "max_retries": 1}, more)} }
	file := b.jobs(
		with(shell("draft", nil, `echo "draft $(date +%N)"`, nil), overseen(obj{})),
		with(shell("publish", nil, "echo published", nil), obj{"needs": []string{"draft"}}),
		with(shell("bad", nil, "echo bad", nil), overseen(obj{"max_retries": 0})),
		with(shell("late", nil, "echo late", nil), overseen(obj{"timeout": "1s", "default": "approve"})),
		with(shell("unsure", nil, `echo '{"confidence": 0.2}'`, nil), obj{"oversight": obj{"mode": "autonomous_escalation", "min_confidence": 0.5}}),
		with(shell("sure", nil, `echo '{"confidence": 0.9}'`, nil), obj{"oversight": obj{"mode": "autonomous_escalation", "min_confidence": 0.5}}),
	)
	r := b.start("run", file)
	r.awaitCore(1)
	b.eventually("three wait for a person", func() bool { return b.waiting() == "draft bad unsure" })
	b.eventually("a person was told", func() bool { return strings.Contains(strings.Join(b.lines("told"), " "), "approval_requested") })
	b.eventually("nobody else is to be asked", func() bool { return b.isDone("late") && b.isDone("sure") })
	b.eventually("no job holds a worker while a person is asked", func() bool { return b.status().Running == 0 })
	r.killAll()
	r.close()
	if e := b.entry("draft"); e.State != job.Queued || e.Held != job.HeldForApproval || e.Attempts != 1 {
		t.Fatalf("after a kill: %s", asJSON(t, e))
	}

	// Nobody is needed to take an answer.
	if out, errs, code := b.command("reject", "draft"); code != 2 || !strings.Contains(errs, "-m") {
		t.Errorf("a rejection without a word: exit code %d\n%s%s", code, out, errs)
	}
	if out, errs, code := b.command("reject", "draft", "-m", "say FOOBAR"); code != 0 {
		t.Fatalf("reject: exit code %d\n%s%s", code, out, errs)
	}
	if out, errs, code := b.command("approve", "draft"); code != 1 || !strings.Contains(errs, "waits for no approval") {
		t.Errorf("approval of what waits for none: exit code %d\n%s%s", code, out, errs)
	}

	r = b.start("run", file)
	r.awaitCore(1)
	b.eventually("the work was done again", func() bool { return b.waiting() == "draft bad unsure" })
	if j := b.show("draft"); j.Job.Attempts != 2 || j.Job.Rejections != 1 || j.Attempts[0].Outcome.Class != job.HumanRejected || j.Attempts[0].State != job.RunFailed {
		t.Errorf("after the rejection: %s", asJSON(t, j))
	}
	if e := b.entry("publish"); e.State != job.Queued {
		t.Errorf("what needs it did not wait: %s", e.State)
	}
	for _, args := range [][]string{{"approve", "draft", "-m", "fine"}, {"reject", "bad", "-m", "no"}, {"approve", "unsure"}} {
		if out, errs, code := b.command(args...); code != 0 {
			t.Errorf("%v: exit code %d\n%s%s", args, code, out, errs)
		}
	}
	r.exit(1) // one was rejected for good
	for name, want := range map[string]job.ExitKind{"draft": job.ExitSucceeded, "publish": job.ExitSucceeded, "bad": job.ExitFailed, "late": job.ExitSucceeded, "unsure": job.ExitSucceeded, "sure": job.ExitSucceeded} {
		if e := b.entry(job.Name(name)); e.ExitKind != want {
			t.Errorf("%s: %s", name, asJSON(t, e))
		}
	}
	if e := b.entry("late"); e.Approval == nil || e.Approval.By != "timeout" {
		t.Errorf("the default answer: %s", asJSON(t, e.Approval))
	}
	if e := b.entry("sure"); e.Approval != nil {
		t.Errorf("a sure agent asked: %s", asJSON(t, e.Approval))
	}
	b.soundState()
}
