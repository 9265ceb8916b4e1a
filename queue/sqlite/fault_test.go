package sqlite_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/queue/sqlite"
)

func openAt(t *testing.T, path string) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func openTemp(t *testing.T) *sqlite.Store {
	t.Helper()
	return openAt(t, filepath.Join(t.TempDir(), "queue.db"))
}

// TestDiskFull lets the disk fill up under concurrent callers: each refused
// one left nothing, each acknowledged one is there, reading goes on, and so
// does writing once there is room again.
func TestDiskFull(t *testing.T) {
	s := openTemp(t)
	ctx, b := t.Context(), queue.Batch{ID: "b"}
	if err := s.Enqueue(ctx, b, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.LimitPages(ctx, 30); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	stored, refused := map[job.ID]bool{}, map[job.ID]bool{}
	var wg sync.WaitGroup
	for n := range 8 {
		wg.Go(func() {
			for k := range 10 {
				pair := []queue.Entry{named(fmt.Sprintf("a-%d-%d", n, k)), named(fmt.Sprintf("b-%d-%d", n, k))}
				pair[0].Spec.Instructions = strings.Repeat("long ", 500)
				err := s.Enqueue(ctx, b, pair)
				if err != nil && !strings.Contains(err.Error(), "disk is full") {
					t.Errorf("got error %v, want one that says that the disk is full", err)
				}
				mu.Lock()
				for _, e := range pair {
					stored[e.ID], refused[e.ID] = err == nil, err != nil
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	check := func() (found int) {
		for id := range stored {
			_, err := s.Get(ctx, id)
			if there := err == nil; there != stored[id] || there == refused[id] || !there && !errors.Is(err, queue.ErrNotFound) {
				t.Errorf("job %s: acknowledged %v, found %v (%v)", id, stored[id], there, err)
			}
			if err == nil {
				found++
			}
		}
		return found
	}
	if found := check(); found == 0 || found == len(stored) {
		t.Fatalf("%d of %d are stored; the disk must fill up in between", found, len(stored))
	}
	if err := s.LimitPages(ctx, -1); err != nil {
		t.Fatal(err)
	}
	if err := s.Enqueue(ctx, b, []queue.Entry{named("after")}); err != nil {
		t.Fatal(err)
	}
	check()
}

// TestReadOnlyDisk turns the file read-only under the store.
func TestReadOnlyDisk(t *testing.T) {
	s := openTemp(t)
	ctx, b := t.Context(), queue.Batch{ID: "b"}
	first := named("first")
	if err := s.Enqueue(ctx, b, []queue.Entry{first}); err != nil {
		t.Fatal(err)
	}
	if err := s.SetReadOnly(ctx, true); err != nil {
		t.Fatal(err)
	}
	if err := s.Enqueue(ctx, b, []queue.Entry{named("second")}); err == nil || !strings.Contains(err.Error(), "cannot be written") {
		t.Errorf("got error %v, want one that says that the store cannot be written", err)
	}
	if _, err := s.Get(ctx, first.ID); err != nil {
		t.Error(err)
	}
	if err := s.SetReadOnly(ctx, false); err != nil {
		t.Fatal(err)
	}
	if err := s.Enqueue(ctx, b, []queue.Entry{named("second")}); err != nil {
		t.Error(err)
	}
}

// TestLongSearch claims from a queue whose first entries are all refused: the
// search goes on over several transactions, lets others write in between, and
// finds the last one.
func TestLongSearch(t *testing.T) {
	s := openTemp(t)
	ctx, b := t.Context(), queue.Batch{ID: "b"}
	n := 3*sqlite.MaxTurn + 10
	var all []queue.Entry
	for i := range n {
		all = append(all, named(fmt.Sprintf("j%05d", i)))
		all[i].ID = job.ID(all[i].Spec.Name)
		all[i].Spec.Priority = -i % 7
	}
	if err := s.Enqueue(ctx, b, all); err != nil {
		t.Fatal(err)
	}
	before, asked := s.Commits(), map[job.ID]int{}
	c, err := s.Claim(ctx, queue.ClaimSpec{Holder: "h", Max: 3, Now: time.Now(), Lease: time.Hour, Admit: func(e *queue.Entry) bool {
		asked[e.ID]++
		return len(asked) == n
	}})
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Entries) != 1 || len(asked) != n {
		t.Errorf("claimed %d entries after %d candidates, want 1 after %d", len(c.Entries), len(asked), n)
	}
	for id, times := range asked {
		if times != 1 {
			t.Errorf("was asked %d times for job %s", times, id)
		}
	}
	if turns := s.Commits() - before; turns < 3 {
		t.Errorf("the search took %d transactions, want 3 or more", turns)
	}
}
