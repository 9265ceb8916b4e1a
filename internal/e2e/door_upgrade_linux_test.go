package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/job"
)

// TestDoorUpgrade: while 16 clients submit and ask and 10 listeners follow, the
// server is replaced four times. Its process stays, no request fails, what was
// acknowledged is done once, and nobody misses how it ended.
func TestDoorUpgrade(t *testing.T) {
	t.Parallel()
	const clients, inPhase, listeners = 16, 6, 10
	b := newBench(t)
	b.config["concurrency"] = obj{"max": 4}
	r := b.serve()
	pid := r.cmd.Process.Pid
	long := b.shellOf(r, "long")
	one := b.client()

	ctx, stop := context.WithCancel(t.Context())
	var listening, asking sync.WaitGroup
	defer listening.Wait()
	defer stop()
	var followed [listeners / 2]atomic.Bool // one hears that the long job has ended
	told := make([]map[job.ID]bool, listeners-len(followed))
	var mu sync.Mutex // guards told
	for i := range followed {
		listening.Go(func() {
			var last job.EntryState
			for f, err := range b.client().Follow(ctx, string(long), client.FollowOptions{}) {
				if err != nil {
					t.Errorf("the log of the long job: %v", err)
				}
				if f.Job != nil {
					last = f.Job.State
				}
			}
			followed[i].Store(last == job.Completed)
		})
	}
	for i := range told {
		told[i] = map[job.ID]bool{}
		listening.Go(func() { b.hearEnds(ctx, func(id job.ID) { mu.Lock(); told[i][id] = true; mu.Unlock() }) })
	}

	// Each client submits some jobs in each phase, and asks all the time: in between,
	// so that the phase lasts.
	const between = 5
	var phase, requests atomic.Int64
	acked := map[job.Name]job.ID{}
	var over atomic.Bool
	phaseDone := make(chan struct{}, 5*clients)
	for i := range clients {
		asking.Go(func() {
			c := b.client()
			sent := 0
			for n := 0; !over.Load(); n++ {
				requests.Add(1)
				if n%between > 0 || sent == inPhase*int(phase.Load()) {
					if _, err := c.Status(ctx); err != nil {
						t.Errorf("client %d: status: %v", i, err)
					}
					continue
				}
				name := job.Name(fmt.Sprintf("c%02d-%02d", i, sent))
				out, err := c.Submit(ctx, api.Submission{Source: "the test", Jobs: []job.Spec{tool(name, "true")}}, client.WithKey(string(name)))
				if err != nil {
					t.Errorf("client %d: submit %s: %v", i, name, err)
					over.Store(true)
					phaseDone <- struct{}{}
					return
				}
				mu.Lock()
				acked[name] = out.Jobs[0].ID
				mu.Unlock()
				if sent++; sent%inPhase == 0 {
					phaseDone <- struct{}{}
				}
			}
		})
	}
	defer asking.Wait()
	defer over.Store(true)
	// begin lets them submit again, sent waits until all have.
	begin := func() { phase.Add(1) }
	sent := func() {
		for range clients {
			<-phaseDone
		}
	}
	started := b.startedAt(one)
	replaced := func(what string) {
		t.Helper()
		st, err := one.Status(t.Context())
		if err != nil || st.PID != pid || !st.Started.After(started) {
			b.fatalf("after %s: pid %d, started %s, %v; want pid %d, and started after %s", what, st.PID, st.Started, err, pid, started)
		}
		started = st.Started
	}
	for n := range 3 {
		begin()
		if out, errs, code := b.command("upgrade", "--wait", "--checkpoint"); code != 0 {
			b.fatalf("upgrade: exit code %d\n%s%s", code, out, errs)
		}
		sent()
		replaced(fmt.Sprint("upgrade ", n+1))
		r.awaitTimes(n+2, "the long job runs again", onText("long", "begun"))
	}
	b.write(b.folder("long-go"), "")
	r.end("long", job.RunCompleted)

	drained := b.shellOf(r, "drained")
	if out, errs, code := b.command("upgrade", "--drain"); code != 0 {
		b.fatalf("upgrade --drain: exit code %d\n%s%s", code, out, errs)
	}
	begin()
	sent() // it takes jobs, while none begins
	if got := b.startedAt(one); !got.Equal(started) {
		t.Errorf("it was replaced while a job ran")
	}
	b.write(b.folder("drained-go"), "")
	b.eventually("the drained server is replaced", func() bool {
		st, err := one.Status(t.Context())
		return err == nil && st.Started.After(started)
	})
	replaced("a drain")

	// What is no scheduler does not get the place.
	begin()
	if out, errs, code := b.command("upgrade", "--program", "/bin/false"); code == 0 || !strings.Contains(errs, "/bin/false") {
		t.Errorf("an upgrade to /bin/false: exit code %d\n%s%s", code, out, errs)
	}
	sent()
	if got := b.startedAt(one); !got.Equal(started) {
		t.Errorf("a program that is none has the place")
	}
	over.Store(true)
	asking.Wait()

	all := map[job.ID]bool{long: true, drained: true}
	for name, id := range acked {
		if all[id] {
			t.Errorf("%s has the id of another", name)
		}
		all[id] = true
	}
	b.eventually("all have ended, and everybody knows", func() bool {
		mu.Lock()
		defer mu.Unlock()
		for _, ids := range told {
			if len(ids) < len(all) {
				return false
			}
		}
		return true
	})
	n := 0
	for e, err := range one.All(t.Context(), client.ListQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		if n++; !all[e.ID] || e.State != job.Completed || e.ExitKind != job.ExitSucceeded || e.Counted != 1 {
			t.Errorf("%s is %s %s, and %d attempts count", e.Spec.Name, e.State, e.ExitKind, e.Counted)
		}
		j, err := one.Job(t.Context(), string(e.ID))
		if err != nil {
			t.Fatal(err)
		}
		b.completedOnce(j)
	}
	if n != len(all) || len(acked) != 5*inPhase*clients {
		t.Errorf("%d jobs are there, %d were acknowledged", n, len(all))
	}
	if j, err := one.Job(t.Context(), string(long)); err != nil || len(j.Attempts) != 4 || !j.Attempts[0].Lost || !j.Attempts[1].Lost || !j.Attempts[2].Lost || j.Job.Counted != 1 {
		t.Errorf("the job that ran through three upgrades: %v %s", err, asJSON(t, j))
	}
	if j, err := one.Job(t.Context(), string(drained)); err != nil || len(j.Attempts) != 1 || j.Attempts[0].Lost {
		t.Errorf("the job that was waited for: %v %s", err, asJSON(t, j))
	}
	for i := range followed {
		b.eventually("the log of the long job has ended", followed[i].Load)
	}
	t.Logf("%d requests and %d jobs over 4 upgrades", requests.Load(), n)
	stop()
	r.stop()
	b.soundState()
}

