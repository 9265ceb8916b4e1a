package queuetest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// keeperCompact: what was there is there, also while others write.
func keeperCompact(e *env) {
	e.enqueueOne("stays")
	e.fill(200)
	all, _ := e.list(queue.Filter{Name: "f100"})
	if len(all) != 1 {
		e.Fatal("nothing was written")
	}
	list, _ := e.list(queue.Filter{})
	for _, x := range list[1:] {
		e.apply(queue.Cancel{ID: x.ID, Now: epoch})
	}
	if got := e.pruned(queue.PruneSpec{Before: epoch.Add(1), Max: 1000}); len(got) != 200 {
		e.Fatalf("forgot %d", len(got))
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range 20 {
			if err := e.store.Enqueue(e.ctx, e.batch, []queue.Entry{newEntry(fmt.Sprint("w", i))}); err != nil {
				e.Error(err)
			}
		}
	})
	for range 3 {
		if err := e.store.Compact(e.ctx); err != nil {
			e.Error(err)
		}
	}
	wg.Wait()
	e.reopen()
	if _, total := e.list(queue.Filter{}); total != 21 {
		e.Errorf("%d jobs are left, want 21", total)
	}
	if err := e.store.Check(e.ctx); err != nil {
		e.Error(err)
	}
}

// keeperParcels: what any job names is told, once, until the job is forgotten.
func keeperParcels(e *env) {
	first, second, base := strings.Repeat("1", 64), strings.Repeat("2", 64), strings.Repeat("b", 64)
	of := func(name, digest, on string) queue.Entry {
		x := newEntry(name)
		x.Spec.Workspace = job.Workspace{Isolation: job.Worktree, Parcel: job.Parcel{Digest: digest, On: on}}
		return x
	}
	want := func(digests ...string) {
		e.Helper()
		got, err := e.store.Parcels(e.ctx)
		slices.Sort(got)
		if err != nil || !slices.Equal(got, digests) {
			e.Fatalf("named are %.2q, %v, want %.2q", got, err, digests)
		}
	}
	e.enqueueOne("none")
	want()
	entries := []queue.Entry{of("a", first, base), of("b", first, base), of("c", second, "")}
	if err := e.store.Enqueue(e.ctx, e.batch, entries); err != nil {
		e.Fatal(err)
	}
	want(first, second, base)
	for _, x := range entries[:2] {
		e.apply(queue.Cancel{ID: x.ID, Now: epoch})
	}
	want(first, second, base)
	if got := e.pruned(queue.PruneSpec{Before: epoch.Add(1), Max: 10}); len(got) != 2 {
		e.Fatalf("forgot %d", len(got))
	}
	want(second)
}

// fill submits n entries of some size.
func (e *env) fill(n int) {
	e.Helper()
	var entries []queue.Entry
	for i := range n {
		x := newEntry(fmt.Sprint("f", i))
		x.Spec.Instructions = strings.Repeat("at length ", 200)
		entries = append(entries, x)
	}
	e.enqueue(entries...)
}

// openBackup opens a backup as a store of its own and looks whether it is whole.
func (e *env) openBackup(path string) queue.Store {
	e.Helper()
	dir := e.TempDir()
	old, err := filepath.Glob(filepath.Join(e.dir, "*"))
	if err != nil || len(old) == 0 {
		e.Skip("the store keeps no file")
	}
	// It takes the place of the file that is named like the store's.
	name := old[0]
	for _, o := range old {
		if len(o) < len(name) {
			name = o
		}
	}
	if err := os.Rename(path, filepath.Join(dir, filepath.Base(name))); err != nil {
		e.Fatal(err)
	}
	s := e.open(e.T, dir)
	if err := s.Check(e.ctx); err != nil {
		e.Errorf("the backup: %v", err)
	}
	return s
}

