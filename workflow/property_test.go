package workflow_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/workflow"
)

// condition is what the `if` of a random job says, and, for the oracle, when that
// holds, by how its needs have ended.
type condition struct {
	text  string
	holds func(o *oracle, s *job.Spec) bool
}

func conditions() []condition {
	return []condition{
		{"", (*oracle).success},
		{"success()", (*oracle).success},
		{"${{ always() }}", func(*oracle, *job.Spec) bool { return true }},
		{"failure()", func(o *oracle, s *job.Spec) bool { return o.hit(s, "failed", "expired") }},
		{"cancelled()", func(o *oracle, s *job.Spec) bool { return o.hit(s, "cancelled") }},
		{"success() || failure()", func(o *oracle, s *job.Spec) bool { return o.success(s) || o.hit(s, "failed", "expired") }},
		{"false", func(*oracle, *job.Spec) bool { return false }},
		{"1 < 2", (*oracle).success},
	}
}

// oracle says how a batch must end, by reading the rules one after the other.
type oracle struct {
	specs map[job.Name]*job.Spec
	seed  int
	ends  map[job.Name]string
}

// end returns how the job ends: succeeded, failed, cancelled, skipped, expired.
func (o *oracle) end(name job.Name) string {
	if end, ok := o.ends[name]; ok {
		return end
	}
	s := o.specs[name]
	end := "skipped"
	for _, c := range conditions() {
		if c.text == s.Flow.If && c.holds(o, s) {
			end = o.run(s)
		}
	}
	o.ends[name] = end
	return end
}

func (o *oracle) success(s *job.Spec) bool {
	for _, n := range s.Flow.Needs {
		if o.end(n) != "succeeded" {
			return false
		}
	}
	return true
}

// hit: a need ended so, or was skipped because one of its own did.
func (o *oracle) hit(s *job.Spec, ends ...string) bool {
	return slices.ContainsFunc(s.Flow.Needs, func(n job.Name) bool {
		return slices.Contains(ends, o.end(n)) || o.end(n) == "skipped" && o.hit(o.specs[n], ends...)
	})
}

// run returns how a job ends that does run.
func (o *oracle) run(s *job.Spec) string {
	switch {
	case s.Flow.ForEach != nil:
		var items []int
		if json.Unmarshal(s.Flow.ForEach.Items, &items) != nil || len(items) > s.Flow.ForEach.Max {
			return "failed"
		}
		var ends []string
		for i := range items {
			ends = append(ends, ending(job.PartName(s.Name, i+1), o.seed))
		}
		switch {
		case slices.Contains(ends, "failed") || slices.Contains(ends, "expired"):
			return "failed"
		case slices.Contains(ends, "cancelled"):
			return "cancelled"
		}
		return "succeeded"
	case s.Flow.Loop != nil:
		var said []string
		for turn := 1; ; turn++ {
			name := job.PartName(s.Name, turn)
			switch end := ending(name, o.seed); end {
			case "succeeded":
			case "expired":
				return "failed"
			default:
				return end
			}
			c := checkOf(name, o.seed)
			if c.Passed {
				return "succeeded"
			}
			said = append(said, c.Message)
			same := len(said) > 1 && said[len(said)-2] == c.Message
			if same || turn == s.Flow.Loop.MaxIterations {
				return "failed"
			}
		}
	}
	return ending(s.Name, o.seed)
}

// ending and checkOf are how a job that runs ends, whoever runs it and when.
func ending(name job.Name, seed int) string {
	switch fate(name, seed) % 10 {
	case 0, 1:
		return "failed"
	case 2:
		return "cancelled"
	case 3:
		return "expired"
	}
	return "succeeded"
}

func checkOf(name job.Name, seed int) workflow.CheckResult {
	return workflow.CheckResult{Passed: fate(name, seed+1)%4 == 0, Message: fmt.Sprint(fate(name, seed+2) % 3)}
}

func outcomeOf(seed int) func(*workflow.Job) {
	return func(j *workflow.Job) {
		switch end := ending(j.Spec.Name, seed); end {
		case "expired":
			j.State, j.Exit, j.Output = job.Expired, "", nil
		case "succeeded":
			j.Digest, j.Patch = string(j.Spec.Name), "/"+string(j.Spec.Name)
			if j.Spec.Flow.Loop != nil {
				c := checkOf(j.Spec.Name, seed)
				j.Check = &c
			}
		default:
			j.Exit, j.Message, j.Output = job.ExitKind(end), "broke", nil
		}
	}
}

