package watchdog

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/job"
)

func TestDefenceTranscripts(t *testing.T) {
	transcripts(t, "defence", func() player {
		return &defencePlayer{d: NewDefence(Default().Defence), in: Inputs{MaxConcurrent: 8}}
	})
}

// defencePlayer keeps the inputs from line to line: what a line does not name
// stays as it was.
type defencePlayer struct {
	d  *Defence
	in Inputs
}

func (p *defencePlayer) play(t *testing.T, now time.Time, verb string, w lineWords) []string {
	switch verb {
	case "step":
		p.set(t, now, w)
		var out []string
		for _, a := range p.d.Step(now, p.in) {
			line := fmt.Sprintf("%s %s", a.Do, a.Stage)
			if a.Kind != "" {
				line += " " + string(a.Kind)
			}
			if a.Concurrency > 0 {
				line += fmt.Sprintf(" concurrency=%d", a.Concurrency)
			}
			out = append(out, line+": "+a.Evidence)
		}
		if out == nil {
			out = []string{p.d.Stage().String()}
		}
		return out
	case "admit":
		r := Request{Kind: "claude"}
		for key, set := range map[string]func(string){
			"class":  func(s string) { r.Class = job.Class(s) },
			"kind":   func(s string) { r.Kind = job.WorkerKind(s) },
			"tenant": func(s string) { r.Tenant = job.Tenant(s) },
		} {
			if value, ok := w.text(key); ok {
				set(value)
			}
		}
		d := p.d.Admit(r)
		line := string(d.Action)
		if d.Reason != "" {
			line += fmt.Sprintf(" %s retry=%s", d.Reason, d.RetryAfter)
		}
		if d.Concurrency > 0 {
			line += fmt.Sprintf(" concurrency=%d", d.Concurrency)
		}
		if d.Message != "" {
			line += ": " + d.Message
		}
		return []string{line}
	case "protect":
		cfg := Default().Defence
		for _, tenant := range w.plain {
			cfg.ProtectTenants = append(cfg.ProtectTenants, job.Tenant(tenant))
		}
		p.d.Configure(cfg)
		return nil
	}
	t.Fatalf("no verb %q", verb)
	return nil
}

func (p *defencePlayer) set(t *testing.T, now time.Time, w lineWords) {
	m, q := &p.in.Metrics, &p.in.Queue
	for key := range w.named {
		if class, ok := strings.CutPrefix(key, "depth."); ok {
			p.class(job.Class(class), func(c *ClassQueue) { n, _ := w.number(key); c.Depth = int(n) })
		} else if class, ok := strings.CutPrefix(key, "oldest."); ok {
			p.class(job.Class(class), func(c *ClassQueue) { d, _ := w.duration(key); c.OldestMS = d.Milliseconds() })
		} else if kind, ok := strings.CutPrefix(key, "sick."); ok {
			count, of, _ := w.parts(key)
			if m.Kinds == nil {
				m.Kinds = map[job.WorkerKind]KindSnapshot{}
			}
			m.Kinds[job.WorkerKind(kind)] = KindSnapshot{Sick: rate(count, of)}
		}
	}
	if n, ok := w.number("depth"); ok {
		q.Depth = int(n)
	}
	if d, ok := w.duration("oldest"); ok {
		q.OldestMS = d.Milliseconds()
	}
	if d, ok := w.duration("cancel"); ok {
		m.Last.CancelLatency = now
		m.CancelLatency = Latency{Count: 1, P95: d.Milliseconds()}
	}
	if d, ok := w.duration("heartbeat"); ok {
		m.Heartbeat = Latency{Count: 1, P95: d.Milliseconds()}
	}
	if count, of, ok := w.parts("timeouts"); ok {
		m.Timeouts = rate(count, of)
		if count > 0 {
			m.Last.Timeout = now
		}
	}
	if d, ok := w.duration("lag"); ok {
		m.Last.QueueLag = now
		m.QueueLag = Latency{Count: 1, P95: d.Milliseconds()}
	}
	if d, ok := w.duration("lock"); ok {
		m.Last.LockWait = now
		m.LockWait = Latency{Count: 1, P95: d.Milliseconds()}
	}
	if n, ok := w.number("inflight"); ok {
		m.Inflight = int(n)
	}
	if mib, ok := w.number("rss_mib"); ok {
		bytes := mib << 20
		m.RSS = &bytes
	}
	if n, ok := w.number("max"); ok {
		p.in.MaxConcurrent = int(n)
	}
}