func keeperBackup(e *env) {
	e.done("done", epoch)
	e.enqueueOne("queued")
	want, _ := e.list(queue.Filter{})
	dir := e.TempDir()
	path := filepath.Join(dir, "backup.db")
	if err := e.store.Backup(e.ctx, path); err != nil {
		e.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		e.Errorf("backup %v, %v; want mode 0600, since it holds prompts", info, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		e.Errorf("beside the backup there is %v, %v", left, err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		e.Fatal(err)
	}
	e.enqueueOne("after")
	if err := e.store.Backup(e.ctx, path); !errors.Is(err, fs.ErrExist) {
		e.Errorf("over a backup: %v, want %v", err, fs.ErrExist)
	}
	if again, err := os.ReadFile(path); err != nil || string(again) != string(content) {
		e.Errorf("the backup was changed (%v)", err)
	}
	copied := e.openBackup(path)
	got, _, err := copied.List(e.ctx, queue.Filter{})
	if err != nil {
		e.Fatal(err)
	}
	wantSame(e, "entries of the backup", got, want)
	if err := copied.Close(); err != nil {
		e.Error(err)
	}
	ctx, cancel := context.WithCancel(e.ctx)
	cancel()
	if err := e.store.Backup(ctx, filepath.Join(dir, "cancelled.db")); !errors.Is(err, context.Canceled) {
		e.Errorf("cancelled: %v", err)
	}
	if err := e.store.Backup(e.ctx, filepath.Join(dir, "nowhere", "backup.db")); !errors.Is(err, fs.ErrNotExist) {
		e.Errorf("into a folder that is not there: %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		e.Errorf("what failed has left %v, %v", left, err)
	}
}

// keeperBackupUnderWrites: a backup is of one moment, whatever is written
// meanwhile: of what each writer did in order it holds a beginning, and pairs
// that were written together are whole.
func keeperBackupUnderWrites(e *env) {
	e.fill(300)
	const writers = 4
	stop := make(chan struct{})
	begun := make(chan struct{}, writers)
	written := make([]int, writers)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := 0; ; i++ {
				pair := []queue.Entry{newEntry(fmt.Sprintf("a-%d-%d", w, i)), newEntry(fmt.Sprintf("b-%d-%d", w, i))}
				if err := e.store.Enqueue(e.ctx, e.batch, pair); err != nil {
					e.Error(err)
					return
				}
				written[w]++
				if i == 3 {
					begun <- struct{}{}
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	for range writers {
		<-begun
	}
	path := filepath.Join(e.TempDir(), "backup.db")
	err := e.store.Backup(e.ctx, path)
	close(stop)
	wg.Wait()
	if err != nil {
		e.Fatal(err)
	}
	copied := e.openBackup(path)
	defer copied.Close()
	list, _, err := copied.List(e.ctx, queue.Filter{Limit: 1 << 30})
	if err != nil {
		e.Fatal(err)
	}
	there := map[job.Name]bool{}
	for _, x := range list {
		there[x.Spec.Name] = true
	}
	for w := range writers {
		n := 0
		for there[job.Name(fmt.Sprintf("a-%d-%d", w, n))] && there[job.Name(fmt.Sprintf("b-%d-%d", w, n))] {
			n++
		}
		if n < 4 {
			e.Errorf("of writer %d there are %d pairs, and 4 were acknowledged before the backup began", w, n)
		}
		for i := n; i < written[w]; i++ {
			if there[job.Name(fmt.Sprintf("a-%d-%d", w, i))] || there[job.Name(fmt.Sprintf("b-%d-%d", w, i))] {
				e.Errorf("of writer %d there is a part of pair %d, but not pair %d", w, i, n)
			}
		}
	}
}

// keeperCheck: whatever was done to it, a store is found whole.
func keeperCheck(e *env) {
	check := func() {
		e.Helper()
		if err := e.store.Check(e.ctx); err != nil {
			e.Error(err)
		}
	}
	check()
	e.done("done", epoch)
	e.fail("failed", job.Timeout, epoch)
	e.enqueueOne("one", duplicate(job.Coalesce, "k"))
	e.enqueueOne("two", duplicate(job.Coalesce, "k"))
	e.enqueueOne("three", duplicate(job.Serialize, "k"))
	check()
	c := e.claimOne(epoch)
	e.begin(c, epoch)
	check()
	e.apply(queue.Reclaim{Now: epoch, Holders: []string{"tester"}})
	check()
	ctx, cancel := context.WithCancel(e.ctx)
	cancel()
	if err := e.store.Check(ctx); !errors.Is(err, context.Canceled) || errors.Is(err, queue.ErrCorrupt) {
		e.Errorf("cancelled: %v", err)
	}
}
