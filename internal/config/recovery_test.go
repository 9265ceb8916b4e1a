package config_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/agentsched/agentsched/internal/config"
	"github.com/agentsched/agentsched/internal/strictyaml/schematest"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/policy"
)

func random() float64 { return 0.5 }

// Without a file, what is decided is what policy decides by default.
func TestDefaultRecovery(t *testing.T) {
	c := config.Default()
	got, err := c.RetryPolicy(random)
	want := policy.NewRetry(time.Second, 5*time.Minute, random)
	if err != nil || !reflect.DeepEqual(got.Rules, want.Rules) || !reflect.DeepEqual(got.Domains, want.Domains) || got.Base != want.Base || got.Max != want.Max {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	if rules := c.RedriveRules(); rules != nil {
		t.Errorf("redriven without being asked: %v", rules)
	}
}

func TestRecovery(t *testing.T) {
	c := decode(t, string(schematest.Inputs(t, "testdata/good.txtar")["everything"]))
	r, err := c.RetryPolicy(random)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		domain string
		class  job.ErrorClass
		want   policy.Rule
	}{
		{"", job.Crash, policy.Rule{Action: policy.DoRetry, Resume: true, AtOnce: true, Floor: 3 * time.Second}},
		{"", job.Auth, policy.Rule{Action: policy.DoEscalate, Afresh: true}},
		{"", job.Server, policy.DefaultRules()[job.Server]},
		{"legal", job.Crash, policy.Rule{Action: policy.DoEscalate}},
		{"legal", job.Auth, policy.Rule{Action: policy.DoEscalate, Afresh: true}},
		{"web", job.Budget, policy.Rule{Action: policy.DoRestart}},
		{"web", job.Crash, policy.Rule{Action: policy.DoRetry, Resume: true, AtOnce: true, Floor: 3 * time.Second}},
	} {
		rules := r.Rules
		if tt.domain != "" {
			rules = r.Domains[tt.domain]
		}
		if got := rules[tt.class]; got != tt.want {
			t.Errorf("%s %s: got %+v, want %+v", tt.domain, tt.class, got, tt.want)
		}
	}
	want := []policy.RedriveRule{
		{Classes: []job.ErrorClass{job.Server, job.Network}, Tenant: "website", Worker: "reviewer", After: 30 * time.Minute, Max: 2, Rate: policy.RedriveRate{Count: 10, Per: time.Hour}},
		{Classes: []job.ErrorClass{job.Timeout}, Max: 1, Rate: policy.RedriveRate{Count: 100, Per: 36 * time.Hour}},
	}
	if got := c.RedriveRules(); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	roundTrip(t, c.Recovery)
	roundTrip(t, c.DeadLetters)
}

// A row that says nothing of the least delay has that of its class.
func TestFloorStays(t *testing.T) {
	c := decode(t, "recovery: {domains: {x: {stricter_than: default, classes: {RATE_LIMIT: {action: fallback}}}}}")
	if r, err := c.RetryPolicy(random); err != nil || r.Domains["x"][job.RateLimit].Floor != 15*time.Second {
		t.Errorf("got %+v, %v", r, err)
	}
}
