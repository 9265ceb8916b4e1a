package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/scriptmodel"
	"github.com/agentsched/agentsched/internal/testrun"
	"github.com/agentsched/agentsched/job"
)

// eachCLI runs the test on every worker CLI, side by side. Without a soak it is
// done on those of the sample alone, a list with blanks: a start of OpenCode
// alone computes for five seconds.
func eachCLI(t *testing.T, sample string, f func(t *testing.T, kind job.WorkerKind)) {
	for _, kind := range []job.WorkerKind{"codex", "claude", "opencode"} {
		t.Run(string(kind), func(t *testing.T) {
			if !slices.Contains(strings.Fields(sample), string(kind)) {
				testrun.Long(t, "otherwise done with "+sample)
			}
			t.Parallel()
			f(t, kind)
		})
	}
}

// task is a job on the bench's repository; more replaces or adds fields.
func (b *bench) task(name string, kind job.WorkerKind, model string, more obj) obj {
	j := obj{"id": name, "worker": string(kind), "model": model, "workspace": b.workspace(), "instructions": "Do " + name + "."}
	for k, v := range more {
		j[k] = v
	}
	return j
}

// applied returns a clone of the repository with the job's patch applied.
func (b *bench) applied(o *job.Outcome) string {
	b.t.Helper()
	i := slices.IndexFunc(o.Artifacts, func(a job.Artifact) bool { return a.Name == job.ArtifactPatch })
	if i < 0 {
		b.fatalf("no patch among the artifacts: %+v", o.Artifacts)
	}
	clone := b.t.TempDir()
	b.git("clone", "-q", "--no-hardlinks", b.repo, clone)
	if out, err := exec.Command("git", "-C", clone, "apply", "--index", o.Artifacts[i].Path).CombinedOutput(); err != nil {
		b.fatalf("apply the patch: %v\n%s", err, out)
	}
	return clone
}

// content checks what a file holds.
func (b *bench) content(path, want string) {
	b.t.Helper()
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		b.fatalf("%s holds %q (%v), want %q", path, got, err, want)
	}
}

// mine is everything of the repository that is the user's: what a run must
// leave as it is.
func (b *bench) mine() string {
	return b.git("status", "--porcelain=v1", "--branch", "--ignored") + b.git("rev-parse", "HEAD", "refs/heads/main") +
		b.git("symbolic-ref", "HEAD") + b.git("stash", "list") + b.git("diff") + b.git("config", "--local", "--list")
}

func TestRealWorkBecomesAPatch(t *testing.T) {
	eachCLI(t, "codex claude opencode", func(t *testing.T, kind job.WorkerKind) {
		b := newBench(t)
		b.use(kind)
		b.play("edit", scriptmodel.Play(
			scriptmodel.Edit("made/by agent.txt", "hello\nfrom the agent\n"),
			scriptmodel.Run("cat README.md; git status --short"),
			scriptmodel.Say("All done.")))
		b.write(filepath.Join(b.repo, "mine.txt"), "not committed\n")
		before := b.mine()

		r := b.start("run", b.jobs(b.task("edit", kind, "edit", nil)))
		r.exit(0)
		j := b.show("edit")
		o := b.last(j)
		if j.Job.ExitKind != job.ExitSucceeded || len(j.Attempts) != 1 || !o.Succeeded() {
			r.fatalf("the job did not succeed at once: %+v", j)
		}
		b.content(filepath.Join(b.applied(o), "made", "by agent.txt"), "hello\nfrom the agent\n")
		if want := []job.FileChange{{Path: "made/by agent.txt", Change: "added"}}; !slices.Equal(o.Files, want) {
			b.fatalf("changed files %v, want %v", o.Files, want)
		}
		if o.Answer != "All done." {
			b.fatalf("answer %q", o.Answer)
		}
		if o.Session == "" || j.Attempts[0].Session != o.Session {
			b.fatalf("session %q, recorded %q", o.Session, j.Attempts[0].Session)
		}
		// Three answers of 120 tokens in, 20 of them cached, and 30 out.
		if u := o.Usage; u.InputTokens != 360 || u.CachedTokens != 60 || u.OutputTokens != 90 || u.Commands != 2 {
			b.fatalf("usage %+v", u)
		}
		if u := o.Usage; !u.CostKnown || u.CostUSD <= 0 || j.Job.Spent.CostUSD != u.CostUSD {
			b.fatalf("cost %v (known: %v), of the job %v", u.CostUSD, u.CostKnown, j.Job.Spent.CostUSD)
		}
		if want := (360*1 + 90*4) / 1e6; kind != "claude" && o.Usage.CostUSD != want { // claude prints a cost of its own
			b.fatalf("cost %v, want %v by the table", o.Usage.CostUSD, want)
		}
		if r.seen(func(u *api.Update) bool {
			return u.Event != nil && u.Event.Kind == job.EventCommand && u.Event.ExitCode != nil && *u.Event.ExitCode == 0
		}) != 2 {
			r.fatalf("the two commands are not among the updates")
		}
		if after := b.mine(); after != before {
			b.fatalf("the run changed the user's repository, before:\n%s\nafter:\n%s", before, after)
		}
		refs := strings.Fields(b.git("for-each-ref", "--format=%(refname)"))
		for _, ref := range refs {
			if ref != "refs/heads/main" && !strings.HasPrefix(ref, "refs/heads/agentsched/edit") && !strings.HasPrefix(ref, "refs/agentsched-start/edit") {
				b.fatalf("branches and tags: %v; want main and the job's own", refs)
			}
		}
		b.noProcess()
	})
}

