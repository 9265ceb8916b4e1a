package policy_test

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/policy"
)

// level is that of Rule.NotLess.
func level(d policy.Decision, h policy.History) int {
	switch {
	case d.Exit != "":
		return 4
	case d.Choice != h.Choice:
		return 3
	case !d.Resume:
		return 2
	}
	return 1
}

// doesLess is the definition of Rule.NotLess, written down once more.
func doesLess(a, b policy.Decision, h policy.History) bool {
	la, lb := level(a, h), level(b, h)
	return la < lb || la == lb && la <= 2 && a.RunnableAt.Before(b.RunnableAt)
}

func rules() *rapid.Generator[policy.Rule] {
	return rapid.Custom(func(t *rapid.T) policy.Rule {
		return policy.Rule{
			Action: rapid.SampledFrom(policy.Actions()).Draw(t, "action"),
			Resume: rapid.Bool().Draw(t, "resume"), Afresh: rapid.Bool().Draw(t, "afresh"), AtOnce: rapid.Bool().Draw(t, "at once"),
			Floor: rapid.SampledFrom([]time.Duration{0, time.Second, time.Hour}).Draw(t, "floor"),
		}
	})
}

func histories() *rapid.Generator[policy.History] {
	return rapid.Custom(func(t *rapid.T) policy.History {
		h := policy.History{
			Choices: rapid.IntRange(1, 3).Draw(t, "choices"), Counted: rapid.IntRange(1, 12).Draw(t, "counted"),
			MaxAttempts: rapid.IntRange(0, 12).Draw(t, "max"), Resumed: rapid.Bool().Draw(t, "resumed"),
		}
		h.Choice = rapid.IntRange(0, h.Choices-1).Draw(t, "choice")
		return h
	})
}

func failures(class job.ErrorClass) *rapid.Generator[job.Outcome] {
	return rapid.Custom(func(t *rapid.T) job.Outcome {
		o := job.Outcome{State: job.RunFailed, Class: class, Message: "m"}
		if rapid.Bool().Draw(t, "session") {
			o.Session = "s"
		}
		if rapid.Bool().Draw(t, "progress") {
			o.Usage.Steps = 1
		}
		if rapid.Bool().Draw(t, "reset") {
			at := now.Add(rapid.SampledFrom([]time.Duration{-time.Hour, time.Second, time.Minute, 2 * time.Minute, 24 * time.Hour}).Draw(t, "at"))
			o.RetryAt = &at
		}
		return o
	})
}

// TestStricterNeverDoesLess: whatever table is accepted as stricter than its
// neighbour does no less than that about anything that can happen.
func TestStricterNeverDoesLess(t *testing.T) {
	accepted := 0
	rapid.Check(t, func(t *rapid.T) {
		class := rapid.SampledFrom(job.ErrorClasses()).Draw(t, "class")
		domains := map[string]policy.Domain{
			"near": {Rules: policy.Rules{class: rules().Draw(t, "near")}},
			"far":  {StricterThan: "near", Rules: policy.Rules{class: rules().Draw(t, "far")}},
		}
		byDefault := policy.DefaultRules()
		tables, err := policy.Tables(byDefault, domains)
		if err != nil {
			return
		}
		accepted++
		draw := rapid.Float64Range(0, 0.999).Draw(t, "draw")
		r := &policy.Retry{Rules: byDefault, Domains: tables, Base: time.Second, Max: 5 * time.Minute, Random: func() float64 { return draw }}
		for range 20 {
			h, o := histories().Draw(t, "history"), failures(class).Draw(t, "outcome")
			h.Domain = "near"
			near := r.Decide(h, &o, now)
			h.Domain = "far"
			if far := r.Decide(h, &o, now); doesLess(far, near, h) {
				t.Fatalf("far %+v does less than near %+v", far, near)
			}
		}
	})
	if accepted == 0 {
		t.Error("no table was accepted: nothing was tested")
	}
}

// TestActionsAreOrdered: each action is as strict as all before it, the other
// fields being none, and says so.
func TestActionsAreOrdered(t *testing.T) {
	for i, a := range policy.Actions() {
		for j, b := range policy.Actions() {
			if err := (policy.Rule{Action: a}).NotLess(policy.Rule{Action: b}); (err == nil) != (i >= j) && b != policy.DoRestart {
				t.Errorf("%s for %s: %v", a, b, err)
			}
		}
	}
}

