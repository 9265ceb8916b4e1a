package oversight_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/workflow/oversight"
)

func spec(mode job.OversightMode, change ...func(*job.Oversight)) *job.Spec {
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

func TestWhenAPersonIsAsked(t *testing.T) {
	const auto, spot, all = job.AutonomousEscalation, job.SpotCheck, job.Supervised
	for _, c := range []struct {
		name  string
		spec  *job.Spec
		o     job.Outcome
		facts oversight.Facts
		draw  float64
		why   string // "" is not asked
	}{
		{name: "no oversight", spec: &job.Spec{}, o: made(`{"needs_approval": true}`)},

		{name: "supervised, always", spec: spec(all), o: made("done"), draw: 0.99, why: "supervised: a person looks at everything that the job makes"},
		{name: "supervised says what the agent asks", spec: spec(all), o: made(`{"ask": "drop the table?"}`), why: "the agent asks: drop the table?"},
		{name: "supervised, but nothing was made", spec: spec(all), o: failed(job.Crash), facts: oversight.Facts{Last: true}},
		{name: "supervised, but it is tried again", spec: spec(all), o: failed(job.VerifyFailed)},
		{name: "supervised, but cancelled", spec: spec(all), o: job.Outcome{State: job.RunCancelled}, facts: oversight.Facts{Last: true, Denied: []string{"Bash(ls)"}}},

		{name: "spot check, drawn", spec: spec(spot), o: made("done"), draw: 0.2999, why: "a spot check: drew 0.2999, below the probability of 0.3"},
		{name: "spot check, just not drawn", spec: spec(spot), o: made("done"), draw: 0.3},
		{name: "spot check, own probability", spec: spec(spot, likely(0.8)), o: made("done"), draw: 0.5, why: "a spot check: drew 0.500, below the probability of 0.8"},
		{name: "spot check, never", spec: spec(spot, likely(0)), o: made("done"), draw: 0},
		{name: "spot check, always", spec: spec(spot, likely(1)), o: made("done"), draw: 0.999999, why: "a spot check: drew 0.999999, below the probability of 1"},
		{name: "spot check, not drawn, but the agent asks", spec: spec(spot), o: made(`{"needs_approval": true}`), draw: 0.9, why: "the agent asks for approval"},

		{name: "autonomous", spec: spec(auto, confident(0.7)), o: made(`{"summary": "done", "confidence": 0.7}`)},
		{name: "autonomous, text", spec: spec(auto, confident(0.7)), o: made("confidence: 0.1")},
		{name: "autonomous, no confidence given", spec: spec(auto, confident(0.7)), o: made(`{"summary": "done"}`)},
		{name: "low confidence", spec: spec(auto, confident(0.7)), o: made(`{"confidence": 0.65}`), why: "its confidence is 0.65, below 0.7"},
		{name: "low confidence that nobody looks at", spec: spec(auto), o: made(`{"confidence": 0}`)},
		{name: "confidence in percent", spec: spec(auto, confident(0.7)), o: made(`{"confidence": 95}`), why: "its confidence is 95, which is no number from 0 to 1"},
		{name: "confidence in words", spec: spec(auto, confident(0.7)), o: made(`{"confidence": "high"}`), why: `its confidence is "high", which is no number from 0 to 1`},
		{name: "confidence null", spec: spec(auto, confident(0.7)), o: made(`{"confidence": null}`), why: "its confidence is null, which is no number from 0 to 1"},
		{name: "in a fence", spec: spec(auto, confident(0.7)), o: made("```json\n{\"confidence\": 0.1}\n```\n"), why: "its confidence is 0.1, below 0.7"},
		{name: "needs approval", spec: spec(auto), o: made(`{"needs_approval": true}`), why: "the agent asks for approval"},
		{name: "needs none", spec: spec(auto), o: made(`{"needs_approval": false, "ask": "", "confidence": 0.1}`)},
		{name: "needs none, null", spec: spec(auto), o: made(`{"needs_approval": null, "ask": null}`)},
		{name: "needs approval, in words", spec: spec(auto), o: made(`{"needs_approval": "yes"}`), why: "the agent asks for approval"},
		{name: "other letters are other fields", spec: spec(auto), o: made(`{"Needs_Approval": true, "ASK": "x"}`)},
		{name: "ask", spec: spec(auto), o: made(`{"ask": "may I drop the table?\nIt is empty."}`), why: "the agent asks: may I drop the table?"},
		{name: "ask, a heading and what it announces", spec: spec(auto), o: made(`{"ask": "may I drop:\nthe table users\nthe table orders"}`), why: "the agent asks: may I drop: the table users"},
		{name: "ask, a heading alone", spec: spec(auto), o: made(`{"ask": "may I:"}`), why: "the agent asks: may I:"},
		{name: "ask, an object", spec: spec(auto), o: made(`{"ask": {"drop": "users"}}`), why: `the agent asks: {"drop": "users"}`},
		{name: "a list is no answer with fields", spec: spec(auto), o: made(`[{"ask": "x"}]`)},

		{name: "denied", spec: spec(auto), o: made("done"), facts: oversight.Facts{Denied: []string{"Bash(git push)"}}, why: "1 tool call was not allowed: Bash(git push)"},
		{name: "denied more than once", spec: spec(auto), o: made("done"), facts: oversight.Facts{Denied: []string{"WebFetch(x)", "Bash(ls)", "Bash(ls)"}}, why: "3 tool calls were not allowed: Bash(ls), WebFetch(x)"},
		{name: "denied, then failed, tried again", spec: spec(auto), o: failed(job.Unknown), facts: oversight.Facts{Denied: []string{"Bash(ls)"}}},
		{name: "denied, then failed for good", spec: spec(auto), o: failed(job.Unknown), facts: oversight.Facts{Denied: []string{"Bash(ls)"}, Last: true}, why: "1 tool call was not allowed: Bash(ls)"},
		{name: "verify failed, tried again", spec: spec(auto), o: failed(job.VerifyFailed)},
		{name: "verify keeps failing", spec: spec(auto), o: failed(job.VerifyFailed), facts: oversight.Facts{Last: true}, why: "its check keeps failing and no attempt is left: exit code 1: FAIL TestLogin"},
		{name: "fails otherwise", spec: spec(auto), o: failed(job.Timeout), facts: oversight.Facts{Last: true}},
		{name: "done again after a rejection", spec: spec(auto), o: made("done"), facts: oversight.Facts{Rejected: true}, why: "it was rejected before and has been done again"},
		{
			name: "all at once", spec: spec(auto, confident(0.7)), o: made(`{"confidence": 0.1, "needs_approval": true, "ask": "ok?"}`), facts: oversight.Facts{Denied: []string{"Bash(ls)"}, Rejected: true},
			why: "1 tool call was not allowed: Bash(ls); it was rejected before and has been done again; its confidence is 0.1, below 0.7; the agent asks for approval; the agent asks: ok?",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			ask, why := oversight.Ask(c.spec, &c.o, c.facts, c.draw)
			if why != c.why || ask != (c.why != "") {
				t.Fatalf("got %v %q, want %q", ask, why, c.why)
			}
		})
	}
}

func TestReasonsAreShort(t *testing.T) {
	o := made(`{"ask": "` + strings.Repeat("é", 5000) + `"}`)
	if _, why := oversight.Ask(spec(job.Supervised), &o, oversight.Facts{}, 0); len(why) > 400 || strings.Contains(why, "\n") {
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
		f := oversight.Facts{
			Denied: rapid.SliceOfN(rapid.SampledFrom([]string{"Bash(ls)", "Edit(x)"}), 0, 3).Draw(t, "denied"),
			Last:   rapid.Bool().Draw(t, "last"), Rejected: rapid.Bool().Draw(t, "rejected"),
		}
		draw := rapid.Float64Range(0, 0.999999).Draw(t, "draw")
		p, least := rapid.Float64Range(0, 1).Draw(t, "p"), rapid.Float64Range(0, 1).Draw(t, "least")

		before, last := false, job.OversightMode("")
		for _, mode := range job.OversightModes() {
			ask, why := oversight.Ask(spec(mode, likely(p), confident(least)), &o, f, draw)
			if ask != (why != "") {
				t.Fatalf("%s: ask is %v, why is %q", mode, ask, why)
			}
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
