package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/scriptmodel"
	"github.com/agentsched/agentsched/job"
)

// helpers sets up workers on which children run, each with a model of its own that writes a file.
func (b *bench) helpers(kind job.WorkerKind, names ...string) {
	b.t.Helper()
	for _, name := range names {
		of := obj{"adapter": string(kind), "model": "helper-" + name}
		for k, v := range b.config["workers"].(obj)[string(kind)].(obj) {
			of[k] = v
		}
		b.config["workers"].(obj)[name] = of
		b.play("helper-"+name, scriptmodel.Play(scriptmodel.Edit(name+".txt", "by "+name+"\n"), scriptmodel.Say("Helper "+name+" is done.")))
	}
	b.config["children"] = obj{"workers": names}
}

func submitCall(name string, more string) scriptmodel.Turn {
	return scriptmodel.Call("submit_job", fmt.Sprintf(`{"name": "part-%s", "instructions": "Do part %s.", "worker": %q%s}`, name, name, name, more))
}

// TestRealLead: the agent of a real CLI splits its work into three jobs of its own, waits for them and merges what they
// made, with a single slot for all of them.
func TestRealLead(t *testing.T) {
	eachCLI(t, "claude codex opencode", func(t *testing.T, kind job.WorkerKind) {
		b := newBench(t)
		b.use(kind)
		b.config["concurrency"] = obj{"max": 1}
		b.helpers(kind, "a", "b", "c")
		b.play("lead", scriptmodel.Play(
			submitCall("a", ""), submitCall("b", ""), submitCall("c", ""),
			scriptmodel.Call("submit_job", `{"name": "greedy", "instructions": "Take all.", "max_tokens": 900000}`),
			scriptmodel.Call("wait_jobs", `{}`),
			scriptmodel.Call("job_result", `{"name": "part-a"}`), scriptmodel.Call("job_result", `{"name": "part-b"}`), scriptmodel.Call("job_result", `{"name": "part-c"}`),
			scriptmodel.Call("report_progress", `{"text": "gathered three parts"}`),
			scriptmodel.Run(`cat "$TMPDIR"/job-*.patch | git apply && git status --short`),
			scriptmodel.Say("All parts are merged.")))
		r := b.start("run", b.jobs(b.task("lead", kind, "lead", obj{
			"capabilities": []string{"read", "edit", "run_commands", "scheduler"}, "limits": obj{"max_tokens": 450_000},
		})))
		r.exit(0)
		lead := b.show("lead")
		o := b.last(lead)
		if !o.Succeeded() || o.Answer != "All parts are merged." {
			r.fatalf("the lead ended so: %+v", o)
		}
		clone := b.applied(o)
		for _, name := range []string{"a", "b", "c"} {
			b.content(filepath.Join(clone, name+".txt"), "by "+name+"\n")
			j := b.show("lead.part-" + name)
			s := &j.Job.Spec
			if j.Job.ExitKind != job.ExitSucceeded || s.Lead != (job.Lead{Job: lead.Job.ID, Depth: 1}) || s.Can(job.CanUseScheduler) || s.Limits.MaxTokens <= 0 || s.Limits.MaxTokens > 50_000 {
				r.fatalf("part %s: %s, lead %+v, capabilities %v, max_tokens %d", name, j.Job.ExitKind, s.Lead, s.Capabilities, s.Limits.MaxTokens)
			}
		}
		if n := r.seen(func(u *api.Update) bool {
			return u.Name == "lead" && u.Event != nil && strings.Contains(u.Event.Text, "gathered three parts")
		}); n == 0 {
			r.fatalf("the agent's word on how far it is was not told")
		}
		if n := r.seen(func(u *api.Update) bool { return strings.HasSuffix(string(u.Name), "greedy") }); n > 0 {
			r.fatalf("a job with more than what is left was submitted")
		}
		if _, err := os.Stat(filepath.Join(b.repo, "a.txt")); err == nil {
			r.fatalf("a part was written into the user's folder")
		}
		b.noProcess()
	})
}

