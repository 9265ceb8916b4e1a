package server_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/eval"
	"github.com/agentsched/agentsched/internal/parcel"
	"github.com/agentsched/agentsched/internal/server"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/workflow/durable"
)

// says is a handler that says so.
func says(text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if strings.HasPrefix(text, "{") {
			w.Header().Set("Content-Type", "application/json")
		}
		fmt.Fprint(w, text)
	})
}

// everything sets all options, as `serve` does.
func everything(dir string) func(*server.Options) {
	return func(o *server.Options) {
		o.Evaluator = eval.New(eval.Config{Store: o.Store, Settings: eval.DefaultSettings()})
		o.Triggers = func() []api.Trigger { return []api.Trigger{{Name: "nightly", Source: "cron"}} }
		o.ReadFile = func(_ context.Context, f api.JobFile) (api.Submission, error) {
			if f.Text == "" {
				return api.Submission{}, fmt.Errorf("text is empty")
			}
			return api.Submission{Source: "file", Jobs: []job.Spec{spec(job.Name(f.Text))}}, nil
		}
		o.Artifacts = func(id job.ID, attempt int) string { return filepath.Join(dir, string(id), fmt.Sprint(attempt)) }
		o.Parcels = parcel.NewKeeper(parcel.NewFolder(filepath.Join(dir, "parcels")), filepath.Join(dir, "parcels"))
		o.Reload = func(context.Context) (string, error) { return "nothing has changed", nil }
		o.Upgrade = func(context.Context, api.Upgrade) error { return nil }
		o.NewUILink = func(_ context.Context, role string) (api.UILink, error) {
			return api.UILink{Role: role, URL: "http://localhost/login?code=x", ExpiresAt: time.Now()}, nil
		}
		o.Workers = func(context.Context) []api.Worker { return []api.Worker{{Kind: "shell", Adapter: "shell"}} }
		o.Budgets = func(context.Context) []api.Budget {
			return []api.Budget{{Window: job.Duration(time.Hour), MaxUSD: 5}}
		}
		o.MaxAtOnce = func() int { return 4 }
		o.Me, o.Metrics, o.Login = says(`{"name":"x","role":"read","door":"tcp"}`), says("up 1\n"), says("<p>")
	}
}

// spec is a job that can be submitted.
func spec(name job.Name) job.Spec {
	return job.Spec{Name: name, Tenant: "t", Type: job.Tool, Worker: "shell", Instructions: "true", Workspace: job.Workspace{Isolation: job.NoWorkspace}}
}

// world serves something of everything: dead letters with an artifact and
// a step, a workflow, an agent that was evaluated, grants, an isolation.
func world(t testing.TB, changes ...func(*server.Options)) *served {
	t.Helper()
	dir := t.TempDir()
	d := open(t, 0, append([]func(*server.Options){everything(dir)}, changes...)...)
	d.failAll()
	d.last = job.NewID()
	folder := filepath.Join(dir, string(d.last), "1")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"patch.diff": "+<b>\n", "../secret": "secret\n"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../secret", filepath.Join(folder, "link")); err != nil {
		t.Fatal(err)
	}
	d.attempt(job.Outcome{State: job.RunCompleted, Artifacts: []job.Artifact{
		{Name: job.ArtifactPatch, Path: filepath.Join(folder, "patch.diff"), Bytes: 5, SHA256: "da5c0b6eeff6698733559400a423ff9fe4aed59e196040448fd9ddcd1016328c"}, {Name: job.ArtifactStdout, Path: filepath.Join(folder, "../secret")},
		{Name: job.ArtifactStderr, Path: filepath.Join(folder, "none")}, {Name: job.ArtifactAnswer, Path: filepath.Join(folder, "link")},
		{Name: job.ArtifactWhole, Path: folder},
	}})
	c := client.New(d.socket)
	t.Cleanup(c.Close)
	first, items, loop, merge := spec("first"), spec("items"), spec("again"), spec("merge")
	first.Agent = "reviewer"
	items.Flow = job.Flow{Needs: []job.Name{"first"}, ForEach: &job.ForEach{Items: []byte(`["a","b"]`), Max: 5}}
	loop.Flow = job.Flow{Needs: []job.Name{"first"}, Loop: &job.Loop{Command: "true", MaxIterations: 3}}
	merge.Flow = job.Flow{Needs: []job.Name{"items", "again"}}
	if _, err := c.Submit(t.Context(), api.Submission{Source: "flow", Jobs: []job.Spec{first, items, loop, merge},
		Workflow: job.Workflow{Agents: []job.Profile{{Name: "reviewer", Domains: []string{"legal"}}}}}); err != nil {
		t.Fatal(err)
	}
	if err := c.SetGrant(t.Context(), api.Grant{Tenant: "t", Tokens: 5}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.TopUp(t.Context(), api.TopUp{Tenant: "t", Credits: 5, By: "anna"}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Pause(t.Context(), api.Pause{Scope: "worker:codex", Reason: "the bill"}); err != nil {
		t.Fatal(err)
	}
	good := 0.5
	if _, err := c.Evaluate(t.Context(), d.last, api.Judgement{By: "anna", Vector: api.Vector{Quality: &good}}); err != nil {
		t.Fatal(err)
	}
	return d
}

// attempt has the job d.last done, with a step and that outcome.
func (d *served) attempt(o job.Outcome) {
	d.t.Helper()
	now := time.Now().UTC().Round(0)
	e := queue.Entry{ID: d.last, Batch: "c", State: job.Queued, CreatedAt: now, RunnableAt: now, Spec: spec("done")}
	e.Spec.Agent = "reviewer"
	if err := d.store.Enqueue(d.t.Context(), queue.Batch{ID: "c", CreatedAt: now}, []queue.Entry{e}); err != nil {
		d.t.Fatal(err)
	}
	claims, err := d.store.Claim(d.t.Context(), queue.ClaimSpec{Holder: "test", Max: 1, Now: now, Lease: time.Minute})
	if err != nil || len(claims.Entries) != 1 {
		d.t.Fatalf("claimed %+v, %v", claims, err)
	}
	fence := claims.Entries[0].Fence
	if _, _, err := durable.Keep(d.t.Context(), d.store, durable.Space(e.ID), durable.Stored{ID: "plan", Inputs: "x", Result: []byte(`1`), Attempt: 1, At: now}); err != nil {
		d.t.Fatal(err)
	}
	o.StartedAt, o.EndedAt = now, now
	err = d.store.Apply(d.t.Context(),
		queue.Begin{ID: e.ID, Fence: fence, Attempt: job.Attempt{Job: e.ID, Number: 1, Fence: fence, Choice: e.Spec.Choices()[0], State: job.Pending, Started: now}},
		queue.Move{ID: e.ID, Fence: fence, Attempt: 1, To: job.Running},
		queue.Append{Events: []job.Event{
			{Job: e.ID, Attempt: 1, Seq: 1, Time: now, Kind: job.EventText, Text: "hello"},
			{Job: e.ID, Attempt: 1, Seq: 2, Time: now, Kind: job.EventStep, Step: "plan", Kept: job.KeptFresh},
		}},
		queue.Finish{ID: e.ID, Fence: fence, Attempt: 1, Outcome: o, Now: now, Exit: job.ExitSucceeded})
	if err != nil {
		d.t.Fatal(err)
	}
}

// principal names who asks.
func principal(name *string) func(context.Context) string {
	return func(context.Context) string { return *name }
}