func TestNotLess(t *testing.T) {
	for _, tt := range []struct {
		r, o policy.Rule
		want string // "": accepted
	}{
		{policy.Rule{Action: policy.DoRetry}, policy.Rule{Action: policy.DoRestart}, ""},
		{policy.Rule{Action: policy.DoRetry, Resume: true}, policy.Rule{Action: policy.DoRestart}, ""},
		{policy.Rule{Action: policy.DoRestart}, policy.Rule{Action: policy.DoEscalate}, "restart is less strict than escalate; want escalate"},
		{policy.Rule{Action: policy.DoFeedback}, policy.Rule{Action: policy.DoFallback}, "feedback is less strict than fallback; want fallback, fallback_or_escalate or escalate"},
		{policy.Rule{Action: policy.DoFeedback, Resume: true}, policy.Rule{Action: policy.DoRetry}, "feedback with resume is less strict than retry without; leave resume out"},
		{policy.Rule{Action: policy.DoEscalate, Afresh: true}, policy.Rule{Action: policy.DoFallbackOrEscalate, Afresh: true}, "escalate with afresh is less strict than fallback_or_escalate; leave afresh out"},
		{policy.Rule{Action: policy.DoEscalate, Afresh: true}, policy.Rule{Action: policy.DoRetry}, ""},
		{policy.Rule{Action: policy.DoFallbackOrEscalate, Afresh: true}, policy.Rule{Action: policy.DoFallback}, ""},
		{policy.Rule{Action: policy.DoFeedback, AtOnce: true}, policy.Rule{Action: policy.DoFeedback}, "feedback at_once is less strict than feedback after a backoff; leave at_once out"},
		{policy.Rule{Action: policy.DoFallback}, policy.Rule{Action: policy.DoRetry, Floor: time.Second}, "fallback with floor 0s is less strict than retry with floor 1s"},
		{policy.Rule{Action: policy.DoEscalate}, policy.Rule{Action: policy.DoRetry, Floor: time.Second}, ""},
	} {
		err := tt.r.NotLess(tt.o)
		if err == nil && tt.want != "" || err != nil && err.Error() != tt.want {
			t.Errorf("%+v for %+v: got %v, want %q", tt.r, tt.o, err, tt.want)
		}
	}
}

func TestTables(t *testing.T) {
	for _, tt := range []struct {
		name  string
		given map[string]policy.Domain
		want  string // of the error; "": none
	}{
		{"none", nil, ""},
		{"looser, without a claim", map[string]policy.Domain{"web": {Rules: policy.Rules{job.Auth: {Action: policy.DoRetry}}}}, ""},
		{"looser than claimed", map[string]policy.Domain{"web": {StricterThan: policy.DefaultDomain, Rules: policy.Rules{job.Auth: {Action: policy.DoRetry}}}},
			"domains.web.classes.AUTH: domain web claims to be stricter than default, but on AUTH retry is less strict than fallback_or_escalate; want fallback_or_escalate or escalate"},
		{"looser than a preset", map[string]policy.Domain{"tax": {StricterThan: "legal", Rules: policy.Rules{job.Crash: {Action: policy.DoRestart}}}},
			"domains.tax.classes.CRASH: domain tax claims to be stricter than legal, but on CRASH restart is less strict than escalate; want escalate"},
		{"unknown neighbour", map[string]policy.Domain{"web": {StricterThan: "wbe"}},
			`domains.web.stricter_than: "wbe" is not a domain; want default or one that is set up here`},
		{"itself", map[string]policy.Domain{"web": {StricterThan: "web"}}, "domains.web.stricter_than: domain web cannot be stricter than web, which claims to be stricter than web"},
		{"in a circle", map[string]policy.Domain{"a": {StricterThan: "b"}, "b": {StricterThan: "c"}, "c": {StricterThan: "a"}},
			"domains.c.stricter_than: domain c cannot be stricter than a, which claims to be stricter than c"},
		{"the default", map[string]policy.Domain{"default": {}}, "domains.default: is not a domain: the rules of jobs without a domain are in classes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tables, err := policy.Tables(policy.DefaultRules(), tt.given)
			if err == nil && tt.want != "" || err != nil && err.Error() != tt.want {
				t.Fatalf("got %v, want %q", err, tt.want)
			}
			if _, there := tables[policy.DefaultDomain]; there {
				t.Error("the default is among the domains")
			}
			for name, table := range tables {
				if len(table) != len(job.ErrorClasses()) {
					t.Errorf("%s: %d rules for %d classes", name, len(table), len(job.ErrorClasses()))
				}
			}
		})
	}
}

// A preset stays below what the user makes of its neighbour.
func TestPresetFollowsItsNeighbour(t *testing.T) {
	byDefault := policy.DefaultRules()
	byDefault[job.Timeout] = policy.Rule{Action: policy.DoEscalate}
	tables, err := policy.Tables(byDefault, nil)
	if err != nil || tables["legal"][job.Timeout].Action != policy.DoEscalate || tables["legal"][job.Crash].Action != policy.DoEscalate {
		t.Errorf("legal is %+v, %v", tables["legal"], err)
	}
}

// What a domain does not name is as its neighbour has it.
func TestDomainTakesAfterItsNeighbour(t *testing.T) {
	tables, err := policy.Tables(policy.DefaultRules(), map[string]policy.Domain{"tax": {StricterThan: "legal", Rules: policy.Rules{job.Unknown: {Action: policy.DoEscalate}}}})
	if err != nil {
		t.Fatal(err)
	}
	tax := tables["tax"]
	if tax[job.Crash] != tables["legal"][job.Crash] || tax[job.Unknown].Action != policy.DoEscalate || tax[job.Server] != policy.DefaultRules()[job.Server] {
		t.Errorf("tax is %+v", tax)
	}
}

