package simulate_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/internal/simulate"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/policy"
)

func decode(t testing.TB, text string) *simulate.Workload {
	t.Helper()
	w, err := simulate.Decode("w.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func simulated(t testing.TB, text string) *simulate.Result {
	t.Helper()
	r, err := decode(t, text).Run("fifo", newFIFO)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func about(a, b float64) bool { return math.Abs(a-b) < 1e-9 }

// One slot: A's two jobs come at 0 and B's at 5m, each of 10m. So A's run at 0
// and 10m, B's at 20m after a wait of 15m.
func TestOneSlotByHand(t *testing.T) {
	r := simulated(t, `
slots: 1
duration: 1h
tenants:
  - {name: a, arrivals: [{burst: 2}], size: {run_time: 10m}}
  - {name: b, arrivals: [{burst: 1, from: 5m}], size: {run_time: 10m}}
`)
	if r.Done != 3 || r.PerHour != 3 || !about(r.Busy, 0.5) || r.Duration != time.Hour || r.Measure != simulate.RunTime || r.OwnTargets {
		t.Errorf("got %+v", r)
	}
	// All that was wanted was done: the ideal server does no other work.
	if !about(r.Jain, 1) {
		t.Errorf("Jain's index %v, want 1", r.Jain)
	}
	a, b := r.Tenants[0], r.Tenants[1]
	if !about(a.Actual, 2./3) || !about(a.Target, 2./3) || !about(b.Actual, 1./3) || !about(b.Target, 1./3) {
		t.Errorf("shares: %+v, %+v", a, b)
	}
	if a.MeanWait != 5*time.Minute || a.P95Wait != 10*time.Minute || a.LongestWait != 10*time.Minute || a.LongestUnserved != 0 || a.Starved {
		t.Errorf("a waited %+v", a)
	}
	// B waited 15 of 60 minutes with nothing running: more than a tenth.
	if b.MeanWait != 15*time.Minute || b.LongestUnserved != 15*time.Minute || !b.Starved {
		t.Errorf("b waited %+v", b)
	}
}

// A job that is cut by the end counts as far as it got; one that never began
// still waits.
func TestTheEndCuts(t *testing.T) {
	r := simulated(t, `
slots: 1
duration: 15m
tenants:
  - {name: a, arrivals: [{burst: 3}], size: {run_time: 10m}}
`)
	a := r.Tenants[0]
	if a.Arrived != 3 || a.Began != 2 || a.Done != 1 || a.Waiting() != 1 || !about(r.Busy, 1) || a.LongestWait != 15*time.Minute {
		t.Errorf("got %+v, busy %v", a, r.Busy)
	}
}

// After so many jobs it ends, whatever still runs: the second of two at once.
func TestEndsAfterJobs(t *testing.T) {
	r := simulated(t, `
slots: 2
jobs: 3
tenants:
  - {name: a, arrivals: [{waiting: 1}], size: {run_time: 10m}}
`)
	// Two end at 10m, which counts both; the third and fourth would end at 20m.
	if r.Duration != 20*time.Minute || r.Done != 4 || !about(r.Busy, 1) {
		t.Errorf("got %+v", r)
	}
	r = simulated(t, `
slots: 2
jobs: 100
tenants:
  - {name: a, arrivals: [{burst: 3}], size: {run_time: 10m}}
`)
	if r.Duration != 20*time.Minute || r.Done != 3 || !about(r.Busy, 0.75) {
		t.Errorf("nothing is left to happen: got %+v", r)
	}
}

// Jobs that always wait: FIFO takes them in turn, so weights do not count, and
// the targets say by how much.
func TestTargetsAreThoseOfTheWeights(t *testing.T) {
	r := simulated(t, `
slots: 1
duration: 100h
tenants:
  - {name: a, weight: 3, arrivals: [{waiting: 1}], size: {run_time: 1m}}
  - {name: b, arrivals: [{waiting: 1}], size: {run_time: 1m}}
`)
	a, b := r.Tenants[0], r.Tenants[1]
	if !about(a.Target, 0.75) || !about(a.Actual, 0.5) || !about(b.Target, 0.25) || !about(b.Actual, 0.5) {
		t.Errorf("got %+v, %+v", a, b)
	}
	// x = (2/3, 2): (8/3)² / (2 · (4/9 + 4)) = (64/9) / (80/9).
	if !about(r.Jain, 0.8) {
		t.Errorf("Jain's index %v, want 0.8", r.Jain)
	}
	if a.Starved || b.Starved {
		t.Error("nobody starved")
	}
}

// Who wants less than its weight gives has that as its target; who comes late
// is not owed the time before.
func TestTargetsKnowWhatWasWanted(t *testing.T) {
	r := simulated(t, `
slots: 1
duration: 100h
tenants:
  - {name: little, weight: 9, arrivals: [{burst: 1, every: 1h}], size: {run_time: 6m}}
  - {name: much, arrivals: [{waiting: 1}], size: {run_time: 1m}}
`)
	if got := r.Tenants[0]; math.Abs(got.Target-0.1) > 1e-3 || math.Abs(got.Error()) > 1e-3 {
		t.Errorf("a tenant that wants a tenth: %+v", got)
	}
	r = simulated(t, `
slots: 1
duration: 100h
tenants:
  - {name: early, arrivals: [{waiting: 1}], size: {run_time: 1m}}
  - {name: late, arrivals: [{waiting: 1, from: 50h}], size: {run_time: 1m}}
`)
	if got := r.Tenants[1]; math.Abs(got.Target-0.25) > 1e-3 || math.Abs(got.Error()) > 1e-3 {
		t.Errorf("a tenant that is there for half of the time: %+v", got)
	}
}

// Who may have one slot of four, or whose jobs use none of what is measured, is
// not to have more than that gives.
func TestTargetsKnowWhatIsPossible(t *testing.T) {
	const workload = `
slots: 4
duration: 100h
measure: %s
tenants:
  - {name: bound, max_concurrent: 1, arrivals: [{waiting: 1}], size: {run_time: 1m}}
  - {name: free, arrivals: [{waiting: 1}], size: {run_time: 1m, tokens: 10}}
`
	for measure, want := range map[simulate.Measure]float64{simulate.RunTime: 0.25, simulate.Tokens: 0} {
		if got := simulated(t, fmt.Sprintf(workload, measure)).Tenants[0]; math.Abs(got.Target-want) > 1e-9 {
			t.Errorf("%s: %+v, want a target of %v", measure, got, want)
		}
	}
}

func TestMeasures(t *testing.T) {
	const workload = `
slots: 2
duration: 10h
measure: %s
policy: {capacity: {slots: 2, tokens: 1000, cost_usd: 1000}, window: 1h}
tenants:
  - {name: a, arrivals: [{waiting: 1}], size: {run_time: 30m, tokens: 300, cost_usd: 1}}
  - {name: b, arrivals: [{waiting: 1}], size: {run_time: 30m, tokens: 100, cost_usd: 3}}
`
	// Each has one slot for all of the time: half of them. A uses 600 tokens an
	// hour of 1000, B 200.
	for measure, want := range map[simulate.Measure]float64{simulate.RunTime: 0.5, simulate.Tokens: 0.75, simulate.Cost: 0.25, simulate.Dominant: 0.6 / 1.1} {
		r := simulated(t, fmt.Sprintf(workload, measure))
		if got := r.Tenants[0].Actual; !about(got, want) {
			t.Errorf("%s: a has %v, want %v", measure, got, want)
		}
	}
}

const mixed = `
slots: 3
duration: 200h
seed: 7
tenants:
  - name: a
    weight: 2
    arrivals: [{rate: 6}, {burst: 5, every: 24h, from: 3h, until: 100h}]
    size: {run_time: {lognormal: {median: 10m, sigma: 1}}, tokens: {exponential: 1000}, cost_usd: 0.5}
    declared: {uniform: {min: 0.5, max: 2}}
    priorities: {0: 3, 10: 1}
  - name: b
    arrivals: [{waiting: 2, from: 20h, until: 150h}]
    size: {run_time: {exponential: 15m}, tokens: {uniform: {min: 10, max: 20}}}
`

// Every job arrives once, begins at most once and ends at most once; at no
// moment more run than there are slots; none begins before it came.
func TestConservation(t *testing.T) {
	var began, ended int
	var seconds float64
	w := decode(t, mixed)
	r, err := w.Run("fifo", func(policy.Config) (policy.Policy, error) {
		return &fifo{heads: map[job.Lane]policy.Head{},
			begun: func(_ job.Tenant, ask policy.Demand, _ time.Time) {
				if began++; began-ended > 3 {
					t.Fatalf("%d jobs at once in 3 slots", began-ended)
				}
				if ask.Slots != 1 {
					t.Fatalf("a job asks for %v slots", ask.Slots)
				}
			},
			ended: func(ask, used policy.Demand) {
				ended++
				seconds += used.Slots
				if f := ask.Tokens / used.Tokens; used.Tokens > 0 && ask.Tokens != used.Tokens && (f < 0.5-1e-9 || f > 2+1e-9) {
					t.Fatalf("declared %v of %v tokens", ask.Tokens, used.Tokens)
				}
			},
		}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	arrived, begun, done := 0, 0, 0
	for _, n := range r.Tenants {
		arrived, begun, done = arrived+n.Arrived, begun+n.Began, done+n.Done
		if n.Done > n.Began || n.Began > n.Arrived {
			t.Errorf("%+v", n)
		}
	}
	if begun != began || done != ended || done != r.Done || begun-done > 3 || arrived < begun || arrived < 1000 {
		t.Errorf("arrived %d, began %d (the policy saw %d), done %d (%d)", arrived, begun, began, done, ended)
	}
	if r.Busy > 1+1e-9 || r.Busy <= 0.3 {
		t.Errorf("slots busy %v", r.Busy)
	}
}

func TestSameSeedSameResult(t *testing.T) {
	text := func(seed int64) string {
		w := decode(t, mixed)
		w.Seed = seed
		r, err := w.Run("fifo", newFIFO)
		if err != nil {
			t.Fatal(err)
		}
		out, err := json.Marshal(simulate.JSON(w, []*simulate.Result{r}))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Replace(string(out), fmt.Sprint(seed), "", 1)
	}
	if one, two := text(7), text(7); one != two {
		t.Error("the same seed gave two results")
	}
	if text(7) == text(8) {
		t.Error("another seed gave the same result")
	}
}

// The n-th job of a tenant is the same whoever else is there and in whatever
// order jobs run.
func TestAnotherTenantChangesNoJobs(t *testing.T) {
	sizes := func(more string) (list []float64) {
		_, err := decode(t, mixed+more).Run("fifo", func(policy.Config) (policy.Policy, error) {
			return &fifo{heads: map[job.Lane]policy.Head{}, begun: func(n job.Tenant, ask policy.Demand, _ time.Time) {
				if n == "b" && len(list) < 200 {
					list = append(list, ask.Tokens)
				}
			}}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	alone, together := sizes(""), sizes("  - {name: c, arrivals: [{rate: 3}], size: {run_time: 7m}}\n")
	if len(alone) != 200 || fmt.Sprint(alone) != fmt.Sprint(together) {
		t.Errorf("jobs of b:\n%v\n%v", alone, together)
	}
}

// A policy that holds everything until 30m and says so is asked again then.
func TestWakesThePolicy(t *testing.T) {
	until := time.Date(2000, 1, 1, 0, 30, 0, 0, time.UTC)
	r, err := decode(t, "slots: 1\njobs: 1\ntenants: [{name: a, arrivals: [{burst: 1}], size: {run_time: 5m}}]").Run("", func(policy.Config) (policy.Policy, error) {
		return &fifo{heads: map[job.Lane]policy.Head{},
			hold: func(now time.Time) bool { return now.Before(until) },
			wake: func(time.Time) time.Time { return until }}, nil
	})
	if err != nil || r.Duration != 35*time.Minute || r.Tenants[0].MeanWait != 30*time.Minute {
		t.Errorf("got %+v, %v", r, err)
	}
}

func TestPolicyThatBreaksItsContract(t *testing.T) {
	const one = "slots: 1\njobs: 1\ntenants: [{name: a, arrivals: [{burst: 1}], size: {run_time: 5m}}]"
	for name, c := range map[string]struct {
		new  simulate.New
		want string
	}{
		"invents a head": {func(policy.Config) (policy.Policy, error) {
			return &fifo{heads: map[job.Lane]policy.Head{{Tenant: "x"}: {ID: "y"}}}, nil
		}, "the policy chose what is not the head of a lane"},
		"wakes for nothing": {func(policy.Config) (policy.Policy, error) {
			return &fifo{heads: map[job.Lane]policy.Head{}, hold: func(time.Time) bool { return true },
				wake: func(now time.Time) time.Time { return now.Add(time.Nanosecond) }}, nil
		}, "times in a row to be woken"},
		"cannot be made": {func(policy.Config) (policy.Policy, error) { return nil, errors.New("no such policy") }, "set up policy odd for w.yaml: no such policy"},
	} {
		if _, err := decode(t, one).Run("odd", c.new); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
	}
	many := "slots: 1\nduration: 80000h\ntenants: [{name: a, arrivals: [{rate: 3600000}], size: {run_time: 5m}}]"
	if _, err := decode(t, many).Run("", newFIFO); err == nil || !strings.Contains(err.Error(), "more than 2000000 jobs arrive") {
		t.Errorf("got %v", err)
	}
}

// Poisson arrivals, and what is drawn: the means are those of the file within
// four standard errors.
func TestChanceKeepsItsMeans(t *testing.T) {
	var tokens, n, heavy float64
	w := decode(t, `
slots: 100000
duration: 1000h
seed: 3
tenants:
  - name: a
    arrivals: [{rate: 20}]
    size: {run_time: {uniform: {min: 10m, max: 20m}}, tokens: {exponential: 5000}}
  - name: b
    arrivals: [{rate: 20}]
    size: {run_time: 1m, tokens: {lognormal: {median: 1000, sigma: 0.5}}}
`)
	r, err := w.Run("", func(policy.Config) (policy.Policy, error) {
		return &fifo{heads: map[job.Lane]policy.Head{}, begun: func(t job.Tenant, ask policy.Demand, _ time.Time) {
			if t == "a" {
				n, tokens = n+1, tokens+ask.Tokens
			} else if ask.Tokens > 1000 {
				heavy++
			}
		}}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(n-20000) > 4*math.Sqrt(20000) {
		t.Errorf("%v arrivals, want about 20000", n)
	}
	if mean := tokens / n; math.Abs(mean-5000) > 4*5000/math.Sqrt(n) {
		t.Errorf("mean of the exponential %v, want about 5000", mean)
	}
	if m := float64(r.Tenants[1].Arrived); math.Abs(heavy/m-0.5) > 4*0.5/math.Sqrt(m) {
		t.Errorf("%v of the lognormal above its median", heavy/m)
	}
	// 20 an hour of 15m are 5 slots, and 20 of 1m a third of one.
	if got := r.Busy * 100000; math.Abs(got-16./3) > 0.15 {
		t.Errorf("%v slots busy, want about 5.33", got)
	}
}

func BenchmarkRun(b *testing.B) {
	w := decode(b, `
slots: 16
jobs: 100000
tenants:
  - {name: a, weight: 3, arrivals: [{waiting: 20}], size: {run_time: {exponential: 10m}}}
  - {name: b, arrivals: [{waiting: 20}], size: {run_time: {exponential: 10m}}}
  - {name: c, arrivals: [{rate: 10}], size: {run_time: {lognormal: {median: 10m, sigma: 1}}}}
`)
	for b.Loop() {
		if _, err := w.Run("", newFIFO); err != nil {
			b.Fatal(err)
		}
	}
}
