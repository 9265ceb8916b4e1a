package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
)

// far is a scheduler on another host: it answers as docs/api.md says and notes
// what it was asked.
type far struct {
	asked  []string
	bodies []string
	jobs   []api.Job
}

func (f *far) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	f.asked, f.bodies = append(f.asked, r.Method+" "+r.URL.Path), append(f.bodies, string(body))
	answer := func(v any) { json.NewEncoder(w).Encode(v) }
	refuse := func(status int, detail string) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(status)
		answer(api.Problem{Type: api.ProblemType + "x", Title: "x", Status: status, Detail: detail})
	}
	if r.Header.Get("Authorization") != "Bearer secret" {
		refuse(http.StatusUnauthorized, "a token is needed")
		return
	}
	one := api.JobDetail{Job: f.jobs[0], Attempts: []job.Attempt{}}
	switch r.Method + " " + r.URL.Path {
	case "GET /v1/jobs":
		// Pages of two at most, whose cursor is where they begin.
		from, _ := strconv.Atoi(r.URL.Query().Get("cursor"))
		limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
		to := min(from+min(limit, 2), len(f.jobs))
		page := api.Jobs{Jobs: f.jobs[from:to], Total: len(f.jobs)}
		if from > 0 {
			page.Total = -1
		}
		if to < len(f.jobs) {
			page.Next = strconv.Itoa(to)
		}
		answer(page)
	case "GET /v1/jobs/fix", "POST /v1/jobs/fix/cancel", "POST /v1/jobs/fix/retry", "GET /v1/jobs/01a1fcce-0001":
		answer(one)
	case "GET /v1/jobs/01a1fcce-0001/events":
		list := api.Events{Events: []api.Event{}}
		if r.URL.Query().Get("after") == "" {
			e := api.Event{Cursor: 7}
			e.Event.Kind, e.Event.Text = job.EventText, "far away"
			list.Events = append(list.Events, e)
		}
		answer(list)
	case "GET /v1/jobs/01a1fcce-0002", "GET /v1/jobs/01a1fcce-0003":
		answer(api.JobDetail{Job: f.jobs[1], Attempts: []job.Attempt{}})
	case "GET /v1/jobs/01a1fcce-0002/events", "GET /v1/jobs/01a1fcce-0003/events":
		answer(api.Events{Events: []api.Event{}})
	case "POST /v1/job-files":
		if strings.Contains(string(body), "far-fetched") {
			const mistake = "jobs.yaml:1: no such worker: far-fetched"
			w.WriteHeader(http.StatusUnprocessableEntity)
			answer(api.Problem{Type: api.ProblemType + "invalid", Detail: "text: " + mistake, Errors: []api.FieldProblem{{Location: "body.text", Message: mistake}}})
			return
		}
		answer(api.Jobs{Jobs: f.jobs[:1], Total: 1})
	case "GET /v1/inbox":
		answer(api.Inbox{Jobs: []api.Job{}, Questions: []api.Question{}})
	case "GET /v1/tenants":
		answer(api.Tenants{Tenants: []api.Tenant{{Tenant: "website", Queued: 3}}})
	case "GET /v1/fleet":
		answer(api.Fleet{Instance: "b", Members: []api.FleetMember{{Instance: "b", Host: "two", Role: api.FleetStandby}}})
	case "GET /v1/workers":
		answer(api.Workers{Workers: []api.Worker{{Kind: "codex", Adapter: "codex", Running: 2}}})
	default:
		refuse(http.StatusNotFound, "not found")
	}
}

func TestThere(t *testing.T) {
	f := &far{}
	for i, name := range []string{"fix", "docs", "later"} {
		e := api.Job{ID: job.ID("01a1fcce-000" + string(rune('1'+i))), State: job.Completed, ExitKind: job.ExitSucceeded, CreatedAt: time.Now(), Status: &job.Status{State: job.RunCompleted}}
		e.Spec.Name, e.Spec.Worker = job.Name(name), "codex"
		f.jobs = append(f.jobs, e)
	}
	fake := httptest.NewServer(f)
	defer fake.Close()
	file := filepath.Join(t.TempDir(), "jobs.yaml")
	if err := os.WriteFile(file, []byte("jobs: [{id: fix, worker: of-that-host}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	do := func(token string, args ...string) (code int, out string) {
		var said bytes.Buffer
		m := newTestMain(t, &said)
		m.con.stderr = &said
		m.con.getenv = func(name string) string {
			return map[string]string{serverVariable: fake.URL, tokenVariable: token}[name]
		}
		f.asked, f.bodies = nil, nil
		return m.run(args), said.String()
	}
	for _, c := range []struct {
		args  string
		code  int
		asked string // the last request
		out   string
	}{
		{"ls --all", 0, "GET /v1/jobs", "later"},
		{"ls -n 1", 0, "GET /v1/jobs", "1 of 3 jobs"},
		{"ls --status failed", 0, "GET /v1/jobs", "NOTE"},
		{"show fix", 0, "GET /v1/jobs/fix", "completed"},
		{"show fxi", 1, "GET /v1/jobs", "did you mean fix?"},
		{"logs -f fix", 0, "GET /v1/jobs/01a1fcce-0001/events", "far away"},
		{"wait fix", 0, "GET /v1/jobs/fix", "fix  completed"},
		{"cancel fix", 0, "POST /v1/jobs/fix/cancel", "fix: cancelled"},
		{"retry fix", 0, "POST /v1/jobs/fix/retry", "runs fix again"},
		{"submit " + file, 0, "POST /v1/job-files", "01a1fcce-0001  fix"},
		{"submit --wait --plain " + file, 0, "GET /v1/jobs/01a1fcce-0003", "far away"},
		{"approvals ls", 0, "GET /v1/inbox", "nothing waits for a person"},
		{"tenants", 0, "GET /v1/tenants", "website"},
		{"workers", 0, "GET /v1/workers", "codex"},
		{"fleet", 0, "GET /v1/fleet", "standby"},
		{"diff fix", 0, "GET /v1/jobs/fix", "changed nothing"},
		{"apply fix", 2, "GET /v1/jobs/fix", "had no workspace"},
		{"ui", 2, "", "own host only"},
	} {
		code, out := do("secret", strings.Fields(c.args)...)
		last := ""
		if len(f.asked) > 0 {
			last = f.asked[len(f.asked)-1]
		}
		if code != c.code || last != c.asked || !strings.Contains(out, c.out) {
			t.Errorf("%s: code %d, want %d; asked last %q, want %q; said %q, want %q in it", c.args, code, c.code, last, c.asked, out, c.out)
		}
	}

	// What is sent is the text, for a host that reads it by itself.
	if code, out := do("secret", "submit", file, "--idempotency-key", "k"); code != 0 {
		t.Fatal(code, out)
	}
	var sent api.JobFile
	if err := json.Unmarshal([]byte(f.bodies[0]), &sent); err != nil || sent.Dir != filepath.Dir(file) || !strings.Contains(sent.Text, "of-that-host") {
		t.Errorf("sent %+v: %v", sent, err)
	}

	// What is wrong with it is told as on this host.
	if err := os.WriteFile(file, []byte("jobs: [{id: fix, worker: far-fetched}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out := do("secret", "submit", file); code != exitUsage || !strings.Contains(out, "scheduler: jobs.yaml:1: no such worker") {
		t.Errorf("a mistake in a job file: code %d, %s", code, out)
	}

	if code, out := do("wrong", "ls"); code != exitUsage || !strings.Contains(out, "AGENTSCHED_TOKEN") {
		t.Errorf("with a wrong token: code %d, %s", code, out)
	}
}
