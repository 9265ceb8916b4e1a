package e2e

// The plan's first test: no run without a permit, and no limit that a scheduler
// could talk the core out of.

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/agentsched/agentsched/job"
)

// TestNoRunWithoutPermit tries every way round the gate that the wire has.
func TestNoRunWithoutPermit(t *testing.T) {
	t.Parallel()
	w := newWire(t)
	w.b.config["stop"] = obj{"interrupt": "5m", "terminate": "5m", "kill": "10s"} // the end takes as long as the test needs
	ran := w.b.folder("ran")
	script := func(name string) string { return fmt.Sprintf("echo %s >> %s", name, ran) }
	submit := func(permit, id string, attempt int, changes obj) obj {
		return submission(permit, id, attempt, script(fmt.Sprintf("%s/%d", id, attempt)), changes)
	}

	w.refused("before hello", "submit_job", submit("x", "a", 1, nil), codeNotConfigured)
	w.refused("before hello", "request_permit", permitRequest("a", 1, nil), codeNotConfigured)
	w.hello()
	w.refused("before configure", "submit_job", submit("x", "a", 1, nil), codeNotConfigured)
	w.refused("before configure", "request_permit", permitRequest("a", 1, nil), codeNotConfigured)
	w.configure(nil)
	w.refused("no permit", "submit_job", submit("", "a", 1, nil), codePermitUnknown)
	w.refused("an invented permit", "submit_job", submit("01a1fcce-6b90-7022-94af-83e4d513c5ef", "a", 1, nil), codePermitUnknown)
	forged := submit("", "a", 1, nil)
	forged["permit_id"] = []string{"x"}
	w.refused("a permit that is no text", "submit_job", forged, -32602)

	p := w.permit("a", 1, nil)
	w.refused("another job's", "submit_job", submit(p.ID, "b", 1, nil), codePermitUnknown)
	w.refused("another attempt's", "submit_job", submit(p.ID, "a", 2, nil), codePermitUnknown)
	w.refused("another worker's", "submit_job", submit(p.ID, "a", 1, obj{"choice": obj{"worker": "codex"}}), codePermitUnknown)
	p = w.permit("b", 1, nil)
	w.refused("another model's", "submit_job", submit(p.ID, "b", 1, obj{"choice": obj{"worker": "shell", "model": "large"}}), codePermitUnknown)

	w.configure(obj{"permit_ttl": "200ms"})
	p = w.permit("c", 1, nil)
	w.beats(0, 0)
	if now := time.Now(); now.Before(p.Expires) {
		w.fatalf("the permit was void at %s, but is to expire at %s", now, p.Expires)
	}
	w.refused("an expired one", "submit_job", submit(p.ID, "c", 1, nil), codePermitUnknown)
	w.configure(nil)

	p = w.permit("d", 1, nil)
	w.must("cancel_job", obj{"job": "d", "attempt": 1, "class": "CANCELLED", "reason": "not wanted"})
	w.refused("a revoked one", "submit_job", submit(p.ID, "d", 1, nil), codePermitUnknown)

	p = w.permit("e", 1, nil)
	w.must("submit_job", submit(p.ID, "e", 1, nil))
	w.refused("one in use", "submit_job", submit(p.ID, "e", 1, nil), codePermitUnknown)
	if o := w.outcome("e", 1); !o.Succeeded() {
		w.fatalf("the run that was allowed: %+v", o)
	}
	w.refused("a used one", "submit_job", submit(p.ID, "e", 1, nil), codePermitUnknown)
	w.refused("a used one", "submit_job", submit(p.ID, "e", 2, nil), codePermitUnknown)

	// While it ends: a run that is hard to stop keeps it from having ended.
	unused := w.permit("f", 1, nil)
	w.run("stubborn", 1, `trap "" INT TERM; echo ready; `+until(w.b.folder("enough")), nil)
	w.says("stubborn", "ready")
	w.must("shutdown", obj{"reason": "the test is over"})
	w.refused("the end has begun", "submit_job", submit(unused.ID, "f", 1, nil), codeShuttingDown, codePermitUnknown)
	w.refused("the end has begun", "request_permit", permitRequest("g", 1, nil), codeShuttingDown)
	w.refused("the end has begun", "submit_job", submit("x", "g", 1, nil), codeShuttingDown, codePermitUnknown)
	w.b.release()
	if o := w.outcome("stubborn", 1); o.State != job.RunCancelled {
		w.fatalf("the run at the end: %+v", o)
	}
	w.bye()
	if data, err := os.ReadFile(ran); err != nil || string(data) != "e/1\n" {
		t.Errorf("what ran: %q, %v; want the one that had a permit", data, err)
	}
}

