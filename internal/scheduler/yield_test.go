package scheduler_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/policy"
	"github.com/agentsched/agentsched/queue"
)

var errStep = errors.New("the next step")

// contest is a scheduler with one slot, on which tenant big has a contract. Its worker has
// steps of ten seconds and stops between two, if that is asked for.
func contest(t *testing.T, observer scheduler.Observer) *world {
	w := newWorld(t, openStore(t), 1, func(c *scheduler.Config) {
		c.Settings.MaxConcurrent, c.Observer = 1, observer
		c.Policy = policy.Default()
		c.Policy.Name, c.Policy.Tenants = policy.NameCredit, map[job.Tenant]policy.Tenant{"big": {Contracted: true}}
	})
	w.cores.play = func(core *playedCore) {
		core.answer = func(_ context.Context, method string, params json.RawMessage) (any, error, bool) {
			var c ipc.CheckpointJob
			if method != ipc.MethodCheckpointJob || json.Unmarshal(params, &c) != nil {
				return nil, nil, false
			}
			core.mu.Lock()
			defer core.mu.Unlock()
			if r := core.runs[c.Job]; r != nil && r.Spec.Tenant != "stubborn" {
				r.cancel(errStep)
				return ipc.CheckpointResult{Asked: true}, nil, true
			}
			return ipc.CheckpointResult{}, nil, true
		}
		core.run = func(ctx context.Context, r *playedRun) job.Outcome {
			began := time.Now()
			o := lasts(ctx, r)
			if context.Cause(ctx) == errStep {
				time.Sleep(10*time.Second - time.Since(began)%(10*time.Second))
				o = job.Outcome{State: job.Checkpointed, Message: "stopped"}
			}
			return o
		}
	}
	return w
}

func of(t job.Tenant) func(*job.Spec) { return func(s *job.Spec) { s.Tenant = t } }

type preemptions []string

func (p *preemptions) Observe(m scheduler.Moment) {
	if m.Kind == scheduler.MomentAttemptEnded && m.Outcome.PreemptedBy != "" {
		*p = append(*p, fmt.Sprintf("%s by %s", m.Entry.Spec.Tenant, m.Outcome.PreemptedBy))
	}
}

// TestYield: a run of the marketplace stops at its next step for a job of a tenant with a
// contract, says for whom, and goes on afterwards: nothing is counted or paid for twice.
func TestYield(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen preemptions
		w := contest(t, &seen)
		w.start()
		defer w.end()
		if err := w.store.Apply(t.Context(), queue.TopUp{Tenant: "small", Credits: 1, Now: stamp()}); err != nil {
			t.Fatal(err)
		}
		small := w.submit(task("small", time.Hour, of("small")))[0]
		w.wait(3 * time.Second)
		big := w.submit(task("big", time.Minute, of("big")))[0]
		w.wait(3 * time.Second)
		e := w.wantState(small, job.Dispatched)
		if st := w.sched.Explain.Statuses(t.Context())(&e); st.Note != "stops at its next step: tenant big has a contract and waits for its place" {
			t.Errorf("while it goes on to its next step: %q", st.Note)
		}
		w.wantState(big, job.Queued)
		w.wait(5 * time.Second)
		w.wantState(big, job.Dispatched)
		e = w.wantState(small, job.Queued)
		if want := "waiting for its turn: checkpointed (tenant big has a contract and waits for its place); goes on from its last step"; e.Waiting != want {
			t.Errorf("it waits: %q, want %q", e.Waiting, want)
		}
		attempts, err := w.store.Attempts(t.Context(), small)
		if err != nil || len(attempts) != 1 || !attempts[0].Lost || attempts[0].Outcome.PreemptedBy != "big" || e.Counted != 0 {
			t.Errorf("attempts %+v (%v), of which %d count", attempts, err, e.Counted)
		}
		w.wait(2 * time.Hour)
		w.wantState(big, job.Completed)
		if e = w.wantState(small, job.Completed); e.Counted != 1 || e.ExitKind != job.ExitSucceeded {
			t.Errorf("%s, %d attempts count", e.ExitKind, e.Counted)
		}
		if b, err := w.store.Balances(t.Context()); err != nil || len(b) != 1 || b[0].Taken != 1 {
			t.Errorf("balances %+v (%v), want one credit taken", b, err)
		}
		if fmt.Sprint(seen) != "[small by big]" {
			t.Errorf("observed %v", seen)
		}
	})
}

// TestYieldBound: however many jobs a contracted tenant has, a job gives way a few times and
// then runs to its end; one that cannot stop is asked once.
func TestYieldBound(t *testing.T) {
	for _, tenant := range []job.Tenant{"small", "stubborn"} {
		t.Run(string(tenant), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var seen preemptions
				w := contest(t, &seen)
				w.start()
				defer w.end()
				id := w.submit(task("small", time.Hour, of(tenant)))[0]
				for n := range 10 {
					w.wait(5 * time.Second) // so that it has begun again
					w.submit(task(fmt.Sprint("big", n), time.Minute, of("big")))
					w.wait(90 * time.Second)
				}
				want := 3 // schedule.MaxYields
				if tenant == "stubborn" {
					want = 0
				}
				if e := w.wantState(id, job.Dispatched); len(seen) != want || e.Attempts != want+1 {
					t.Errorf("it gave way %d times, in %d attempts, want %d: %s", len(seen), e.Attempts, want, strings.Join(seen, ", "))
				}
				w.wait(2 * time.Hour)
				if e := w.wantState(id, job.Completed); e.ExitKind != job.ExitSucceeded {
					t.Errorf("it is %s", e.ExitKind)
				}
			})
		})
	}
}
