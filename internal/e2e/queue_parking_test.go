package e2e

// A provider's usage limit: its kind of worker is left alone until the reset.

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/internal/testrun"
	"github.com/agentsched/agentsched/job"
)

// limited sets up a kind of worker whose provider is used up for an hour while
// the file is there, and which notes that it was asked.
func (b *bench) limited(name, file string) {
	b.t.Helper()
	b.kind(name, "echo asked >> "+b.folder("asked")+"\n"+
		`test ! -e `+file+` || { echo '{"type":"result","status":"failed","class":"RATE_LIMIT","message":"5-hour limit reached","retry_after_ms":3600000}'; exit; }`+"\n"+
		result("by "+name))
}

// parked returns the isolation of a kind of worker for a usage limit.
func (b *bench) parked(kind job.WorkerKind) *isolation.Isolation {
	b.t.Helper()
	for _, i := range b.status().Isolations {
		if i.Scope == isolation.WorkerScope(kind) && i.Cause == isolation.CauseUsageLimit {
			return &i
		}
	}
	return nil
}

// TestUsageLimitParks: one job meets the limit; the others wait without losing
// an attempt, or go where they may, over a restart, until an operator says that
// there is room again.
func TestUsageLimitParks(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprintf("restart=%t", restart), func(t *testing.T) {
			t.Parallel()
			testUsageLimitParks(t, restart)
		})
	}
}

func testUsageLimitParks(t *testing.T, restart bool) {
	b := newBench(t)
	b.config["concurrency"] = obj{"max": 1}
	full := b.folder("full")
	b.write(full, "")
	b.limited("metered", full)
	b.kind("spare", result("by spare"))
	began := time.Now()
	r := b.serve()
	b.submit(b.jobs(
		on("meets-it", "metered", obj{"priority": 2}), on("waits-1", "metered", nil), on("waits-2", "metered", nil),
		on("goes-on", "metered", obj{"fallback": []string{"spare"}}), on("elsewhere", "spare", nil),
	))
	r.end("goes-on", job.RunCompleted)
	r.end("elsewhere", job.RunCompleted)
	if j := b.show("goes-on"); len(j.Attempts) != 1 || b.last(j).Answer != "by spare" {
		b.fatalf("a job with a fallback: %s", asJSON(t, j))
	}
	until := func() {
		t.Helper()
		i := b.parked("metered")
		if i == nil || i.Until.Sub(began) < time.Hour || i.Until.Sub(began) > time.Hour+2*testrun.Patience {
			b.fatalf("the kind is not left alone for an hour: %s", asJSON(t, b.status().Isolations))
		}
		out, _, code := b.command("status")
		for _, word := range []string{"worker:metered", "5-hour limit", i.Until.Local().Format("15:04:05")} {
			if code != 0 || !strings.Contains(out, word) {
				b.fatalf("exit code %d; the status does not say %q:\n%s", code, word, out)
			}
		}
	}
	waiting := func() {
		t.Helper()
		for _, name := range []string{"waits-1", "waits-2"} {
			if j := b.show(name); j.Job.State != job.Queued || len(j.Attempts) != 0 || j.Job.Counted != 0 {
				b.fatalf("%s does not wait untouched: %s", name, asJSON(t, j))
			}
		}
		if asked := len(b.lines("asked")); asked != 1 {
			b.fatalf("the provider was asked %d times, want once", asked)
		}
	}
	until()
	waiting()
	b.submit(b.jobsOf("tests", "late.yaml", on("late", "metered", nil), on("free", "spare", nil)))
	r.end("free", job.RunCompleted)
	if restart {
		r.stop()
		until() // also with nobody running
		r = b.serve()
	}
	b.submit(b.jobsOf("tests", "free.yaml", on("free-2", "spare", nil)))
	r.end("free-2", job.RunCompleted)
	until()
	waiting()

	if err := os.Remove(full); err != nil {
		t.Fatal(err)
	}
	if out, errs, code := b.command("resume", "worker:metered"); code != 0 || !strings.Contains(out, "5-hour limit") {
		b.fatalf("resume: exit code %d\n%s%s", code, out, errs)
	}
	for _, name := range []job.Name{"waits-1", "waits-2", "late", "meets-it"} {
		r.end(name, job.RunCompleted)
	}
	r.stop()
	b.soundState()
	for name, attempts := range map[string]int{"waits-1": 1, "waits-2": 1, "late": 1, "meets-it": 2} {
		j := b.show(name)
		b.completedOnce(j)
		if len(j.Attempts) != attempts {
			t.Errorf("%s took %d attempts, want %d", name, len(j.Attempts), attempts)
		}
	}
}

// TestUsageLimitOfManyAtOnce: jobs that meet the limit at the same time park the
// kind once, and a rate limit of seconds parks nothing.
func TestUsageLimitOfManyAtOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	full := b.folder("full")
	b.write(full, "")
	b.limited("metered", full)
	b.kind("brief", `test -e `+b.folder("once")+` || { : > `+b.folder("once")+`; echo '{"type":"result","status":"failed","class":"RATE_LIMIT","message":"slow down","retry_after_ms":300}'; exit; }`+"\n"+result("by brief"))
	r := b.serve()
	b.submit(b.jobs(on("a", "metered", nil), on("b", "metered", nil), on("c", "metered", nil), on("brief", "brief", nil)))
	r.end("brief", job.RunCompleted)
	if j := b.show("brief"); len(j.Attempts) != 2 || b.parked("brief") != nil {
		t.Errorf("a rate limit of 300 ms: parked %v, %s", b.parked("brief"), asJSON(t, j))
	}
	b.eventually("the kind is left alone", func() bool { return b.parked("metered") != nil })
	b.eventually("all three wait", func() bool {
		n := 0
		for _, e := range b.list() {
			if e.Spec.Worker == "metered" && e.State == job.Queued {
				n++
			}
		}
		return n == 3
	})
	r.await("the word about it", told("escalation", "usage limit of metered"))
	if n := r.seen(told("escalation", "usage limit of metered")); n != 1 {
		t.Errorf("the limit was told of %d times, want once", n)
	}
	for _, name := range []string{"a", "b", "c"} {
		if _, errs, code := b.command("cancel", name); code != 0 {
			b.fatalf("cancel %s: exit code %d\n%s", name, code, errs)
		}
	}
	r.stop()
	b.soundState()
}
