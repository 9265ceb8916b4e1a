package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/agentsched/agentsched/job"
)

// apart adds a node that sees nothing of what the folders hide hold, as on a host of its own.
func (b *bench) apart(name, base string, hide ...string) *nodeBench {
	b.t.Helper()
	script := ""
	for _, dir := range hide {
		script += "mount -t tmpfs none '" + dir + "' && "
	}
	return b.nodeWithin([]string{"unshare", "--mount", "--propagation", "private", "sh", "-c", script + `exec "$@"`, "sh"}, name, base)
}

// TestNodesBuildOn: jobs build on what jobs on other hosts have made, whichever host each of them runs on: patches, the paths of
// patches, and answers.
func TestNodesBuildOn(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("hosts that see nothing of each other need mount namespaces, which take root")
	}
	b, base, r := newQueue(t)
	one := b.apart("one", base, b.state)
	r.awaitNode("one")
	two := b.apart("two", base, b.state, one.state)
	r.awaitNode("two")
	l := b.laptop(base, b.token("ann", "submit"))
	here, there, home := obj{"name": "one"}, obj{"name": "two"}, obj(nil)
	on := func(node obj, j obj, needs ...string) obj {
		if node != nil {
			j["node"] = node
		}
		if len(needs) > 0 {
			j["needs"] = needs
		}
		return j
	}
	ws := func(from ...string) obj {
		if len(from) == 0 {
			return obj{"path": "."}
		}
		return obj{"path": ".", "from": from}
	}
	jobs := []obj{
		on(here, shell("first", ws(), "echo first > made; echo one by first >> a.txt", nil)),
		on(there, shell("second", ws("first"), "cat made; grep -q 'by first' a.txt && echo second >> made", nil), "first"),
		on(here, shell("third", ws("first", "second"), "echo third >> made; cat made", nil), "first", "second"),
		on(home, shell("fourth", ws("third"), "cat made", nil), "third"),
		on(there, shell("names", nil, "grep -c 'by first' ${{ jobs.first.patch }}", nil), "first"),
		on(home, shell("names-too", nil, "grep -c 'by first' ${{ jobs.first.patch }}", nil), "first"),
		on(here, shell("long", nil, "head -c 60000 /dev/zero | tr '\\0' x", nil)),
		on(there, shell("counts", nil, `printf %s "${{ jobs.long.output }}" | wc -c`, nil), "long"),
		on(there, obj{"id": "both", "merge": []string{"second", "third"}, "workspace": ws(), "verify": "grep -q third made"}),
	}
	l.files(map[string]string{"web/jobs.yaml": asJSON(t, obj{"tenant": "tests", "jobs": jobs})})
	l.do("web", "submit", "jobs.yaml")
	answers := map[string]string{"first": "", "second": "first", "third": "first\nsecond\nthird", "fourth": "first\nsecond\nthird", "names": "1", "names-too": "1", "counts": "60000", "both": ""}
	for name, want := range answers {
		r.end(job.Name(name), job.RunCompleted)
		j := b.show(name)
		last := j.Attempts[len(j.Attempts)-1]
		if !strings.Contains(last.Outcome.Answer, want) || len(j.Attempts) != 1 {
			t.Errorf("%s answered %q, want %q: %s", name, last.Outcome.Answer, want, asJSON(t, j.Attempts))
		}
	}
	l.do("", "apply", "--whole", "third")
	if text, err := os.ReadFile(filepath.Join(l.repo, "web", "made")); err != nil || string(text) != "first\nsecond\nthird\n" {
		t.Errorf("applied was %q, %v", text, err)
	}
	for _, n := range []*nodeBench{one, two} {
		n.run.signal(syscall.SIGTERM)
		n.run.exit(0)
	}
	r.stop()
}
