package scheduler_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// granting is a world whose core notes what runs are granted: "ATTEMPT: HOSTS", in order.
type granting struct {
	*world
	mu    sync.Mutex
	notes map[job.Name][]string
	names map[job.ID]job.Name
	// submitting is called before a core takes a run.
	submitting func(ipc.SubmitJob)
}

func grantingAt(t *testing.T, path string) *granting {
	w := &granting{world: newWorld(t, openStoreAt(t, path), 1, nil), notes: map[job.Name][]string{}, names: map[job.ID]job.Name{}}
	note := func(id job.ID, attempt int, granted []string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.notes[w.names[id]] = append(w.notes[w.names[id]], fmt.Sprintf("%d: %s", attempt, strings.Join(granted, " ")))
	}
	w.cores.play = func(core *playedCore) {
		core.answer = func(_ context.Context, method string, params json.RawMessage) (any, error, bool) {
			switch method {
			case ipc.MethodSubmitJob:
				var r ipc.SubmitJob
				if err := json.Unmarshal(params, &r); err != nil {
					return nil, err, true
				}
				if w.submitting != nil {
					w.submitting(r)
				}
				w.mu.Lock()
				w.names[r.Job] = r.Spec.Name
				w.mu.Unlock()
				note(r.Job, r.Attempt, r.Granted)
			case ipc.MethodSetGrants:
				var r ipc.SetGrants
				if err := json.Unmarshal(params, &r); err != nil {
					return nil, err, true
				}
				w.mu.Lock()
				known := w.names[r.Job] != ""
				w.mu.Unlock()
				if known {
					note(r.Job, r.Attempt, r.Granted)
				}
				return ipc.SetGrantsResult{Applied: known}, nil, true
			}
			return nil, nil, false
		}
		core.run = func(ctx context.Context, r *playedRun) job.Outcome {
			r.tell(job.Event{Kind: job.EventState, State: job.Running})
			for _, n := range []job.Connection{
				{Host: "a.example", Port: 443, Allow: "a.example", Reason: "not named"}, {Host: "b.example", Port: 1, Allow: "b.example:1", Reason: "not named"},
				{Host: "b.example", Port: 1, Allow: "b.example:1", Reason: "still not"}, {Host: "c.example", Port: 443, Allowed: true}, {Reason: "no host"},
			} {
				r.tell(job.Event{Kind: job.EventNetwork, Connection: &n})
			}
			if o := lasts(ctx, r); o.State != job.RunCompleted || !strings.HasPrefix(string(r.Spec.Name), "fails") {
				return o
			}
			return job.Outcome{State: job.RunFailed, Class: job.Crash, Message: "it fails"}
		}
	}
	w.start()
	return w
}

func (w *granting) allow(id job.ID, entry string, scope api.RunGrantScope) api.AllowedRun {
	w.Helper()
	e := w.get(id)
	a, err := w.sched.Grants.Allow(w.Context(), &e, &api.AllowRun{Entry: entry, Scope: scope, By: "ann"})
	if err != nil {
		w.Error(err)
	}
	return a
}

func (w *granting) want(name job.Name, want ...string) {
	w.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Equal(w.notes[name], want) {
		w.Errorf("%s was granted\n%q, want\n%q", name, w.notes[name], want)
	}
}

