package scheduler

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/internal/supervisor"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

var midnight = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// TestSpendings keeps what counts within each window, by tenant, and forgets
// what is older than the longest.
func TestSpendings(t *testing.T) {
	windows := []ipc.CostWindow{
		{Tenant: "ann", Window: job.Duration(time.Hour), MaxUSD: 5},
		{Window: job.Duration(24 * time.Hour), MaxUSD: 20},
	}
	sum := func(list []ipc.Spending) (usd float64) {
		for _, s := range list {
			usd += s.USD
		}
		return usd
	}
	var b spendings
	b.add(midnight, "ann", 1) // nothing is kept yet: there is no window
	b.bound(windows)
	b.add(midnight, "ann", 1)
	b.add(midnight.Add(time.Minute), "ann", 0.5) // shares a part with the one before
	b.add(midnight.Add(2*time.Minute), "bob", 4)
	b.add(midnight.Add(3*time.Minute), "bob", -7) // no money comes back
	for _, tt := range []struct {
		after     time.Duration
		ann, both float64
	}{
		{10 * time.Minute, 1.5, 5.5},
		{59 * time.Minute, 1.5, 5.5},
		{61 * time.Minute, 0, 5.5},
		{25 * time.Hour, 0, 0},
	} {
		got := b.fill(midnight.Add(tt.after), windows)
		if sum(got[0].Spent) != tt.ann || sum(got[1].Spent) != tt.both {
			t.Errorf("after %s: ann %+v, all %+v; want %g and %g", tt.after, got[0].Spent, got[1].Spent, tt.ann, tt.both)
		}
		for _, s := range got[1].Spent {
			if s.AgoMS < 0 || s.AgoMS > tt.after.Milliseconds() {
				t.Errorf("after %s: spent %d ms ago", tt.after, s.AgoMS)
			}
		}
	}
	for i := range 10_000 {
		b.add(midnight.Add(time.Duration(i)*time.Minute), "ann", 0.01)
	}
	if len(b.parts) > 2*partsOfWindow+2 {
		t.Errorf("%d parts are kept of a window of %d", len(b.parts), partsOfWindow)
	}
	if windows[0].Spent != nil {
		t.Error("fill wrote into the configuration")
	}
}

// TestElsewhere tells each core once of what the others were asked for, of what
// came to nothing, and what they spent; and always of what they hold.
func TestElsewhere(t *testing.T) {
	one, two := &supervisor.Core{}, &supervisor.Core{}
	s := New(Config{Cores: 2, Supervise: func(supervisor.Handler) Cores { return nil }})
	s.cores[one], s.cores[two] = &member{Core: one}, &member{Core: two}
	flying := func(id job.ID, m *member) *flight {
		f := newFlight(queue.Entry{ID: id, Spec: job.Spec{Tenant: "ann", Worker: "codex"}})
		s.board(f, m)
		return f
	}
	a, b := flying("a", s.cores[one]), flying("b", s.cores[two])
	told := func(c *supervisor.Core) (running, granted, returned int, usd float64) {
		e := s.elsewhere(c)
		if e == nil {
			return 0, 0, 0, 0
		}
		return len(e.Running), len(e.Granted), len(e.Returned), e.Spent["ann"]
	}
	check := func(when string, c *supervisor.Core, running, granted, returned int, usd float64) {
		t.Helper()
		if r, g, b, u := told(c); r != running || g != granted || b != returned || u != usd {
			t.Errorf("%s: running %d, granted %d, returned %d, %g spent; want %d, %d, %d, %g", when, r, g, b, u, running, granted, returned, usd)
		}
	}
	s.ask(a)
	check("a asks", two, 1, 1, 0, 0)
	check("a asks, told before", two, 1, 0, 0, 0)
	check("a is no news to its own core", one, 0, 0, 0, 0)
	s.refused(a)
	check("a was refused, which the other had been told of", two, 0, 0, 1, 0)
	s.ask(b)
	s.refused(b)
	check("b was refused before anybody heard of it", one, 0, 0, 0, 0)
	s.ask(b)
	s.charge(b, 0.25)
	s.charge(b, -1)
	check("b runs and spends", one, 1, 1, 0, 0.25)
	check("b's money is no news to its own core", two, 0, 0, 0, 0)
	s.leave(b)
	check("b has ended", one, 0, 0, 0, 0)
	if s.cores[two].flights != 0 || s.cores[one].flights != 1 {
		t.Errorf("flights: %d and %d, want 1 and 0", s.cores[one].flights, s.cores[two].flights)
	}
	// A core that starts is told what the last minute's rates have to count; one
	// that was refused while it started is not among that, nor given back.
	three := &supervisor.Core{}
	s.ask(a)
	s.cores[three] = &member{Core: three, asked: slices.Clone(s.asked)}
	check("a new core", three, 1, 2, 0, 0)
	four := &supervisor.Core{}
	s.cores[four] = &member{Core: four}
	s.refused(a)
	check("a core that came after the question", four, 0, 0, 0, 0)
	check("a core that was told of it", three, 0, 0, 0, 0)
	alone := New(Config{Supervise: func(supervisor.Handler) Cores { return nil }})
	alone.cores[one] = &member{Core: one}
	if e := alone.elsewhere(one); e != nil {
		t.Errorf("the only core is told of others: %+v", e)
	}
}