// shellOf submits a job that says that it has begun, and waits until the file
// NAME-go is there; it returns when the job runs.
func (b *bench) shellOf(r *run, name string) job.ID {
	b.t.Helper()
	b.submit(b.jobsOf("tests", name+".yaml", shell(name, nil, "echo begun; "+until(b.folder(name+"-go")), nil)))
	r.await(name+" runs", onText(job.Name(name), "begun"))
	return b.idOf(name)
}

func (b *bench) startedAt(c *client.Client) time.Time {
	b.t.Helper()
	st, err := c.Status(b.t.Context())
	if err != nil {
		b.fatalf("status: %v", err)
	}
	return st.Started
}

// hearEnds follows all jobs and tells take of those that have ended. After a gap it
// asks what it has missed, as any listener has to.
func (b *bench) hearEnds(ctx context.Context, take func(job.ID)) {
	c := b.client()
	for u, err := range c.Stream(ctx, client.StreamOptions{Kinds: []api.UpdateKind{api.UpdateJob}}) {
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			b.t.Errorf("a listener: %v", err)
		case u.Kind == api.UpdateGap:
			for e, err := range c.All(ctx, client.ListQuery{States: []job.EntryState{job.Completed}}) {
				if err == nil {
					take(e.ID)
				} else if ctx.Err() == nil {
					b.t.Errorf("after a gap: %v", err)
				}
			}
		case u.Entry.Terminal():
			take(u.Job)
		}
	}
}

// TestDoorStopsWhileDraining: a server that waits for its jobs so as to be replaced
// ends in order when it is told to stop.
func TestDoorStopsWhileDraining(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.serve()
	b.shellOf(r, "long")
	if out, errs, code := b.command("upgrade", "--drain"); code != 0 {
		b.fatalf("upgrade --drain: exit code %d\n%s%s", code, out, errs)
	}
	r.signal(syscall.SIGTERM)
	r.exit(0)
	b.soundState()
	if j := b.show("long"); j.Job.State != job.Queued || j.Job.Counted != 0 || len(j.Attempts) != 1 || !j.Attempts[0].Lost {
		t.Errorf("the job that ran: %s", asJSON(t, j))
	}
	b.write(b.folder("long-go"), "")
	r = b.serve()
	r.end("long", job.RunCompleted)
	r.stop()
	b.completedOnce(b.show("long"))
}

// TestDoorStopsWhileReplaced: a server that is about to be replaced ends when it is told
// to stop, and nothing takes its place.
func TestDoorStopsWhileReplaced(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.config["stop"] = obj{"interrupt": "5m", "terminate": "5m", "kill": "10s"} // the handover waits for the job
	r := b.serve()
	b.submit(b.jobsOf("tests", "long.yaml", shell("long", nil, "trap '' INT; echo begun; "+until(b.folder("long-go")), nil)))
	r.await("long runs", onText("long", "begun"))
	if out, errs, code := b.command("upgrade"); code != 0 {
		b.fatalf("upgrade: exit code %d\n%s%s", code, out, errs)
	}
	r.signal(syscall.SIGTERM)
	b.eventually("the server has heard of it", func() bool { return strings.Contains(r.stderr.String(), "stopping: ") })
	b.write(b.folder("long-go"), "")
	r.exit(0)
	b.soundState()
}