func (p *defencePlayer) class(c job.Class, set func(*ClassQueue)) {
	if p.in.Queue.ByClass == nil {
		p.in.Queue.ByClass = map[job.Class]ClassQueue{}
	}
	part := p.in.Queue.ByClass[c]
	set(&part)
	p.in.Queue.ByClass[c] = part
}

// drawInputs draws inputs around the default thresholds, and beyond.
func drawInputs(t *rapid.T) Inputs {
	ms := func(label string, high int64) int64 { return rapid.Int64Range(0, high).Draw(t, label) }
	in := Inputs{MaxConcurrent: rapid.IntRange(0, 16).Draw(t, "max")}
	in.Queue = QueueMetrics{Depth: rapid.IntRange(0, 1500).Draw(t, "depth"), OldestMS: ms("oldest", 900_000)}
	of := ms("runs", 12)
	in.Metrics.Timeouts = rate(min(ms("timeouts", 12), of), of)
	in.Metrics.CancelLatency = Latency{Count: ms("cancels", 2), P95: ms("cancel", 20_000)}
	in.Metrics.Heartbeat = Latency{Count: ms("beats", 2), P95: ms("beat", 6000)}
	if rapid.Bool().Draw(t, "known") {
		ratio := rapid.Float64Range(0, 3).Draw(t, "cpu")
		in.Metrics.CPU = &ratio
	}
	in.Metrics.Kinds = map[job.WorkerKind]KindSnapshot{}
	for _, kind := range []job.WorkerKind{"claude", "codex", "opencode"} {
		of := ms("ended", 12)
		in.Metrics.Kinds[kind] = KindSnapshot{Sick: rate(min(ms("sick", 12), of), of)}
	}
	return in
}

func dwellOf(d Dwell, s Stage) time.Duration {
	return []job.Duration{d.Normal, d.Shed, d.Throttle, d.OpenBreaker, d.Escalate}[s].Std()
}

// However the inputs jump: one stage at a time, none for less than its dwell
// time, one breaker in each dwell time of its stage and each kind once, a
// concurrency that is never none, and decisions that fit the stage.
func TestDefenceDoesNotFlap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := Default().Defence
		d := NewDefence(cfg)
		now, stage := midnight, Normal
		var entered, opened time.Time
		kinds := map[job.WorkerKind]bool{}
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 40_000).Draw(t, "wait")) * time.Millisecond)
			in := drawInputs(t)
			for _, a := range d.Step(now, in) {
				switch a.Do {
				case DoEnter, DoRelax:
					if diff := a.Stage - stage; diff != 1 && a.Do == DoEnter || diff != -1 && a.Do == DoRelax {
						t.Fatalf("%s from %s to %s", a.Do, stage, a.Stage)
					}
					if dwelt := now.Sub(entered); !entered.IsZero() && dwelt < dwellOf(cfg.Dwell, stage) {
						t.Fatalf("%s lasted only %s", stage, dwelt)
					}
					stage, entered = a.Stage, now
					if stage < OpenBreaker {
						clear(kinds)
					}
				case DoOpenBreaker:
					if stage < OpenBreaker || kinds[a.Kind] {
						t.Fatalf("breaker of %s opened at %s, before: %v", a.Kind, stage, kinds)
					}
					if len(kinds) > 0 && now.Sub(opened) < cfg.Dwell.OpenBreaker.Std() {
						t.Fatalf("two breakers opened within %s", now.Sub(opened))
					}
					kinds[a.Kind], opened = true, now
				case DoEscalate:
					if stage != Escalate {
						t.Fatalf("escalated at %s", stage)
					}
				}
				if a.Evidence == "" {
					t.Fatalf("%+v has no evidence", a)
				}
			}
			if d.Stage() != stage {
				t.Fatalf("at stage %s, its actions said %s", d.Stage(), stage)
			}
			checkAdmit(t, d, stage, in.MaxConcurrent)
		}
	})
}

