package proc

import (
	"io"
	"os"
	"os/exec"
	"testing"
	"time"
)

// The common case (the leader has ended, nothing is left) beside what the same answer costs by walking /proc, with and
// without another run beside it.
func BenchmarkProof(b *testing.B) {
	for _, bc := range []struct {
		name   string
		cgroup bool
		beside bool
	}{{"plain", false, false}, {"plain beside a run", false, true}, {"cgroup beside a run", true, true}} {
		b.Run(bc.name, func(b *testing.B) {
			var h *Host
			if bc.cgroup {
				h = cgroupHost(b)
			} else {
				h = newHost(b, "")
			}
			if bc.beside {
				beside := start(b, h, script(b.Name()+"/beside", "echo ready; exec sleep 300"))
				beside.line()
				defer beside.stop(Stages{})
			}
			tr := start(b, h, script(b.Name(), "exit 0"))
			tr.waitExited()
			b.ResetTimer()
			for b.Loop() {
				var rep Report
				inCgroup, err := tr.emptyCgroup(time.Now(), &rep)
				roots, walked, err2 := tr.leftovers(false)
				if inCgroup || walked || len(roots) > 0 || err != nil || err2 != nil {
					b.Fatal(inCgroup, walked, roots, err, err2)
				}
			}
			b.StopTimer()
			tr.stop(Stages{})
		})
	}
	b.Run("walk", func(b *testing.B) {
		for b.Loop() {
			if _, err := walk(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("walk with tags", func(b *testing.B) {
		for b.Loop() {
			if _, err := Alive(b.Name()); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkStartStop(b *testing.B) {
	h := newHost(b, "")
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer null.Close()
	path, err := exec.LookPath("true")
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		tr := start(b, h, Spec{Run: b.Name(), Path: path, PipeStdout: true, NewSession: true})
		_, _ = io.ReadAll(tr.out)
		tr.waitExited()
		tr.stop(Stages{})
		tr.ClosePipes()
	}
}
