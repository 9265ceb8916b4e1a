package e2e

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// TestDoorBounds: at every door a submission of too many jobs is refused, and so is
// one for which its tenant has too many queued; nothing of it is stored.
func TestDoorBounds(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.config["queue"] = obj{"max_jobs": 4, "max_queued": 6}
	later := func(n int) (jobs []obj) {
		for i := range n {
			jobs = append(jobs, obj{"id": fmt.Sprintf("j%d", i), "worker": "shell", "instructions": "true", "runnable_at": "20h"})
		}
		return jobs
	}
	many := b.jobsOf("tests", "many.yaml", later(5)...)
	b.config["triggers"] = obj{"late": obj{"every": "1s", "job": many}}
	r := b.serve()
	d := b.socketDoor()
	refused := func(what, got, want string) {
		t.Helper()
		if !strings.Contains(got, want) {
			t.Errorf("%s: got %s, want %q", what, got, want)
		}
	}
	const tooMany = "it has 5, at most 4 are allowed (queue.max_jobs)"
	_, errs, code := b.trySubmit(many)
	refused("submit", fmt.Sprint(code, errs), "2")
	refused("submit", errs, tooMany)
	_, errs, code = b.command("run", "--state", filepath.Join(b.dir, "s2"), "--config", b.configFile(), many)
	refused("run", fmt.Sprint(code, errs), tooMany)
	spec := func(i int) obj {
		return obj{"id": fmt.Sprintf("a%d", i), "tenant": "tests", "type": "TOOL", "worker": "shell", "instructions": "true", "workspace": obj{"isolation": "none"}, "runnable_at": "2100-01-01T00:00:00Z"}
	}
	var jobs []obj
	for i := range 5 {
		jobs = append(jobs, spec(i))
	}
	a := d.ask(http.MethodPost, "/v1/jobs", asJSON(t, obj{"source": "s", "jobs": jobs}))
	if a.status != http.StatusRequestEntityTooLarge || !strings.Contains(a.body, tooMany) {
		t.Errorf("POST /v1/jobs: answered %d %s", a.status, a.body)
	}
	// What the tenant has queued counts however it came.
	b.submit(b.jobsOf("tests", "some.yaml", later(4)...))
	full := "tenant tests has 4 of at most 6 (queue.max_queued), and 3 more were submitted"
	a = d.ask(http.MethodPost, "/v1/jobs", asJSON(t, obj{"source": "s", "jobs": jobs[:3]}))
	if a.status != http.StatusTooManyRequests || a.header.Get("Retry-After") == "" || !strings.Contains(a.body, full) {
		t.Errorf("POST /v1/jobs: answered %d %s", a.status, a.body)
	}
	call := func(tenant string) string {
		return d.ask(http.MethodPost, "/v1/rpc", fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"kernel.sched.enqueue","params":{"tenant":%q}}`, tenant)).body
	}
	for range 2 {
		if got := call("tests"); strings.Contains(got, `"error"`) {
			t.Errorf("kernel.sched.enqueue: %s", got)
		}
	}
	refused("kernel.sched.enqueue", call("tests"), "tenant tests has 6 of at most 6")
	refused("kernel.sched.enqueue", call("tests"), "-32134")
	if got := call("others"); strings.Contains(got, `"error"`) {
		t.Errorf("another tenant: %s", got)
	}
	// Room is found again when jobs have left the queue.
	if _, errs, code := b.command("cancel", "j0"); code != 0 {
		t.Errorf("cancel: %s", errs)
	}
	b.eventually("a job finds the room of one that was cancelled", func() bool { return !strings.Contains(call("tests"), `"error"`) })
	// The items of a list count, too: the node fails and says why.
	b.submit(b.jobsOf("lists", "list.yaml", obj{"id": "list", "worker": "shell", "instructions": "true", "for_each": []int{1, 2, 3, 4, 5, 6, 7}}))
	b.eventually("the list has failed", func() bool {
		j := b.show("list").Job
		return strings.Contains(j.DeadLetter, "tenant lists has") && strings.Contains(j.DeadLetter, "at most 6")
	})
	b.eventually("the trigger has said why it submits nothing", func() bool {
		out, _, _ := b.command("triggers", "--json")
		return strings.Contains(out, tooMany)
	})
	r.stop()
}
