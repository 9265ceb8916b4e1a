package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/queue/sqlite"
)

// busy opens a store inside a synctest bubble and holds its writer inside a
// claim until release is called, so that callers pile up behind it.
func busy(t *testing.T) (s *sqlite.Store, release func()) {
	t.Helper()
	s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "queue.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Enqueue(t.Context(), queue.Batch{ID: "b"}, []queue.Entry{named("first")}); err != nil {
		t.Fatal(err)
	}
	return s, hold(t, s)
}

// hold is what busy does to a store in which something can be claimed.
func hold(t *testing.T, s *sqlite.Store) (release func()) {
	gate, held := make(chan struct{}), make(chan error, 1)
	go func() {
		_, err := s.Claim(t.Context(), queue.ClaimSpec{Holder: "h", Max: 1, Now: time.Now(), Admit: func(*queue.Entry) bool { <-gate; return false }})
		held <- err
	}()
	synctest.Wait()
	return func() {
		close(gate)
		if err := <-held; err != nil {
			t.Error(err)
		}
	}
}

func named(name string) queue.Entry {
	return queue.Entry{ID: job.NewID(), Spec: job.Spec{Name: job.Name(name)}}
}

// TestGroupCommit lets callers wait while the writer is busy: they share one
// commit, and the refusal of some does not touch the others.
func TestGroupCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers = 200
		s, release := busy(t)
		defer s.Close()
		before := s.Commits()
		var wg sync.WaitGroup
		errs := make([]error, callers)
		for n := range callers {
			// Every tenth is refused, after it had stored the first of its two.
			entries := []queue.Entry{named(fmt.Sprint("a", n)), named(fmt.Sprint("b", n))}
			if n%10 == 0 {
				entries[1] = named("first")
			}
			wg.Go(func() { errs[n] = s.Enqueue(t.Context(), queue.Batch{ID: "b"}, entries) })
		}
		synctest.Wait()
		release()
		wg.Wait()
		if commits := s.Commits() - before; commits != 1 {
			t.Errorf("%d callers took %d commits, want 1", callers, commits)
		}
		for n, err := range errs {
			if refused := n%10 == 0; refused != errors.Is(err, queue.ErrDuplicate) || !refused && err != nil {
				t.Errorf("caller %d: got error %v, want a duplicate: %v", n, err, refused)
			}
		}
		_, total, err := s.List(t.Context(), queue.Filter{})
		if want := 1 + 2*(callers-callers/10); err != nil || total != want {
			t.Errorf("%d entries are stored, %v; want %d", total, err, want)
		}
	})
}

// TestGiveUp cancels a caller that waits for its turn: it gets its context's
// cause at once and nothing is stored.
func TestGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, release := busy(t)
		defer s.Close()
		cause := errors.New("the user went home")
		ctx, cancel := context.WithCancelCause(t.Context())
		result := make(chan error)
		go func() { result <- s.Enqueue(ctx, queue.Batch{ID: "b"}, []queue.Entry{named("late")}) }()
		synctest.Wait()
		cancel(cause)
		if err := <-result; !errors.Is(err, cause) || !errors.Is(err, context.Canceled) {
			t.Errorf("got error %v, want %v as the cause of %v", err, cause, context.Canceled)
		}
		release()
		if _, total, err := s.List(t.Context(), queue.Filter{Name: "late"}); err != nil || total != 0 {
			t.Errorf("%d entries of a caller that gave up, %v", total, err)
		}
	})
}

// TestCloseWhileBusy closes the store during a write: the write is finished
// and answered, who still waited for a turn is turned away, and a second close
// does nothing.
func TestCloseWhileBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, release := busy(t)
		closed := make(chan error)
		go func() { closed <- s.Close() }()
		synctest.Wait()
		if err := s.Enqueue(t.Context(), queue.Batch{ID: "b"}, []queue.Entry{named("late")}); err == nil {
			t.Error("a closing store took an entry")
		}
		release()
		if err := <-closed; err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Errorf("second close: %v", err)
		}
	})
}

// TestChargesOfOthers: who is refused takes back no charges of those that share the commit,
// whose answers are their own. The grants were changed just before, so that they are read
// again by whoever asks next.
func TestChargesOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		s, e := running(t)
		work := func(name job.Name, tenant job.Tenant) error {
			return s.Enqueue(ctx, queue.Batch{ID: "b"}, []queue.Entry{{ID: job.NewID(), Spec: job.Spec{Name: name, Tenant: tenant}}})
		}
		if err := work("next", "a"); err != nil {
			t.Fatal(err)
		}
		release := hold(t, s)
		var wg sync.WaitGroup
		errs := make([]error, 4)
		for n, do := range []func() error{
			func() error {
				o := job.Outcome{State: job.RunFailed, Class: job.Crash, Usage: job.Usage{InputTokens: 7, OutputTokens: 4}}
				return s.Apply(ctx, queue.Finish{ID: e.ID, Fence: e.Fence, Attempt: 1, Outcome: o, Now: time.Now(), Exit: job.ExitFailed})
			},
			func() error {
				return s.Apply(ctx, queue.SetGrant{Grant: queue.Grant{Owner: queue.Owner{Tenant: "gone"}, Dead: true}})
			},
			func() error {
				return s.Apply(ctx, queue.SetGrant{Grant: queue.Grant{Owner: queue.Owner{Tenant: "a"}, Tokens: 10}})
			},
			func() error { return work("late", "gone") },
		} {
			wg.Go(func() { errs[n] = do() })
			synctest.Wait() // they come one after the other
		}
		before := s.Commits()
		release()
		wg.Wait()
		if commits := s.Commits() - before; commits != 1 {
			t.Errorf("%d commits, want one for all", commits)
		}
		if err := errors.Join(errs[:3]...); err != nil || !errors.Is(errs[3], queue.ErrDeadOwner) {
			t.Errorf("the others: %v; of a dead owner: %v", err, errs[3])
		}
		got, err := s.Accounts(ctx, queue.AccountFilter{Tenant: "a"})
		if err != nil || len(got) != 1 || got[0].Usage.OutputTokens != 4 || got[0].Attempts != 1 {
			t.Errorf("accounts %+v, %v", got, err)
		}
		// What was charged in that group counts for the grant that was set in it.
		claims, err := s.Claim(ctx, queue.ClaimSpec{Holder: "h", Max: 9, Now: time.Now(), Lease: time.Hour})
		if err != nil || len(claims.Entries) > 0 {
			t.Errorf("claimed %+v beyond the grant of its tenant (%v)", claims.Entries, err)
		}
	})
}