// TestRealLeadIsKilled: a lead that is resumed finds the job that it has submitted, whichever process was killed while that ran.
func TestRealLeadIsKilled(t *testing.T) {
	for name, kill := range map[string]func(*run, string) *run{
		"core":      func(r *run, _ string) *run { r.killCore(); return r },
		"scheduler": func(r *run, file string) *run { r.kill(); return r.b.start("run", file) },
		"both":      func(r *run, file string) *run { r.killAll(); return r.b.start("run", file) },
	} {
		t.Run(name, func(t *testing.T) {
			eachCLI(t, "claude", func(t *testing.T, kind job.WorkerKind) {
				b := newBench(t)
				b.use(kind)
				b.helpers(kind, "a")
				wait, work := scriptmodel.Run(until(b.folder("go"))), []scriptmodel.Turn{scriptmodel.Edit("a.txt", "by a\n"), scriptmodel.Say("Helper a is done.")}
				b.play("helper-a", scriptmodel.Play(append([]scriptmodel.Turn{wait}, work...)...).Resuming(work...))
				b.play("lead", scriptmodel.Play(
					submitCall("a", ""), scriptmodel.Call("wait_jobs", `{}`), scriptmodel.Say("Never reached."),
				).Resuming(
					submitCall("a", ""), scriptmodel.Call("wait_jobs", `{}`), scriptmodel.Call("job_result", `{"name": "part-a"}`),
					scriptmodel.Run(`cat "$TMPDIR"/job-*.patch | git apply`), scriptmodel.Say("Gathered."),
				))
				file := b.jobs(b.task("lead", kind, "lead", obj{"capabilities": []string{"read", "edit", "run_commands", "scheduler"}}))
				r := b.start("run", file)
				working, waiting := false, false
				r.await("the lead waits, and its job works", func(u *api.Update) bool {
					working = working || u.Name == "lead.part-a" && u.Event != nil && u.Event.Kind == job.EventCommand
					waiting = waiting || u.Name == "lead" && u.Event != nil && u.Event.Change == job.WaitsForJobs
					return working && waiting
				})
				r = kill(r, file)
				b.write(b.folder("go"), "")
				r.exit(0)
				lead := b.show("lead")
				if o := b.last(lead); len(lead.Attempts) != 2 || o.Answer != "Gathered." {
					r.fatalf("want a second attempt that gathers: %s", asJSON(t, lead))
				}
				b.content(filepath.Join(b.applied(b.last(lead)), "a.txt"), "by a\n")
				if j := b.show("lead.part-a"); j.Job.ExitKind != job.ExitSucceeded || j.Job.Spec.Lead.Job != lead.Job.ID {
					r.fatalf("the job that it has submitted: %s", asJSON(t, j))
				}
				b.noProcess()
			})
		})
	}
}

// TestRealLeadIsCancelled: what it has submitted is cancelled with it.
func TestRealLeadIsCancelled(t *testing.T) {
	eachCLI(t, "claude", func(t *testing.T, kind job.WorkerKind) {
		b := newBench(t)
		b.use(kind)
		b.helpers(kind, "a")
		b.play("helper-a", scriptmodel.Play(scriptmodel.Run("sleep "+b.nap()), scriptmodel.Say("Never reached.")))
		b.play("lead", scriptmodel.Play(submitCall("a", ""), scriptmodel.Call("wait_jobs", `{}`), scriptmodel.Say("Never reached.")))
		r := b.start("run", b.jobs(b.task("lead", kind, "lead", obj{"capabilities": []string{"read", "run_commands", "scheduler"}})))
		r.await("its job works", func(u *api.Update) bool {
			return u.Name == "lead.part-a" && u.Event != nil && u.Event.Kind == job.EventCommand
		})
		if out, errs, code := b.command("cancel", "lead"); code != 0 {
			b.fatalf("cancel: exit code %d\n%s%s", code, out, errs)
		}
		r.exit(1)
		for _, name := range []string{"lead", "lead.part-a"} {
			if j := b.show(name); j.Job.ExitKind != job.ExitCancelled {
				r.fatalf("%s: %s", name, asJSON(t, j))
			}
		}
		b.noProcess()
	})
}