func TestRealAgentsSideBySide(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	kinds := []job.WorkerKind{"codex", "claude", "opencode"}
	b.use(kinds...)
	before := b.mine()
	var jobs []obj
	for _, kind := range kinds {
		model := "edit-" + string(kind)
		b.play(model, scriptmodel.Play(scriptmodel.Run(until(b.folder("together"))), scriptmodel.Edit("by.txt", string(kind)), scriptmodel.Say("Done.")))
		jobs = append(jobs, b.task(model, kind, model, nil))
	}
	r := b.start("run", b.jobs(jobs...))
	for _, kind := range kinds { // none ends before all have begun
		r.await("the session of "+string(kind), func(u *api.Update) bool {
			return u.Name == job.Name("edit-"+string(kind)) && u.Event != nil && u.Event.Kind == job.EventSession
		})
	}
	b.write(b.folder("together"), "")
	r.exit(0)
	var until, from []int64
	for _, kind := range kinds {
		o := b.last(b.show("edit-" + string(kind)))
		b.content(filepath.Join(b.applied(o), "by.txt"), string(kind))
		from, until = append(from, o.StartedAt.UnixNano()), append(until, o.EndedAt.UnixNano())
	}
	if slices.Max(from) >= slices.Min(until) {
		b.fatalf("the three runs were not under way at the same time: began %v, ended %v", from, until)
	}
	if after := b.mine(); after != before {
		b.fatalf("the runs changed the user's repository, before:\n%s\nafter:\n%s", before, after)
	}
	b.noProcess()
}

func TestRealHugeToolOutput(t *testing.T) {
	eachCLI(t, "codex", func(t *testing.T, kind job.WorkerKind) {
		b := newBench(t)
		b.use(kind)
		b.play("much", scriptmodel.Play(scriptmodel.Print(5_000_000), scriptmodel.Edit("after.txt", "still here"), scriptmodel.Say("That was much.")))
		r := b.start("run", b.jobs(b.task("much", kind, "much", nil)))
		r.exit(0) // and every line was JSON
		o := b.last(b.show("much"))
		if o.Answer != "That was much." {
			r.fatalf("answer %q", o.Answer)
		}
		b.content(filepath.Join(b.applied(o), "after.txt"), "still here")
		if n := r.seen(func(u *api.Update) bool { return u.Event != nil && len(u.Event.Text) > job.MaxEventText }); n > 0 {
			r.fatalf("%d events have a text of more than %d bytes", n, job.MaxEventText)
		}
		b.noProcess()
	})
}

func TestRealOutputSchema(t *testing.T) {
	schema := obj{"type": "object", "properties": obj{"answer": obj{"type": "string"}}, "required": []string{"answer"}, "additionalProperties": false}
	eachCLI(t, "codex claude", func(t *testing.T, kind job.WorkerKind) {
		b := newBench(t)
		b.use(kind)
		b.play("json", scriptmodel.Play(scriptmodel.Structured()))
		b.play("prose", scriptmodel.Play(scriptmodel.Say("I would rather write prose.")))
		r := b.start("run", b.jobs(
			b.task("good", kind, "json", obj{"output": schema}),
			b.task("bad", kind, "prose", obj{"output": schema, "limits": obj{"max_attempts": 1}})))
		r.exit(1)
		if o := b.last(b.show("good")); !o.Succeeded() || o.Answer != `{"answer":"scripted"}` {
			r.fatalf("a good answer: %+v", o)
		}
		if o := b.last(b.show("bad")); o.Succeeded() || o.Class != job.InvalidOutput {
			r.fatalf("a bad answer: %+v, want %s", o, job.InvalidOutput)
		}
		b.noProcess()
	})
}

func TestRealBudget(t *testing.T) {
	for i, limit := range []obj{{"max_cost_usd": 1}, {"max_tokens": 1000}} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			eachCLI(t, []string{"claude", "codex"}[i], func(t *testing.T, kind job.WorkerKind) {
				b := newBench(t)
				b.use(kind)
				b.play("expensive", scriptmodel.Play(scriptmodel.Say("That cost you.").Costing(scriptmodel.Usage{Input: 6_000_000, Output: 2_000_000})))
				r := b.start("run", b.jobs(b.task("expensive", kind, "expensive", obj{"limits": limit})))
				r.exit(1)
				j := b.show("expensive")
				if o := b.last(j); len(j.Attempts) != 1 || o.Class != job.Budget || j.Job.DeadLetter == "" {
					r.fatalf("want one attempt that ends with %s: %+v %+v", job.Budget, j.Job, o)
				}
				b.noProcess()
			})
		})
	}
}
