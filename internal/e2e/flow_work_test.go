package e2e

// What jobs of a workflow hand on: patches, turns of a loop, restarts by a team.

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
)

// entry returns the stored job of a name.
func (b *bench) entry(name job.Name) api.Job {
	b.t.Helper()
	for _, e := range b.list() {
		if e.Spec.Name == name {
			return e
		}
	}
	b.fatalf("there is no job %s", name)
	return api.Job{}
}

// patchOf returns the patch that a job's last attempt left, "" for none.
func (b *bench) patchOf(name string) string {
	b.t.Helper()
	o := b.last(b.show(name))
	if o == nil {
		return ""
	}
	for _, a := range o.Artifacts {
		if a.Name == job.ArtifactPatch {
			text, err := os.ReadFile(a.Path)
			if err != nil {
				b.t.Fatal(err)
			}
			return string(text)
		}
	}
	return ""
}

// TestStackedAndMerged: a job builds on another's patch and has only its own in
// its patch; a merge joins two; two that do not fit together are a failure that
// names the file, or a task for a worker.
func TestStackedAndMerged(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ws := func(more obj) obj { return with(obj{"path": b.repo}, more) }
	file := b.jobs(
		shell("one", ws(obj{}), "echo one > one.txt; echo 'a repository, by one' > README.md", nil),
		shell("two", ws(obj{}), "echo two > two.txt", nil),
		shell("other", ws(obj{}), "echo 'a repository, by other' > README.md", nil),
		with(shell("on-top", ws(obj{"from": []string{"one"}}), "cat one.txt; echo more >> one.txt", nil), obj{"needs": []string{"one"}}),
		obj{"id": "both", "merge": []string{"one", "two"}, "workspace": ws(obj{}), "verify": "test -e one.txt -a -e two.txt"},
		obj{"id": "clash", "merge": []string{"one", "other"}, "workspace": ws(obj{})},
		with(shell("resolved", ws(obj{"from": []string{"one", "other"}, "on_conflict": "worker"}), "grep -q '<<<<<<<' README.md && echo 'a repository, by both' > README.md", nil),
			obj{"needs": []string{"one", "other"}}),
	)
	r := b.start("run", file)
	r.exit(1) // the clash
	if p := b.patchOf("on-top"); !strings.Contains(p, "+more") || strings.Contains(p, "+one") || strings.Contains(p, "by one") {
		t.Errorf("the patch of the job on top is\n%s", p)
	}
	if e := b.entry("both"); e.ExitKind != job.ExitSucceeded {
		t.Errorf("the merge: %s", asJSON(t, e))
	}
	if out, errs, code := b.command("diff", "both"); code != 0 || out != "" || !strings.Contains(errs, "builds on the patches of one, two") {
		t.Errorf("diff of the merge: exit code %d\n%s%s", code, out, errs)
	}
	if out, errs, code := b.command("apply", "--whole", "both"); code != 0 || !strings.Contains(out, "one.txt") || !strings.Contains(out, "two.txt") {
		t.Errorf("apply of the whole merge: exit code %d\n%s%s", code, out, errs)
	}
	b.git("checkout", "-q", ".")
	b.git("clean", "-fdq")
	if e := b.entry("clash"); e.ExitKind != job.ExitFailed || e.ErrorClass != job.ConflictClass || !strings.Contains(e.DeadLetter, "README.md") || e.Attempts != 1 {
		t.Errorf("the merge that cannot be: %s", asJSON(t, e))
	}
	if p := b.patchOf("resolved"); !strings.Contains(p, "+a repository, by both") {
		t.Errorf("the patch of who resolved the conflict is\n%s", p)
	}
	b.soundState()
}

