package schedule_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/schedule"
)

// TestPlacement plays random hosts and jobs and compares each rest of the machine with what a
// plain look at all of them says: no host has more than its slots and its memory, each job is on
// a host that satisfies it, nothing that has room waits, and the same happens each time.
func TestPlacement(t *testing.T) {
	for _, lines := range [][]string{
		// The other host, where the worker is not isolated, is too small for the job.
		{"host a slots=0 memory=1 labels=x", "host b slots=0 memory=0 labels=x out=codex@t", "add # tenant=t worker=codex memory=2"},
		// It is isolated on both, on one of them for this tenant alone, and that one takes no new jobs.
		{"host a slots=0 memory=0 labels=x cordoned out=codex@t", "host b slots=0 memory=0 labels=x out=codex,shell@u", "add # tenant=t worker=codex memory=0"},
	} {
		for _, p := range schedule.Placements() {
			if log, wrong := playPlaces(t, lines, p); wrong != "" || log != "j002 on b\n" {
				t.Errorf("%s: started %q: %s", p, log, wrong)
			}
		}
	}
	rapid.Check(t, func(r *rapid.T) {
		lines := rapid.SliceOfN(rapid.Custom(placeLine), 5, 60).Draw(r, "lines")
		for _, p := range schedule.Placements() {
			first, wrong := playPlaces(t, lines, p)
			if wrong != "" {
				r.Fatalf("%s: %s", p, wrong)
			}
			if again, _ := playPlaces(t, lines, p); again != first {
				r.Fatalf("%s: the same events, other starts:\n%s\nand then:\n%s", p, first, again)
			}
		}
	})
}

// placeLine draws a line of a transcript; "end" and "back" are about the n-th job in flight.
func placeLine(r *rapid.T) string {
	var b strings.Builder
	some := func(of ...string) string { return rapid.SampledFrom(of).Draw(r, "word") }
	host := func() string { return some("a", "b", "c") }
	number := func(most int) int { return rapid.IntRange(0, most).Draw(r, "number") }
	switch kind := number(11); {
	case kind < 3:
		fmt.Fprintf(&b, "host %s slots=%d memory=%d labels=%s %s", host(), number(3), number(4), some("x", "x=1", "x=2,y", "z"), some("", "", "", "cordoned", "isolated"))
		if kinds := some("", "shell", "codex,shell"); kinds != "" {
			b.WriteString(" kinds=" + kinds)
		}
		if levels := some("", "", "-", "standard,strict"); levels != "" {
			b.WriteString(" levels=" + levels)
		}
		if out := some("", "", "", "shell", "codex@t", "codex,shell@u"); out != "" {
			b.WriteString(" out=" + out)
		}
	case kind == 3:
		b.WriteString("lost " + host())
	case kind < 7:
		fmt.Fprintf(&b, "add # tenant=%s worker=%s memory=%d", some("t", "u"), some("shell", "codex"), number(2))
		if held := some("", "", "standard", "none"); held != "" {
			b.WriteString(" held=" + held)
		}
		if has := some("", "", "x", "x=1", "y,x"); has != "" {
			b.WriteString(" has=" + has)
		}
		if on := some("", "", "", "a", "d"); on != "" {
			b.WriteString(" on=" + on)
		}
		if session := some("", "", "a", "d"); session != "" {
			b.WriteString(" session=" + session)
		}
	case kind < 10:
		fmt.Fprintf(&b, "%s %d", some("end", "end", "back"), number(9))
	case kind == 10:
		fmt.Fprintf(&b, "bounds slots=%d", number(6))
	default:
		fmt.Fprintf(&b, "later %d", number(40))
	}
	return b.String()
}

// placing is a player that looks at where jobs run.
type placing struct {
	*player
	slots int
	on    map[job.ID]*schedule.Host // what is in flight
	log   strings.Builder
	wrong strings.Builder
}

func (p *placing) wrongf(format string, args ...any) {
	fmt.Fprintf(&p.wrong, "after %q: %s\n", p.line, fmt.Sprintf(format, args...))
}

