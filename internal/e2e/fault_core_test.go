package e2e

// Cores that are broken are found out and replaced; the jobs do not notice.

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/agentsched/agentsched/api"
)

// fake writes a program to run instead of the core, which has the fault the
// first time only, or always.
func (b *bench) fake(fault string, always bool) string {
	b.t.Helper()
	self, err := os.Executable()
	if err != nil {
		b.t.Fatal(err)
	}
	mark := b.folder("fault-was-shown")
	if always {
		mark = ""
	}
	path := b.folder("core")
	script := fmt.Sprintf("#!/bin/sh\n%s='%s' %s='%s' %s='%s' exec '%s'\n", fakeVariable, fault, markVariable, mark, realVariable, coreProgram(), self)
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
		b.t.Fatal(err)
	}
	return path
}

func TestBrokenCore(t *testing.T) {
	for _, c := range []struct {
		fault    string
		replaced bool // or the conversation goes on
		up       bool // it came up before it failed
	}{
		{"exits at once", true, false},
		{"never says anything", true, false},
		{"closes stdout", true, false},
		{"floods with garbage", true, false},
		{"stops reading", true, true},
		{"tears a frame", true, true},
		{"babbles amid its work", true, true},
		{"completes what is not its own", false, true},
		{"sends frames of 2 MiB", false, true},
	} {
		t.Run(c.fault, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.config["heartbeat"] = obj{"interval": "100ms", "hang_after": "10s"}
			var jobs []obj
			for i := range 3 {
				jobs = append(jobs, shell(fmt.Sprintf("job-%d", i), nil, "echo the truth", obj{"max_attempts": 20}))
			}
			r := b.start("run", "--core", b.fake(c.fault, false), b.jobs(jobs...))
			r.exit(0)
			if _, err := os.Stat(b.folder("fault-was-shown")); err != nil {
				t.Fatalf("the fault was not shown: %v", err)
			}
			died := r.seen(func(u *api.Update) bool {
				return u.Kind == api.UpdateCore && strings.Contains(u.Text, "died")
			})
			ups := r.seen(func(u *api.Update) bool { return u.CorePID != 0 })
			wantUps, wantDied := 1, 0
			if c.replaced && c.up {
				wantUps, wantDied = 2, 1
			}
			if ups != wantUps || died != wantDied {
				r.fatalf("%d cores came up and %d of them died, want %d and %d", ups, died, wantUps, wantDied)
			}
			for i := range jobs {
				j := b.show(fmt.Sprintf("job-%d", i))
				b.completedOnce(j)
				if o := b.last(j); o.Answer != "the truth" {
					t.Errorf("job %d: %s", i, asJSON(t, o))
				}
			}
			b.soundState()
		})
	}
}

// TestHungCore: a core that is stopped, as by SIGSTOP, owes its heartbeats.
func TestHungCore(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.config["heartbeat"] = obj{"interval": "100ms", "hang_after": "5s"}
	_, workspace := b.direct("work")
	r := b.start("run", b.jobs(shell("job", workspace, `
test -e second && exit
touch second
echo ready
exec sleep `+b.unique(), nil)))
	r.await("the job", onText("job", "ready"))
	core := r.core()
	if err := syscall.Kill(core, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	r.exit(0)
	if r.core() == core {
		t.Error("the core was not replaced")
	}
	b.completedOnce(b.show("job"))
	b.soundState()
}

// TestHopelessCore: cores that never work end the run, soon and with a word on
// why; the jobs are still there for a better one.
func TestHopelessCore(t *testing.T) {
	const gaveUp, other = 1, 2
	for _, c := range []struct {
		fault, says string
		code        int
	}{
		{"exits at once", "agentcore does not start: 5 tries", gaveUp},
		{"closes stdout", "agentcore does not start: 5 tries", gaveUp},
		{"floods with garbage", "agentcore does not start: 5 tries", gaveUp},
		{"speaks protocol 99", "install both from one release", other},
		{"refuses the protocol", "this core speaks 99", other},
	} {
		t.Run(c.fault, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.config["heartbeat"] = obj{"interval": "100ms", "hang_after": "5s"}
			file := b.jobs(shell("job", nil, "echo the truth", nil))
			r := b.start("run", "--core", b.fake(c.fault, true), file)
			r.exit(c.code)
			if text := r.stderr.String(); !strings.Contains(text, c.says) {
				r.fatalf("the message does not say %q:\n%s", c.says, text)
			}
			b.soundState()
			if n, _ := b.unfinished(); n != 1 || len(b.show("job").Attempts) != 0 {
				t.Errorf("the job is not as it was: %s", asJSON(t, b.show("job")))
			}
			b.start("run", file).exit(0)
			b.completedOnce(b.show("job"))
		})
	}
}
