package workflow_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/workflow"
)

func TestAJobRunsAsSoonAsItsOwnNeedsHaveEnded(t *testing.T) {
	w := newWorld([]job.Spec{spec("slow"), spec("quick"), spec("after", "quick"), spec("last", "after", "slow")}, func(*workflow.Job) {})
	settle(t, w)
	w.end(1) // quick
	settle(t, w)
	if got := names(w); got != "slow after" {
		t.Errorf("runnable: %s; a level is no barrier", got)
	}
	w.end(2)
	settle(t, w)
	if got := names(w); got != "slow" {
		t.Errorf("runnable: %s", got)
	}
}

// TestConditions: x needs ok, which succeeds, and one that ends as the case says.
func TestConditions(t *testing.T) {
	for _, c := range []struct{ end, condition, want string }{
		{"succeeded", "", "runs"},
		{"failed", "", "it needs n, which has not succeeded: failed"},
		{"cancelled", "", "it needs n, which has not succeeded: cancelled"},
		{"skipped", "", "it needs n, which has not succeeded: skipped"},
		{"expired", "", "it needs n, which has not succeeded: expired"},
		{"succeeded", "always()", "runs"},
		{"failed", "always()", "runs"},
		{"skipped", "${{ always() }}", "runs"},
		{"failed", "failure()", "runs"},
		{"expired", "failure()", "runs"},
		{"succeeded", "failure()", "its condition did not hold: failure()"},
		{"cancelled", "failure()", "its condition did not hold: failure()"},
		{"cancelled", "cancelled()", "runs"},
		{"failed", "cancelled()", "its condition did not hold: cancelled()"},
		{"succeeded", "success()", "runs"},
		{"failed", "success()", "its condition did not hold: success()"},
		{"failed", "!success()", "runs"},
		{"skipped", "failure()", "runs"}, // what it was skipped for has failed
		{"succeeded", "jobs.n.output.ok", "runs"},
		{"succeeded", "!jobs.n.output.ok", "its condition did not hold: !jobs.n.output.ok"},
		{"failed", "true", "it needs n, which has not succeeded: failed"}, // as if success() && stood before it
		{"failed", "always() && jobs.n.state == 'failed' && jobs.n.error == 'broke'", "runs"},
		{"skipped", "always() && jobs.n.output.ok == true", "its condition did not hold"}, // what is not there is nil
		{"skipped", "always() && (jobs.n.output.ok ?? true)", "runs"},
		{"succeeded", "jobs.n.output.nothing", "its condition did not hold"},
		{"succeeded", "jobs.n.output.title", "its condition (if) ${{ jobs.n.output.title }}: gives a text, want true or false"},
		{"succeeded", "jobs.n.output.list[3]", "its condition (if) ${{ jobs.n.output.list[3] }}: column 19: index out of range"},
	} {
		t.Run(c.end+" "+c.condition, func(t *testing.T) {
			before, n, x := spec("before"), spec("n", "before"), spec("x", "ok", "n")
			n.Output = json.RawMessage(`{}`)
			x.Flow.If = c.condition
			w := newWorld([]job.Spec{before, spec("ok"), n, x}, func(j *workflow.Job) {
				switch {
				case j.Spec.Name == "before" && c.end == "skipped":
					j.Exit, j.Output = job.ExitFailed, nil
				case j.Spec.Name != "n":
				case c.end == "expired":
					j.State, j.Exit, j.Output = job.Expired, "", nil
				default:
					j.Exit, j.Message = job.ExitKind(c.end), "broke"
					j.Output = json.RawMessage(`{"ok":true,"title":"t","list":[]}`)
				}
			})
			finish(t, w)
			got := w.find("x")
			switch why := got.Skipped + got.Message; {
			case c.want == "runs":
				if got.Exit != job.ExitSucceeded {
					t.Errorf("did not run: %+v", got)
				}
			case !strings.Contains(why, c.want):
				t.Errorf("got %q, want %q", why, c.want)
			case strings.HasPrefix(why, "its condition (if)") != (got.Exit == job.ExitFailed && got.Class == job.Config):
				t.Errorf("%q as %s %s", why, got.State, got.Class)
			}
		})
	}
}

