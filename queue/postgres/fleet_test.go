package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agentsched/agentsched/internal/pgtest"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/queue/sqlite"
)

// member is a scheduler that shares a queue, with its copy.
type member struct {
	*Database
	copy *Copy
}

// join makes a member, which is closed after the test.
func join(t testing.TB, cfg Config) *member {
	t.Helper()
	d, err := Connect(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	c, err := d.OpenCopy(t.Context())
	if err != nil {
		d.Close()
		t.Fatal(err)
	}
	m := &member{d, c}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		d.Close()
	})
	return m
}

// lead campaigns and opens the store for writing; what it returns ends that.
func (m *member) lead(t testing.TB) (*Lead, *Term) {
	t.Helper()
	term, err := m.Campaign(t.Context(), m.copy.LeaderChanged())
	if err != nil {
		t.Fatal(err)
	}
	l, err := m.copy.Lead(t.Context(), term)
	if err != nil {
		t.Fatal(err)
	}
	return l, term
}

// resign gives the lead up and follows again.
func (m *member) resign(t testing.TB, l *Lead, term *Term) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := term.Release(context.Background()); err != nil {
		t.Error(err)
	}
	if err := m.copy.Reopen(context.Background()); err != nil {
		t.Error(err)
	}
}

// wantSameRows compares two copies, row by row.
func wantSameRows(t testing.TB, a, b *sqlite.Store) {
	t.Helper()
	tables, err := sqlite.Tables(context.Background(), 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range tables {
		var rows [2][]string
		for i, s := range []*sqlite.Store{a, b} {
			err := s.Rows(context.Background(), table, func(row []any) error {
				rows[i] = append(rows[i], fmt.Sprintf("%#v", row))
				return nil
			})
			if err != nil {
				t.Fatalf("table %s: %v", table.Name, err)
			}
			slices.Sort(rows[i])
		}
		if !slices.Equal(rows[0], rows[1]) {
			t.Errorf("table %s has %d and %d rows, or others:\n%s\n%s", table.Name, len(rows[0]), len(rows[1]), strings.Join(rows[0], "\n"), strings.Join(rows[1], "\n"))
		}
	}
}

var at = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func newEntry(name string) queue.Entry {
	return queue.Entry{
		ID: job.NewID(), CreatedAt: at, RunnableAt: at,
		Spec: job.Spec{Name: job.Name(name), Tenant: job.DefaultTenant, Type: job.WorkerTask, Worker: "codex", Workspace: job.Workspace{Path: "/p", Isolation: job.Worktree}, Instructions: "do " + name},
	}
}

// through works an entry off, from the queue to its end.
func through(t testing.TB, s queue.Store) {
	t.Helper()
	c, err := s.Claim(t.Context(), queue.ClaimSpec{Holder: "h", Max: 1, Now: at, Lease: time.Minute})
	if err != nil || len(c.Entries) != 1 {
		t.Fatalf("claimed %d, %v", len(c.Entries), err)
	}
	e := c.Entries[0]
	err = s.Apply(t.Context(),
		queue.Begin{ID: e.ID, Fence: e.Fence, Attempt: job.Attempt{Job: e.ID, Number: 1, Fence: e.Fence, Choice: e.Spec.Choices()[0], State: job.Pending, Started: at}},
		queue.Move{ID: e.ID, Fence: e.Fence, Attempt: 1, To: job.Running, Session: "a\x00b \xff"},
		queue.Append{Events: []job.Event{{Job: e.ID, Attempt: 1, Seq: 1, Time: at, Kind: "message", Text: "a\x00b \xff"}}},
		queue.Finish{ID: e.ID, Fence: e.Fence, Attempt: 1, Now: at, Exit: job.ExitSucceeded, Outcome: job.Outcome{State: job.RunCompleted, StartedAt: at, EndedAt: at, Answer: "\x01 done"}})
	if err != nil {
		t.Fatal(err)
	}
}

// TestFollow: a standby has what the leader has acknowledged, and a new one, and one that
// was away for longer than the feed goes back.
func TestFollow(t *testing.T) {
	address := newDatabase(t)
	a, b := join(t, config(t, address, "a")), join(t, config(t, address, "b"))
	l, term := a.lead(t)
	defer a.resign(t, l, term)
	batch := queue.Batch{ID: job.NewBatchID(), Source: "x", CreatedAt: at}
	for i := range 3 {
		if err := l.Enqueue(t.Context(), batch, []queue.Entry{newEntry(fmt.Sprint("before", i))}); err != nil {
			t.Fatal(err)
		}
	}
	through(t, l)
	b.copy.Follow()
	reached := func(m *member) {
		t.Helper()
		if err := m.copy.Await(t.Context(), l.Revision()); err != nil {
			t.Fatal(err)
		}
		wantSameRows(t, l.Store, m.copy.Store())
	}
	reached(b)
	changed := b.copy.Store().Watch(t.Context())
	if err := l.Enqueue(t.Context(), batch, []queue.Entry{newEntry("after")}); err != nil {
		t.Fatal(err)
	}
	reached(b)
	<-changed
	if err := b.copy.Store().Enqueue(t.Context(), batch, []queue.Entry{newEntry("no")}); !errors.Is(err, queue.ErrStandby) {
		t.Errorf("a write to a standby: %v, want %v", err, queue.ErrStandby)
	}
	late := join(t, config(t, address, "late"))
	late.copy.Follow()
	reached(late)
	b.copy.Unfollow()
	through(t, l)
	if _, err := l.Prune(t.Context(), queue.PruneSpec{Before: at.Add(time.Hour), Max: 10}); err != nil {
		t.Fatal(err)
	}
	if _, err := a.pool.Exec(t.Context(), `DELETE FROM changes WHERE revision < $1`, l.Revision()); err != nil {
		t.Fatal(err)
	}
	b.copy.Follow()
	reached(b)
	through(t, l)
	reached(b)
}

// TestTakeOver: a standby leads when the leader has resigned, and when it is silent; what
// was acknowledged is there, and the silent one learns that it leads no more.
func TestTakeOver(t *testing.T) {
	server := pgtest.Shared(t)
	database := databaseOf(t, server)
	relay := pgtest.NewRelay(t, server.Address())
	first, second := config(t, relay.Through(server.TCP(database)), "a"), config(t, server.TCP(database), "b")
	first.Lease, second.Lease = MinLease, MinLease
	a, b := join(t, first), join(t, second)
	b.copy.Follow()
	la, ta := a.lead(t)
	batch := queue.Batch{ID: job.NewBatchID(), Source: "x", CreatedAt: at}
	if err := la.Enqueue(t.Context(), batch, []queue.Entry{newEntry("one")}); err != nil {
		t.Fatal(err)
	}
	relay.Hold()
	unanswered := make(chan error, 1)
	go func() { unanswered <- la.Enqueue(context.Background(), batch, []queue.Entry{newEntry("two")}) }()
	lb, tb := b.lead(t)
	if l, err := b.Leader(t.Context()); err != nil || l.Instance != "b" || l.Epoch != 2 || !strings.Contains(l.Reason, "a has not renewed") {
		t.Errorf("leader %+v, %v", l, err)
	}
	if list, total, err := lb.List(t.Context(), queue.Filter{}); err != nil || total != 1 || list[0].Spec.Name != "one" {
		t.Errorf("%d jobs, %v", total, err)
	}
	through(t, lb)
	relay.Mend()
	<-ta.Lost()
	if err := <-unanswered; !errors.Is(err, queue.ErrDeposed) {
		t.Errorf("a write of a deposed leader: %v", err)
	}
	if _, err := la.Get(t.Context(), "x"); !errors.Is(err, queue.ErrDeposed) {
		t.Errorf("a read of a deposed leader: %v", err)
	}
	a.resign(t, la, ta)
	a.copy.Follow()
	if err := a.copy.Await(t.Context(), lb.Revision()); err != nil {
		t.Fatal(err)
	}
	wantSameRows(t, a.copy.Store(), lb.Store)
	b.resign(t, lb, tb)
	la, ta = a.lead(t)
	defer a.resign(t, la, ta)
	if terms, err := a.Terms(t.Context(), 10); err != nil || len(terms) != 3 || terms[0].Instance != "a" || terms[0].Reason != "b has given up the lead" {
		t.Errorf("terms %+v, %v", terms, err)
	}
	if err := la.Enqueue(t.Context(), batch, []queue.Entry{newEntry("three")}); err != nil {
		t.Fatal(err)
	}
	if err := la.Check(t.Context()); err != nil {
		t.Error(err)
	}
}

// writers enqueue until stop is closed, and count what was acknowledged, and what may be.
type writers struct {
	wg           sync.WaitGroup
	mu           sync.Mutex
	acknowledged []job.ID
	count        atomic.Int64
	enough       chan struct{}
	stop         chan struct{}
}

func write(t testing.TB, s queue.Store, callers, enough int) *writers {
	w := &writers{enough: make(chan struct{}), stop: make(chan struct{})}
	batch := queue.Batch{ID: job.NewBatchID(), Source: "x", CreatedAt: at}
	for n := range callers {
		w.wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-w.stop:
					return
				default:
				}
				e := newEntry(fmt.Sprint("j", n, "-", i))
				if err := s.Enqueue(context.Background(), batch, []queue.Entry{e}); err != nil {
					t.Errorf("enqueue: %v", err)
					return
				}
				w.mu.Lock()
				w.acknowledged = append(w.acknowledged, e.ID)
				w.mu.Unlock()
				if w.count.Add(1) == int64(enough) {
					close(w.enough)
				}
			}
		})
	}
	return w
}