// TestPermitIsForItsWorkspace: the folder that was locked for a permit is the
// one to work in, whatever the submission says.
func TestPermitIsForItsWorkspace(t *testing.T) {
	t.Parallel()
	w := newWire(t)
	w.hello()
	w.configure(nil)
	dir, workspace := w.b.direct("folder")
	in := obj{"workspace": workspace}
	w.run("holder", 1, "echo ready; while test ! -e enough; do sleep 0.05; done", in)
	w.says("holder", "ready")

	// Asked for openly, it is busy: by its own name, by another, from above and below.
	link := w.b.folder("link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	_, below := w.b.direct("folder/below")
	for what, folder := range map[string]obj{"the folder": workspace, "a link to it": {"path": link, "isolation": "direct"}, "a folder below": below, "a folder above": {"path": w.b.dir, "isolation": "direct"}} {
		w.wantRejected(what, "WORKSPACE_BUSY", "open", 1, obj{"workspace": folder})
	}
	// With a permit for no folder at all, it is not to be had either.
	p := w.permit("sly", 1, nil)
	_, code := w.call("submit_job", submission(p.ID, "sly", 1, "touch intruder", in))
	if code == 0 {
		if o := w.outcome("sly", 1); o.Succeeded() {
			t.Errorf("a run in a folder that another works in, with a permit for no folder: %+v", o)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "intruder")); err == nil {
		t.Error("two workers were in one folder")
	}
	w.b.write(filepath.Join(dir, "enough"), "")
	if o := w.outcome("holder", 1); !o.Succeeded() {
		t.Errorf("the run in the folder: %+v", o)
	}
	w.end()
}

// TestLyingScheduler: the core goes by what it has seen itself or by what it is
// told, whichever is stricter.
func TestLyingScheduler(t *testing.T) {
	for name, lie := range map[string]func(*wire){
		"attempts": func(w *wire) {
			limits := obj{"limits": obj{"max_attempts": 2, "timeout": "1m"}}
			for attempt := range 2 {
				w.run("often", attempt+1, "exit 1", limits)
				w.outcome("often", attempt+1)
			}
			w.wantRejected("the third", "LIMIT_EXCEEDED", "often", 3, limits)
			w.wantRejected("the first again", "LIMIT_EXCEEDED", "often", 1, limits)
			w.wantRejected("two that only the scheduler knows of", "LIMIT_EXCEEDED", "old", 3, obj{"counted": 2, "limits": limits["limits"]})
		},
		"cost":         func(w *wire) { w.overspend(obj{"max_cost_usd": 1}, grant{USD: 0.4}) },
		"tokens":       func(w *wire) { w.overspend(obj{"max_tokens": 100}, grant{Tokens: 40}) },
		"retry budget": func(w *wire) { w.overspend(obj{"retry_budget": obj{"cost_usd": 1}}, grant{USD: 0.4}) },
		"time": func(w *wire) {
			ask := obj{"limits": obj{"max_attempts": 9, "timeout": "1m", "retry_budget": obj{"time": "300ms"}}, "spent_time": "0s"}
			w.run("slow", 1, "while :; do sleep 0.05; done", ask)
			if o := w.outcome("slow", 1); o.Class != job.Timeout {
				w.fatalf("a run beyond the retry budget: %+v", o)
			}
			w.wantRejected("all is spent", "LIMIT_EXCEEDED", "slow", 2, ask)
		},
		"deadline": func(w *wire) {
			passed := time.Now().Add(-time.Second).UTC().Format(time.RFC3339Nano)
			w.wantRejected("it has passed", "LIMIT_EXCEEDED", "late", 1, obj{"deadline": passed})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWire(t)
			const spend = `{"type":"usage","input_tokens":60,"cost_usd":0.6}`
			w.b.kind("spender", "echo '"+spend+"'; echo '"+`{"type":"result","status":"failed","message":"not today"}'`)
			w.b.kind("endless", endless(spend))
			w.hello()
			w.configure(nil)
			lie(w)
			w.end()
		})
	}
}

