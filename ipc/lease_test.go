package ipc_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
)

// TestLease: with the defaults of the configuration.
func TestLease(t *testing.T) {
	seconds := func(n int) job.Duration { return job.Duration(time.Duration(n) * time.Second) }
	l := ipc.Lease{Extend: 10 * time.Second, Validity: time.Minute, Stop: ipc.Stages{Interrupt: seconds(2), Terminate: seconds(5)}.Longest()}
	for name, d := range map[string][2]time.Duration{
		"stop":  {l.Stop, 20 * time.Second},
		"fuse":  {l.Fuse(), 90 * time.Second},
		"claim": {l.Claim(), 121 * time.Second},
	} {
		if d[0] != d[1] {
			t.Errorf("%s is %s, want %s", name, d[0], d[1])
		}
	}
}

// TestLeasesAreNested: whatever the configuration, a core that looks late by two of its
// looks has stopped a run gently before the fuse ends it, and a claim outlasts the fuse of a
// host whose clock is slower by 2 %.
func TestLeasesAreNested(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		of := func(what string, least int) time.Duration {
			return time.Duration(rapid.IntRange(least, 600_000).Draw(t, what)) * time.Millisecond
		}
		l := ipc.Lease{Extend: of("extend", 0), Validity: of("validity", 1), Stop: of("stop", 0)}
		if gentle := l.Validity + 2*min(l.Validity/16, time.Second) + l.Stop; l.Fuse() < gentle {
			t.Fatalf("%+v: the fuse ends a run after %s, its core may take %s", l, l.Fuse(), gentle)
		}
		if gone := 2*l.Extend + l.Fuse(); l.Claim() < gone+gone/50 {
			t.Fatalf("%+v: the claim ends after %s, the run after %s", l, l.Claim(), gone)
		}
	})
}
