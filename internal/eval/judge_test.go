package eval

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

func TestJudgeJob(t *testing.T) {
	ctx, m := t.Context(), newMemory()
	v := bench(t, m, nil)
	judged := work("web", func(e *queue.Entry) { e.Spec.Flow.Evaluation.Judge = "review" })
	attempts := []job.Attempt{tried(1, "a", "", time.Minute, 1)}
	judge := work("review", func(e *queue.Entry) {
		e.Spec.Flow = job.Flow{Joined: true, Needs: []job.Name{"web"}}
		e.State, e.ExitKind = job.Queued, ""
	})
	m.put(judged, attempts...)
	m.put(judge)
	if verdict := must(v.Record(ctx, judged, attempts))(t); len(verdict.Ops) != 0 {
		t.Fatalf("it did not wait for its judge: %+v", verdict)
	}
	judge.State, judge.ExitKind = job.Completed, job.ExitSucceeded
	said := tried(1, "b", "", time.Minute, 1)
	said.Outcome.Answer = "```json\n{\"quality\": 0.6, \"adherence\": 0.5, \"why\": \"thin\", \"comment\": \"thin\"}\n```"
	m.put(judge, said)
	verdict := must(v.Record(ctx, judge, []job.Attempt{said}))(t)
	if len(verdict.Evaluations) != 1 || verdict.Evaluations[0].Job != "web" {
		t.Fatalf("%+v", verdict)
	}
	e := verdict.Evaluations[0]
	if *e.Vector.Quality != 0.6 || *e.Vector.Adherence != 0.5 || e.Sources[Quality] != "job review" || e.Sources[Speed] != measured || e.Comment != "thin" {
		t.Errorf("%+v", e)
	}
	// Whoever has ended last may be asked first after a restart.
	if verdict := must(v.Record(ctx, judged, attempts))(t); len(verdict.Ops) != 0 {
		t.Errorf("it counts twice: %+v", verdict)
	}

	// A judge that has nothing to say holds nobody up.
	for name, change := range map[string]func(*queue.Entry, *job.Attempt){
		"has not succeeded":                    func(e *queue.Entry, a *job.Attempt) { e.ExitKind = job.ExitFailed },
		"is no report in JSON":                 func(e *queue.Entry, a *job.Attempt) { a.Outcome.Answer = "fine" },
		"quality: is 7, want a number from 0":  func(e *queue.Entry, a *job.Attempt) { a.Outcome.Answer = `{"quality": 7}` },
		"names no dimension, want at least on": func(e *queue.Entry, a *job.Attempt) { a.Outcome.Answer = `{"score": 0.7}` },
	} {
		m := newMemory()
		v, j, a := bench(t, m, nil), *judge, said
		outcome := *said.Outcome
		a.Outcome = &outcome
		change(&j, &a)
		m.put(judged, attempts...)
		m.put(&j, a)
		verdict := must(v.Record(ctx, &j, []job.Attempt{a}))(t)
		if len(verdict.Evaluations) != 1 || len(verdict.Evaluations[0].Problems) != 1 || !strings.Contains(verdict.Evaluations[0].Problems[0], name) {
			t.Errorf("%s: %+v", name, verdict.Evaluations)
		}
	}

	// Done again by its team, a judge counts by its latest answer, and not before.
	m, again := newMemory(), work("review+1", func(e *queue.Entry) {
		e.Spec.Flow = job.Flow{Joined: true, Needs: []job.Name{"web"}, Restart: 1}
		e.State, e.ExitKind = job.Queued, ""
	})
	failed := *judge
	failed.ExitKind = job.ExitFailed
	v = bench(t, m, nil)
	m.put(judged, attempts...)
	m.put(&failed)
	m.put(again)
	if verdict := must(v.Record(ctx, &failed, nil))(t); len(verdict.Ops) != 0 {
		t.Errorf("it did not wait for the second judge: %+v", verdict)
	}
	again.State, again.ExitKind = job.Completed, job.ExitSucceeded
	m.put(again, said)
	if verdict := must(v.Record(ctx, again, []job.Attempt{said}))(t); len(verdict.Evaluations) != 1 || *verdict.Evaluations[0].Vector.Quality != 0.6 {
		t.Errorf("the second judge: %+v", verdict)
	}
}

// TestOwnReport: what the job's command or report file said, in the outcome.
func TestOwnReport(t *testing.T) {
	for name, c := range map[string]struct {
		asked   job.Evaluation
		said    map[string]float64
		quality float64 // NaN: absent
		source  string
		problem string
	}{
		"command":          {job.Evaluation{Command: "score ."}, map[string]float64{"quality": 0.4, "error_rate": 0.2}, 0.4, "command", ""},
		"file":             {job.Evaluation{Report: "score.json"}, map[string]float64{"quality": 0.4, "error_rate": 0.2}, 0.4, "report", ""},
		"none":             {job.Evaluation{Report: "score.json"}, nil, math.NaN(), "", "report score.json: there is no report"},
		"of another core":  {job.Evaluation{Command: "score ."}, map[string]float64{"quality": 2}, math.NaN(), "", "command score .: quality: is 2, want"},
		"nobody was asked": {job.Evaluation{}, nil, math.NaN(), "", ""},
	} {
		e := work("web", func(e *queue.Entry) { e.Spec.Flow.Evaluation = &c.asked })
		a := tried(1, "a", "", time.Minute, 1)
		a.Outcome.Report = c.said
		got := must(bench(t, newMemory(), nil).Record(t.Context(), e, []job.Attempt{a}))(t).Evaluations[0]
		if (got.Vector.Quality == nil) != math.IsNaN(c.quality) || got.Vector.Quality != nil && (*got.Vector.Quality != c.quality || *got.Vector.ErrorRate != 0.2) || got.Sources[Quality] != c.source {
			t.Errorf("%s: %+v", name, got)
		}
		if problems := strings.Join(got.Problems, "; "); (c.problem == "") != (problems == "") || !strings.Contains(problems, c.problem) {
			t.Errorf("%s: %q, want %q", name, problems, c.problem)
		}
	}
}
