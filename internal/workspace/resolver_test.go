package workspace

import (
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestResolver(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		var news atomic.Int64
		hung := make(chan struct{})
		r := NewResolver(func(path string) (string, error) {
			if path == "/hung" {
				<-hung
			}
			return filepath.EvalSymlinks(path)
		}, func() { news.Add(1) })
		if _, known := r.Peek(link); known {
			t.Error("known before it was asked for")
		}
		synctest.Wait()
		if real, known := r.Peek(link); real != dir || !known || news.Load() != 1 {
			t.Errorf("then: %s, %v, %d times news", real, known, news.Load())
		}
		if real, err := r.Get("/no/such/../folder"); real != "/no/folder" || err != nil {
			t.Errorf("a folder that is not there: %s, %v", real, err)
		}
		began := time.Now()
		if real, err := r.Get("/hung/."); real != "/hung" || err != nil {
			t.Errorf("by another name: %s, %v", real, err)
		}
		for range 3 {
			if real, err := r.Get("/hung"); real != "/hung" || !errors.Is(err, errHangs) {
				t.Errorf("a file system that hangs: %s, %v", real, err)
			}
		}
		if took := time.Since(began); took != ResolveTime {
			t.Errorf("it was waited for for %s in all, want %s", took, ResolveTime)
		}
		if real, known := r.Peek("/hung"); real != "/hung" || !known {
			t.Errorf("later: %s, %v", real, known)
		}
		close(hung)
		synctest.Wait()
		if real, err := r.Get("/hung"); real != "/hung" || err != nil {
			t.Errorf("when it answers: %s, %v", real, err)
		}
	})
}