// playPlaces returns what was started where, and what is wrong with it.
func playPlaces(t *testing.T, lines []string, how schedule.Placement) (log, wrong string) {
	c := schedule.Config{Bounds: schedule.Bounds{Slots: 6}, Placement: how}
	p := &placing{player: &player{world: newWorld(t, c)}, slots: 6, on: map[job.ID]*schedule.Host{}}
	for n, line := range lines {
		words := strings.Fields(line)
		flying := p.inState(job.Dispatched)
		switch words[0] {
		case "later":
			seconds, err := strconv.Atoi(words[1])
			if err != nil {
				t.Fatal(err)
			}
			p.now = p.now.Add(time.Duration(seconds) * time.Second)
			words = []string{"tick"}
		case "add":
			words[1] = fmt.Sprintf("j%03d", n)
		case "bounds":
			if _, err := fmt.Sscanf(words[1], "slots=%d", &p.slots); err != nil {
				t.Fatal(err)
			}
		case "end", "back":
			if len(flying) == 0 {
				continue
			}
			words[1] = string(flying[int(words[1][0]-'0')%len(flying)].ID)
			delete(p.on, job.ID(words[1]))
		}
		p.line = line
		p.look(p.rest(p.event(words[0], words[1:])...))
	}
	return p.log.String(), p.wrong.String()
}

// has says naively whether a host satisfies a job.
func has(h *schedule.Host, r *row) bool {
	for _, l := range r.Node.Has {
		key, value, exact := strings.Cut(l, "=")
		if have, is := h.Labels[key]; !is || exact && have != value {
			return false
		}
	}
	return (r.Node.Name == "" || r.Node.Name == h.Name) && (h.Kinds == nil || slices.Contains(h.Kinds, r.Worker)) &&
		(h.Levels == nil || slices.ContainsFunc(h.Levels, func(l job.SandboxLevel) bool { return l == r.Sandbox || r.Sandbox == "" && l == h.Sandbox }))
}

// isOut says naively whether the job's worker is isolated on a host, and elsewhere it is not.
func (p *placing) isOut(h *schedule.Host, r *row) bool {
	out := func(h *schedule.Host) bool {
		return slices.ContainsFunc(h.Out, func(s isolation.Scope) bool {
			return s == isolation.WorkerScope(r.Worker) || s == isolation.TenantScope(r.Worker, r.lane.Tenant)
		})
	}
	return out(h) && slices.ContainsFunc(p.hosts, func(c schedule.Core) bool {
		return has(c.Host, r) && (c.Host.Memory == 0 || int64(r.Memory) <= c.Host.Memory) && !out(c.Host)
	})
}

// room says naively whether a host can take one more job: its slots and memory are those of now,
// which may be less than what it has taken.
func (p *placing) room(h *schedule.Host, r *row) bool {
	n, memory := 0, int64(0)
	for id, on := range p.on {
		if on.Name == h.Name {
			n++
			memory += int64(p.find(id).Memory)
		}
	}
	return !h.Cordoned && !h.Isolated && (h.Slots == 0 || n < h.Slots) && (h.Memory == 0 || memory+int64(r.Memory) <= h.Memory)
}

func (p *placing) host(name string) *schedule.Host {
	for _, c := range p.hosts {
		if c.Host.Name == name {
			return c.Host
		}
	}
	return nil
}

// look compares what was started, and what was not, with what hosts there are.
func (p *placing) look(started []*schedule.Run) {
	for _, s := range started {
		r, h := p.find(s.Entry.ID), p.host(s.Node)
		switch {
		case h == nil:
			p.wrongf("%s was started on %q, which is not there", r.ID, s.Node)
			continue
		case p.isOut(h, r):
			p.wrongf("%s was started on %+v, where its worker is isolated", r.ID, *h)
		case !has(h, r) || !p.room(h, r):
			p.wrongf("%s was started on %+v, which does not have what it asks for, or no room: %+v", r.ID, *h, r.Head)
		case len(p.on) >= p.slots:
			p.wrongf("%s was started beyond %d slots", r.ID, p.slots)
		case r.Resumes && (s.Resume() == "" || s.Moved() != (r.SessionNode != h.Name)):
			p.wrongf("%s goes on with %q on %s, from elsewhere: %v; its session is on %s", r.ID, s.Resume(), h.Name, s.Moved(), r.SessionNode)
		}
		p.on[r.ID] = h
		fmt.Fprintln(&p.log, r.ID, "on", h.Name)
	}
	for _, r := range p.inState(job.Queued) {
		own := p.host(r.SessionNode)
		if len(p.on) >= p.slots || r.RunnableAt.After(p.now) || r.Resumes && own != nil && has(own, r) && !p.room(own, r) && p.waitsShortly(r) {
			continue
		}
		for _, c := range p.hosts {
			if has(c.Host, r) && p.room(c.Host, r) && !p.isOut(c.Host, r) {
				p.wrongf("%s waits, though %s has room: %+v", r.ID, c.Host.Name, r.Head)
			}
		}
	}
}

