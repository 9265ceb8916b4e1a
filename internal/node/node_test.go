package node

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/internal/supervisor"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
)

// The core's words reach the scheduler, also those that are told while there is no way there; what it has stored leaves the spool;
// what it asks reaches the core.
func TestNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var net cable
		l := lead(t, &net, "s", nil)
		defer l.stop()
		w := work(t, &net, t.TempDir(), "other:1", "s:1")
		defer w.end() //nolint:errcheck // looked at below
		<-w.live
		synctest.Wait()
		wants(t, "at the beginning", l.take(), "up a/1 past=false")
		if got := w.took(); !slices.Equal(got, []string{ipc.MethodConfigure}) {
			t.Errorf("the core was asked %v", got)
		}
		if c := w.settings; len(c.Secrets) > 0 || len(c.Workers["shell"].Command) > 0 || c.Workers["shell"].MaxConcurrent != 3 || c.MaxConcurrent != 7 {
			t.Errorf("the node was told %+v", c)
		}
		core := l.theCore()
		if err := core.Call(t.Context(), ipc.MethodSubmitJob, ipc.SubmitJob{Job: "j", Attempt: 1}, nil); err != nil {
			t.Fatal(err)
		}
		var own *ipc.Error
		if err := core.Call(t.Context(), "unknown", nil, nil); !errors.As(err, &own) || own.Code != ipc.CodeMethodNotFound {
			t.Errorf("the core's own error came as %v", err)
		}
		w.tell(ipc.NotifyWorkerEvent, "j", 1)
		synctest.Wait()
		net.part(true)
		w.tell(ipc.NotifyWorkerEvent, "j", 2)
		w.tell(ipc.NotifyJobCompleted, "j", 0)
		pass(lease / 4)
		if w.spool.Acked() == w.spool.Last() || !w.leased() {
			t.Errorf("acknowledged %d of %d, leased %v", w.spool.Acked(), w.spool.Last(), w.leased())
		}
		net.part(false)
		pass(lease)
		wants(t, "of the run", l.take(), "on_worker_event j seq=1 past=false", "on_worker_event j seq=2 past=false", "on_job_completed j seq=0 past=false")
		if w.spool.Acked() != w.spool.Last() || len(w.ledger.runs) != 0 {
			t.Errorf("acknowledged %d of %d, known %v", w.spool.Acked(), w.spool.Last(), w.ledger.runs)
		}
		if err := w.end(); !errors.Is(err, errDone) {
			t.Errorf("the end is %v", err)
		}
		synctest.Wait()
		wants(t, "at the end", l.take(), "down a/1 lost=false replaced=true")
	})
}

// A scheduler that leads next hears which runs there are, what was not stored is told again, and what counts for nothing is
// stopped.
func TestNextLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var net cable
		l, w := workBeforeNext(t, &net)
		for _, id := range []job.ID{"stays", "ended", "void"} {
			if err := l.theCore().Call(t.Context(), ipc.MethodSubmitJob, ipc.SubmitJob{Job: id, Attempt: 1}, nil); err != nil {
				t.Fatal(err)
			}
		}
		for seq := range int64(3) {
			w.tell(ipc.NotifyWorkerEvent, "stays", seq+1)
		}
		w.tell(ipc.NotifyJobCompleted, "ended", 0)
		w.tell(ipc.NotifyWorkerEvent, "void", 1)
		synctest.Wait()
		l.stop()
		next := lead(t, &net, "r", func(l *leader) {
			l.counts = func(r supervisor.HeldRun) supervisor.Verdict {
				return supervisor.Verdict{Counts: r.Job != "void", Events: 2}
			}
		})
		defer next.stop()
		w.took()
		pass(lease)
		wants(t, "the next one hears", next.take(),
			"up a/1 past=false", "held by a: ended/1 past=false counts=true", "held by a: stays/1 past=false counts=true", "held by a: void/1 past=false counts=false",
			"on_worker_event stays seq=3 past=false", "on_job_completed ended seq=0 past=false")
		got := w.took()
		slices.Sort(got)
		if !slices.Equal(got, []string{ipc.MethodCancelJob, ipc.MethodConfigure}) {
			t.Errorf("the core was asked %v", got)
		}
		if w.spool.Acked() != w.spool.Last() {
			t.Errorf("acknowledged %d of %d", w.spool.Acked(), w.spool.Last())
		}
	})
}

