package server_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/internal/eval"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/internal/server"
	"github.com/agentsched/agentsched/internal/supervisor"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/queue/sqlite"
)

// TestEvaluations has people evaluate a job that was done and one that was not.
func TestEvaluations(t *testing.T) {
	store, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "queue.db"), sqlite.Options{Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	now := time.Now().UTC()
	var entries []queue.Entry
	for _, name := range []job.Name{"done", "open"} {
		entries = append(entries, queue.Entry{ID: job.NewID(), Batch: "b", State: job.Queued, CreatedAt: now, RunnableAt: now,
			Spec: job.Spec{Name: name, Tenant: "t", Worker: "shell", Agent: "a"}})
	}
	if err := store.Enqueue(t.Context(), queue.Batch{ID: "b", CreatedAt: now}, entries); err != nil {
		t.Fatal(err)
	}
	claims, err := store.Claim(t.Context(), queue.ClaimSpec{Holder: "h", Max: 1, Now: now, Lease: time.Minute})
	if err != nil || len(claims.Entries) != 1 || claims.Entries[0].Spec.Name != "done" {
		t.Fatalf("%+v, %v", claims, err)
	}
	id, fence := claims.Entries[0].ID, claims.Entries[0].Fence
	attempt := job.Attempt{Job: id, Number: 1, Fence: fence, Choice: job.Choice{Worker: "shell"}, State: job.Pending, Started: now}
	if err := store.Apply(t.Context(), queue.Begin{ID: id, Fence: fence, Attempt: attempt}, queue.Move{ID: id, Fence: fence, Attempt: 1, To: job.Running},
		queue.Finish{ID: id, Fence: fence, Attempt: 1, Now: now, Exit: job.ExitSucceeded, Outcome: job.Outcome{State: job.RunCompleted, StartedAt: now, EndedAt: now}}); err != nil {
		t.Fatal(err)
	}

	sched := scheduler.New(scheduler.Config{Store: store, Log: zerolog.Nop(), Supervise: func(h supervisor.Handler) scheduler.Cores {
		return supervisor.New(supervisor.Config{Handler: h}) // never run
	}})
	ask := func(srv *server.Server, method, path, body string) (int, string) {
		w := httptest.NewRecorder()
		srv.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body)))
		return w.Code, w.Body.String()
	}
	opt := server.Options{Store: store, Sched: sched, Log: zerolog.Nop()}
	if code, text := ask(server.New(opt), "POST", "/v1/jobs/done/evaluations", `{"by": "anna", "quality": 1}`); code != http.StatusNotFound {
		t.Errorf("without an evaluator: %d %s", code, text)
	}
	opt.Evaluator = eval.New(eval.Config{Store: store, Settings: eval.DefaultSettings()})
	srv := server.New(opt)
	for _, c := range []struct {
		method, path, body string
		code               int
		want               string
	}{
		{"GET", "/v1/jobs/done/evaluations", "", 200, `"evaluations":[]`},
		{"GET", "/v1/reputations", "", 200, `"reputations":[]`},
		{"POST", "/v1/jobs/done/evaluations", `{"by": "anna", "quality": 0.5}`, 200, `"composite":0.75`},
		{"POST", "/v1/jobs/done/evaluations", `{"by": "anna", "quality": 0.5}`, 200, `"composite":0.75`},
		{"POST", "/v1/jobs/done/evaluations", `{"by": "anna", "quality": 0.6}`, 409, "anna has evaluated attempt 1 of job done already"},
		{"POST", "/v1/jobs/open/evaluations", `{"by": "anna", "quality": 0.5}`, 409, "job open: nothing to evaluate: it has not ended"},
		{"POST", "/v1/jobs/none/evaluations", `{"by": "anna", "quality": 0.5}`, 404, "not found"},
		{"POST", "/v1/jobs/done/evaluations", `{"by": "bert", "quality": 1.5}`, 400, "quality: is 1.5, want a number from 0 to 1"},
		{"POST", "/v1/jobs/done/evaluations", `{"by": "bert", "qualty": 0.5}`, 400, "qualty"},
		{"POST", "/v1/jobs/done/evaluations", `{"by": "", "quality": 0.5}`, 400, "by: "},
		{"POST", "/v1/jobs/done/evaluations", `{"by": "bert"}`, 400, "names no dimension"},
		{"GET", "/v1/jobs/done/evaluations", "", 200, `"source":"by anna"`},
		{"GET", "/v1/reputations?subject=t&kind=agent", "", 200, `"name":"t/a"`},
		{"POST", "/v1/jobs/done/evaluations", `{"by": "bert", "quality": 1}`, 200, `"composite":1`},
		// 0.75 and then 1, with an α of 0.3.
		{"GET", "/v1/reputations/history?subject=t/a&kind=agent", "", 200, `"composite":0.75,"score":0.75}`},
		{"GET", "/v1/reputations/history?subject=t/a&kind=agent", "", 200, `"composite":1,"score":0.825}]`},
		{"GET", "/v1/reputations/history?subject=t&kind=tenant", "", 200, `"score":0.825}]`},
		{"GET", "/v1/reputations/history?subject=nobody&kind=tenant", "", 200, `"points":[]`},
		{"GET", "/v1/reputations/history?subject=t", "", 400, "query.kind"},
		{"GET", "/v1/reputations/similar?subject=t/a", "", 200, `"similar":[]`},
		{"GET", "/v1/reputations/similar?subject=t/a&kind=agent&max_distance=0.5&limit=3", "", 200, `"of":{"subject":{"kind":"agent","name":"t/a"}`},
		{"GET", "/v1/reputations/similar?subject=nobody", "", 404, "nobody in domain default: nothing was evaluated of it"},
		{"GET", "/v1/reputations/similar?subject=t&max_distance=7", "", 400, "query.max_distance"},
		{"GET", "/v1/reputations/similar", "", 400, "query.subject"},
	} {
		code, text := ask(srv, c.method, c.path, c.body)
		if code != c.code || !strings.Contains(text, c.want) || !json.Valid([]byte(text)) {
			t.Errorf("%s %s %s: %d %s, want %d %s", c.method, c.path, c.body, code, text, c.code, c.want)
		}
	}
}
