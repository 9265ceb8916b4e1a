package scheduler

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

func overseen(mode job.OversightMode, change ...func(*job.Oversight)) *job.Spec {
	o := &job.Oversight{Mode: mode}
	for _, f := range change {
		f(o)
	}
	return &job.Spec{Flow: job.Flow{Oversight: o}}
}

func confident(least float64) func(*job.Oversight) {
	return func(o *job.Oversight) { o.MinConfidence = least }
}

func likely(p float64) func(*job.Oversight) {
	return func(o *job.Oversight) { o.Probability = &p }
}

func made(answer string) job.Outcome { return job.Outcome{State: job.RunCompleted, Answer: answer} }

func failed(class job.ErrorClass) job.Outcome {
	return job.Outcome{State: job.RunFailed, Class: class, Message: "exit code 1: FAIL TestLogin\nmore"}
}

func denied(o job.Outcome, calls ...string) job.Outcome {
	o.Denied = calls
	return o
}

func TestWhenAPersonIsAsked(t *testing.T) {
	const auto, spot, all = job.AutonomousEscalation, job.SpotCheck, job.Supervised
	for _, c := range []struct {
		name           string
		spec           *job.Spec
		o              job.Outcome
		last, rejected bool
		draw           float64
		why            string // "" is not asked
	}{
		{name: "no oversight", spec: &job.Spec{}, o: made(`{"needs_approval": true}`)},

		{name: "supervised, always", spec: overseen(all), o: made("done"), draw: 0.99, why: "supervised: a person looks at everything that the job makes"},
		{name: "supervised says what the agent asks", spec: overseen(all), o: made(`{"ask": "drop the table?"}`), why: "the agent asks: drop the table?"},
		{name: "supervised, but nothing was made", spec: overseen(all), o: failed(job.Crash), last: true},
		{name: "supervised, but it is tried again", spec: overseen(all), o: failed(job.VerifyFailed)},
		{name: "supervised, but cancelled", spec: overseen(all), o: denied(job.Outcome{State: job.RunCancelled}, "Bash(ls)"), last: true},

		{name: "spot check, drawn", spec: overseen(spot), o: made("done"), draw: 0.2999, why: "a spot check: drew 0.2999, below the probability of 0.3"},
		{name: "spot check, just not drawn", spec: overseen(spot), o: made("done"), draw: 0.3},
		{name: "spot check, own probability", spec: overseen(spot, likely(0.8)), o: made("done"), draw: 0.5, why: "a spot check: drew 0.500, below the probability of 0.8"},
		{name: "spot check, never", spec: overseen(spot, likely(0)), o: made("done"), draw: 0},
		{name: "spot check, always", spec: overseen(spot, likely(1)), o: made("done"), draw: 0.999999, why: "a spot check: drew 0.999999, below the probability of 1"},
		{name: "spot check, not drawn, but the agent asks", spec: overseen(spot), o: made(`{"needs_approval": true}`), draw: 0.9, why: "the agent asks for approval"},

		{name: "autonomous", spec: overseen(auto, confident(0.7)), o: made(`{"summary": "done", "confidence": 0.7}`)},
		{name: "autonomous, text", spec: overseen(auto, confident(0.7)), o: made("confidence: 0.1")},
		{name: "autonomous, no confidence given", spec: overseen(auto, confident(0.7)), o: made(`{"summary": "done"}`)},
		{name: "low confidence", spec: overseen(auto, confident(0.7)), o: made(`{"confidence": 0.65}`), why: "its confidence is 0.65, below 0.7"},
		{name: "low confidence that nobody looks at", spec: overseen(auto), o: made(`{"confidence": 0}`)},
		{name: "confidence in percent", spec: overseen(auto, confident(0.7)), o: made(`{"confidence": 95}`), why: "its confidence is 95, which is no number from 0 to 1"},
		{name: "confidence in words", spec: overseen(auto, confident(0.7)), o: made(`{"confidence": "high"}`), why: `its confidence is "high", which is no number from 0 to 1`},
		{name: "confidence null", spec: overseen(auto, confident(0.7)), o: made(`{"confidence": null}`), why: "its confidence is null, which is no number from 0 to 1"},
		{name: "in a fence", spec: overseen(auto, confident(0.7)), o: made("```json\n{\"confidence\": 0.1}\n```\n"), why: "its confidence is 0.1, below 0.7"},
		{name: "needs approval", spec: overseen(auto), o: made(`{"needs_approval": true}`), why: "the agent asks for approval"},
		{name: "needs none", spec: overseen(auto), o: made(`{"needs_approval": false, "ask": "", "confidence": 0.1}`)},
		{name: "needs none, null", spec: overseen(auto), o: made(`{"needs_approval": null, "ask": null}`)},
		{name: "needs approval, in words", spec: overseen(auto), o: made(`{"needs_approval": "yes"}`), why: "the agent asks for approval"},
		{name: "other letters are other fields", spec: overseen(auto), o: made(`{"Needs_Approval": true, "ASK": "x"}`)},
		{name: "ask", spec: overseen(auto), o: made(`{"ask": "may I drop the table?\nIt is empty."}`), why: "the agent asks: may I drop the table?"},
		{name: "ask, a heading and what it announces", spec: overseen(auto), o: made(`{"ask": "may I drop:\nthe table users\nthe table orders"}`), why: "the agent asks: may I drop: the table users"},
		{name: "ask, a heading alone", spec: overseen(auto), o: made(`{"ask": "may I:"}`), why: "the agent asks: may I:"},
		{name: "ask, an object", spec: overseen(auto), o: made(`{"ask": {"drop": "users"}}`), why: `the agent asks: {"drop": "users"}`},
		{name: "a list is no answer with fields", spec: overseen(auto), o: made(`[{"ask": "x"}]`)},

		{name: "denied", spec: overseen(auto), o: denied(made("done"), "Bash(git push)"), why: "1 tool call was not allowed: Bash(git push)"},
		{name: "denied more than once", spec: overseen(auto), o: denied(made("done"), "WebFetch(x)", "Bash(ls)", "Bash(ls)"), why: "3 tool calls were not allowed: Bash(ls), WebFetch(x)"},
		{name: "denied, then failed, tried again", spec: overseen(auto), o: denied(failed(job.Unknown), "Bash(ls)")},
		{name: "denied, then failed for good", spec: overseen(auto), o: denied(failed(job.Unknown), "Bash(ls)"), last: true, why: "1 tool call was not allowed: Bash(ls)"},
		{name: "verify failed, tried again", spec: overseen(auto), o: failed(job.VerifyFailed)},
		{name: "verify keeps failing", spec: overseen(auto), o: failed(job.VerifyFailed), last: true, why: "its check keeps failing and no attempt is left: exit code 1: FAIL TestLogin"},
		{name: "fails otherwise", spec: overseen(auto), o: failed(job.Timeout), last: true},
		{name: "done again after a rejection", spec: overseen(auto), o: made("done"), rejected: true, why: "it was rejected before and has been done again"},
		{
			name: "all at once", spec: overseen(auto, confident(0.7)), o: denied(made(`{"confidence": 0.1, "needs_approval": true, "ask": "ok?"}`), "Bash(ls)"), rejected: true,
			why: "1 tool call was not allowed: Bash(ls); it was rejected before and has been done again; its confidence is 0.1, below 0.7; the agent asks for approval; the agent asks: ok?",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if why := reviewReason(c.spec, &c.o, c.last, c.rejected, c.draw); why != c.why {
				t.Fatalf("got %q, want %q", why, c.why)
			}
		})
	}
}

