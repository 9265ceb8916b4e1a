package agentcore

import (
	"testing"
	"time"

	"github.com/agentsched/agentsched/internal/gateway"
	"github.com/agentsched/agentsched/job"
)

// TestExplain: what the gateway was told of a used-up account counts for a run whose program did not find it out.
func TestExplain(t *testing.T) {
	until := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	earlier := until.Add(-time.Hour)
	limited := &gateway.Limited{Provider: "codex", Model: "gpt-5", Until: until, Message: "You've hit your usage limit."}
	for _, test := range []struct {
		name    string
		limited *gateway.Limited
		outcome job.Outcome
		class   job.ErrorClass
		retryAt *time.Time
	}{
		{"it is over", &gateway.Limited{Until: time.Now()}, job.Outcome{State: job.RunFailed, Class: job.Server}, job.Server, nil},
		{"nothing was told", nil, job.Outcome{State: job.RunFailed, Class: job.Server}, job.Server, nil},
		{"not found out", limited, job.Outcome{State: job.RunFailed, Class: job.Server}, job.RateLimit, &until},
		{"not until when", limited, job.Outcome{State: job.RunFailed, Class: job.RateLimit}, job.RateLimit, &until},
		{"too early", limited, job.Outcome{State: job.RunFailed, Class: job.RateLimit, RetryAt: &earlier}, job.RateLimit, &until},
		{"failed otherwise", limited, job.Outcome{State: job.RunFailed, Class: job.VerifyFailed}, job.VerifyFailed, nil},
		{"went well", limited, job.Outcome{State: job.RunCompleted}, job.NoError, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := test.outcome
			(&models{limited: test.limited}).explain(&o)
			if o.Class != test.class || (o.RetryAt == nil) != (test.retryAt == nil) || o.RetryAt != nil && !o.RetryAt.Equal(*test.retryAt) {
				t.Errorf("class %s, retry at %v; want %s, %v", o.Class, o.RetryAt, test.class, test.retryAt)
			}
		})
	}
}

// TestConcerns: a limit of a model that the program asks besides is none of the run's.
func TestConcerns(t *testing.T) {
	for _, test := range []struct {
		limited gateway.Limited
		model   string
		want    bool
	}{
		{gateway.Limited{Model: "gpt-5"}, "gpt-5", true},
		{gateway.Limited{Model: "gpt-5"}, "openai/gpt-5", true},
		{gateway.Limited{Model: "gpt-5"}, "", true},
		{gateway.Limited{Model: "gpt-5-nano"}, "gpt-5", false},
		{gateway.Limited{Model: "gpt-5-nano", Account: true}, "gpt-5", true},
	} {
		if got := concerns(test.limited, test.model); got != test.want {
			t.Errorf("%+v of a run with %q: %v, want %v", test.limited, test.model, got, test.want)
		}
	}
}