// TestPatchesComeWithWhatTheyWereBuiltOn: b and c are built on a, d on both.
func TestPatchesComeWithWhatTheyWereBuiltOn(t *testing.T) {
	b, c, d := spec("b", "a"), spec("c", "a"), spec("d", "b", "c", "a")
	b.Flow.From, c.Flow.From, d.Flow.From = []job.Name{"a"}, []job.Name{"a"}, []job.Name{"c", "b"}
	w := newWorld([]job.Spec{spec("a"), b, c, d}, func(j *workflow.Job) {
		j.Patch, j.Bytes, j.Digest = "/"+string(j.Spec.Name), 7, "of "+string(j.Spec.Name)
	})
	finish(t, w)
	if got := fmt.Sprint(w.resolved["d"].Patches); got != "[{a /a 7 of a} {c /c 7 of c} {b /b 7 of b}]" {
		t.Errorf("got %s", got)
	}
}

func TestWhatATeamMayRestartIsWaitedFor(t *testing.T) {
	a, again := spec("a"), spec("a+1")
	again.Flow.Restart = 1
	w := newWorld([]job.Spec{a, spec("x", "a")}, func(j *workflow.Job) {
		if j.Spec.Name == "a" {
			j.Exit, j.Unsettled = job.ExitFailed, true
		}
	})
	settle(t, w)
	w.end(0)
	settle(t, w)
	if x := w.find("x"); x.State != job.Queued || x.Held != job.HeldForNeeds {
		t.Fatalf("did not wait: %+v", x)
	}
	w.add([]job.Spec{again})
	w.find("a+1").Held = "" // as its team lets it go
	w.find("a").Unsettled = false
	settle(t, w)
	if x := w.find("x"); x.Held != job.HeldForNeeds {
		t.Fatalf("did not wait for the second: %+v", x)
	}
	finish(t, w)
	if x := w.find("x"); x.Exit != job.ExitSucceeded {
		t.Errorf("got %+v", x)
	}
}

func TestWhatNobodyCanRunFails(t *testing.T) {
	w := newWorld([]job.Spec{spec("a", "b"), spec("b", "a"), spec("c", "gone"), spec("d", "a")}, func(*workflow.Job) {})
	finish(t, w)
	for name, want := range map[job.Name]string{
		"a": "its needs go in a circle: a -> b -> a", "b": "its needs go in a circle: a -> b -> a",
		"c": "it needs gone, which is not among the jobs that were submitted with it",
		"d": "it needs a, which has not succeeded: failed",
	} {
		if j := w.find(name); j.Message+j.Skipped != want {
			t.Errorf("%s: %q, want %q", name, j.Message+j.Skipped, want)
		}
	}
}

func settle(t *testing.T, w *world) {
	t.Helper()
	if err := w.settle(); err != nil {
		t.Fatal(err)
	}
}

func finish(t *testing.T, w *world) {
	t.Helper()
	if err := w.finish(); err != nil {
		t.Fatal(err)
	}
}

func names(w *world) string {
	var words []string
	for _, i := range w.runnable() {
		words = append(words, string(w.jobs[i].Spec.Name))
	}
	return strings.Join(words, " ")
}

// TestAStageIsLetAlone: a job that is held for parts of its own, and is no node, is
// the job of a pipeline's stage: it was let go before, and is not again.
func TestAStageIsLetAlone(t *testing.T) {
	stage, after := spec("stage"), spec("after", "stage")
	jobs := []workflow.Job{
		{Spec: &stage, State: job.Queued, Held: job.HeldForParts}, {Spec: &after, State: job.Queued, Held: job.HeldForNeeds},
	}
	if moves := asked(&workflow.Batch{}, jobs); len(moves) != 0 {
		t.Errorf("moves: %+v", moves)
	}
	jobs[0].Held = job.HeldForNeeds
	if moves := asked(&workflow.Batch{}, jobs); len(moves) != 1 {
		t.Errorf("before it was let go: %+v", moves)
	}
}