// waitsShortly reports whether a job may still wait for the host of its session.
func (p *placing) waitsShortly(r *row) bool {
	w, _ := p.m.Refuses(p.now, r.lane.Tenant, r.Head, "", true)
	return strings.Contains(w.Text, "which has its session") && p.ready.Wake.After(p.now) && !p.ready.Wake.After(p.now.Add(30*time.Second))
}

// BenchmarkPlace measures what it takes to end one job and choose the next with so many hosts,
// each with ten jobs in flight and no slot free, or with ten more.
func BenchmarkPlace(b *testing.B) {
	for _, hosts := range []int{1, 1000} {
		for _, slots := range []int{10, 20} {
			b.Run(fmt.Sprintf("hosts=%d/taken=10of%d", hosts, slots), func(b *testing.B) { benchmarkPlace(b, hosts, slots) })
		}
	}
}

func benchmarkPlace(b *testing.B, hosts, each int) {
	slots := 10 * hosts
	w := newWorld(b, schedule.Config{Bounds: schedule.Bounds{Slots: slots}})
	var cores schedule.Cores
	for n := range hosts {
		h := &schedule.Host{Name: fmt.Sprint("n", n), Slots: each, Memory: 64 << 30, Labels: map[string]string{"gpu": "yes"}, Kinds: []job.WorkerKind{"claude", "shell"}}
		cores = append(cores, schedule.Core{ID: schedule.CoreID(n + 1), Index: n + 1, Host: h, Takes: true})
	}
	w.m.Step(midnight, cores)
	version := uint64(0)
	lane := func(from, n int) schedule.HeadsRead {
		version++
		read := schedule.HeadsRead{}
		read.Version, read.All = version, true
		l := queue.LaneHeads{Lane: job.Lane{Tenant: "t"}}
		for i := range n {
			l.Heads = append(l.Heads, queue.Head{ID: job.ID(fmt.Sprintf("j%09d", from+i)), RunnableAt: midnight, Worker: "shell",
				Memory: 1 << 30, Node: job.Node{Has: []string{"gpu"}}})
		}
		read.Lanes = []queue.LaneHeads{l}
		return read
	}
	claims := func(ready schedule.Ready, want int) []job.ID {
		if len(ready.Claims) != 1 || len(ready.Claims[0].IDs) != want {
			b.Fatalf("%d claims, want one of %d", len(ready.Claims), want)
		}
		return ready.Claims[0].IDs
	}
	flying := claims(w.m.Step(midnight, lane(0, slots)), slots)
	next := slots
	for b.Loop() {
		w.m.Step(midnight, schedule.Gone{ID: flying[0]}, schedule.Changed{})
		flying = append(flying[1:], claims(w.m.Step(midnight, lane(next, 1)), 1)...)
		next++
	}
}

// TestHostGoneMeanwhile: a claim whose host is gone when it is committed is given back, and the
// job runs elsewhere.
func TestHostGoneMeanwhile(t *testing.T) {
	p := newPilot(t)
	p.rest(p.event("host", []string{"a"})...)
	p.add(task(1, "t", 0))
	p.step(schedule.Changed{})
	p.step(p.answers()...)
	claimed := p.answers()
	p.step(append(p.event("lost", []string{"a"}), claimed...)...)
	if len(p.ready.Work) != 1 || !strings.Contains(fmt.Sprint(p.said()), "release(choice 0 at 200ms, waiting for a core") {
		t.Errorf("asked for %+v, want that the claim is given back", p.ready.Work)
	}
	p.rest(p.happens("done", []string{"j001"})...)
	p.now = p.now.Add(time.Second)
	if started := p.rest(p.event("host", []string{"b"})...); len(started) != 1 || started[0].Node != "b" {
		t.Errorf("started %+v, want the job on b", started)
	}
}

