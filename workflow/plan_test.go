package workflow_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/workflow"
)

// spec returns a job that needs others.
func spec(name string, needs ...job.Name) job.Spec {
	return job.Spec{
		Name: job.Name(name), Type: job.WorkerTask, Worker: "codex", Instructions: "do " + name,
		Workspace: job.Workspace{Path: "/w", Isolation: job.Worktree}, Flow: job.Flow{Joined: true, Needs: needs},
	}
}

func TestPlan(t *testing.T) {
	p, err := workflow.NewPlan([]job.Spec{
		spec("report", "scan", "fix"), spec("scan"), spec("fix", "scan"), spec("lint"), spec("publish", "report", "lint"),
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := [][]job.Name{{"scan", "lint"}, {"fix"}, {"report"}, {"publish"}}; !reflect.DeepEqual(p.Levels, want) {
		t.Errorf("levels %v, want %v", p.Levels, want)
	}
	if want := []job.Name{"scan", "fix", "report", "publish"}; !reflect.DeepEqual(p.Critical, want) {
		t.Errorf("critical path %v, want %v", p.Critical, want)
	}
	for k, want := range map[int][2]int{1: {5, 5}, 2: {4, 4}, 10: {4, 4}} {
		if least, most := p.Bounds(k); least != want[0] || most != want[1] {
			t.Errorf("with %d: %d to %d, want %v", k, least, most, want)
		}
	}
}

func TestPlanRefusesACircle(t *testing.T) {
	_, err := workflow.NewPlan([]job.Spec{spec("a", "b"), spec("b", "c"), spec("c", "a"), spec("d", "a")})
	if err == nil || err.Error() != "needs go in a circle: a -> b -> c -> a" {
		t.Errorf("got %v", err)
	}
}

// drawDAG returns jobs of which each may need some that come before it, in a
// drawn order.
func drawDAG(t *rapid.T, most int) []job.Spec {
	n := rapid.IntRange(0, most).Draw(t, "jobs")
	specs := make([]job.Spec, n)
	for i := range specs {
		specs[i] = spec(fmt.Sprintf("j%d", i))
		for before := range i {
			if rapid.IntRange(0, 3).Draw(t, "edge") == 0 {
				specs[i].Flow.Needs = append(specs[i].Flow.Needs, specs[before].Name)
			}
		}
	}
	return rapid.Permutation(specs).Draw(t, "order")
}

// TestBoundsHoldForEveryGreedySchedule runs random graphs on k workers that take
// whatever is runnable, in an order that is drawn.
func TestBoundsHoldForEveryGreedySchedule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		specs := drawDAG(t, 20)
		k := rapid.IntRange(1, 6).Draw(t, "workers")
		p, err := workflow.NewPlan(specs)
		if err != nil {
			t.Fatal(err)
		}
		done := map[job.Name]bool{}
		makespan := 0
		for ; len(done) < len(specs); makespan++ {
			var runnable []job.Name
			for _, s := range specs {
				if ready := !done[s.Name]; ready {
					for _, need := range s.Flow.Needs {
						ready = ready && done[need]
					}
					if ready {
						runnable = append(runnable, s.Name)
					}
				}
			}
			runnable = rapid.Permutation(runnable).Draw(t, "runnable")
			for _, name := range runnable[:min(k, len(runnable))] {
				done[name] = true
			}
		}
		if least, most := p.Bounds(k); makespan < least || makespan > most {
			t.Fatalf("%d jobs, critical path %v, %d workers: took %d, want %d to %d", len(specs), p.Critical, k, makespan, least, most)
		}
		at := map[job.Name]int{}
		for i, level := range p.Levels {
			for _, name := range level {
				at[name] = i
			}
		}
		for _, s := range specs {
			highest := -1
			for _, need := range s.Flow.Needs {
				highest = max(highest, at[need])
			}
			if at[s.Name] != highest+1 {
				t.Fatalf("%s is on level %d, its needs end on %d", s.Name, at[s.Name], highest)
			}
		}
	})
}

// BenchmarkAdvance asks what follows from one end in a batch of ten thousand jobs in
// which all but the last hundred have ended.
func BenchmarkAdvance(b *testing.B) {
	var specs []job.Spec
	for i := range 10_000 {
		s := spec(fmt.Sprintf("j%d", i))
		for before := max(0, i-3); before < i; before++ {
			s.Flow.Needs = append(s.Flow.Needs, job.Name(fmt.Sprintf("j%d", before)))
		}
		specs = append(specs, s)
	}
	w := newWorld(specs, nil)
	for i := range w.jobs[:9_900] {
		w.jobs[i].State, w.jobs[i].Exit, w.jobs[i].Held = job.Completed, job.ExitSucceeded, ""
	}
	w.askKept()
	for b.Loop() {
		w.kept.Put(9_899, w.jobs[9_899])
		if moves := w.kept.Advance(); len(moves) != 1 {
			b.Fatal(moves)
		}
	}
}

// FuzzCheck: whatever stands in an expression, it is checked in bounded time and
// without a panic.
func FuzzCheck(f *testing.F) {
	for _, seed := range []string{"1 + 1", "jobs.a-b.output", `jobs["a-b"].files[0]`, "map(1..10, # * 2)", `"}}" + '\''`, "jobs", "{", "$env", strings.Repeat("(", 500)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s := spec("x", "a-b")
		s.Instructions, s.Flow.If = "${{ "+text+" }}", text
		workflow.Check([]job.Spec{spec("a-b"), s}, nil)
	})
}