// drawBatch returns jobs of every sort.
func drawBatch(t *rapid.T) []job.Spec {
	specs := drawDAG(t, 9)
	for i := range specs {
		f := &specs[i].Flow
		f.If = rapid.SampledFrom(conditions()).Draw(t, "if").text
		f.From = slices.Clone(f.Needs)
		for _, need := range f.Needs {
			specs[i].Instructions += fmt.Sprintf(" ${{ jobs.%s.state }} ${{ jobs.%s.output }}", need, need)
		}
		switch rapid.IntRange(0, 4).Draw(t, "sort") {
		case 0:
			n := rapid.IntRange(0, 4).Draw(t, "items")
			items, _ := json.Marshal(make([]int, n))
			f.ForEach = &job.ForEach{Items: items, Max: 3, MaxParallel: rapid.IntRange(0, 2).Draw(t, "at once")}
			specs[i].Instructions += " ${{ item }} ${{ index }}"
		case 1:
			f.Loop = &job.Loop{Command: "make test", MaxIterations: rapid.IntRange(1, 4).Draw(t, "turns")}
			specs[i].Instructions += " ${{ loop.turn }} ${{ loop.last }} ${{ loop.failure }}"
		}
	}
	return specs
}

// TestRunToAnyPrefixCrashAndAskAgain: whoever does the moves may be killed
// between any two of them, and ask at any time. Everything ends, and ends as it does without
// a crash and in any other order; and as the oracle says.
func TestRunToAnyPrefixCrashAndAskAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		specs, seed := drawBatch(t), rapid.IntRange(0, 1000).Draw(t, "seed")
		if problems := workflow.Check(specs, nil); slices.ContainsFunc(problems, func(p workflow.Problem) bool { return p.Field != "for_each.items" }) {
			t.Fatalf("%v", problems)
		}
		calm := newWorld(slices.Clone(specs), outcomeOf(seed))
		if err := calm.finish(); err != nil {
			t.Fatal(err)
		}
		w := newWorld(slices.Clone(specs), outcomeOf(seed))
		storm(t, w)
		if got, want := w.summary(), calm.summary(); got != want {
			t.Fatalf("with crashes\n%s\nwithout\n%s", got, want)
		}
		o := &oracle{specs: map[job.Name]*job.Spec{}, seed: seed, ends: map[job.Name]string{}}
		for i := range specs {
			o.specs[specs[i].Name] = &specs[i]
		}
		for i := range specs {
			if got, want := endOf(w.find(specs[i].Name)), o.end(specs[i].Name); got != want {
				t.Fatalf("%s is %s, the oracle says %s\n%s", specs[i].Name, got, want, w.summary())
			}
			if f := specs[i].Flow.ForEach; f != nil && f.MaxParallel > 0 && w.atMost[specs[i].Name] > f.MaxParallel {
				t.Fatalf("%d parts of %s were out at once, at most %d may", w.atMost[specs[i].Name], specs[i].Name, f.MaxParallel)
			}
		}
	})
}

// storm runs a world to its end, in a drawn order, with crashes: a part of the
// moves is done, then it is asked again.
func storm(t *rapid.T, w *world) {
	for {
		moves := w.askKept()
		if anew := w.ask(); !reflect.DeepEqual(inOrder(moves), inOrder(anew)) {
			t.Fatalf("what follows from what has changed:\n%v\nfrom all:\n%v", inOrder(moves), inOrder(anew))
		}
		list := w.runnable()
		if len(moves) == 0 && len(list) == 0 {
			break
		}
		done := rapid.IntRange(0, len(moves)).Draw(t, "done before the crash")
		for _, m := range moves[:done] {
			if err := w.apply(m); err != nil {
				t.Fatal(err)
			}
		}
		if done < len(moves) {
			w.kept.Again()
		}
		for _, i := range rapid.Permutation(list).Draw(t, "order")[:rapid.IntRange(min(1, len(list)), len(list)).Draw(t, "ended")] {
			if w.jobs[i].State == job.Queued {
				w.end(i)
			}
		}
	}
	if err := w.unfinished(); err != nil {
		t.Fatal(err)
	}
}

// inOrder returns moves as texts, in an order that does not depend on what was asked first.
func inOrder(moves []workflow.Move) (list []string) {
	for _, m := range moves {
		text, _ := json.Marshal(m)
		list = append(list, fmt.Sprintf("%T %s", m, text))
	}
	slices.Sort(list)
	return list
}

func endOf(j *workflow.Job) string {
	switch {
	case j.State == job.Completed:
		return string(j.Exit)
	case j.State == job.Expired:
		return "expired"
	case j.Skipped != "":
		return "skipped"
	}
	return strings.ToLower(string(j.State))
}
