package e2e

import (
	"os"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/testrun"
	"github.com/agentsched/agentsched/job"
)

// TestHostileContainers: on a host that lacks something, as containers do, a level that the host does not have is refused with
// the reason, never replaced by a weaker one, and one that it has holds as ever.
func TestHostileContainers(t *testing.T) {
	filter := func(without string) func(w *world) []string {
		return func(w *world) []string { return []string{w.Public + "/hostile", "contain", without} }
	}
	for _, tc := range []struct {
		name   string
		within func(w *world) []string
		reason map[string]string // of the refusal, by level; a level without one holds
		soak   string
		root   bool // to others the scheduler would be a stranger: its namespace has no user but its own
	}{
		{name: "a filter refuses namespaces", within: filter("namespaces"), reason: map[string]string{"strict": "bwrap: "}},
		{name: "a filter refuses namespaces and Landlock", within: filter("namespaces,landlock"), reason: map[string]string{"strict": "bwrap: ", "standard": "the kernel has no Landlock"}},
		{name: "a filter refuses Landlock", within: filter("landlock"), reason: map[string]string{"standard": "the kernel has no Landlock"}, soak: "the same without namespaces"},
		{name: "user namespaces are limited to none", within: func(*world) []string {
			return []string{"unshare", "--user", "--map-root-user", "sh", "-c", `echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"`, "sh"}
		}, reason: map[string]string{"strict": "user.max_user_namespaces"}, root: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if tc.soak != "" {
				testrun.Long(t, tc.soak)
			}
			users := []int{ordinary}
			switch {
			case tc.root:
				users = []int{0}
			case testrun.Soaking():
				users = append(users, 0)
			}
			for _, user := range users {
				t.Run(map[int]string{0: "root", ordinary: "ordinary user"}[user], func(t *testing.T) {
					w := newWorld(t, user)
					w.b.within = tc.within(w)
					w.begin("standard")
					w.lacking(tc.reason)
				})
			}
		})
	}
}

// lacking wants a job at each level that has a reason to be refused for it, and the acts of a hostile run to be held at the
// others.
func (w *world) lacking(reasons map[string]string) {
	t := w.b.t
	// There is no other run here.
	rows := rowsOf(hostileTable(), func(r hostileRow) bool {
		return r.job == "" && !strings.Contains(r.acts, "sibling") && !strings.Contains(r.acts, "state-workspace") && (!r.attacks || testrun.Soaking())
	})
	for _, level := range []string{"standard", "strict"} {
		reason, refused := reasons[level]
		if !refused {
			w.check(level, rows, w.try(level, "", rows))
			continue
		}
		id := level + "-refused"
		w.b.submit(w.b.jobsOf("tests", id+".yaml", with(shell(id, w.b.workspace(), "touch "+w.Public+"/results/"+id, obj{"max_attempts": 1}), obj{"sandbox": obj{"level": level}})))
		w.run.await("the end of "+id, func(u *api.Update) bool {
			return u.Kind == api.UpdateJob && u.Name == job.Name(id) && u.Entry.Terminal()
		})
		o := w.b.last(w.b.show(id))
		if o.Class != job.Config || !strings.Contains(o.Message, "sandbox level "+level) || !strings.Contains(o.Message, reason) {
			t.Errorf("a job of level %s ended with %s: %q, want %s and %q", level, o.Class, o.Message, job.Config, reason)
		}
		if o.Sandbox != nil {
			t.Errorf("it was held by %+v", o.Sandbox)
		}
		if _, err := os.Stat(w.Public + "/results/" + id); err == nil {
			t.Errorf("the job of level %s has run", level)
		}
		t.Logf("%s: %s", o.Message, o.Hint)
	}
	w.run.stop()
}
