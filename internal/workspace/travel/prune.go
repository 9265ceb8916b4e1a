package travel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Bounds are what a mirror may keep. A zero sets no bound.
type Bounds struct {
	Age   time.Duration // since the last use of a commit
	Bytes int64         // of the mirror's objects on disk
}

// Prune drops the commits that were not used for that long, then, while the mirror is
// larger than it may be, the older half of the others, and removes what nothing needs
// any more. What a checkout uses stays, and, whatever the size, what was used within ten
// minutes. A checkout whose folder is gone is released. The mirror can stay larger
// than its bound while checkouts live: their own commits may use objects that nothing
// else does.
func (m *Mirror) Prune(ctx context.Context, b Bounds) error {
	if err := m.prune(ctx, b); err != nil {
		return fmt.Errorf("prune the mirror %s: %w", m.dir, err)
	}
	return nil
}

// pruneEvery is how often PruneDaily prunes.
const pruneEvery = 24 * time.Hour

// PruneDaily is Prune, once a day at most.
func (m *Mirror) PruneDaily(ctx context.Context, b Bounds) error {
	mark := filepath.Join(m.dir, "pruned")
	if info, err := os.Stat(mark); err == nil && m.now().Sub(info.ModTime()) < pruneEvery {
		return nil
	}
	if err := os.WriteFile(mark, nil, 0o600); err != nil { // first: what fails is not tried each time
		return err
	}
	if err := os.Chtimes(mark, m.now(), m.now()); err != nil {
		return err
	}
	return m.Prune(ctx, b)
}

func (m *Mirror) prune(ctx context.Context, b Bounds) error {
	held, err := m.lock(ctx)
	if err != nil {
		return err
	}
	defer held.release()
	used, oldest, err := m.living(ctx, held)
	if err != nil {
		return err
	}
	all, err := m.listKept()
	if err != nil {
		return err
	}
	var left []kept // not used by a checkout
	for _, k := range all {
		switch {
		case used[k.commit]:
		case b.Age > 0 && m.now().Sub(k.used) > b.Age:
			if err := m.drop(ctx, held, k); err != nil {
				return err
			}
		case m.now().Sub(k.used) > spared:
			left = append(left, k)
		}
	}
	for {
		if err := m.collect(ctx, held, oldest); err != nil {
			return err
		}
		if b.Bytes <= 0 || m.size() <= b.Bytes || len(left) == 0 {
			return nil
		}
		half := len(left) / 2
		for _, k := range left[half:] {
			if err := m.drop(ctx, held, k); err != nil {
				return err
			}
		}
		left = left[:half]
	}
}

// spared is how long after its last use a commit stays however large the mirror is:
// what was just taken is about to be checked out.
const spared = 10 * time.Minute

// living returns the commits that checkouts use, and when the oldest of these was
// made; zero if there is none.
func (m *Mirror) living(ctx context.Context, held lock) (used map[string]bool, oldest time.Time, err error) {
	entries, err := os.ReadDir(filepath.Join(m.dir, "checkouts"))
	if err != nil {
		return nil, oldest, err
	}
	used = map[string]bool{}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(m.dir, "checkouts", e.Name()))
		if err != nil {
			return nil, oldest, err
		}
		commit, path, _ := strings.Cut(strings.TrimSuffix(string(text), "\n"), " ")
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			if err := m.release(ctx, held, e.Name()); err != nil {
				return nil, oldest, err
			}
			continue
		}
		used[commit] = true
		if info, err := e.Info(); err == nil && (oldest.IsZero() || info.ModTime().Before(oldest)) {
			oldest = info.ModTime()
		}
	}
	return used, oldest, nil
}

func (m *Mirror) drop(ctx context.Context, held lock, k kept) error {
	// The file first: Has must not offer what may be gone.
	if err := os.Remove(filepath.Join(m.dir, "kept", k.commit)); err != nil {
		return err
	}
	return m.git().under(held).run(ctx, nil, nil, "update-ref", "-d", "refs/kept/"+k.commit)
}

// collect packs what is reachable, and removes what is not. While a checkout lives, only
// what was last touched before it was made: git in a checkout does not
// write an object that the mirror has, but touches it.
func (m *Mirror) collect(ctx context.Context, held lock, oldest time.Time) error {
	before := "now"
	if !oldest.IsZero() {
		before = fmt.Sprintf("@%d +0000", oldest.Unix()-1)
	}
	git := m.git().under(held)
	if err := git.run(ctx, nil, io.Discard, "repack", "-A", "-d", "-q", "--unpack-unreachable="+before); err != nil {
		return err
	}
	if err := git.run(ctx, nil, io.Discard, "prune", "--expire="+before); err != nil {
		return err
	}
	// Of a process that died while it took something; we hold the lock, but another
	// may be reading a bundle.
	old, err := filepath.Glob(filepath.Join(m.dir, incoming+"*"))
	for _, dir := range old {
		if info, serr := os.Stat(dir); serr == nil && m.now().Sub(info.ModTime()) > staleAfter {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}
	return err
}

// staleAfter is how long what is being taken may take to arrive.
const staleAfter = 24 * time.Hour

// size returns the bytes of the objects.
func (m *Mirror) size() int64 { return sizeOf(filepath.Join(m.dir, "objects")) }

// sizeOf returns the bytes of the files in a folder, whose files may come and go.
func sizeOf(dir string) (total int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if info, err := d.Info(); err == nil {
				total += info.Size()
			}
		}
		return nil
	})
	return total
}
