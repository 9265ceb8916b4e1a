package e2e

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/agentsched/agentsched/job"
)

// TestNodesOffer: what hosts have is told as it changes. A job goes where there is a mirror of its repository, and a worker that was
// not there when its node came is used once it is.
func TestNodesOffer(t *testing.T) {
	t.Parallel()
	b, base, r := newQueue(t, func(b *bench) {
		b.config["concurrency"] = obj{"max": 4}
		b.config["workers"].(obj)["late"] = obj{"adapter": "shell"}
	})
	l := b.laptop(base, b.token("ann", "submit"))
	at := func(name string) string {
		t.Helper()
		r.end(job.Name(name), job.RunCompleted)
		return b.show(name).Attempts[0].Node
	}
	place := func(name string, j obj) string { // of a job that is submitted at the scheduler's host
		t.Helper()
		j["id"] = name
		b.submit(b.jobsOf("website", name+".yaml", j))
		return at(name)
	}
	travels := func(name string, node obj) string { // of one that is submitted with its folder
		t.Helper()
		j := shell(name, obj{"path": "."}, "ls", nil)
		if node != nil {
			j["node"] = node
		}
		l.files(map[string]string{"web/jobs.yaml": asJSON(t, obj{"tenant": "website", "jobs": []obj{j}})})
		l.do("web", "submit", "jobs.yaml")
		return at(name)
	}
	travels("alone", nil) // the scheduler's host has a mirror of it from now on
	two := b.nodeBeside("two")
	program := two.folder("late")
	two.config["workers"] = obj{"late": obj{"adapter": "shell", "command": []string{program}}}
	two.up(base, "--slots", "4")
	r.awaitNode("two")
	file, enough := b.folder("ran"), b.folder("go")
	b.submit(b.jobsOf("website", "long.yaml", marks("long", file, enough)))
	r.await("the long one", onText("long", "begun"))
	if at := place("empty", shell("x", nil, "true", nil)); at != "two" {
		t.Errorf("a job of nothing runs on %q, want the emptier node", at)
	}
	if at := travels("mirrored", nil); at != "" {
		t.Errorf("a job of a repository that the scheduler's host has runs on %q", at)
	}
	if at := place("local", with(shell("x", nil, "ls", nil), obj{"workspace": obj{"repo": b.repo}})); at != "" {
		t.Errorf("a job of a repository that is a folder of the scheduler's host runs on %q", at)
	}
	if at := place("local-there", with(shell("x", nil, "ls", nil), obj{"workspace": obj{"repo": b.repo}, "node": obj{"name": "two"}})); at != "two" {
		t.Errorf("a job of a repository that is a folder of node two runs on %q", at)
	}
	b.write(enough, "")
	r.end("long", job.RunCompleted)
	// The other way round: of hosts with nothing to do the scheduler's comes first.
	found := false
	for i := 0; i < 50 && !found; i++ { // what the node tells when a run has ended may come behind the end
		l.git("checkout", "-q", "--orphan", fmt.Sprint("other-", i))
		l.git("commit", "-q", "-m", fmt.Sprint("another repository ", i))
		travels(fmt.Sprint("there-", i), obj{"name": "two"})
		found = travels(fmt.Sprint("probe-", i), nil) == "two"
	}
	if !found {
		t.Error("no job of a repository runs on the node that has its mirror")
	}

	b.submit(b.jobsOf("website", "late.yaml", with(shell("late", nil, "echo here", nil), obj{"worker": "late", "node": obj{"name": "two"}})))
	if w := b.show("late").Job.Status.Waiting; w == nil || !strings.Contains(w.Text, "late logged in") {
		t.Errorf("the job of a worker that is not there waits for %+v", w)
	}
	if err := os.Symlink("/bin/sh", program); err != nil {
		t.Fatal(err)
	}
	place("before", with(shell("x", nil, "true", nil), obj{"node": obj{"name": "two"}})) // after a run the node looks at once
	r.end("late", job.RunCompleted)
	if !strings.Contains(b.nodes("show", "two"), "late") {
		t.Errorf("nodes show two:\n%s", b.nodes("show", "two"))
	}
	two.run.signal(syscall.SIGTERM)
	two.run.exit(0)
	r.stop()
}
