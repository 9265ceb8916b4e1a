package claude

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/workertest"
)

// TestVerdict covers which announcements of a retry end the run, and as what.
func TestVerdict(t *testing.T) {
	const rejected = `{"type":"rate_limit_event","rate_limit_info":{"status":"rejected","resetsAt":1795290000}}`
	const allowed = `{"type":"rate_limit_event","rate_limit_info":{"status":"allowed","resetsAt":1795290000}}`
	for _, c := range []struct {
		name, before string
		status       string // JSON
		kind         string
		millis       float64
		class        job.ErrorClass // "": the run goes on
		after        time.Duration
		at           time.Time
	}{
		{name: "retry-after", status: "429", kind: "rate_limit", millis: 7000, class: job.RateLimit, after: 7 * time.Second},
		{name: "its own delay", status: "429", kind: "rate_limit", millis: 624.9, class: job.RateLimit},
		{name: "its own delay, used up before", before: rejected, status: "429", kind: "rate_limit", millis: 527.2, class: job.RateLimit, at: time.Unix(1795290000, 0)},
		{name: "its own delay, not used up", before: allowed, status: "429", kind: "rate_limit", millis: 527.2, class: job.RateLimit},
		{name: "nonsense", status: "429", kind: "rate_limit", millis: 1e300, class: job.RateLimit},
		{name: "overloaded", status: "529", kind: "overloaded", millis: 561, class: job.Server},
		{name: "overloaded, in the stream", status: "null", kind: "overloaded", millis: 561, class: job.Server},
		{name: "server", status: "503", kind: "server_error", millis: 5000, class: job.Server},
		{name: "lock", status: "409", kind: "unknown", millis: 500, class: job.Server},
		{name: "no answer", status: "null", kind: "unknown", millis: 620, class: job.Network},
		{name: "refused login", status: "401", kind: "authentication_failed", millis: 581},
		{name: "revoked login", status: "403", kind: "oauth_org_not_allowed", millis: 581},
	} {
		s := workertest.Play(testSession(t))
		if r, decided := s.Verdict(); decided {
			t.Fatalf("%s: decided before anything was said: %+v", c.name, r)
		}
		s.Event([]byte(c.before))
		l := fmt.Sprintf(`{"type":"system","subtype":"api_retry","attempt":1,"max_retries":1,"retry_delay_ms":%g,"error_status":%s,"error":%q}`, c.millis, c.status, c.kind)
		s.Event([]byte(l))
		r, decided := s.Verdict()
		if r.Class != c.class || decided != (c.class != job.NoError) || decided && !strings.Contains(r.Message, c.kind) {
			t.Errorf("%s: %v, %+v", c.name, decided, r)
		}
		workertest.CheckRetry(t, c.name, r.RetryAt, c.after, c.at)
		s.Event([]byte(strings.Replace(l, c.kind, "another", 1)))
		if again, _ := s.Verdict(); again.Message != r.Message {
			t.Errorf("%s: the second announcement made it %q", c.name, again.Message)
		}
	}
}

// TestCost checks that only what the program said counts as the run's cost,
// and that a verdict learns it, too.
func TestCost(t *testing.T) {
	const retry = `{"type":"system","subtype":"api_retry","retry_delay_ms":7000,"error_status":429,"error":"rate_limit"}`
	const end = `{"type":"result","subtype":"error_during_execution","is_error":true,"total_cost_usd":0.5,"usage":{"input_tokens":10}}`
	s := workertest.Play(testSession(t))
	decided := s.Step(workertest.Now, worker.Output{Line: []byte(retry)})
	if f, ok := decided[len(decided)-1].(worker.Finish); !ok || f.Result.CostUSD != nil {
		t.Errorf("%+v of a run that has not said its cost", decided)
	}
	s.Event([]byte(end))
	if c := s.Result(worker.Exit{Stopped: true}).CostUSD; c == nil || *c != 0.5 {
		t.Errorf("cost %v, want 0.5", c)
	}
	for _, l := range []string{
		`{"type":"result","subtype":"success","usage":{"input_tokens":10}}`,
		`{"type":"result","subtype":"success","total_cost_usd":0,"usage":{"input_tokens":10}}`,
		`{"type":"result","subtype":"success","total_cost_usd":-1,"usage":{"input_tokens":10}}`,
		`{"type":"result","subtype":"success","total_cost_usd":"much","usage":{"input_tokens":10}}`,
	} {
		s := workertest.Play(testSession(t))
		s.Event([]byte(l))
		if c := s.Result(worker.Exit{}).CostUSD; c != nil {
			t.Errorf("%s: cost %v, want none", l, *c)
		}
	}
}
