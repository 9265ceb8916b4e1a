package workspace

import (
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/job"
)

// BenchmarkWorktree compares the workspace of a job that writes one file in a
// repository of 50,000 with what git worktree add takes alone, in turns: made and
// collected, and made anew for another attempt. Nothing is removed meanwhile but
// by what is measured, since that makes the file system slow for some minutes.
func BenchmarkWorktree(b *testing.B) {
	h := &house{t: b, root: filepath.Join(b.TempDir(), "state"), repo: filepath.Join(b.TempDir(), "repo"), out: b.TempDir()}
	h.m = New(Config{Root: h.root, Locks: h.root + "-locks"})
	r := rand.New(rand.NewSource(1))
	for i := range 50_000 {
		name := fmt.Sprintf("d%d/e%d/f%d", i%50, i/50%20, i)
		h.write(h.repo, map[string]string{name: strings.Repeat(name+"\n", 10+r.Intn(200))})
	}
	h.git(h.repo, "init", "-q", "-b", "main")
	h.git(h.repo, "config", "gc.auto", "0")
	h.commit(h.repo, "first")
	timed := func(of *time.Duration, do func()) {
		began := time.Now()
		do()
		*of += time.Since(began)
	}
	var add, once, again time.Duration
	for b.Loop() {
		timed(&add, func() {
			h.git(h.repo, "worktree", "add", "-q", "--detach", filepath.Join(b.TempDir(), "added"))
		})
		id := job.NewID()
		timed(&once, func() {
			ws := h.prepare(id, h.spec(job.Worktree), true)
			if err := os.WriteFile(filepath.Join(ws.Root, "answer"), []byte("42"), 0o644); err != nil {
				b.Fatal(err)
			}
			h.collect(ws)
		})
		timed(&again, func() { h.prepare(id, h.spec(job.Worktree), true) })
	}
	b.ReportMetric(add.Seconds()/float64(b.N), "s/worktree-add")
	b.ReportMetric(float64(once)/float64(add), "job/worktree-add")
	b.ReportMetric(float64(again)/float64(add), "retry/worktree-add")
}