func checkAdmit(t *rapid.T, d *Defence, stage Stage, limit int) {
	t.Helper()
	for _, r := range []Request{{Kind: "codex", Class: job.Batch}, {Kind: "codex"}, {Kind: "codex", Class: job.Interactive}} {
		a := d.Admit(r)
		switch {
		case stage == Normal && a != (Decision{Action: Accept}),
			a.Action != Accept && (a.Reason == "" || a.Reason.Terminal() || a.RetryAfter <= 0 || a.Message == ""),
			a.Action == Accept && (a.Reason != "" || a.RetryAfter != 0),
			r.Class == job.Interactive && (a.Action == Reject || a.Action == Defer),
			stage >= Shed && r.Class == job.Batch && a.Action != Reject,
			stage == Shed && r.Class != job.Batch && a.Action != Accept,
			(a.Concurrency > 0) != (stage >= Throttle && limit > 0),
			a.Concurrency < 0 || a.Concurrency > limit:
			t.Fatalf("at %s with %d slots, %+v is answered %+v", stage, limit, r, a)
		}
	}
}

// Inputs that do not change move the stage one way only, and not for ever.
func TestDefenceSettles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := NewDefence(Default().Defence)
		now := midnight
		for range rapid.IntRange(0, 20).Draw(t, "before") {
			now = now.Add(time.Minute)
			d.Step(now, drawInputs(t))
		}
		in := drawInputs(t)
		way := Do("")
		for range 30 {
			now = now.Add(5 * time.Minute) // the longest dwell time
			for _, a := range d.Step(now, in) {
				if a.Do == DoEnter || a.Do == DoRelax {
					if way != "" && way != a.Do {
						t.Fatalf("%s after %s, with the same inputs", a.Do, way)
					}
					way = a.Do
				}
			}
		}
		settled := d.Stage()
		for range 10 {
			now = now.Add(5 * time.Minute)
			d.Step(now, in)
		}
		if d.Stage() != settled {
			t.Fatalf("went on from %s to %s", settled, d.Stage())
		}
		for range 10 {
			now = now.Add(5 * time.Minute)
			d.Step(now, Inputs{})
		}
		if d.Stage() != Normal {
			t.Fatalf("at %s, long after all has become calm", d.Stage())
		}
	})
}

// The same history gives the same decisions, to the letter.
func TestDefenceIsDeterministic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type step struct {
			at time.Time
			in Inputs
		}
		var history []step
		now := midnight
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 60).Draw(t, "wait")) * time.Second)
			history = append(history, step{now, drawInputs(t)})
		}
		run := func() (all []any) {
			d := NewDefence(Default().Defence)
			for _, s := range history {
				all = append(all, d.Step(s.at, s.in), d.Admit(Request{Kind: "claude"}), d.Admit(Request{Kind: "codex", Class: job.Batch}))
			}
			return all
		}
		if a, b := run(), run(); !reflect.DeepEqual(a, b) {
			t.Fatalf("two runs of one history differ:\n%v\n%v", a, b)
		}
	})
}

// Escalations keep their promise of determinism too, though they hold maps.
func TestEscalationsAreDeterministic(t *testing.T) {
	for seed := range uint64(20) {
		run := func() (all []isolation.Escalation) {
			random := rand.New(rand.NewPCG(seed, 0))
			e := NewEscalations(Default().Escalation)
			now := midnight
			for range 3000 {
				now = now.Add(time.Duration(random.IntN(2000)) * time.Millisecond)
				all = append(all, e.Observe(now, anySignal(random))...)
			}
			return all
		}
		if a, b := run(), run(); !reflect.DeepEqual(a, b) || len(a) == 0 {
			t.Fatalf("two runs of one history differ, or nothing was escalated:\n%v\n%v", a, b)
		}
	}
}

func anySignal(r *rand.Rand) Signal {
	path := fmt.Sprint("/w/", r.IntN(2000))
	if r.IntN(2) == 0 {
		path = "/w/busy"
	}
	return []Signal{
		WorkerCrash{[]job.WorkerKind{"codex", "claude"}[r.IntN(2)], []job.Tenant{"ann", "bob"}[r.IntN(2)], job.ID(fmt.Sprint(r.IntN(4)))},
		LatestWins{path}, CoreCrash{}, Ghost{"pid 1"},
		DiskSpace{Path: path, FreeBytes: r.Int64N(1 << 32), TotalBytes: 1 << 35},
		ClockJump{time.Duration(r.Int64N(20)-10) * time.Second}, Overload{"x"},
	}[r.IntN(7)]
}
