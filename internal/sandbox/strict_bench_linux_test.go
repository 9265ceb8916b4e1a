//go:build amd64 || arm64

package sandbox

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/agentsched/agentsched/internal/proc"
)

// BenchmarkStrictStart times a program from its start to the end of its tree, one after the other in each round: plain, in
// bubblewrap as a person would call it, and at the levels.
func BenchmarkStrictStart(b *testing.B) {
	p, workspace := strictly(b)
	exe, err := os.Executable()
	mustDo(b, err)
	p.Read = slices.DeleteFunc(p.Read, func(path string) bool { return path == exe })
	h := newHost(b)
	level := func(l Level) func() {
		q := *p
		q.Level = l
		return func() {
			s, err := q.Prepare("/bin/true", nil)
			mustDo(b, err)
			runTree(b, h, s.Apply(proc.Spec{Run: b.Name(), Path: "/bin/true", Dir: workspace, Env: []string{}, NewSession: true}))
			mustDo(b, s.Close())
		}
	}
	bare := []string{"--unshare-all", "--die-with-parent", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib",
		"--symlink", "usr/lib64", "/lib64", "--ro-bind", "/etc", "/etc", "--bind", workspace, workspace, "--proc", "/proc", "--dev", "/dev", "/bin/true"}
	kinds := []struct {
		name string
		run  func()
	}{
		{"exec", func() {
			mustDo(b, h.Run(b.Context(), exec.Command("/bin/true")))
		}},
		{"none", level(None)},
		{"bwrap", func() {
			mustDo(b, h.Run(b.Context(), exec.Command(p.Host.Bwrap, bare...)))
		}},
		{"standard", level(Standard)},
		{"strict", level(Strict)},
	}
	took := make([][]time.Duration, len(kinds))
	for b.Loop() {
		for i, k := range kinds {
			began := time.Now()
			k.run()
			took[i] = append(took[i], time.Since(began))
		}
	}
	for i, k := range kinds {
		slices.Sort(took[i])
		// The tenth is nearer to a quiet machine where others use it too.
		for _, percent := range []int{10, 50} {
			at := took[i][len(took[i])*percent/100]
			b.ReportMetric(float64(at.Microseconds())/1000, fmt.Sprintf("%s-p%d-ms", k.name, percent))
		}
	}
}

func runTree(b *testing.B, h *proc.Host, spec proc.Spec) {
	b.Helper()
	err, left := h.RunTree(b.Context(), spec)
	mustDo(b, err)
	mustDo(b, left)
}