func TestDecideByDomain(t *testing.T) {
	crash := job.Outcome{State: job.RunFailed, Class: job.Crash, Message: "boom\nmore", Session: "s", Usage: job.Usage{Steps: 1}}
	timeout := job.Outcome{State: job.RunFailed, Class: job.Timeout, Session: "s", Usage: job.Usage{Steps: 1}}
	verify := job.Outcome{State: job.RunFailed, Class: job.VerifyFailed, Message: "test failed"}
	reset := now.Add(2 * time.Hour)
	limit := job.Outcome{State: job.RunFailed, Class: job.RateLimit, RetryAt: &reset}
	r := policy.NewRetry(time.Second, 5*time.Minute, func() float64 { return 0 })
	r.Domains["strict"] = policy.Rules{job.VerifyFailed: {Action: policy.DoFallback}}
	for _, tt := range []struct {
		name    string
		domain  string
		choices int
		outcome job.Outcome
		want    policy.Decision
	}{
		{"crash", "", 2, crash, policy.Decision{RunnableAt: now, Resume: true, Waiting: "CRASH; next attempt after 0s"}},
		{"crash in an unknown domain", "kitchen", 2, crash, policy.Decision{RunnableAt: now, Resume: true, Waiting: "CRASH; next attempt after 0s"}},
		{"legal crash", "legal", 2, crash, policy.Decision{Exit: job.ExitFailed, DeadLetter: "CRASH: boom; in the domain legal a person decides what follows", Escalated: true}},
		{"legal timeout", "legal", 2, timeout, policy.Decision{RunnableAt: now, Choice: 1, Waiting: "TIMEOUT; goes on with the next worker"}},
		{"legal timeout without another worker", "legal", 1, timeout, policy.Decision{RunnableAt: now, Waiting: "TIMEOUT; next attempt after 0s"}},
		{"the next worker hears what was wrong", "strict", 2, verify, policy.Decision{RunnableAt: now, Choice: 1, Feedback: "test failed", Waiting: "VERIFY_FAILED; goes on with the next worker"}},
		{"a class without a rule", "strict", 2, crash, policy.Decision{Exit: job.ExitFailed, DeadLetter: "CRASH: boom; in the domain strict a person decides what follows", Escalated: true}},
		{"usage limit with another worker", "", 2, limit, policy.Decision{RunnableAt: now, Choice: 1, Waiting: "RATE_LIMIT; goes on with the next worker"}},
		{"usage limit without", "", 1, limit, policy.Decision{RunnableAt: reset, Waiting: "RATE_LIMIT; next attempt after 2h0m0s"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := r.Decide(policy.History{Choices: tt.choices, Counted: 1, MaxAttempts: 3, Domain: tt.domain}, &tt.outcome, now); got != tt.want {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
		})
	}
}

func TestPark(t *testing.T) {
	in := func(d time.Duration) *time.Time { at := now.Add(d); return &at }
	for _, tt := range []struct {
		name    string
		outcome job.Outcome
		until   time.Duration // 0: does not park
	}{
		{"usage limit", job.Outcome{State: job.RunFailed, Class: job.RateLimit, RetryAt: in(5 * time.Hour)}, 5 * time.Hour},
		{"just more than a minute", job.Outcome{State: job.RunFailed, Class: job.RateLimit, RetryAt: in(time.Minute + 1)}, time.Minute + 1},
		{"too many requests", job.Outcome{State: job.RunFailed, Class: job.RateLimit, RetryAt: in(time.Minute)}, 0},
		{"no time", job.Outcome{State: job.RunFailed, Class: job.RateLimit}, 0},
		{"over", job.Outcome{State: job.RunFailed, Class: job.RateLimit, RetryAt: in(-time.Hour)}, 0},
		{"a sick server", job.Outcome{State: job.RunFailed, Class: job.Server, RetryAt: in(time.Hour)}, 0},
		{"succeeded all the same", job.Outcome{State: job.RunCompleted, Class: job.RateLimit, RetryAt: in(time.Hour)}, 0},
		{"next year", job.Outcome{State: job.RunFailed, Class: job.RateLimit, RetryAt: in(365 * 24 * time.Hour)}, 8 * 24 * time.Hour},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.outcome.Message = "usage limit reached\nmore"
			p, ok := policy.Park(&tt.outcome, job.Choice{Worker: "codex", Model: "m"}, now)
			want := policy.Parking{}
			if tt.until > 0 {
				want = policy.Parking{Kind: "codex", Until: now.Add(tt.until), Message: "usage limit reached"}
			}
			if p != want || ok != (tt.until > 0) {
				t.Errorf("got %+v, %v, want %+v", p, ok, want)
			}
		})
	}
}

func TestActionNamesAreWords(t *testing.T) {
	for _, a := range policy.Actions() {
		if a == "" || strings.ToLower(string(a)) != string(a) {
			t.Errorf("action %q", a)
		}
	}
}
