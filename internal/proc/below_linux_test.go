package proc

import (
	"os"
	"slices"
	"testing"
)

// TestKillBelow: who stands beside a Host that does nothing kills all that descends from it, however that hides, and
// nothing of the trees that it is to spare.
func TestKillBelow(t *testing.T) {
	eachWay(t, func(t *testing.T, h *Host) {
		const text = `trap "" INT TERM HUP; ` + asDaemon + asCleared + "echo $$; while :; do sleep 300; done"
		stranger := start(t, h, script(t.Name()+"/spared", text))
		spared := []int{stranger.Pid(), stranger.pid(), stranger.pid()}
		tr := start(t, h, script(t.Name()+"/killed", text))
		victims := []int{tr.Pid(), tr.pid(), tr.pid()}
		deaf := tr.pid()

		own, err := Find(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		kin := stranger.Kin()
		killed, err := KillBelow(own, []Kin{kin})
		if err != nil {
			t.Fatal(err)
		}
		mustBeGone(t, append(victims, deaf)...)
		if kin.Cgroup == "" {
			spared = spared[:1] // its orphans have left its session: nothing tells that they are its
		}
		mustLive(t, spared...)
		for _, pid := range spared {
			if slices.ContainsFunc(killed, func(p Proc) bool { return p.Pid == pid }) {
				t.Errorf("process %d was to be spared", pid)
			}
		}
		if killed, err := KillBelow(own, []Kin{kin}); err != nil || len(killed) > 0 {
			t.Errorf("a second time: killed %v, %v", killed, err)
		}
		tr.stop(Stages{})
		stranger.stop(Stages{})
	})
}

// TestKillBelowAnother: a process that has ended has nothing below it, even if its number is that of another one.
func TestKillBelowAnother(t *testing.T) {
	h := newHost(t, "")
	tr := start(t, h, script(t.Name(), "echo up; exec sleep 300"))
	tr.line()
	own, err := Find(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	own.Start++
	if killed, err := KillBelow(own, nil); err == nil || len(killed) > 0 {
		t.Errorf("below a process that was never there: killed %v, %v", killed, err)
	}
	mustLive(t, tr.Pid())
	tr.stop(Stages{})
}