// wantAll fails the test unless exactly what was acknowledged is there.
func (w *writers) wantAll(t testing.TB, s queue.Store) {
	t.Helper()
	list, total, err := s.List(context.Background(), queue.Filter{Limit: 1 << 30})
	if err != nil || total != len(w.acknowledged) {
		t.Errorf("%d are there, %v; %d were acknowledged", total, err, len(w.acknowledged))
	}
	there := map[job.ID]bool{}
	for i := range list {
		there[list[i].ID] = true
	}
	for _, id := range w.acknowledged {
		if !there[id] {
			t.Errorf("%s was acknowledged and is not there", id)
		}
	}
}

// TestOutage: the server is killed under writers and starts again: they wait, and what
// is acknowledged is there once.
func TestOutage(t *testing.T) {
	server := pgtest.Start(t)
	cfg := config(t, server.TCP(databaseOf(t, server)), "a")
	l, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	w := write(t, l, 16, 300)
	<-w.enough
	for _, end := range []func() error{server.Kill, func() error { return server.Stop(pgtest.Fast) }} {
		if err := end(); err != nil {
			t.Fatal(err)
		}
		before := w.count.Load()
		if err := server.Restart(); err != nil {
			t.Fatal(err)
		}
		for w.count.Load() < before+100 && !t.Failed() {
			// It waits for the database, as the writers do.
			if _, err := l.Prune(t.Context(), queue.PruneSpec{Before: at, Max: 1}); err != nil {
				t.Fatal(err)
			}
		}
	}
	close(w.stop)
	w.wg.Wait()
	w.wantAll(t, l)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestLostAnswers: the answer to a commit is lost again and again, and what it has
// written is there once.
func TestLostAnswers(t *testing.T) {
	server := pgtest.Shared(t)
	database := databaseOf(t, server)
	relay := pgtest.NewRelay(t, server.Address())
	l, err := Open(t.Context(), config(t, relay.Through(server.TCP(database)), "a"))
	if err != nil {
		t.Fatal(err)
	}
	w := write(t, l, 8, 400)
	for range 8 { // what is asked next is executed, and its answer lost
		<-relay.CutAt(func([]byte) bool { return true })
	}
	<-w.enough
	close(w.stop)
	w.wg.Wait()
	w.wantAll(t, l)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Open(t.Context(), config(t, server.TCP(database), "b"))
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	w.wantAll(t, again)
	if err := again.Check(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestMembers: schedulers know each other, and a copy of a state directory is refused on
// another host while the first is alive.
func TestMembers(t *testing.T) {
	address := newDatabase(t)
	cfg := config(t, address, "a")
	cfg.Self = Member{Instance: "a", Host: "one", Address: "one:7434", Fingerprint: "f", Version: "v", Config: "c"}
	a := join(t, cfg)
	ctx := t.Context()
	if err := a.Join(ctx); err != nil {
		t.Fatal(err)
	}
	if err := a.Join(ctx); err != nil { // it was started again
		t.Errorf("the same host: %v", err)
	}
	cfg.Self.Host, cfg.Folder = "two", t.TempDir()
	if err := join(t, cfg).Join(ctx); !errors.Is(err, ErrTwice) || !strings.Contains(err.Error(), "host one") {
		t.Errorf("a copy on another host: %v", err)
	}
	list, err := a.Members(ctx)
	if err != nil || len(list) != 1 || list[0].Host != "one" || list[0].Fingerprint != "f" || list[0].Silent > time.Minute || list[0].Started.IsZero() {
		t.Errorf("members %+v, %v", list, err)
	}
	if err := a.Leave(ctx); err != nil {
		t.Fatal(err)
	}
	cfg.Folder = t.TempDir()
	if err := join(t, cfg).Join(ctx); err != nil {
		t.Errorf("a copy on another host, when the first has left: %v", err)
	}
}

// openAway opens a store, whose database is away by then, until the relay is mended.
func openAway(t *testing.T) (*Lead, *pgtest.Relay) {
	t.Helper()
	server := pgtest.Shared(t)
	relay := pgtest.NewRelay(t, server.Address())
	l, err := Open(t.Context(), config(t, relay.Through(server.TCP(databaseOf(t, server))), "a"))
	if err != nil {
		t.Fatal(err)
	}
	relay.Cut()
	return l, relay
}

// TestGiveUp: a store whose database is away can be told not to wait for it.
func TestGiveUp(t *testing.T) {
	l, _ := openAway(t)
	done := make(chan error, 1)
	go func() {
		done <- l.Enqueue(context.Background(), queue.Batch{ID: "b", CreatedAt: at}, []queue.Entry{newEntry("one")})
	}()
	l.GiveUp()
	if err := <-done; err == nil {
		t.Error("a write that the database has not seen was acknowledged")
	}
	if _, err := l.Get(t.Context(), "x"); err == nil || errors.Is(err, queue.ErrNotFound) {
		t.Errorf("a read after that: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// TestPatience: what is read while the database is away is refused in time, however many read, and waits for the
// database where nobody asked for that.
func TestPatience(t *testing.T) {
	l, relay := openAway(t)
	var waiting sync.WaitGroup
	e := newEntry("one")
	waiting.Go(func() {
		if err := l.Enqueue(context.Background(), queue.Batch{ID: "b", CreatedAt: at}, []queue.Entry{e}); err != nil {
			t.Error(err)
		}
	})
	soon := queue.WithPatience(t.Context(), 20*time.Millisecond)
	_, err := l.Get(soon, e.ID)
	for errors.Is(err, queue.ErrNotFound) || err == nil { // until it is executed
		_, err = l.Get(soon, e.ID)
	}
	if !errors.Is(err, queue.ErrUnavailable) {
		t.Errorf("a read while the database is away: %v", err)
	}
	var patient sync.WaitGroup
	for range 100 { // more than may read at once
		waiting.Go(func() {
			if got, err := l.Get(context.Background(), e.ID); err != nil || got.ID != e.ID {
				t.Errorf("a read that waits: %+v, %v", got, err)
			}
		})
		patient.Go(func() {
			if _, err := l.Get(soon, e.ID); !errors.Is(err, queue.ErrUnavailable) {
				t.Errorf("a read beside others: %v", err)
			}
		})
	}
	patient.Wait()
	relay.Mend()
	waiting.Wait()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// TestClockSetBack: the database's clock stands before the leader's last renewal, and a
// standby leads all the same when that has been silent for its lease.
func TestClockSetBack(t *testing.T) {
	address := newDatabase(t)
	cfg := config(t, address, "b")
	cfg.Lease = MinLease
	b := join(t, cfg)
	_, err := b.pool.Exec(t.Context(), `UPDATE leader SET epoch = 7, holder = 'a', released = false, lease = '1 second', renewed = clock_timestamp() + '1 hour'`)
	if err != nil {
		t.Fatal(err)
	}
	if l, err := b.Leader(t.Context()); err != nil || !l.Alive() {
		t.Fatalf("leader %+v, %v", l, err)
	}
	began := time.Now()
	l, term := b.lead(t)
	defer b.resign(t, l, term)
	if took := time.Since(began); took < MinLease {
		t.Errorf("it leads after %s, before the lease has ended", took)
	}
}
