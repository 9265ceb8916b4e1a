package e2e

// Ends that no worker reports are followed, too: a cancel, a deadline, a job whose
// place another takes. And a run does not end before its teams have decided.

import (
	"strings"
	"testing"

	"github.com/agentsched/agentsched/job"
)

// TestEndsWithoutAWorker: what waits for a job goes on when that was cancelled
// while a person was asked, or expired; the parts of a node end with it.
func TestEndsWithoutAWorker(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	supervised := obj{"oversight": "supervised"}
	file := b.jobs(
		with(shell("asked", nil, "true", nil), supervised),
		with(shell("after-cancel", nil, "echo on", nil), obj{"needs": []string{"asked"}, "if": "cancelled()"}),
		with(shell("late", nil, "true", nil), obj{"needs": []string{"asked"}, "deadline": "2s"}),
		with(shell("after-late", nil, "echo on", nil), obj{"needs": []string{"late"}, "if": "failure()"}),
		with(shell("node", nil, "echo begun >> "+b.folder("paid")+"; sleep "+b.unique(), nil), obj{"for_each": []int{1, 2}}),
	)
	r := b.start("run", file)
	r.awaitCore(1)
	b.eventually("the parts run", func() bool { return len(b.lines("paid")) == 2 })
	b.eventually("what is late has expired, and is followed", func() bool { return b.isDone("after-late") })
	for _, name := range []string{"asked", "node"} {
		if out, errs, code := b.command("cancel", name); code != 0 {
			t.Fatalf("cancel %s: exit code %d\n%s%s", name, code, out, errs)
		}
	}
	r.exit(1)
	for name, want := range map[string]job.ExitKind{"after-cancel": job.ExitSucceeded, "after-late": job.ExitSucceeded, "node@1": job.ExitCancelled, "node@2": job.ExitCancelled} {
		if e := b.entry(job.Name(name)); e.ExitKind != want {
			t.Errorf("%s: %s", name, asJSON(t, e))
		}
	}
	b.soundState()
}

// TestTeamDecidesAtTheEnd: the last job that runs is the one that its team
// restarts; a team that gives up is told, and the run has failed.
func TestTeamDecidesAtTheEnd(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	flag, first := b.folder("failed"), obj{"max_attempts": 1}
	team := func(id, strategy string, restart string, names ...string) obj {
		var members []obj
		for _, n := range names {
			members = append(members, obj{"job": n, "restart": restart})
		}
		return obj{"id": id, "strategy": strategy, "max_restarts": 1, "max_seconds": 60, "members": members}
	}
	b.write(b.folder("one.yaml"), asJSON(t, obj{
		"teams": []obj{team("pair", "one_for_all", "transient", "a", "b")},
		"jobs":  []obj{shell("a", nil, "if test -e "+flag+"; then echo ok; else touch "+flag+"; exit 1; fi", first), shell("b", nil, "echo b", first)},
	}))
	r := b.start("run", b.folder("one.yaml"))
	r.exit(0)
	for _, name := range []string{"a+1", "b+1"} {
		if e := b.entry(job.Name(name)); e.ExitKind != job.ExitSucceeded {
			t.Errorf("%s: %s", name, asJSON(t, e))
		}
	}
	b.write(b.folder("two.yaml"), asJSON(t, obj{"teams": []obj{team("service", "one_for_one", "permanent", "c")}, "jobs": []obj{shell("c", nil, "echo c", first)}}))
	r = b.start("run", b.folder("two.yaml"))
	r.exit(1)
	if e := b.entry("c+1"); e.ExitKind != job.ExitSucceeded {
		t.Errorf("the service: %s", asJSON(t, e))
	}
	b.write(b.folder("three.yaml"), asJSON(t, obj{"teams": []obj{team("again", "one_for_one", "permanent", "d")}, "jobs": []obj{shell("d", nil, "echo d", first)}}))
	r = b.serve()
	b.submit(b.folder("three.yaml"))
	b.eventually("status tells of the team", func() bool {
		out, _, _ := b.command("status")
		return strings.Contains(out, "team again has failed")
	})
	r.stop()
	b.soundState()
}