func TestReasonsAreShort(t *testing.T) {
	o := made(`{"ask": "` + strings.Repeat("é", 5000) + `"}`)
	if why := reviewReason(overseen(job.Supervised), &o, false, false, 0); len(why) > 400 || strings.Contains(why, "\n") {
		t.Fatalf("got %d bytes: %s", len(why), why)
	}
}

// The modes are ordered: autonomous_escalation ≤ spot_check ≤ supervised. Whatever
// is asked about under one is asked about under the next.
func TestTheStrongerModeAsksWhateverTheWeakerDoes(t *testing.T) {
	answers := rapid.SampledFrom([]string{
		"", "done", `{"confidence": 0.2}`, `{"confidence": 0.9}`, `{"confidence": "x"}`, `{"needs_approval": true}`, `{"needs_approval": false}`,
		`{"ask": "may I?"}`, `{"ask": ""}`, "```json\n{\"ask\": \"may I?\"}\n```", `{"confidence": 0.2, "needs_approval": true}`, `[1]`, `{`,
	})
	rapid.Check(t, func(t *rapid.T) {
		o := job.Outcome{
			State:  rapid.SampledFrom([]job.RunState{job.RunCompleted, job.RunCompleted, job.RunFailed, job.RunCancelled}).Draw(t, "state"),
			Answer: answers.Draw(t, "answer"),
		}
		if o.State == job.RunFailed {
			o.Class = rapid.SampledFrom(job.ErrorClasses()).Draw(t, "class")
		}
		o.Denied = rapid.SliceOfN(rapid.SampledFrom([]string{"Bash(ls)", "Edit(x)"}), 0, 3).Draw(t, "denied")
		isLast, rejected := rapid.Bool().Draw(t, "last"), rapid.Bool().Draw(t, "rejected")
		draw := rapid.Float64Range(0, 0.999999).Draw(t, "draw")
		p, least := rapid.Float64Range(0, 1).Draw(t, "p"), rapid.Float64Range(0, 1).Draw(t, "least")

		before, last := false, job.OversightMode("")
		for _, mode := range job.OversightModes() {
			ask := reviewReason(overseen(mode, likely(p), confident(least)), &o, isLast, rejected, draw) != ""
			if before && !ask {
				t.Fatalf("%s asks and %s does not", last, mode)
			}
			before, last = ask, mode
		}
		if !before && o.State == job.RunCompleted {
			t.Fatal("supervised does not ask about a success")
		}
	})
}

