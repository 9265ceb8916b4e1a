package eval

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"pgregory.net/rapid"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/queue/sqlite"
)

// bench is an evaluator over a store in memory whose clock goes on by a second
// each time it is read.
func bench(t testing.TB, m *memory, change func(*Config)) *Evaluator {
	t.Helper()
	now := epoch
	var mu sync.Mutex
	c := Config{Store: m, Settings: DefaultSettings(), Now: func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(time.Second)
		return now
	}}
	if change != nil {
		change(&c)
	}
	return New(c)
}

func work(id job.ID, change func(*queue.Entry)) *queue.Entry {
	return ended(job.ExitSucceeded, func(e *queue.Entry) {
		e.ID, e.Spec.Name, e.Spec.Agent = id, job.Name(id), "agent-7"
		if change != nil {
			change(e)
		}
	})
}

// must is for must(f(x))(t).
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestRecord(t *testing.T) {
	ctx, m := t.Context(), newMemory()
	var told []Verdict
	v := bench(t, m, func(c *Config) { c.Changed = func(v Verdict) { told = append(told, v) } })
	first := []job.Attempt{tried(1, "claude", job.Crash, time.Minute, 1), tried(2, "codex", "", 4*time.Minute, 1)}
	first[1].Choice.Model = "openai/gpt"
	verdict := must(v.Record(ctx, work("one", nil), first))(t)
	if len(verdict.Evaluations) != 2 || len(told) != 1 {
		t.Fatalf("%+v, told %d times", verdict, len(told))
	}
	want := map[Subject]struct {
		domain string
		r      float64
	}{
		{Worker, "claude"}:           {DefaultDomain, (0.10 * 1) / (0.20 + 0.15 + 0.15 + 0.10)}, // it failed: only that nothing was done again speaks for it
		{Worker, "codex:openai/gpt"}: {DefaultDomain, 1},
		{Agent, "website/agent-7"}:   {DefaultDomain, 1},
		{Tenant, "website"}:          {AllDomains, 1},
	}
	all := must(v.Reputations(ctx, Filter{}))(t)
	if len(all) != len(want) {
		t.Errorf("reputations are %+v", all)
	}
	for s, w := range want {
		r := must(v.Of(ctx, s, ""))(t)
		if r.N != 1 || r.Domain != w.domain || math.Abs(r.R-w.r) > 1e-12 || r.Subject != s || r.LastJob != "one" {
			t.Errorf("%v is %+v, want %v", s, r, w)
		}
	}
	for _, c := range []struct {
		filter Filter
		want   int
	}{{Filter{Name: "codex"}, 1}, {Filter{Name: "cod"}, 0}, {Filter{Name: "website"}, 2}, {Filter{Domain: DefaultDomain}, 3}, {Filter{Kind: Tenant}, 1}} {
		if got := must(v.Reputations(ctx, c.filter))(t); len(got) != c.want {
			t.Errorf("%+v selects %+v, want %d", c.filter, got, c.want)
		}
	}
	if r := must(v.Of(ctx, Subject{Worker, "nobody"}, ""))(t); r.N != 0 || r.R != 0 {
		t.Errorf("nobody has %+v", r)
	}

	known := must(v.Known(ctx, "", []job.Choice{{Worker: "claude"}, {Worker: "codex", Model: "openai/gpt"}, {Worker: "codex"}}))(t)
	if r, n := known(job.Choice{Worker: "codex", Model: "openai/gpt"}); r != 1 || n != 1 {
		t.Errorf("codex is known by %v of %d", r, n)
	}
	if r, n := known(job.Choice{Worker: "codex"}); r != 0 || n != 0 {
		t.Errorf("codex without a model is known by %v of %d", r, n)
	}
	if got := must(v.Tenants(ctx))(t); !reflect.DeepEqual(got, map[job.Tenant]float64{"website": 1}) {
		t.Errorf("tenants are %v", got)
	}

	// Asked again, whatever the clock says, nothing more is counted.
	if again := must(v.Record(ctx, work("one", nil), first))(t); len(again.Ops) != 0 || len(told) != 1 {
		t.Errorf("asked again it is %+v", again)
	}
	// A job that is not to be judged, and one that has not ended, are not.
	for _, e := range []*queue.Entry{work("two", func(e *queue.Entry) { e.Spec.Flow.Evaluation = nil }), work("three", func(e *queue.Entry) { e.State = job.Queued })} {
		if verdict := must(v.Record(ctx, e, first))(t); len(verdict.Ops) != 0 {
			t.Errorf("%s gives %+v", e.ID, verdict)
		}
	}
}

