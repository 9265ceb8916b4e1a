package eval

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// tried is an attempt that took so long and used so much.
func tried(n int, worker job.WorkerKind, class job.ErrorClass, took time.Duration, usd float64) job.Attempt {
	state := job.RunFailed
	if class == job.NoError {
		state = job.RunCompleted
	}
	a := job.Attempt{Number: n, Choice: job.Choice{Worker: worker}, State: state, Outcome: &job.Outcome{
		State: state, Class: class, StartedAt: epoch, EndedAt: epoch.Add(took), Usage: job.Usage{InputTokens: 1000, CostUSD: usd, CostKnown: true}}}
	return a
}

func ended(exit job.ExitKind, change func(*queue.Entry)) *queue.Entry {
	e := &queue.Entry{ID: "j", Batch: "b", State: job.Completed, ExitKind: exit,
		Spec: job.Spec{Name: "web", Tenant: "website", Flow: job.Flow{Evaluation: &job.Evaluation{SLA: job.Duration(10 * time.Minute)}}}}
	if change != nil {
		change(e)
	}
	return e
}

func TestMeasure(t *testing.T) {
	verified := func(e *queue.Entry) { e.Spec.Verify = "make test" }
	no := math.NaN() // absent
	for name, c := range map[string]struct {
		entry    *queue.Entry
		attempts []job.Attempt
		want     [6]float64 // in the order of Dimensions
	}{
		"at the SLA": {ended(job.ExitSucceeded, nil), []job.Attempt{tried(1, "a", "", 10*time.Minute, 1)}, [6]float64{no, no, 1, no, 1, 1}},
		"beyond it":  {ended(job.ExitSucceeded, nil), []job.Attempt{tried(1, "a", "", 25*time.Minute, 1)}, [6]float64{no, no, 0.4, no, 1, 1}},
		"no SLA": {ended(job.ExitSucceeded, func(e *queue.Entry) { e.Spec.Flow.Evaluation.SLA = 0 }),
			[]job.Attempt{tried(1, "a", "", time.Hour, 1)}, [6]float64{no, no, no, no, 1, 1}},
		"time of all attempts counts": {ended(job.ExitSucceeded, verified),
			[]job.Attempt{tried(1, "a", job.VerifyFailed, 10*time.Minute, 1), tried(2, "a", "", 10*time.Minute, 1)}, [6]float64{no, 1, 0.5, no, 0.5, 0.5}},
		"as cheap as expected": {ended(job.ExitSucceeded, func(e *queue.Entry) { e.Spec.Expect.CostUSD = 2; e.Spec.Limits.MaxCostUSD = 100 }),
			[]job.Attempt{tried(1, "a", "", 0, 2)}, [6]float64{no, no, 1, 1, 1, 1}},
		"dearer than expected": {ended(job.ExitSucceeded, func(e *queue.Entry) { e.Spec.Expect.CostUSD = 2 }),
			[]job.Attempt{tried(1, "a", "", 0, 5)}, [6]float64{no, no, 1, 0.4, 1, 1}},
		"half of the budget": {ended(job.ExitSucceeded, func(e *queue.Entry) { e.Spec.Limits.MaxCostUSD = 4 }),
			[]job.Attempt{tried(1, "a", "", 0, 2)}, [6]float64{no, no, 1, 1, 1, 1}},
		"all of the budget": {ended(job.ExitSucceeded, func(e *queue.Entry) { e.Spec.Limits.MaxCostUSD = 4 }),
			[]job.Attempt{tried(1, "a", "", 0, 4)}, [6]float64{no, no, 1, 0.5, 1, 1}},
		"tokens where the price is not known": {ended(job.ExitSucceeded, func(e *queue.Entry) { e.Spec.Limits.MaxCostUSD = 4; e.Spec.Expect.Tokens = 250 }),
			[]job.Attempt{func() job.Attempt { a := tried(1, "a", "", 0, 0); a.Outcome.Usage.CostKnown = false; return a }()}, [6]float64{no, no, 1, 0.25, 1, 1}},
		"nobody knows the cost": {ended(job.ExitSucceeded, func(e *queue.Entry) { e.Spec.Limits.MaxCostUSD = 4 }),
			[]job.Attempt{func() job.Attempt { a := tried(1, "a", "", 0, 0); a.Outcome.Usage.CostKnown = false; return a }()}, [6]float64{no, no, 1, no, 1, 1}},
		"passed a schema": {ended(job.ExitSucceeded, func(e *queue.Entry) { e.Spec.Output = json.RawMessage(`{}`) }),
			[]job.Attempt{tried(1, "a", "", 0, 0)}, [6]float64{no, 1, 1, no, 1, 1}},
		"approved": {ended(job.ExitSucceeded, func(e *queue.Entry) { e.Approval = &queue.Approval{Approved: true, By: "anna"} }),
			[]job.Attempt{tried(1, "a", "", 0, 0)}, [6]float64{no, 1, 1, no, 1, 1}},
		"approved by nobody": {ended(job.ExitSucceeded, func(e *queue.Entry) { e.Approval = &queue.Approval{Approved: true, By: "timeout"} }),
			[]job.Attempt{tried(1, "a", "", 0, 0)}, [6]float64{no, no, 1, no, 1, 1}},
		"rejected once": {ended(job.ExitSucceeded, func(e *queue.Entry) { e.Rejections = 1 }),
			[]job.Attempt{tried(1, "a", job.HumanRejected, 0, 0), tried(2, "a", "", 0, 0)}, [6]float64{no, no, 1, no, 1, 0.5}},
		"rejected for good": {ended(job.ExitFailed, func(e *queue.Entry) { e.Rejections = 2 }),
			[]job.Attempt{tried(1, "a", job.HumanRejected, 0, 0), tried(2, "a", job.HumanRejected, 0, 0)}, [6]float64{no, 0, 0, no, 1, 1.0 / 3}},
		"failed fast and cheap is neither": {ended(job.ExitFailed, func(e *queue.Entry) { e.Spec.Expect.CostUSD = 2 }),
			[]job.Attempt{tried(1, "a", job.Crash, time.Second, 0.01)}, [6]float64{no, 0, 0, 0, 0, 1}},
	} {
		parts := Parts(c.entry, c.attempts)
		if len(parts) != 1 {
			t.Errorf("%s: parts are %+v", name, parts)
			continue
		}
		v := Measure(c.entry, &parts[0])
		for i, d := range Dimensions() {
			x := v.Get(d)
			if math.IsNaN(c.want[i]) != (x == nil) || x != nil && math.Abs(*x-c.want[i]) > 1e-12 {
				got := no
				if x != nil {
					got = *x
				}
				t.Errorf("%s: %s is %v, want %v", name, d, got, c.want[i])
			}
		}
		if err := v.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestParts: each worker answers for its own attempts, and for nothing that was
// nobody's fault.
func TestParts(t *testing.T) {
	lost := tried(2, "a", job.Crash, 0, 0)
	lost.Lost = true
	running := tried(3, "a", "", 0, 0)
	running.Outcome = nil
	type part struct {
		worker          job.WorkerKind
		attempts        int
		delivered, last bool
	}
	for name, c := range map[string]struct {
		entry    *queue.Entry
		attempts []job.Attempt
		want     []part
	}{
		"fallback delivers": {ended(job.ExitSucceeded, nil), []job.Attempt{tried(1, "a", job.Crash, 0, 0), tried(2, "a", job.Timeout, 0, 0), tried(3, "b", "", 0, 0)},
			[]part{{"a", 2, false, false}, {"b", 1, true, true}}},
		"and back again": {ended(job.ExitSucceeded, nil), []job.Attempt{tried(1, "a", job.Crash, 0, 0), tried(2, "b", job.Crash, 0, 0), tried(3, "a", "", 0, 0)},
			[]part{{"b", 1, false, false}, {"a", 2, true, true}}},
		"lost":                 {ended(job.ExitSucceeded, nil), []job.Attempt{tried(1, "a", job.Crash, 0, 0), lost, tried(3, "a", "", 0, 0)}, []part{{"a", 2, true, true}}},
		"wrong key":            {ended(job.ExitFailed, nil), []job.Attempt{tried(1, "a", job.Auth, 0, 0)}, nil},
		"crash, then no key":   {ended(job.ExitFailed, nil), []job.Attempt{tried(1, "a", job.Crash, 0, 0), tried(2, "b", job.Auth, 0, 0)}, []part{{"a", 1, false, false}}},
		"cancelled":            {ended(job.ExitCancelled, nil), []job.Attempt{tried(1, "a", "", 0, 0)}, nil},
		"of another":           {ended(job.ExitSucceeded, func(e *queue.Entry) { e.CoalescedWith = "x" }), []job.Attempt{tried(1, "a", "", 0, 0)}, nil},
		"not ended":            {ended("", func(e *queue.Entry) { e.State = job.Dispatched }), []job.Attempt{running}, nil},
		"concluded without it": {ended(job.ExitSucceeded, nil), nil, nil},
	} {
		got := Parts(c.entry, c.attempts)
		if len(got) != len(c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
			continue
		}
		for i, p := range got {
			if (part{p.Choice.Worker, len(p.Attempts), p.Delivered, p.Last}) != c.want[i] {
				t.Errorf("%s: part %d is %+v, want %+v", name, i, p, c.want[i])
			}
		}
	}
}