// A core that answers a submission after its link has ended either has the run or not: the scheduler that was told that it
// has hears of its end.
func TestSubmitOutlivesItsLink(t *testing.T) {
	for _, takes := range []bool{true, false} {
		t.Run(fmt.Sprintf("takes=%v", takes), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var net cable
				l, w := workBeforeNext(t, &net)
				answer := make(chan struct{})
				w.mu.Lock()
				w.slow = func(method string) error {
					if method != ipc.MethodSubmitJob {
						return nil
					}
					if <-answer; takes {
						return nil
					}
					return &ipc.Error{Code: ipc.CodePermitUnknown, Message: "no such permit"}
				}
				w.mu.Unlock()
				core, asked := l.theCore(), make(chan error, 1)
				go func() {
					asked <- core.Call(t.Context(), ipc.MethodSubmitJob, ipc.SubmitJob{Job: "j", Attempt: 1}, nil)
				}()
				synctest.Wait()
				l.stop()
				if err := <-asked; err == nil {
					t.Fatal("the submission was answered")
				}
				next := lead(t, &net, "r", nil)
				defer next.stop()
				pass(lease)
				wants(t, "the next one hears", next.take(), "up a/1 past=false", "held by a: j/1 past=false counts=true")
				close(answer)
				pass(lease)
				if takes {
					w.tell(ipc.NotifyJobCompleted, "j", 0)
					pass(lease)
				}
				wants(t, "after the answer", next.take(), "on_job_completed j seq=0 past=false")
				if w.spool.Acked() != w.spool.Last() || len(w.ledger.runs) != 0 {
					t.Errorf("acknowledged %d of %d, known %v", w.spool.Acked(), w.spool.Last(), w.ledger.runs)
				}
			})
		})
	}
}

// A core hears that an attempt is lost before it is asked for the job's next one, however soon that is.
func TestLostBeforeTheNextAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var net cable
		l, w := workBeforeNext(t, &net)
		if err := l.theCore().Call(t.Context(), ipc.MethodSubmitJob, ipc.SubmitJob{Job: "void", Attempt: 1}, nil); err != nil {
			t.Fatal(err)
		}
		w.tell(ipc.NotifyJobCompleted, "void", 0)
		synctest.Wait()
		l.stop()
		w.took()
		answered := errors.New("the run was not asked for")
		next := lead(t, &net, "r", func(l *leader) {
			l.counts = func(r supervisor.HeldRun) supervisor.Verdict {
				go func() {
					answered = r.Core.Call(t.Context(), ipc.MethodRequestPermit, ipc.PermitRequest{Job: "void", Attempt: 2}, nil)
				}()
				time.Sleep(time.Second) // the request is there first
				return supervisor.Verdict{}
			}
		})
		defer next.stop()
		pass(lease)
		if answered != nil {
			t.Error(answered)
		}
		got := slices.DeleteFunc(w.took(), func(m string) bool { return m == ipc.MethodConfigure })
		if want := []string{ipc.MethodCancelJob, ipc.MethodRequestPermit}; !slices.Equal(got, want) {
			t.Errorf("the core was asked %v; want %v", got, want)
		}
	})
}

// A node that was started again has no runs, but tells the ends that the scheduler has not stored.
func TestNodeRestarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var net cable
		dir := t.TempDir()
		l := lead(t, &net, "s", func(l *leader) { l.keeps = false })
		defer l.stop()
		w := work(t, &net, dir, "s:1")
		<-w.live
		synctest.Wait()
		for _, id := range []job.ID{"ended", "lost"} {
			if err := l.theCore().Call(t.Context(), ipc.MethodSubmitJob, ipc.SubmitJob{Job: id, Attempt: 1}, nil); err != nil {
				t.Fatal(err)
			}
			w.tell(ipc.NotifyWorkerEvent, id, 1)
		}
		w.tell(ipc.NotifyJobCompleted, "ended", 0)
		synctest.Wait()
		net.part(true) // nobody hears its end
		w.end()        //nolint:errcheck // told to
		l.take()
		l.mu.Lock()
		l.keeps = true
		l.mu.Unlock()
		net.part(false)
		again := work(t, &net, dir, "s:1")
		defer again.end() //nolint:errcheck // told to
		<-again.live
		pass(lease)
		wants(t, "after the restart", l.take(),
			"up a/0 past=true", "held by a: ended/1 past=true counts=true", "down a/1 lost=true replaced=false",
			"on_worker_event ended seq=1 past=true", "on_job_completed ended seq=0 past=true", "down a/0 lost=false replaced=false", "up a/1 past=false")
		if again.spool.Acked() != again.spool.Last() {
			t.Errorf("acknowledged %d of %d", again.spool.Acked(), again.spool.Last())
		}
	})
}