// overspend runs a job of 60 tokens and 0.6 dollars, then one without an end,
// and claims each time that nothing was spent before. left is what the second
// is to be granted.
func (w *wire) overspend(limits obj, left grant) {
	w.b.t.Helper()
	limits["max_attempts"], limits["timeout"] = 9, "1m"
	ask := func(worker string) obj { return obj{"choice": obj{"worker": worker}, "limits": limits, "spent": obj{}} }
	w.run("greedy", 1, "Spend.", ask("spender"))
	if o := w.outcome("greedy", 1); o.State != job.RunFailed || o.Usage.CostUSD != 0.6 {
		w.fatalf("the first attempt: %+v", o)
	}
	p := w.permit("greedy", 2, ask("endless"))
	if math.Abs(p.USD-left.USD) > 1e-9 || p.Tokens != left.Tokens {
		w.fatalf("%d tokens and %g dollars are granted, want %d and %g", p.Tokens, p.USD, left.Tokens, left.USD)
	}
	w.must("submit_job", submission(p.ID, "greedy", 2, "Spend.", ask("endless")))
	if o := w.outcome("greedy", 2); o.Class != job.Budget || o.StopMillis <= 0 {
		w.fatalf("a run beyond what was left: %+v", o)
	}
	w.wantRejected("all is spent", "LIMIT_EXCEEDED", "greedy", 3, ask("spender"))
}

// TestSlots: the core counts what it gave out, unused or not, and what it is
// told of other cores.
func TestSlots(t *testing.T) {
	elsewhere := func(tenant, worker string) obj {
		return obj{"elsewhere": obj{"running": []obj{{"tenant": tenant, "worker": worker}}}}
	}
	for _, c := range []struct {
		name     string
		settings obj
		first    obj // request that takes the only slot
		second   obj // that then finds none
		other    obj // that needs another slot; nil: there is none of those
	}{
		{"all", obj{"max_concurrent": 1}, nil, obj{"tenant": "u"}, nil},
		{"a tenant", obj{"limits": obj{"per_tenant": obj{"t": 1}}}, nil, nil, obj{"tenant": "u"}},
		{"each tenant", obj{"limits": obj{"each_tenant": 1}}, obj{"tenant": "u"}, obj{"tenant": "u"}, obj{"tenant": "v"}},
		{"a kind", obj{"workers": obj{"shell": obj{"max_concurrent": 1}}}, nil, nil, obj{"choice": obj{"worker": "codex"}}},
		{"elsewhere", obj{"max_concurrent": 2}, nil, elsewhere("u", "codex"), obj{}},
		{"a tenant elsewhere", obj{"limits": obj{"per_tenant": obj{"t": 2}}}, nil, elsewhere("t", "codex"), elsewhere("u", "codex")},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWire(t)
			w.hello()
			w.configure(c.settings)
			revoke := func(id string) {
				w.must("cancel_job", obj{"job": id, "attempt": 1, "class": "CANCELLED", "reason": "not needed"})
			}
			w.permit("first", 1, c.first)
			w.wantRejected("unused, it holds its slot", "RATE_LIMIT", "second", 1, c.second)
			if c.other != nil {
				w.permit("other", 1, c.other)
				revoke("other")
			}
			revoke("first") // unused, it gives everything back

			enough := w.b.folder("enough")
			w.run("first", 1, "echo ready; while test ! -e "+enough+"; do sleep 0.05; done", c.first)
			w.says("first", "ready")
			w.wantRejected("in use, it holds its slot", "RATE_LIMIT", "second", 1, c.second)
			w.wantRejected("a second attempt beside the first", "RATE_LIMIT", "first", 2, c.first)
			w.b.write(enough, "")
			w.outcome("first", 1)
			w.permit("second", 1, c.second)
			w.end()
		})
	}
}
