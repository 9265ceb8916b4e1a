package claude

import (
	"fmt"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/agentcli"
)

// ownDelay bounds what claude waits of its own accord before its first retry,
// 0.5 to 0.63 s: a longer delay is the server's retry-after, which has whole
// seconds.
const ownDelay = time.Second

// maxDelay is the longest delay that is believed.
const maxDelay = 365 * 24 * time.Hour

// retries makes the announcement of a retry the run's result: retries are the
// scheduler's, whose next attempt resumes the session. A refused login is tried
// once more: claude renews it first.
func (s *session) retries(l line) []job.Event {
	message := fmt.Sprintf("the model's API answered with status %d: %s", l.ErrorStatus, l.Error)
	if l.ErrorStatus == 0 {
		message = "no answer from the model's API (" + l.Error + ")"
	}
	class, hint := classify(l.ErrorStatus, l.Error, "")
	if s.Decided() || class == job.Auth {
		return []job.Event{agentcli.WithText(job.Event{Kind: job.EventRetry}, message)}
	}
	switch class {
	case job.Unknown:
		class, hint = job.Network, agentcli.NetworkHint
	case job.Config: // else claude would not retry
		class, hint = job.Server, ""
	}
	// The cost comes with what claude prints when it is stopped.
	r := worker.Result{Class: class, Message: message, Hint: hint, Answer: s.answer}
	if class == job.RateLimit {
		r.RetryAt = s.retryDelay(l.RetryDelay)
	}
	s.Decide(r)
	return []job.Event{agentcli.WithText(job.Event{Kind: job.EventError}, message)}
}

// retryDelay returns when to come back, by the delay that claude announced, in
// milliseconds, or by what it said before of the account's limits.
func (s *session) retryDelay(millis float64) *worker.RetryAfter {
	if millis >= float64(ownDelay.Milliseconds()) && millis <= float64(maxDelay.Milliseconds()) {
		return &worker.RetryAfter{After: time.Duration(millis) * time.Millisecond}
	}
	if s.resetAt.After(s.Now) {
		return &worker.RetryAfter{At: s.resetAt}
	}
	return nil
}