// The numbers are of another implementation (Python): a recorded draw must come
// out again, whatever becomes of the code.
func TestDrawIsTheSameForEver(t *testing.T) {
	const id = job.ID("01a1fcce-6b90-7022-94af-83e4d513c5ef")
	for _, c := range []struct {
		attempt int
		seed    uint64
		want    float64
	}{{1, 0, 0.14678060079926958}, {2, 0, 0.9541301277805568}, {1, 42, 0.7397529042975497}} {
		if got := draw(id, c.attempt, c.seed); got != c.want {
			t.Errorf("attempt %d, seed %d: got %v, want %v", c.attempt, c.seed, got, c.want)
		}
	}
}

func TestDrawsAreUniform(t *testing.T) {
	const n, cells = 20_000, 20
	var counts [cells]int
	below := 0
	for i := range n {
		d := draw(job.ID(fmt.Sprintf("job-%d", i/4)), i%4+1, 7)
		if d < 0 || d >= 1 {
			t.Fatalf("draw %d is %v, want it in [0, 1)", i, d)
		}
		counts[int(d*cells)]++
		if d < job.DefaultSpotCheck {
			below++
		}
	}
	// Chi-squared with 19 degrees of freedom exceeds 43.8 once in a thousand; the
	// draws are fixed, so that this passes always or never.
	chi := 0.0
	for _, c := range counts {
		chi += math.Pow(float64(c)-n/cells, 2) / (n / cells)
	}
	if chi > 43.8 {
		t.Errorf("chi-squared over %d cells is %.1f, want at most 43.8", cells, chi)
	}
	if share := float64(below) / n; math.Abs(share-job.DefaultSpotCheck) > 0.01 {
		t.Errorf("%.3f of the draws are spot checks, want about %g", share, job.DefaultSpotCheck)
	}
}

func TestARejectionIsRetriedWithTheFeedbackUntilMaxRetries(t *testing.T) {
	for _, c := range []struct {
		rejections, max      int
		comment              string
		feedback, deadLetter string
	}{
		{0, 2, " use the old API\n", "use the old API", ""},
		{1, 2, "still not", "still not", ""},
		{2, 2, "still not\nreally", "", "HUMAN_REJECTED: still not; rejected 3 times, max_retries is 2"},
		{0, 0, "no", "", "HUMAN_REJECTED: no; rejected 1 time, max_retries is 0"},
	} {
		e := queue.Entry{Spec: *overseen(job.Supervised), Rejections: c.rejections, Held: job.HeldForApproval, Approval: &queue.Approval{Attempt: 1}}
		e.Spec.Flow.Oversight.MaxRetries = c.max
		got, err := Decision(&e, &job.Attempt{}, api.Answer{Comment: c.comment}, time.Time{})
		feedback := ""
		if got.Retry != nil {
			feedback = got.Retry.Feedback
		}
		if err != nil || feedback != c.feedback || got.DeadLetter != c.deadLetter {
			t.Errorf("rejected %d of %d: got feedback %q, dead letter %q, %v", c.rejections, c.max, feedback, got.DeadLetter, err)
		}
		if _, err := Decision(&e, &job.Attempt{}, api.Answer{Comment: " "}, time.Time{}); !errors.Is(err, ErrNoComment) {
			t.Errorf("without a comment: %v", err)
		}
	}
}