// TestKilledBetweenJudgingAndStoring judges again, and counts once.
func TestKilledBetweenJudgingAndStoring(t *testing.T) {
	ctx, m := t.Context(), newMemory()
	e, attempts := work("one", nil), []job.Attempt{tried(1, "a", "", time.Minute, 1)}
	m.fail = errKilled
	if _, err := bench(t, m, nil).Record(ctx, e, attempts); !errors.Is(err, errKilled) {
		t.Fatalf("%v", err)
	}
	if len(m.records) != 0 {
		t.Fatalf("%v was stored", m.records)
	}
	v := bench(t, m, nil)
	m.put(e, attempts...)
	for range 2 {
		if err := v.Batch(ctx, "b"); err != nil {
			t.Fatal(err)
		}
	}
	if r := must(v.Of(ctx, Subject{Worker, "a"}, ""))(t); r.N != 1 {
		t.Errorf("it counts %d times", r.N)
	}
	// Ops that are applied twice, by whoever, do no harm either.
	verdict := must(v.Judge(ctx, work("two", nil), attempts))(t)
	for range 2 {
		if err := m.Apply(ctx, verdict.Ops...); err != nil {
			t.Fatal(err)
		}
	}
	if r := must(v.Of(ctx, Subject{Worker, "a"}, ""))(t); r.N != 2 {
		t.Errorf("it counts %d times", r.N)
	}
	// Ops that are out of date are refused as a whole.
	stale := must(v.Judge(ctx, work("three", nil), attempts))(t)
	must(v.Record(ctx, work("four", nil), attempts))(t)
	if err := m.Apply(ctx, stale.Ops...); !errors.Is(err, queue.ErrExists) {
		t.Errorf("stale ops: %v", err)
	}
	if _, any, _ := read[Evaluation](ctx, m, ofJob("three"), jobKey(1, BySelf)); any {
		t.Error("a part of them was stored")
	}
}