// A lease ends on the node's side before the scheduler gives its jobs to others, also if the scheduler may not confirm it.
func TestLease(t *testing.T) {
	for _, cut := range []bool{true, false} {
		t.Run(fmt.Sprintf("cut=%v", cut), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var net cable
				l := lead(t, &net, "s", nil)
				defer l.stop()
				w := work(t, &net, t.TempDir(), "s:1")
				defer w.end() //nolint:errcheck // told to
				<-w.live
				pass(5 * lease)
				if !w.leased() {
					t.Fatal("the lease was not renewed")
				}
				l.take()
				if began := time.Now(); cut {
					net.part(true)
					for w.leased() {
						pass(lease / 100)
					}
					if held := time.Since(began); held < lease/2 || held > lease {
						t.Errorf("the lease was held for %v after the cut", held)
					}
					for l.take() == "" {
						pass(lease / 100)
					}
					if lost := time.Since(began); lost < lostAfter()-lease/4 || lost > lostAfter()+lease {
						t.Errorf("the node was given up after %v", lost)
					}
					net.part(false)
					pass(2 * lastRetry)
					wants(t, "when it comes again", l.take(), "up a/1 past=false")
					return
				}
				l.mu.Lock()
				l.silent = true
				l.mu.Unlock()
				pass(lease)
				if w.leased() {
					t.Error("the lease was renewed by a scheduler that may not")
				}
			})
		})
	}
}

// A host that stood still for longer than its lease and the permits' validity knows when it goes on that they have lapsed; one
// that was cut off for less renews them.
func TestStoodStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var net cable
		l := lead(t, &net, "s", nil)
		defer l.stop()
		var slept atomic.Int64 // by which the host's clock of all time is ahead of that of the process
		w := workBy(t, &net, t.TempDir(), func() time.Duration { return time.Duration(slept.Load()) }, "s:1")
		defer w.end() //nolint:errcheck // told to
		<-w.live
		pass(5*lease + lease/8) // between two heartbeats
		h := w.handler.(supervisor.Lapser)
		if !w.leased() || h.PermitsLapsed() {
			t.Fatal("the lease was not renewed")
		}
		net.part(true)
		slept.Add(int64(lease))
		if w.leased() || h.PermitsLapsed() {
			t.Errorf("after a sleep as long as the lease: leased %v, lapsed %v", w.leased(), h.PermitsLapsed())
		}
		slept.Add(int64(validity))
		if w.leased() || !h.PermitsLapsed() {
			t.Errorf("after a sleep as long as the lease and the validity: leased %v, lapsed %v", w.leased(), h.PermitsLapsed())
		}
		net.part(false)
		pass(2 * lastRetry)
		if !w.leased() || h.PermitsLapsed() {
			t.Error("the lease was not renewed when the host went on")
		}
	})
}

// A node whose core is in a crash loop is isolated, by the next leader too, until that is over or somebody lifts it, which
// reaches the node also if it was not there then.
func TestCrashLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var net cable
		l := lead(t, &net, "s", nil)
		w := work(t, &net, t.TempDir(), "s:1", "s2:1")
		defer w.end() //nolint:errcheck // it is told to end
		<-w.live
		synctest.Wait()
		l.take()
		w.down(errors.New("it crashed"))
		w.handler.CoreIsolated(1, time.Now().Add(time.Minute), errors.New("it crashed"))
		synctest.Wait()
		wants(t, "of the crash loop", l.take(), "down a/1 lost=false replaced=false", "a isolated for 1m0s: its agentcores are in a crash loop: it crashed")
		if s := l.nodes.Status()[0].Cores; len(s) != 1 || s[0].State != supervisor.Isolated || s[0].Place != 1 || s[0].Cause != "it crashed" {
			t.Errorf("its cores are %+v", s)
		}
		pass(10 * time.Second)
		l.stop()
		l = lead(t, &net, "s2", nil)
		defer func() { l.stop() }()
		pass(lastRetry * 2)
		if text := l.take(); !strings.HasPrefix(text, "a isolated for ") || strings.Contains(text, "1m") {
			t.Errorf("the next leader hears %q", text)
		}
		net.part(true)
		if !l.nodes.ResumeNode("a") || l.nodes.ResumeNode("b") {
			t.Error("which nodes have cores in a crash loop is not known")
		}
		pass(2*lease + time.Second) // the session ends
		net.part(false)
		pass(lastRetry * 2)
		w.mu.Lock()
		if w.resumed != 1 {
			t.Errorf("the cores were to be tried again %d times", w.resumed)
		}
		w.mu.Unlock()
		w.handler.CoreIsolated(1, time.Time{}, nil)
		w.stops = nil
		w.up()
		synctest.Wait()
		if text := l.take(); !strings.HasSuffix(text, "a is tried again\nup a/1 past=false") || strings.Contains(text, "isolated for") {
			t.Errorf("then the leader hears %q", text)
		}
		if l.nodes.ResumeNode("a") {
			t.Error("it is still said to be in a crash loop")
		}
	})
}

