package policy_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/policy"
)

func TestRedrive(t *testing.T) {
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	network := policy.RedriveRule{Classes: []job.ErrorClass{job.Server, job.Network}, After: 30 * time.Minute, Max: 2}
	letter := policy.Letter{ID: "a", Tenant: "web", Worker: "codex", Class: job.Server, Since: ago(time.Hour)}
	with := func(change func(*policy.Letter)) policy.Letter {
		l := letter
		change(&l)
		return l
	}
	rule := func(change func(*policy.RedriveRule)) policy.RedriveRule {
		r := network
		change(&r)
		return r
	}
	many := []policy.Letter{
		with(func(l *policy.Letter) { l.ID, l.Since = "c", ago(2*time.Hour) }),
		with(func(l *policy.Letter) { l.ID, l.Since = "b", ago(3*time.Hour) }),
		with(func(l *policy.Letter) { l.ID, l.Since = "a", ago(2*time.Hour) }),
	}
	twoAnHour := rule(func(r *policy.RedriveRule) { r.Rate = policy.RedriveRate{Count: 2, Per: time.Hour} })
	for _, tt := range []struct {
		name    string
		rules   []policy.RedriveRule
		lately  policy.Redrives
		letters []policy.Letter
		want    []job.ID
	}{
		{"no rule", nil, nil, many, nil},
		{"matches", []policy.RedriveRule{network}, nil, []policy.Letter{letter}, []job.ID{"a"}},
		{"another class", []policy.RedriveRule{network}, nil, []policy.Letter{with(func(l *policy.Letter) { l.Class = job.Auth })}, nil},
		{"no class at all", []policy.RedriveRule{rule(func(r *policy.RedriveRule) { r.Classes = nil })}, nil, []policy.Letter{letter}, nil},
		{"too young", []policy.RedriveRule{network}, nil, []policy.Letter{with(func(l *policy.Letter) { l.Since = ago(30*time.Minute - 1) })}, nil},
		{"old enough", []policy.RedriveRule{network}, nil, []policy.Letter{with(func(l *policy.Letter) { l.Since = ago(30 * time.Minute) })}, []job.ID{"a"}},
		{"once more", []policy.RedriveRule{network}, nil, []policy.Letter{with(func(l *policy.Letter) { l.Requeues = 1 })}, []job.ID{"a"}},
		{"often enough", []policy.RedriveRule{network}, nil, []policy.Letter{with(func(l *policy.Letter) { l.Requeues = 2 })}, nil},
		{"its tenant", []policy.RedriveRule{rule(func(r *policy.RedriveRule) { r.Tenant = "web" })}, nil, []policy.Letter{letter}, []job.ID{"a"}},
		{"another tenant", []policy.RedriveRule{rule(func(r *policy.RedriveRule) { r.Tenant = "shop" })}, nil, []policy.Letter{letter}, nil},
		{"another worker", []policy.RedriveRule{rule(func(r *policy.RedriveRule) { r.Worker = "claude" })}, nil, []policy.Letter{letter}, nil},
		{"oldest first", []policy.RedriveRule{network}, nil, many, []job.ID{"b", "a", "c"}},
		{"bounded", []policy.RedriveRule{twoAnHour}, nil, many, []job.ID{"b", "a"}},
		{"bounded by what was", []policy.RedriveRule{twoAnHour}, policy.Redrives{twoAnHour.String(): {ago(2 * time.Hour), ago(time.Minute)}}, many, []job.ID{"b"}},
		{"the first rule decides", []policy.RedriveRule{rule(func(r *policy.RedriveRule) { r.Max = 0 }), network}, nil, []policy.Letter{letter}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got, _ := policy.Redrive(tt.rules, tt.lately, tt.letters, now); !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

// TestRedriveKeepsItsRate: however often it is asked, within any span no rule
// requeues more than its rate, and every letter once at most; what is passed in
// stays as it is.
func TestRedriveKeepsItsRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rule := policy.RedriveRule{Classes: []job.ErrorClass{job.Server}, Max: 1,
			Rate: policy.RedriveRate{Count: rapid.IntRange(1, 5).Draw(t, "count"), Per: time.Hour}}
		var letters []policy.Letter
		for i := range rapid.IntRange(0, 30).Draw(t, "letters") {
			letters = append(letters, policy.Letter{ID: job.ID(fmt.Sprint(i)), Class: job.Server, Since: now})
		}
		var lately policy.Redrives
		var at []time.Time
		seen := map[job.ID]bool{}
		for clock := now; clock.Before(now.Add(5 * time.Hour)); clock = clock.Add(time.Duration(rapid.IntRange(1, 100).Draw(t, "minutes")) * time.Minute) {
			before := len(lately[rule.String()])
			ids, next := policy.Redrive([]policy.RedriveRule{rule}, lately, letters, clock)
			if len(lately[rule.String()]) != before {
				t.Fatal("what was passed in has changed")
			}
			for _, id := range ids {
				if seen[id] {
					t.Fatalf("%s twice", id)
				}
				seen[id] = true
				at = append(at, clock)
				letters = slices.DeleteFunc(letters, func(l policy.Letter) bool { return l.ID == id })
			}
			lately = next
		}
		for i := rule.Rate.Count; i < len(at); i++ {
			if at[i].Sub(at[i-rule.Rate.Count]) < rule.Rate.Per {
				t.Fatalf("%d within %s: %v", rule.Rate.Count+1, rule.Rate.Per, at)
			}
		}
	})
}

func TestRedriveRateText(t *testing.T) {
	for in, want := range map[string]policy.RedriveRate{"10/h": {10, time.Hour}, "1/m": {1, time.Minute}, "100/24h": {100, 24 * time.Hour}, "3 / 90s": {3, 90 * time.Second}, "5/d": {5, 24 * time.Hour}} {
		var r, back policy.RedriveRate
		if err := r.UnmarshalText([]byte(in)); err != nil || r != want {
			t.Errorf("%s: got %+v, %v", in, r, err)
		}
		if err := back.UnmarshalText([]byte(r.String())); err != nil || back != r {
			t.Errorf("%s: written as %s, read as %+v, %v", in, r, back, err)
		}
	}
	for _, in := range []string{"", "10", "/h", "0/h", "-1/h", "1/", "1/x", "1/0s", "1/-1h", "1.5/h"} {
		var r policy.RedriveRate
		if err := r.UnmarshalText([]byte(in)); err == nil {
			t.Errorf("%q is taken for %+v", in, r)
		}
	}
}