// TestSeveralAtOnce has evaluators that do not know of each other count for the
// same subjects.
func TestSeveralAtOnce(t *testing.T) {
	ctx, m := t.Context(), newMemory()
	const evaluators, jobs = 4, 25
	var wg sync.WaitGroup
	for i := range evaluators {
		v := bench(t, m, nil)
		wg.Go(func() {
			for n := range jobs {
				// All judge the even ones.
				id := job.ID(fmt.Sprintf("%d-%d", (n%2)*i, n))
				if _, err := v.Record(ctx, work(id, nil), []job.Attempt{tried(1, "a", "", time.Duration(n)*time.Minute, 1)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	r := must(Of(ctx, m, Subject{Worker, "a"}, ""))(t)
	if want := (jobs+1)/2 + evaluators*(jobs/2); r.N != want {
		t.Errorf("%d were counted, want %d", r.N, want)
	}
	if again := must(recompute(ctx, m, r.Subject, r.Domain))(t); !reflect.DeepEqual(again, r) {
		t.Errorf("recomputed it is %+v, kept is %+v", again, r)
	}
}

// recompute works a reputation out from the evaluations that were counted. It is
// what Of returns, unless somebody has changed the records.
func recompute(ctx context.Context, j queue.Journal, s Subject, domain string) (Reputation, error) {
	a := accountOf(s, domain)
	r := Reputation{Subject: a.subject, Domain: a.domain}
	err := History(ctx, j, s, domain, func(_ *Evaluation, after Reputation) { r = after })
	return r, err
}

// TestRecomputed plays random ends of random jobs, with settings that change, and
// compares what is kept with what the records give.
func TestRecomputed(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		ctx, m := context.Background(), newMemory()
		v := bench(t, m, nil)
		for n := range rapid.IntRange(1, 20).Draw(rt, "jobs") {
			v.Use(Settings{Alpha: rapid.Float64Range(0.01, 1).Draw(rt, "alpha"), Weights: map[string]Weights{"legal": drawWeights(rt)}})
			e := work(job.ID(fmt.Sprint(n)), func(e *queue.Entry) {
				e.Spec.Flow.Evaluation.Domain = rapid.SampledFrom([]string{"", "legal", "a/b"}).Draw(rt, "domain")
				e.ExitKind = rapid.SampledFrom([]job.ExitKind{job.ExitSucceeded, job.ExitFailed}).Draw(rt, "exit")
			})
			attempts := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) job.Attempt {
				class := rapid.SampledFrom([]job.ErrorClass{"", job.Crash, job.HumanRejected, job.Auth}).Draw(rt, "class")
				return tried(0, rapid.SampledFrom([]job.WorkerKind{"a", "b"}).Draw(rt, "worker"), class, time.Duration(rapid.IntRange(0, 1000).Draw(rt, "took"))*time.Second, 1)
			}), 1, 3).Draw(rt, "attempts")
			for i := range attempts {
				attempts[i].Number = i + 1
			}
			if _, err := v.Record(ctx, e, attempts); err != nil {
				rt.Fatal(err)
			}
			if rapid.Bool().Draw(rt, "a person, too") {
				_, err := v.Report(ctx, e, attempts, Given{By: "anna", Report: Report{Vector: drawVector(rt, "given").With(Quality, 0.5)}})
				if err != nil && !errors.Is(err, ErrNothing) {
					rt.Fatal(err)
				}
			}
		}
		all := must(v.Reputations(ctx, Filter{}))(t)
		for _, r := range all {
			again, err := recompute(ctx, m, r.Subject, r.Domain)
			if err != nil || !reflect.DeepEqual(again, r) {
				rt.Fatalf("recomputed it is %+v, %v, kept is %+v", again, err, r)
			}
		}
	})
}

// TestHistoryIsBounded counts more than is kept.
func TestHistoryIsBounded(t *testing.T) {
	ctx, m := t.Context(), newMemory()
	const n = 3*kept + 50
	a := account{Subject{Worker, "a"}, DefaultDomain}
	for i := range n {
		b := newBook(m, DefaultSettings(), epoch)
		e := scored(float64(i%7)/7, DefaultAlpha)
		e.Name, e.Subjects, e.Domain = job.Name(fmt.Sprint(i)), []Subject{a.subject}, a.domain
		if err := b.fold(ctx, a, e); err != nil {
			t.Fatal(err)
		}
		verdict := must(b.close())(t)
		inPlace(t, m, verdict.Ops)
	}
	r := must(Of(ctx, m, a.subject, a.domain))(t)
	if again := must(recompute(ctx, m, a.subject, a.domain))(t); r.N != n || !reflect.DeepEqual(again, r) {
		t.Errorf("recomputed it is %+v, kept is %+v", again, r)
	}
	if have := len(m.records[counted+a.key()]); have < kept || have > 2*kept {
		t.Errorf("%d evaluations are kept", have)
	}
	if have := len(m.records[bases+a.key()]); have > 2 {
		t.Errorf("%d bases are kept", have)
	}
	delete(m.records[counted+a.key()], numberKey(n-3))
	if _, err := recompute(ctx, m, a.subject, a.domain); err == nil {
		t.Error("a record that is missing is not noticed")
	}
}

// inPlace applies ops without a copy of everything, which memory.Apply makes.
func inPlace(t *testing.T, m *memory, ops []queue.Op) {
	t.Helper()
	for _, op := range ops {
		switch op := op.(type) {
		case queue.Write:
			if m.records[op.Record.Space] == nil {
				m.records[op.Record.Space] = map[string]queue.Record{}
			}
			m.records[op.Record.Space][op.Record.Key] = op.Record
		case queue.Erase:
			for key := range m.records[op.Space] {
				if key <= op.UpTo {
					delete(m.records[op.Space], key)
				}
			}
		}
	}
}

func TestReport(t *testing.T) {
	ctx, m := t.Context(), newMemory()
	v := bench(t, m, nil)
	e, attempts := work("web", func(e *queue.Entry) { e.Spec.Flow.Evaluation.Domain = "legal" }), []job.Attempt{tried(1, "a", "", time.Minute, 1)}
	must(v.Record(ctx, e, attempts))(t)
	given := Given{By: "anna", Report: Report{Vector: Vector{}.With(Quality, 0.2), Comment: "wrong court"}}
	got := must(v.Report(ctx, e, attempts, given))(t).Evaluations[0]
	// quality 0.35, speed 0.05, error rate 0.15, revisions 0.10; nothing checks or bounds it
	if want := (0.35*0.2 + 0.05 + 0.15 + 0.10) / 0.65; math.Abs(got.Composite-want) > 1e-12 || got.Sources[Quality] != "by anna" || got.Sources[Speed] != measured || got.WeightsOf != "legal" {
		t.Errorf("%+v, want %v", got, want)
	}
	r := must(v.Of(ctx, Subject{Worker, "a"}, "legal"))(t)
	if want := 0.3*got.Composite + 0.7*1; r.N != 2 || math.Abs(r.R-want) > 1e-12 {
		t.Errorf("%+v, want %v", r, want)
	}
	if again := must(v.Report(ctx, e, attempts, given))(t); len(again.Ops) != 0 || again.Evaluations[0].Composite != got.Composite {
		t.Errorf("said again: %+v", again)
	}
	other := given
	other.Vector = Vector{}.With(Quality, 1)
	if _, err := v.Report(ctx, e, attempts, other); !errors.Is(err, queue.ErrExists) || !strings.Contains(err.Error(), "anna has evaluated attempt 1 of job web already, with 0.5692") {
		t.Errorf("another opinion of the same: %v", err)
	}
	other.By = "bert"
	must(v.Report(ctx, e, attempts, other))(t)
	if list := must(Evaluations(ctx, m, e.ID))(t); len(list) != 3 {
		t.Errorf("evaluations are %+v", list)
	}

	for name, c := range map[string]struct {
		entry *queue.Entry
		given Given
	}{
		"quality: is 1.5, want": {e, Given{By: "c", Report: Report{Vector: Vector{}.With(Quality, 1.5)}}},
		"quality: is NaN, want": {e, Given{By: "c", Report: Report{Vector: Vector{}.With(Quality, math.NaN())}}},
		"names no dimension":    {e, Given{By: "c"}},
		`by: "" is no name`:     {e, Given{Report: given.Report}},
		`by: "a\nb" is no name`: {e, Given{By: "a\nb", Report: given.Report}},
		"it has not ended":      {work("q", func(e *queue.Entry) { e.State = job.Queued }), given},
		"it is cancelled":       {work("q", func(e *queue.Entry) { e.State = job.Cancelled }), given},
	} {
		if _, err := v.Report(ctx, c.entry, attempts, c.given); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v, want %s", err, name)
		}
	}
}