// Requests that come just when a scheduler ends are answered before it has ended, or refused.
func TestEndsWhileNodesCome(t *testing.T) {
	for range 300 {
		n, err := NewNodes(NodesConfig{Handler: &leader{t: t}, Lease: lease, Log: zerolog.Nop(), LostAfter: lostAfter})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { n.Run(ctx) }) //nolint:errcheck // it is told to end
		for range 20 {
			all.Go(func() {
				if err := n.Accept(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil), "a"); err == nil {
					t.Error("a request that asks for no link was taken")
				}
			})
		}
		cancel()
		all.Wait()
	}
}

// What a node may say of a crash loop is bounded.
func TestCrashLoopBounded(t *testing.T) {
	s := &visit{node: &remote{name: "a"}, peers: map[int]*ipc.Peer{1: {}}}
	for _, x := range []CoreIsolated{{Place: 0, For: 1}, {Place: 2, For: 1}, {Place: 1, For: -1}, {Place: 1, For: job.Duration(48 * time.Hour)}, {Place: 1, Cause: strings.Repeat("x", maxText+1)}} {
		if err := x.check(s); err == nil {
			t.Errorf("%+v was taken", x)
		}
	}
	if err := (&CoreIsolated{Place: 1, For: job.Duration(time.Minute), Cause: "it crashed"}).check(s); err != nil {
		t.Error(err)
	}
}

// Where the node's clock goes 2 % slower or faster than the scheduler's, its runs have still ended, by their fuse at the latest,
// before the scheduler gives their jobs to others, and an idle link is no reason to give it up.
func TestClocksApart(t *testing.T) {
	for _, rate := range []float64{0.98, 1.02} {
		t.Run(fmt.Sprint(rate), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var net cable
				l := lead(t, &net, "s", nil)
				defer l.stop()
				base := time.Now()
				w := workBy(t, &net, t.TempDir(), func() time.Duration { return time.Duration(float64(time.Since(base)) * (rate - 1)) }, "s:1")
				defer w.end() //nolint:errcheck // told to
				<-w.live
				synctest.Wait()
				l.take()
				for range 1000 { // in which the clocks part by more than a lease
					if pass(lease / 10); !w.leased() {
						t.Fatal("the lease was not renewed")
					}
				}
				wants(t, "of an idle node", l.take())
				net.part(true)
				for w.leased() {
					pass(lease / 100)
				}
				// Until now heartbeats renewed the permits of its runs.
				fuse := ipc.Lease{Node: lease, Validity: validity, Stop: time.Second}.Fuse()
				gone := time.Now().Add(time.Duration(float64(fuse) / rate))
				for l.take() == "" {
					pass(lease / 100)
				}
				if early := time.Until(gone); early >= 0 {
					t.Errorf("the node is given up %s before its last run has certainly ended", early)
				}
			})
		})
	}
}

// What a scheduler has settled before the ledger knows that it was written is settled all the same.
func TestSettledAtOnce(t *testing.T) {
	l, r := newLedger(), run{"j", 1}
	l.begin(r, 1, 1)
	l.end(r)
	notes := []noted{{run: r}}
	l.expect(notes)
	if upTo := l.settle(&Settled{Taken: 1, Runs: []RunSettled{{Job: "j", Attempt: 1, Over: true}}}); upTo != 0 {
		t.Errorf("up to %d is settled before it is there", upTo)
	}
	if upTo := l.add(1, notes); upTo != 1 || len(l.runs) != 0 || len(l.records) != 0 {
		t.Errorf("up to %d is settled; known %v, kept %v", upTo, l.runs, l.records)
	}
	l.expect(notes)
	l.withdraw([]noted{{run: r}, {}})
	if s := l.runs[r]; s == nil || s.notes != 0 || !s.ended {
		t.Errorf("an end that could not be written is forgotten: %+v", s)
	}
}
