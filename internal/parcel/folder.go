package parcel

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Folder is a Store in a folder of this host:
//
//	DIGEST       the file of a parcel
//	DIGEST.json  its Kept, written last; its modification time is the last use
//	*.part       what is being written, or was when the process died
//
// One process at a time uses it.
type Folder struct {
	dir string
	mu  sync.Mutex // guards that what is used is not removed at the same time
}

var _ Store = (*Folder)(nil)

// NewFolder returns the store in a folder, absolute, which is made when it is missing.
func NewFolder(dir string) *Folder { return &Folder{dir: dir} }

const (
	about = ".json"
	part  = ".part"
)

func (f *Folder) path(digest string) string { return filepath.Join(f.dir, digest) }

// Put implements Store.
func (f *Folder) Put(ctx context.Context, k Kept, content io.Reader) error {
	if _, err := f.Use(ctx, k.Digest); !errors.Is(err, ErrUnknown) {
		return err
	}
	text, err := json.Marshal(k)
	if err != nil {
		return err
	}
	if err := f.write(f.path(k.Digest), content); err != nil {
		return fmt.Errorf("keep parcel %.12s: %w", k.Digest, err)
	}
	if err := f.write(f.path(k.Digest)+about, strings.NewReader(string(text))); err != nil {
		return fmt.Errorf("keep parcel %.12s: %w", k.Digest, err)
	}
	return nil
}

// write makes a file appear whole and on disk, or not at all.
func (f *Folder) write(path string, content io.Reader) error {
	if err := os.MkdirAll(f.dir, 0o700); err != nil {
		return err
	}
	to, err := os.CreateTemp(f.dir, "*"+part)
	if err != nil {
		return err
	}
	defer os.Remove(to.Name()) // fails once it is renamed
	_, err = io.Copy(to, content)
	if err = errors.Join(err, to.Sync(), to.Close()); err != nil {
		return err
	}
	if err := os.Rename(to.Name(), path); err != nil {
		return err
	}
	dir, err := os.Open(f.dir)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// Use implements Store.
func (f *Folder) Use(_ context.Context, digest string) (Kept, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.use(digest)
}

func (f *Folder) use(digest string) (Kept, error) {
	k, err := f.read(digest)
	if err != nil {
		return k, err
	}
	return k, os.Chtimes(f.path(digest)+about, time.Time{}, time.Now())
}

func (f *Folder) read(digest string) (k Kept, err error) {
	text, err := os.ReadFile(f.path(digest) + about)
	if errors.Is(err, fs.ErrNotExist) {
		return k, fmt.Errorf("parcel %.12s: %w", digest, ErrUnknown)
	}
	if err == nil {
		err = json.Unmarshal(text, &k)
	}
	if err != nil {
		return k, fmt.Errorf("read parcel %.12s: %w", digest, err)
	}
	return k, nil
}

// Newest implements Store.
func (f *Folder) Newest(_ context.Context, repository, commit string) (Kept, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var newest Kept
	var used time.Time
	err := f.each(func(digest string, at time.Time) error {
		k, err := f.read(digest)
		if err == nil && k.Repository == repository && (k.Commit == commit || commit == "" && k.On == "") && at.After(used) {
			newest, used = k, at
		}
		return err
	})
	if err == nil && used.IsZero() {
		err = fmt.Errorf("a parcel of repository %.12s: %w", repository, ErrUnknown)
	}
	if err != nil {
		return Kept{}, err
	}
	return f.use(newest.Digest)
}

// each calls do with every parcel and its last use.
func (f *Folder) each(do func(digest string, used time.Time) error) error {
	entries, err := os.ReadDir(f.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		digest, is := strings.CutSuffix(e.Name(), about)
		info, err := e.Info()
		if !is || err != nil { // it was removed just now
			continue
		}
		if err := do(digest, info.ModTime()); err != nil {
			return err
		}
	}
	return nil
}

// ReadAt implements Store.
func (f *Folder) ReadAt(_ context.Context, digest string, offset int64, n int) (data []byte, size int64, err error) {
	file, err := os.Open(f.path(digest))
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("parcel %.12s: %w", digest, ErrUnknown)
	}
	if err != nil {
		return nil, 0, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, 0, err
	}
	data = make([]byte, n)
	got, err := file.ReadAt(data, offset)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return data[:got], info.Size(), err
}

// Size implements Store.
func (f *Folder) Size(context.Context) (total int64, err error) {
	entries, err := os.ReadDir(f.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			total += info.Size()
		}
	}
	return total, nil
}

// staleAfter is how old a file must be that is a part of no parcel: it was left by a
// process that died.
const staleAfter = 24 * time.Hour

// Prune implements Store.
func (f *Folder) Prune(ctx context.Context, named map[string]bool, before time.Time) (removed int, err error) {
	whole := map[string]bool{}
	err = f.each(func(digest string, _ time.Time) error {
		if whole[digest] = true; named[digest] {
			return nil
		}
		gone, err := f.remove(digest, before)
		if gone {
			removed++
		}
		return cmp.Or(err, ctx.Err())
	})
	if err != nil {
		return removed, err
	}
	entries, err := os.ReadDir(f.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return removed, nil
	}
	for _, e := range entries {
		info, gone := e.Info()
		if gone != nil || whole[strings.TrimSuffix(e.Name(), about)] || time.Since(info.ModTime()) < staleAfter {
			continue
		}
		err = errors.Join(err, os.Remove(f.path(e.Name())))
	}
	return removed, err
}

// remove removes a parcel, unless it was used since.
func (f *Folder) remove(digest string, before time.Time) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	info, err := os.Stat(f.path(digest) + about)
	if err != nil || info.ModTime().After(before) {
		return false, err
	}
	// What describes it first: without that, it is not kept.
	if err := os.Remove(f.path(digest) + about); err != nil {
		return false, err
	}
	return true, os.Remove(f.path(digest))
}
