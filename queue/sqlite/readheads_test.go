package sqlite_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/queue/sqlite"
)

// headsSince reads up to three heads of each lane that has changed.
func headsSince(t *testing.T, s *sqlite.Store, since uint64) queue.Heads {
	t.Helper()
	h, err := s.Heads(t.Context(), queue.HeadsSpec{Since: since, Each: 3, Now: benchStart})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// ofTenant returns an entry that is alone in its lane.
func ofTenant(n int) queue.Entry {
	e := named(fmt.Sprint("j", n))
	e.Spec.Tenant = job.Tenant(fmt.Sprint("t", n))
	return e
}

// TestHeadsLeaveTheWriterAlone: the writer works for Heads only if something is
// overdue.
func TestHeadsLeaveTheWriterAlone(t *testing.T) {
	s := openTemp(t)
	late := ofTenant(1)
	late.Deadline = new(benchStart.Add(time.Minute))
	if err := s.Enqueue(t.Context(), queue.Batch{ID: "b"}, []queue.Entry{ofTenant(0), late}); err != nil {
		t.Fatal(err)
	}
	before := s.Commits()
	h := headsSince(t, s, 0)
	if h = headsSince(t, s, h.Version); len(h.Lanes) > 0 || s.Commits() != before {
		t.Errorf("told %d lanes in %d commits, want none", len(h.Lanes), s.Commits()-before)
	}
	h, err := s.Heads(t.Context(), queue.HeadsSpec{Since: h.Version, Each: 1, Now: benchStart.Add(time.Hour)})
	if err != nil || !slices.Equal(h.Expired, []job.ID{late.ID}) || len(h.Lanes) != 1 || s.Commits() != before+1 {
		t.Errorf("expired %v, told %d lanes in %d commits, %v; want one of each", h.Expired, len(h.Lanes), s.Commits()-before, err)
	}
}

// TestHeadsForget: when too many lanes have changed, whoever asks seldom is told all of
// them, and who asks often what is new.
func TestHeadsForget(t *testing.T) {
	s := openTemp(t)
	s.LimitLanes(4)
	h := headsSince(t, s, 0)
	for n := range 6 {
		if err := s.Enqueue(t.Context(), queue.Batch{ID: "b"}, []queue.Entry{ofTenant(n)}); err != nil {
			t.Fatal(err)
		}
		h = headsSince(t, s, h.Version)
		if h.All || len(h.Lanes) != 1 || h.Lanes[0].Lane.Tenant != job.Tenant(fmt.Sprint("t", n)) {
			t.Errorf("told %+v, want one lane", h.Lanes)
		}
	}
	if h := headsSince(t, s, h.Version-5); !h.All || len(h.Lanes) != 6 {
		t.Errorf("told %d lanes, all %v; want all six", len(h.Lanes), h.All)
	}
	if h := headsSince(t, s, h.Version-4); h.All || len(h.Lanes) != 4 {
		t.Errorf("told %d lanes, all %v; want the last four", len(h.Lanes), h.All)
	}
}

// TestHeadsOfGoneEntry: an entry that is cancelled and forgotten within one commit has
// left a lane of which nobody can say which it was.
func TestHeadsOfGoneEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, release := busy(t)
		defer s.Close()
		gone := ofTenant(1)
		go func() { _ = s.Enqueue(t.Context(), queue.Batch{ID: "b"}, []queue.Entry{gone, ofTenant(2)}) }()
		synctest.Wait()
		release()
		synctest.Wait()
		h := headsSince(t, s, 0)
		hold, held := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(held)
			_, _ = s.Claim(t.Context(), queue.ClaimSpec{Holder: "h", Max: 1, Now: time.Now(), Admit: func(*queue.Entry) bool { <-hold; return false }})
		}()
		synctest.Wait()
		before := s.Commits()
		errs := make(chan error, 2)
		go func() { errs <- s.Apply(t.Context(), queue.Cancel{ID: gone.ID, Now: benchStart}) }()
		synctest.Wait()
		go func() {
			ids, err := s.Prune(t.Context(), queue.PruneSpec{Before: benchStart.Add(1), Max: 1})
			if err == nil && !slices.Equal(ids, []job.ID{gone.ID}) {
				err = fmt.Errorf("forgot %v", ids)
			}
			errs <- err
		}()
		synctest.Wait()
		close(hold)
		<-held
		for range 2 {
			if err := <-errs; err != nil {
				t.Fatal(err)
			}
		}
		if n := s.Commits() - before; n != 1 {
			t.Fatalf("%d commits, want one", n)
		}
		if h = headsSince(t, s, h.Version); !h.All || len(h.Lanes) != 2 {
			t.Errorf("told %+v, all %v; want what is left", h.Lanes, h.All)
		}
	})
}

// TestHeadsAfterFailure: what could not be written has changed no lane, and what comes
// after it is told.
func TestHeadsAfterFailure(t *testing.T) {
	s := openTemp(t)
	b := queue.Batch{ID: "b"}
	if err := s.Enqueue(t.Context(), b, []queue.Entry{ofTenant(0)}); err != nil {
		t.Fatal(err)
	}
	h := headsSince(t, s, 0)
	if err := s.LimitPages(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	for n := 1; ; n++ {
		if err := s.Enqueue(t.Context(), b, []queue.Entry{ofTenant(n)}); err != nil {
			break
		}
		h = headsSince(t, s, h.Version)
	}
	fresh := headsSince(t, s, 0)
	if h = headsSince(t, s, h.Version); len(h.Lanes) != 0 && !(h.All && len(h.Lanes) == len(fresh.Lanes)) {
		t.Errorf("told %d lanes, want none or all of %d", len(h.Lanes), len(fresh.Lanes))
	}
	if err := s.LimitPages(t.Context(), -1); err != nil {
		t.Fatal(err)
	}
	if err := s.Enqueue(t.Context(), b, []queue.Entry{ofTenant(-1)}); err != nil {
		t.Fatal(err)
	}
	h = headsSince(t, s, h.Version)
	if !slices.ContainsFunc(h.Lanes, func(l queue.LaneHeads) bool { return l.Lane.Tenant == "t-1" }) {
		t.Errorf("told %+v, want the one that came after the failure", h.Lanes)
	}
}

// TestHeadsReadOnly: a store that is open for reading tells all lanes each time, and
// cannot let anything expire.
func TestHeadsReadOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "queue.db")
	late := ofTenant(0)
	late.Deadline = new(benchStart.Add(time.Minute))
	if err := openAt(t, path).Enqueue(t.Context(), queue.Batch{ID: "b"}, []queue.Entry{late}); err != nil {
		t.Fatal(err)
	}
	s, err := sqlite.OpenReadOnly(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for range 2 {
		if h := headsSince(t, s, 0); !h.All || len(h.Lanes) != 1 || h.Version != 0 {
			t.Errorf("told %+v, all %v, version %d", h.Lanes, h.All, h.Version)
		}
	}
	if h, err := s.Heads(t.Context(), queue.HeadsSpec{Each: 1, Now: benchStart.Add(time.Hour)}); err == nil {
		t.Errorf("told %+v of a store that cannot let expire", h)
	}
	select {
	case <-s.Watch(t.Context()):
		t.Error("told of changes")
	default:
	}
}
