package server_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// failAll lets both jobs fail for good.
func (d *served) failAll() {
	d.t.Helper()
	now := time.Now().UTC().Round(0)
	claims, err := d.store.Claim(d.t.Context(), queue.ClaimSpec{Holder: "test", Max: 10, Now: now, Lease: time.Minute})
	if err != nil || len(claims.Entries) != 2 {
		d.t.Fatalf("claimed %+v, %v", claims, err)
	}
	for _, e := range claims.Entries {
		o := job.Outcome{State: job.RunFailed, Class: job.Server, Message: "it broke"}
		err := d.store.Apply(d.t.Context(),
			queue.Begin{ID: e.ID, Fence: e.Fence, Attempt: job.Attempt{Job: e.ID, Number: 1, Fence: e.Fence, Choice: e.Spec.Choices()[0], State: job.Pending, Started: now}},
			queue.Move{ID: e.ID, Fence: e.Fence, Attempt: 1, To: job.Running},
			queue.Finish{ID: e.ID, Fence: e.Fence, Attempt: 1, Outcome: o, Now: now, Exit: job.ExitFailed, DeadLetter: "SERVER: it broke"})
		if err != nil {
			d.t.Fatal(err)
		}
	}
}

func TestDeadLetters(t *testing.T) {
	d := open(t, 0)
	d.failAll()
	var list api.Jobs
	for query, want := range map[string]int{"": 2, "?class=SERVER&class=AUTH": 2, "?class=AUTH": 0, "?tenant=t&worker=shell": 2, "?older=1h": 0, "?newer=1h": 2, "?grep=^one": 1, "?limit=1": 1} {
		if d.send("GET", "/v1/dead-letters"+query, "", 200, &list); len(list.Jobs) != want || list.Jobs == nil {
			t.Errorf("%q: got %+v, want %d", query, list, want)
		}
	}
	c := client.New(d.socket)
	defer c.Close()
	out, err := c.Requeue(t.Context(), api.Requeue{Letters: []api.RequeueLetter{{ID: d.ids[0]}}})
	if err != nil || len(out.Jobs) != 1 || out.Jobs[0].RequeuedFrom != d.ids[0] || out.Jobs[0].State != job.Queued || len(out.Refused) != 0 {
		t.Fatalf("requeued %+v, %v", out, err)
	}
	again, err := c.Job(t.Context(), string(d.ids[0]))
	if err != nil || again.Job.RequeuedAs != out.Jobs[0].ID {
		t.Errorf("the letter is %+v, %v", again.Job, err)
	}
	other := job.Spec{Name: "two-b", Tenant: "t", Type: job.Tool, Worker: "shell", Instructions: "true", Workspace: job.Workspace{Isolation: job.NoWorkspace}}
	if out, err = c.Requeue(t.Context(), api.Requeue{Letters: []api.RequeueLetter{{ID: d.ids[1], Spec: &other}}}); err != nil || out.Jobs[0].Spec.Name != "two-b" {
		t.Errorf("requeued %+v, %v", out, err)
	}
	var p *api.Problem
	for _, id := range []job.ID{d.ids[0], out.Jobs[0].ID} { // requeued already; not given up
		if _, err := c.Requeue(t.Context(), api.Requeue{Letters: []api.RequeueLetter{{ID: id}}}); !errors.As(err, &p) || p.Status != http.StatusConflict || !strings.Contains(p.Detail, string(id)) {
			t.Errorf("requeue %s: %v", id, err)
		}
		if _, err := c.Drop(t.Context(), []job.ID{id}); !errors.As(err, &p) || p.Status != http.StatusConflict || !strings.Contains(p.Detail, string(id)) {
			t.Errorf("drop %s: %v", id, err)
		}
	}
}

// TestDropAllOrNone: one that cannot be dropped keeps the others.
func TestDropAllOrNone(t *testing.T) {
	d := open(t, 0)
	d.failAll()
	c := client.New(d.socket)
	defer c.Close()
	var p *api.Problem
	if _, err := c.Drop(t.Context(), []job.ID{d.ids[0], "nobody"}); !errors.As(err, &p) || p.Status != http.StatusNotFound {
		t.Errorf("drop: %v", err)
	}
	var list api.Jobs
	if d.send("GET", "/v1/dead-letters", "", 200, &list); list.Total != 2 {
		t.Errorf("%d are left", list.Total)
	}
	jobs, err := c.Drop(t.Context(), d.ids)
	if err != nil || len(jobs.Jobs) != 2 || jobs.Jobs[0].DroppedAt == nil {
		t.Errorf("dropped %+v, %v", jobs, err)
	}
	if d.send("GET", "/v1/dead-letters", "", 200, &list); list.Total != 0 {
		t.Errorf("%d are left", list.Total)
	}
}

func TestBadDeadLetterRequests(t *testing.T) {
	d := open(t, 0)
	d.failAll()
	for _, tt := range []struct{ method, path, body, want string }{
		{"GET", "/v1/dead-letters?class=SLOW", "", `"SLOW"`},
		{"GET", "/v1/dead-letters?older=yesterday", "", "older"},
		{"GET", "/v1/dead-letters?grep=(", "", "grep"},
		{"GET", "/v1/dead-letters?limit=-1", "", "limit"},
		{"POST", "/v1/dead-letters/requeue", `{}`, "letters: is empty"},
		{"POST", "/v1/dead-letters/requeue", `{"ids": []}`, `unknown field "ids"`},
		{"POST", "/v1/dead-letters/requeue", `{"letters": [{"id": "` + string(d.ids[0]) + `", "spec": {"id": "x y"}}]}`, "letters[0].spec."},
		{"POST", "/v1/dead-letters/drop", `{}`, "ids: is empty"},
	} {
		var p api.Problem
		if d.send(tt.method, tt.path, tt.body, 400, &p); !strings.Contains(p.Detail, tt.want) {
			t.Errorf("%s %s: %q, want %q", tt.path, tt.body, p.Detail, tt.want)
		}
	}
}