// TestReordered: of workers whose order has changed since a host was chosen, the first one runs
// that the host has.
func TestReordered(t *testing.T) {
	w := newWorld(t, schedule.Config{Bounds: schedule.Bounds{Slots: 1}})
	r := task(1, "t", 0)
	r.Worker = "codex"
	w.add(r)
	w.step(schedule.Cores{{ID: 1, Index: 1, Takes: true, Host: &schedule.Host{Name: "a", Kinds: []job.WorkerKind{"codex"}}}})
	w.step(w.answers()...)
	spec := job.Spec{Tenant: "t", Worker: "codex", Fallback: []job.Choice{{Worker: "claude"}}, Flow: job.Flow{Best: true}}
	w.step(schedule.Claimed{Asked: w.ready.Claims[0].IDs, Entries: []queue.Entry{{ID: r.ID, Spec: spec}}})
	spec.Worker, spec.Fallback = "claude", []job.Choice{{Worker: "codex"}}
	w.step(schedule.Done{Job: r.ID, Prepared: schedule.Prepared{Spec: &spec}})
	if s := w.started(); len(s) != 1 || s[0].Choice.Worker != "codex" || s[0].Index != 1 || s[0].Because != "node a has no claude" {
		t.Errorf("started %+v, want codex, the second choice", s)
	}
}

// TestLeftBehindCounts: a run of an earlier scheduler has its slot and its memory on its host,
// before that has come and after.
func TestLeftBehindCounts(t *testing.T) {
	p := newPilot(t)
	e := queue.Entry{ID: "over", Fence: 7, Attempts: 1, Spec: job.Spec{Tenant: "t", Worker: "shell", Node: job.Node{Memory: 2 << 30}}}
	attempt := job.Attempt{Job: "over", Number: 1, Choice: job.Choice{Worker: "shell"}, State: job.Running, Node: "a", Started: p.now}
	p.rest(schedule.LeftBehind{{Entry: e, Attempt: attempt}})
	p.rest(p.event("host", []string{"a", "slots=2", "memory=3"})...)
	p.line = "add"
	if s := p.rest(p.event("add", []string{"large", "tenant=t", "memory=2"})...); len(s) != 0 {
		t.Errorf("%s was started beyond the memory", s[0].Entry.ID)
	}
	p.rest(schedule.TakenOver{Core: 1, Runs: []schedule.Takeover{{Entry: e, Attempt: attempt}}})
	if s := p.rest(p.event("add", []string{"small", "tenant=t", "memory=1"})...); len(s) != 1 {
		t.Errorf("%d were started, want one in the place that is left", len(s))
	}
	if s := p.rest(schedule.Gone{ID: "small", Over: true}, schedule.Gone{ID: "over", Over: true}); len(s) != 1 || s[0].Entry.ID != "large" {
		t.Errorf("started %+v, want the one that waits for the memory", s)
	}
}

// TestTakenOverAttempts: the attempt of a run that was taken over counts once when it fails.
func TestTakenOverAttempts(t *testing.T) {
	for counted, exit := range map[int]job.ExitKind{1: "", 2: job.ExitFailed} {
		p := newPilot(t)
		e := queue.Entry{ID: "over", Fence: 7, Attempts: counted + 1, Counted: counted, Spec: job.Spec{Tenant: "t", Worker: "shell", Limits: job.Limits{MaxAttempts: 2}}}
		attempt := job.Attempt{Job: "over", Number: counted + 1, Choice: job.Choice{Worker: "shell"}, State: job.Running, Node: "a", Started: p.now}
		p.rest(schedule.LeftBehind{{Entry: e, Attempt: attempt}})
		p.rest(p.event("host", []string{"a", "slots=2"})...)
		p.rest(schedule.TakenOver{Core: 1, Runs: []schedule.Takeover{{Entry: e, Attempt: attempt}}})
		p.step(schedule.Ended{Core: 1, Job: "over", Attempt: counted + 1, Outcome: job.Outcome{State: job.RunFailed, Class: job.Crash}})
		var end queue.Finish
		for _, w := range p.ready.Work {
			for _, op := range w.Ops {
				if f, ok := op.(queue.Finish); ok {
					end = f
				}
			}
		}
		if end.Attempt != counted+1 || end.Exit != exit {
			t.Errorf("after %d attempts of 2 that count: %+v, want exit %q", counted, end, exit)
		}
	}
}