// TestGrants: what is allowed reaches the run that is under way and the further runs that it is for, and no others; over a
// restart too, until it is revoked.
func TestGrants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "queue.db")
		w := grantingAt(t, path)
		ids := w.submit(task("fails", time.Minute), task("other", time.Hour), task("none", time.Second, func(s *job.Spec) { s.Network = []string{"none"} }),
			task("full", time.Second, func(s *job.Spec) { s.Network = []string{"full"} }))
		w.wait(10 * time.Second)
		if a := w.allow(ids[0], "Once.example", api.GrantOnce); !a.Applied || a.Grant.Attempt != 1 || a.Grant.Entry != "once.example" {
			t.Errorf("allowed once: %+v", a)
		}
		if a := w.allow(ids[0], "job.example", ""); !a.Applied || a.Grant.Scope != api.GrantJob || a.Grant.By != "ann" {
			t.Errorf("allowed for the job: %+v", a)
		}
		w.allow(ids[0], "npm", api.GrantTenant)
		if a := w.allow(ids[0], "job.example", api.GrantOnce); a.Grant.Scope != api.GrantJob {
			t.Errorf("allowed once what the job has: %+v", a)
		}
		w.want("other", "1: ", "1: npm")
		w.want("fails", "1: ", "1: once.example", "1: job.example once.example", "1: job.example once.example npm", "1: job.example once.example npm")

		none, full := w.get(ids[2]), w.get(ids[3])
		for name, err := range map[string]error{
			"for the tenant of a job without network": allowError(w, &none, api.GrantTenant),
			"for a job that has all":                  allowError(w, &full, api.GrantJob),
		} {
			if !errors.Is(err, queue.ErrIllegalTransition) {
				t.Errorf("allowed %s: %v", name, err)
			}
		}
		e := w.get(ids[0])
		grants, refused, err := w.sched.Grants.Show(t.Context(), &e)
		if err != nil || len(grants) != 3 || len(refused) != 2 || refused[0] != (api.RefusedHost{Entry: "b.example:1", Reason: "still not", Attempt: 1, Times: 2}) || refused[1].Entry != "a.example" {
			t.Errorf("shown: %+v, %+v, %v", grants, refused, err)
		}

		w.end()
		w = grantingAt(t, path)
		defer func() { w.end() }()
		w.wait(10 * time.Second)
		w.want("fails", "2: job.example npm")
		if _, err := w.sched.Grants.Revoke(t.Context(), nil, "t", "", "npm"); err != nil {
			t.Error(err)
		}
		if _, err := w.sched.Grants.Revoke(t.Context(), nil, "t", "", "npm"); !errors.Is(err, queue.ErrNotFound) {
			t.Errorf("revoked twice: %v", err)
		}
		w.want("fails", "2: job.example npm", "2: job.example")
		w.want("other", "2: npm", "2: ")
		w.wait(10 * time.Minute)
		letter := w.wantState(ids[0], job.Completed)
		if err := allowError(w, &letter, api.GrantOnce); !errors.Is(err, queue.ErrIllegalTransition) {
			t.Errorf("allowed once when it has ended: %v", err)
		}
		if list, err := w.sched.Grants.Networks(t.Context(), &letter); err != nil || !slices.Equal(list, []string{"job.example"}) {
			t.Errorf("further runs would have %q, %v", list, err)
		}
		if _, err := scheduler.Requeue(t.Context(), w.sched.Submit, []scheduler.Again{{Letter: letter}}, stamp()); err != nil {
			t.Fatal(err)
		}
		w.wait(10 * time.Second)
		if n := w.cores.at(1).lastSubmitted(); n.Job == ids[0] || n.Attempt != 1 || !slices.Equal(n.Granted, []string{"job.example"}) {
			t.Errorf("requeued as %+v", n)
		}
	})
}

func allowError(w *granting, e *queue.Entry, scope api.RunGrantScope) error {
	_, err := w.sched.Grants.Allow(w.Context(), e, &api.AllowRun{Entry: "x.example", Scope: scope})
	return err
}

// TestGrantWhileSubmitted: what is allowed just when a core takes the run is not missed.
func TestGrantWhileSubmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := grantingAt(t, filepath.Join(t.TempDir(), "queue.db"))
		defer w.end()
		w.submitting = func(r ipc.SubmitJob) {
			if a := w.allow(r.Job, "late.example", api.GrantOnce); a.Applied || a.Grant.Attempt != 1 {
				t.Errorf("allowed before the core has the run: %+v", a)
			}
		}
		w.submit(task("fix", time.Hour))
		w.wait(10 * time.Second)
		w.want("fix", "1: ", "1: late.example")
	})
}
