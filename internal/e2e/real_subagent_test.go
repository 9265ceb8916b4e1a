package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/scriptmodel"
	"github.com/agentsched/agentsched/internal/testrun"
	"github.com/agentsched/agentsched/job"
)

// starters are the tools by which the CLIs that have subagents start one.
var starters = map[job.WorkerKind]string{"claude": "Agent", "opencode": "task"}

// eachStarter runs the test on every CLI that has subagents, side by side; without a soak on those of the sample alone.
func eachStarter(t *testing.T, sample string, f func(t *testing.T, kind job.WorkerKind)) {
	for _, kind := range []job.WorkerKind{"claude", "opencode"} {
		t.Run(string(kind), func(t *testing.T) {
			if !slices.Contains(strings.Fields(sample), string(kind)) {
				testrun.Long(t, "otherwise done with "+sample)
			}
			t.Parallel()
			f(t, kind)
		})
	}
}

// delegate has the agent start a subagent.
func delegate(kind job.WorkerKind, name, words string) scriptmodel.Turn {
	return scriptmodel.Call(starters[kind], fmt.Sprintf(`{"description": "a part of it", "subagent_type": %q, "prompt": %q}`, name, words))
}

// subagents configures two for a worker: runner may do what its job may, reader has no commands.
func (b *bench) subagents(kind job.WorkerKind) {
	b.t.Helper()
	b.config["workers"].(obj)[string(kind)].(obj)["subagents"] = obj{
		"runner": obj{"when": "runs a command"},
		"reader": obj{"when": "reads files", "capabilities": []string{"read"}},
	}
}

// TestRealSubagents: an agent hands parts of its work to subagents. Each may do what both it and the job may, what it does belongs to
// the call that started it, and every token is the job's.
func TestRealSubagents(t *testing.T) {
	eachStarter(t, "claude opencode", func(t *testing.T, kind job.WorkerKind) {
		b := newBench(t)
		b.use(kind)
		b.subagents(kind)
		const runs, reads = "Run a part of it.", "Read a part of it."
		b.play("lead", scriptmodel.Play(
			delegate(kind, "runner", runs), delegate(kind, "reader", reads), scriptmodel.Say("All done."),
		).Delegating(runs,
			scriptmodel.Run("cat README.md"), scriptmodel.Run("touch refused.txt"), scriptmodel.Say("The runner is done."),
		).Delegating(reads,
			scriptmodel.Run("cat README.md # by the reader"), scriptmodel.Say("Never said: the reader has no commands.")))
		r := b.start("run", b.jobs(b.task("lead", kind, "lead", obj{
			"capabilities": []string{"read", "edit", "run_commands"}, "allow_commands": []string{"cat *"}, "limits": obj{"max_attempts": 1},
		})))
		r.exit(0)
		o := b.last(b.show("lead"))
		if !o.Succeeded() || o.Answer != "All done." || len(o.Files) > 0 {
			r.fatalf("the job has ended so: %s", asJSON(t, o))
		}
		// Three calls of the agent, three of the runner and one of the reader.
		if u := o.Usage; u.InputTokens != 7*120 || u.CachedTokens != 7*20 || u.OutputTokens != 7*30 {
			r.fatalf("usage %s, want that of seven calls of the model", asJSON(t, u))
		}
		var parts []string // the calls that start a subagent
		did := map[string][]string{}
		r.seen(func(u *api.Update) bool {
			e := u.Event
			switch {
			case e == nil:
			case e.Kind == job.EventTool && e.Parent == "" && !slices.Contains(parts, e.CallID):
				parts = append(parts, e.CallID)
			case e.Kind == job.EventCommand && e.ExitCode != nil:
				did[e.Parent] = append(did[e.Parent], fmt.Sprint(e.Command, " ", *e.ExitCode))
			case e.Kind == job.EventText:
				did[e.Parent] = append(did[e.Parent], e.Text)
			}
			return false
		})
		want := map[string][]string{"": {"All done."}}
		if len(parts) == 2 {
			want[parts[0]] = []string{"cat README.md 0", "touch refused.txt -1", "The runner is done."}
			want[parts[1]] = []string{"I would run a command, but no shell tool is declared: cat README.md # by the reader"}
		}
		if got := asJSON(t, did); got != asJSON(t, want) {
			r.fatalf("by the calls %q that started it, this was done: %s", parts, got)
		}
		b.noProcess()
	})
}

// TestRealSubagentBudget: the tokens of a subagent end its job while it works.
func TestRealSubagentBudget(t *testing.T) {
	eachStarter(t, "claude", func(t *testing.T, kind job.WorkerKind) {
		b := newBench(t)
		b.use(kind)
		b.subagents(kind)
		b.play("lead", scriptmodel.Play(delegate(kind, "runner", "Spend."), scriptmodel.Say("Never said.")).Delegating("Spend.",
			scriptmodel.Run("true").Costing(scriptmodel.Usage{Input: 90_000, Output: 20_000}),
			scriptmodel.Run("sleep "+b.nap()), scriptmodel.Say("Never said.")))
		r := b.start("run", b.jobs(b.task("lead", kind, "lead", obj{"limits": obj{"max_tokens": 100_000}})))
		r.exit(1)
		j := b.show("lead")
		if o := b.last(j); len(j.Attempts) != 1 || o.Class != job.Budget || o.Usage.Tokens() != 110_150 || len(b.asked("lead")) != 2 {
			r.fatalf("want one attempt that ends with %s in the middle of the subagent's work, after %d requests: %s", job.Budget, len(b.asked("lead")), asJSON(t, j))
		}
		b.noProcess()
	})
}

// TestRealSubagentAsks: people answer what a subagent asks.
func TestRealSubagentAsks(t *testing.T) {
	eachStarter(t, "claude", func(t *testing.T, kind job.WorkerKind) {
		k := newTalk(t, kind)
		k.subagents(kind)
		k.begin("10m", scriptmodel.Play(delegate(kind, "runner", "Ask."), scriptmodel.Say("All done.")).Delegating("Ask.",
			scriptmodel.Run("touch yes.txt"), scriptmodel.Run("touch no.txt"), scriptmodel.Say("I have asked.")))
		k.asks(1, 1, "touch yes.txt", api.AnswerQuestion{Decision: api.Allow})
		k.asks(2, 1, "touch no.txt", api.AnswerQuestion{Decision: api.Deny, Text: "leave that to me"})
		if got := k.made(k.ends("All done.")); got != "yes.txt" {
			k.fatalf("the subagent has made %s", got)
		}
		if !k.modelHeard("leave that to me") {
			k.fatalf("the subagent was not told why not")
		}
	})
}