// TestDriftIsTold has a worker that was good become bad.
func TestDriftIsTold(t *testing.T) {
	ctx, m := t.Context(), newMemory()
	v := bench(t, m, nil)
	var alerts []Alert
	for n := range 8 {
		quality := 0.9
		if n == 7 {
			quality = 0.1
		}
		verdict := must(v.Report(ctx, work(job.ID(fmt.Sprint(n)), nil), []job.Attempt{tried(1, "a", "", time.Minute, 1)},
			Given{By: "anna", Report: Report{Vector: Vector{}.With(Quality, quality)}}))(t)
		alerts = append(alerts, verdict.Alerts...)
	}
	if len(alerts) != 3 || alerts[0].Job != "7" || alerts[0].Subject != (Subject{Worker, "a"}) {
		t.Errorf("%+v, want one alert each of worker, agent and tenant", alerts)
	}
}

// TestOnDisk is Record, Report and recompute on the store that is used.
func TestOnDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "queue.db")
	open := func() *sqlite.Store {
		return must(sqlite.Open(t.Context(), path, sqlite.Options{Log: zerolog.Nop()}))(t)
	}
	s := open()
	v := New(Config{Store: s, Settings: DefaultSettings()})
	attempts := []job.Attempt{tried(1, "a", "", time.Hour, 1)}
	for n := range 5 {
		must(v.Record(t.Context(), work(job.NewID(), nil), attempts))(t)
		e := work(job.NewID(), nil)
		must(v.Report(t.Context(), e, attempts, Given{By: "anna", Report: Report{Vector: Vector{}.With(Quality, float64(n)/5)}}))(t)
		must(v.Record(t.Context(), e, attempts))(t)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open()
	defer s.Close()
	r := must(Of(t.Context(), s, Subject{Worker, "a"}, ""))(t)
	if again := must(recompute(t.Context(), s, r.Subject, r.Domain))(t); r.N != 15 || !reflect.DeepEqual(again, r) {
		t.Errorf("recomputed it is %+v, kept is %+v", again, r)
	}
}

// TestNothing says in words for people why there is nothing to evaluate.
func TestNothing(t *testing.T) {
	for want, change := range map[string]func(*queue.Entry){
		"it has not ended":                                       func(e *queue.Entry) { e.State, e.ExitKind = job.Queued, "" },
		"it is running, and has not ended":                       func(e *queue.Entry) { e.State, e.ExitKind = job.Dispatched, "" },
		"it waits for a person's approval, and has not ended":    func(e *queue.Entry) { e.State, e.ExitKind, e.Held = job.Queued, "", job.HeldForApproval },
		"it is completed with the result of job b, which":        func(e *queue.Entry) { e.CoalescedWith = "b" },
		"it was cancelled":                                       func(e *queue.Entry) { e.ExitKind = job.ExitCancelled },
		"it has failed, and no attempt says":                     func(e *queue.Entry) { e.ExitKind = job.ExitFailed },
		"it has no attempts of its own; those who worked for it": func(*queue.Entry) {}, // a stage of a pipeline
		"it is expired":                                          func(e *queue.Entry) { e.State, e.ExitKind = job.Expired, "" },
	} {
		_, err := bench(t, newMemory(), nil).Preview(t.Context(), work("a", change), nil)
		if !errors.Is(err, ErrNothing) || !strings.HasPrefix(err.Error(), "job a: nothing to evaluate: "+want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