// TestLeaveLate: a flight that lands after its job was given out again does not
// take the new one down.
func TestLeaveLate(t *testing.T) {
	s := New(Config{Supervise: func(supervisor.Handler) Cores { return nil }})
	m := &member{Core: &supervisor.Core{}}
	s.cores[m.Core] = m
	first, second := newFlight(queue.Entry{ID: "a", Spec: job.Spec{Worker: "codex"}}), newFlight(queue.Entry{ID: "a", Spec: job.Spec{Worker: "codex"}, Attempts: 1})
	s.board(first, m)
	s.board(second, m)
	s.leave(first)
	if s.live["a"] != second || m.flights != 1 {
		t.Errorf("live is %v with %d flights, want the second alone", s.live["a"], m.flights)
	}
	s.leave(second)
	if len(s.live) != 0 || m.flights != 0 {
		t.Errorf("live is %v with %d flights, want none", s.live, m.flights)
	}
}

// TestIsolationsOfAnotherClock: a cool-down that was written down while the
// wall clock stood ahead is no longer than it was then.
func TestIsolationsOfAnotherClock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "isolations.json")
	ahead := time.Now().Add(2 * time.Hour)
	var b isolation.Book
	b.Apply(ahead, isolation.Isolation{Scope: isolation.Global, Action: isolation.SafeStop, Since: ahead.UTC(), Until: ahead.Add(30 * time.Second).UTC()})
	b.Apply(ahead, isolation.Isolation{Scope: isolation.WorkerScope("codex"), Action: isolation.IsolateKind, Since: ahead.UTC()})
	if err := SaveIsolations(path, &b); err != nil {
		t.Fatal(err)
	}
	again, err := LoadIsolations(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := again.List(time.Now().Add(31 * time.Second)); len(got) != 1 || got[0].Scope != isolation.WorkerScope("codex") {
		t.Errorf("after the cool-down there are %+v, want the one that an operator has to lift", got)
	}
}

// TestClockWatch sees that the clock stood ahead, also if it was put right
// between two looks of the loop, and says so once.
func TestClockWatch(t *testing.T) {
	var w clockWatch
	w.note(0)
	w.note(2 * time.Hour) // somebody wrote down a time meanwhile
	for _, step := range []struct{ stands, by time.Duration }{
		{0, -2 * time.Hour}, {0, 0}, {10 * time.Millisecond, 0}, {3 * time.Second, 3 * time.Second}, {3 * time.Second, 0},
		{0, -3 * time.Second}, {-time.Hour, -time.Hour}, {0, time.Hour}, {0, 0},
	} {
		if by := w.look(step.stands); by != step.by {
			t.Errorf("the clock stands %s ahead: set by %s, want %s", step.stands, by, step.by)
		}
	}
}

// TestPick gives work to the core with the least, and none to one that drains.
func TestPick(t *testing.T) {
	s := New(Config{Cores: 2, Supervise: func(supervisor.Handler) Cores { return nil }})
	if s.pick() != nil {
		t.Error("work for a core that is not there")
	}
	busy, idle := &member{Core: &supervisor.Core{}, flights: 2}, &member{Core: &supervisor.Core{}, flights: 1}
	s.cores[busy.Core], s.cores[idle.Core] = busy, idle
	if s.pick() != idle {
		t.Error("the busier core was picked")
	}
	idle.draining = true
	if s.pick() != busy {
		t.Error("a draining core was picked")
	}
	busy.draining = true
	if s.pick() != nil {
		t.Error("a draining core was picked for want of another")
	}
}

func TestIsolationsFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "isolations.json")
	b, err := LoadIsolations(path)
	if err != nil || len(b.List(midnight)) != 0 {
		t.Fatalf("without a file: %v, %v", b.List(midnight), err)
	}
	b.Apply(midnight, isolation.Isolation{Scope: isolation.WorkerScope("codex"), Action: isolation.IsolateKind, Message: "it crashed", Since: midnight})
	if err := SaveIsolations(path, b); err != nil {
		t.Fatal(err)
	}
	again, err := LoadIsolations(path)
	if err != nil || len(again.List(midnight)) != 1 {
		t.Fatalf("read back: %v, %v", again, err)
	}
	if _, err := LiftIsolation(again, "worker:claude"); !errors.Is(err, ErrNotIsolated) || !strings.Contains(err.Error(), "worker:codex") {
		t.Errorf("lifting what is not isolated: %v, want ErrNotIsolated and what is", err)
	}
	if _, err := LiftIsolation(again, "codex"); err == nil || errors.Is(err, ErrNotIsolated) || !strings.Contains(err.Error(), "worker:KIND") {
		t.Errorf("lifting no scope: %v, want what a scope looks like", err)
	}
	if i, err := LiftIsolation(again, "worker:codex"); err != nil || i.Message != "it crashed" {
		t.Errorf("lifting: %+v, %v", i, err)
	}
	if err := os.WriteFile(path, []byte(`[{"scope":`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadIsolations(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a torn file: %v, want an error that names it", err)
	}
	left, err := filepath.Glob(path + "-*")
	if err != nil || len(left) > 0 {
		t.Errorf("temporary files stay behind: %v, %v", left, err)
	}
}
