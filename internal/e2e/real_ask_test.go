package e2e

import (
	"testing"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/scriptmodel"
	"github.com/agentsched/agentsched/job"
)

// TestRealAsk: each command is asked about, and each kind of answer is what the program and its model hear: yes; no, with the words;
// yes for good, of what was asked and of a pattern, until that is revoked.
func TestRealAsk(t *testing.T) {
	eachTalker(t, "codex claude opencode", func(k *talk) {
		yes, no := api.AnswerQuestion{Decision: api.Allow}, api.AnswerQuestion{Decision: api.Deny, Text: "leave that to the release team"}
		k.begin("10m", scriptmodel.Play(
			scriptmodel.Run("touch yes.txt"), scriptmodel.Run("touch no.txt"),
			scriptmodel.Run("touch kept.txt"), scriptmodel.Run("touch kept.txt"),
			scriptmodel.Run("touch one.tmp"), scriptmodel.Run("touch two.tmp"),
			k.waits("revoked"), scriptmodel.Run("touch kept.txt"), scriptmodel.Run("touch three.tmp"),
			scriptmodel.Say("All done.")))
		k.run.await("the run waits for an answer", func(u *api.Update) bool { return u.Event != nil && u.Event.State == job.WaitingApproval })
		k.asks(1, 1, "touch yes.txt", yes)
		k.asks(2, 1, "touch no.txt", no)
		k.asks(3, 1, "touch kept.txt", api.AnswerQuestion{Decision: api.Allow, Scope: api.GrantTenant})
		k.asks(4, 1, "touch one.tmp", api.AnswerQuestion{Decision: api.Allow, Scope: api.GrantTenant, Pattern: "touch *.tmp"})
		k.runs("wait.sh", 1)
		for _, pattern := range []string{"touch kept.txt", "touch *.tmp"} {
			if out, errs, code := k.command("grants", "revoke", "--kind", "command", "--tenant", "tests", pattern); code != 0 {
				k.fatalf("revoke %q: exit code %d\n%s%s", pattern, code, out, errs)
			}
		}
		k.goOn("revoked")
		k.asks(5, 1, "touch kept.txt", yes)
		k.asks(6, 1, "touch three.tmp", no)
		d := k.ends("All done.")
		if got := k.made(d); got != "kept.txt one.tmp two.tmp yes.txt" {
			k.fatalf("the agent has made %s", got)
		}
		if o := k.last(d); o.AskedMillis == 0 || len(d.Attempts) != 1 {
			k.fatalf("want one attempt, and how long it has waited for people: %s", asJSON(k.t, d))
		}
		if !k.modelHeard("leave that to the release team") {
			k.fatalf("the model was not told why not")
		}
	})
}

// TestRealAskNobody: when nobody answers in time the run goes on without, and a question holds neither it nor a slot any longer. The
// question stays open: a later yes is told, and counts when the agent asks the same again.
func TestRealAskNobody(t *testing.T) {
	eachTalker(t, "acp", func(k *talk) {
		late, never := scriptmodel.Run("touch late.txt"), scriptmodel.Run("touch never.txt")
		script := scriptmodel.Play(late, k.waits("answered"), late, never, scriptmodel.Say("All done."))
		if k.kind == acpKind { // it is told between turns, and a refusal ends one
			script = scriptmodel.Play(late, k.waits("answered"), never, late, scriptmodel.Say("All done."))
		}
		k.config["concurrency"] = obj{"max": 1}
		k.begin("1s", script)
		k.submit(k.jobsOf("tests", "next.yaml", shell("next", nil, "true", nil)))
		k.runs("wait.sh", 1)
		if !k.modelHeard("nobody answered within 1s") {
			k.fatalf("the model was not told that nobody answered")
		}
		q := k.questions()[0]
		if q.State != api.QuestionOpen || q.Waits {
			k.fatalf("the run does not wait any more, and the question is open; it is %+v", q)
		}
		k.answer(1, api.AnswerQuestion{Decision: api.Allow})
		k.goOn("answered")
		k.run.await("the end of the job behind it", func(u *api.Update) bool { return u.Name == "next" && u.Entry == job.Completed })
		if q := k.questions(); len(q) != 2 || q[0].Answer.Given != 1 || q[1].State != api.QuestionOpen || q[1].Waits {
			k.fatalf("want an answer that was given, and an open question: %s", asJSON(k.t, q))
		}
		d := k.ends("All done.")
		if got := k.made(d); got != "late.txt" {
			k.fatalf("the agent has made %s", got)
		}
		if !k.modelHeard("Your question was not answered in time") {
			k.fatalf("the model was not told of the late answer")
		}
	})
}

// TestRealAskKilled: a question outlives whoever is killed with SIGKILL while it is open, and the answer that is given after that counts
// once: the session that goes on asks the same, gets it, and asks about the next equal command again.
func TestRealAskKilled(t *testing.T) {
	for _, c := range []struct {
		name, sample string
		kill         func(k *talk)
	}{
		{"scheduler", "claude", func(k *talk) {
			k.run.kill()
			k.noProcess()
			if out, errs, code := k.command("answer", "talk", "yes"); code != 0 { // while nothing runs
				k.fatalf("answer: exit code %d\n%s%s", code, out, errs)
			}
			k.serves()
		}},
		{"core", "codex", func(k *talk) {
			k.run.killCore()
			k.asks(1, 2, "sh run.sh", api.AnswerQuestion{Decision: api.Allow})
		}},
		{"both", "opencode", func(k *talk) {
			k.run.killAll()
			k.serves()
			k.asks(1, 2, "sh run.sh", api.AnswerQuestion{Decision: api.Allow})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			eachTalker(t, c.sample, func(k *talk) {
				once := scriptmodel.Run("sh run.sh")
				k.begin("10m", scriptmodel.Play(once).Resuming(once, once, scriptmodel.Say("All done.")))
				k.question(1, 1)
				c.kill(k)
				k.asks(2, 2, "sh run.sh", api.AnswerQuestion{Decision: api.Allow})
				k.until("the first answer was given in attempt 2, and the second one", func() bool {
					q := k.questions()
					return len(q) == 2 && q[0].Answer.Given == 2 && q[1].Answer.Given == 2
				})
				d := k.ends("All done.")
				if len(d.Attempts) != 2 || d.Attempts[0].Session != d.Attempts[1].Session {
					k.fatalf("want two attempts of one session: %s", asJSON(k.t, d))
				}
				k.content(k.applied(k.last(d))+"/runs.txt", "run\nrun\n")
			})
		})
	}
}