// TestLoop: a job is done again on top of what it did before until a command
// passes; one that gets nowhere is ended and says why.
func TestLoop(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	file := b.jobs(
		with(shell("count", b.workspace(), "echo x >> count.txt; wc -l < count.txt", nil), obj{"loop": obj{"command": "test $(wc -l < count.txt) -ge 3", "max_iterations": 5}}),
		with(shell("after", nil, "echo it took ${{ jobs.count.output }}", nil), obj{"needs": []string{"count"}}),
		with(shell("stuck", b.workspace(), "echo same > same.txt", nil), obj{"loop": obj{"file": "never.txt", "max_iterations": 9}}),
		with(shell("said", nil, "echo '{\"done\": true}'", nil), obj{"loop": obj{"until": "output.done", "max_iterations": 2}, "output": obj{"type": "object", "properties": obj{"done": obj{"type": "boolean"}}}}),
	)
	r := b.start("run", file)
	r.exit(1) // the one that gets nowhere
	if e := b.entry("count"); e.ExitKind != job.ExitSucceeded {
		t.Errorf("the loop: %s", asJSON(t, e))
	}
	if o := b.last(b.show("after")); o == nil || strings.TrimSpace(o.Answer) != "it took 3" {
		t.Errorf("after the loop: %s", asJSON(t, o))
	}
	if e := b.entry("stuck"); e.ExitKind != job.ExitFailed || !strings.Contains(e.DeadLetter, "converge") {
		t.Errorf("the loop that gets nowhere: %s", asJSON(t, e))
	}
	if e := b.entry("said"); e.ExitKind != job.ExitSucceeded {
		t.Errorf("the loop until the answer says so: %s", asJSON(t, e))
	}
	turns := 0
	for _, e := range b.list() {
		if e.Spec.Flow.Node == "count" {
			turns++
		}
	}
	if turns != 3 {
		t.Errorf("the loop took %d turns", turns)
	}
	b.soundState()
}

// TestTeam: the failure of a member has those after it stopped and done again;
// too many failures end the team. A scheduler that is killed meanwhile changes
// nothing about it.
func TestTeam(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	once := func(name string) string { // fails the first time
		flag := b.folder(name + ".failed")
		return "if test -e " + flag + "; then echo ok; else touch " + flag + "; exit 1; fi"
	}
	first := obj{"max_attempts": 1}
	members := func(names ...string) (list []obj) {
		for _, n := range names {
			list = append(list, obj{"job": n, "restart": "transient"})
		}
		return list
	}
	path := filepath.Join(b.dir, "jobs.yaml")
	b.write(path, asJSON(t, obj{
		"tenant": "tests",
		"teams": []obj{
			{"id": "line", "strategy": "rest_for_one", "max_restarts": 2, "max_seconds": 60, "members": members("fetch", "flaky", "store")},
			{"id": "hopeless", "strategy": "one_for_one", "max_restarts": 1, "max_seconds": 60, "members": members("broken")},
		},
		"jobs": []obj{
			shell("fetch", nil, "echo fetched", first), shell("flaky", nil, once("flaky"), first),
			shell("store", nil, until(b.folder("flaky.failed"))+"; sleep 300", first),
			shell("broken", nil, "exit 1", first),
			with(shell("after", nil, "echo ${{ jobs.flaky.output }}", first), obj{"needs": []string{"flaky"}}),
		},
	}))
	r := b.start("run", path)
	r.awaitCore(1)
	b.eventually("the member is restarted, and the one before is done", func() bool {
		restarted, done := false, false
		for _, e := range b.list() {
			restarted = restarted || e.Spec.Name == "store+1"
			done = done || e.Spec.Name == "fetch" && e.State == job.Completed
		}
		return restarted && done
	})
	r.killAll()
	r.close()
	if e := b.entry("store"); e.ExitKind != job.ExitCancelled {
		t.Errorf("the member after the one that failed: %s", asJSON(t, e))
	}
	r = b.start("run", path)
	r.await("the second run of the member", func(u *api.Update) bool { return u.Name == "store+1" && u.Signal == api.AgentStarted })
	b.eventually("the restarted member is done, and what needs it", func() bool { return b.isDone("flaky+1") && b.isDone("after") })
	if out, errs, code := b.command("cancel", "store+1"); code != 0 {
		t.Fatalf("cancel: exit code %d\n%s%s", code, out, errs)
	}
	r.exit(1) // the other team gave up
	if e := b.entry("fetch"); e.Attempts != 1 {
		t.Errorf("the member before the one that failed: %s", asJSON(t, e))
	}
	if o := b.last(b.show("after")); o == nil || strings.TrimSpace(o.Answer) != "ok" {
		t.Errorf("who needs the restarted member: %s", asJSON(t, o))
	}
	broken := 0
	for _, e := range b.list() {
		if strings.HasPrefix(string(e.Spec.Name), "broken") {
			broken++
		}
	}
	if broken != 2 {
		t.Errorf("the hopeless member was run %d times, want 2", broken)
	}
	b.soundState()
}
