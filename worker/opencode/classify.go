package opencode

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/agentcli"
)

const (
	loginHint = "run `opencode auth login`, or set the provider's key in the scheduler's environment"
	modelHint = "write the model as provider/model; `opencode models` lists those that are known"
)

// result says what the run amounts to.
func (s *session) result(e worker.Exit) worker.Result {
	r := worker.Result{Answer: s.answer, Denied: s.denied}
	switch {
	case e.Stopped:
		return r
	case s.failure != nil:
		r = s.failed(s.failure)
	case e.Signal != "":
		r.Class, r.Message = job.Crash, "opencode was ended by signal: "+e.Signal
	case e.Code != 0:
		s.silent(&r, e)
	case s.closed && s.interrupted:
		r.Checkpointed, r.Message = true, "interrupted"
	case s.closed && s.finish == "stop" && !s.main.step:
		return r
	case s.finish == "length":
		r.Class, r.Message, r.Hint = job.ResourceExhausted, "the answer was cut off at the model's output limit", agentcli.ContextHint
	case s.finish == "content-filter":
		r.Class, r.Message = job.Unknown, "the provider's content filter ended the answer"
	case s.finish == "unknown":
		r.Class, r.Message = job.Server, "the provider's answer broke off"
	default:
		r.Class, r.Message = job.Crash, "opencode ended before its answer was complete"
	}
	return r
}

// failed is the result of a run that failed as the program says.
func (s *session) failed(f *failure) worker.Result {
	r := worker.Result{Answer: s.answer, Denied: s.denied, Message: f.String()}
	r.Class, r.Hint = f.classify()
	if r.Class == job.RateLimit {
		r.RetryAt = f.retryAfter(s.Now)
	}
	return r
}

// silent explains a failure that no event says anything about.
func (s *session) silent(r *worker.Result, e worker.Exit) {
	said := agentcli.LastLines(e.Stderr, 3, func(line string) bool { return strings.HasPrefix(line, "timestamp=") })
	r.Message = fmt.Sprintf("opencode ended with exit code %d", e.Code)
	if said == "" {
		r.Class = job.Crash
		r.Message += " and no message"
		return
	}
	r.Message += ": " + said
	r.Class, r.Hint = byWords(said)
	if r.Class == job.Unknown && s.session != "" {
		r.Class = job.Crash // it fell silent in the middle of its work
	}
	if r.Class == job.Unknown && strings.Contains(e.Stderr, "opencode serve") { // its usage
		r.Class = job.Config
		r.Hint = agentcli.VersionHint(program.Name)
	}
}

// String returns the words of the failure.
func (f *failure) String() string {
	message := f.Data.Message
	if message == "" {
		message = f.Name
	}
	if message == "" {
		message = "opencode reported a failure without a message"
	}
	if f.Data.Status > 0 {
		return fmt.Sprintf("%s (status %d)", message, f.Data.Status)
	}
	return message
}

// classify sorts the failure by its name, its HTTP status, then its words.
func (f *failure) classify() (job.ErrorClass, string) {
	class, hint := byWords(f.Data.Message + " " + f.Data.Body)
	switch f.Name {
	case "ProviderAuthError":
		return job.Auth, loginHint
	case "ContextOverflowError", "MessageOutputLengthError":
		return job.ResourceExhausted, agentcli.ContextHint
	case "ProviderModelNotFoundError":
		return job.Config, modelHint
	case "MessageAbortedError", "NoTurn":
		return job.Crash, ""
	}
	if class == job.ResourceExhausted { // comes as a status 400 or 429, as so much else does
		return class, hint
	}
	switch by, byHint := agentcli.ByStatus(f.Data.Status, loginHint, modelHint); by {
	case job.NoError:
	case job.Config:
		return by, cmp.Or(byHint, hint)
	default:
		return by, byHint
	}
	return class, hint
}

// byWords sorts what is said without a status.
func byWords(message string) (job.ErrorClass, string) {
	return agentcli.Classify([]agentcli.Rule{
		agentcli.NewRule(job.ResourceExhausted, agentcli.ContextHint, "context window", "context_length_exceeded", "prompt is too long", "maximum context length"),
		agentcli.NewRule(job.ResourceExhausted, agentcli.BillingHint, "insufficient_quota", "exceeded your current quota", "credit balance is too low", "insufficient balance"),
		agentcli.NewRule(job.RateLimit, "", "rate limit", "rate_limit", "too many requests", "usagelimiterror", "usage limit"),
		agentcli.NewRule(job.Auth, loginHint, "invalid api key", "api key is missing", "api_key", "unauthorized", "authentication_error", "auth login", "not logged in"),
		agentcli.NewRule(job.Config, modelHint, "model not found", "modelnotfound", "model_not_found", "does not exist or you do not have access", "provider not found"),
		agentcli.NewRule(job.Config, "", "session not found", "config file at", "configuration is invalid", "configinvaliderror"),
		agentcli.NewRule(job.Server, "", "econnreset", "socket connection was closed"), // its first words are "cannot connect to api", too
		agentcli.NewRule(job.Network, agentcli.NetworkHint, "unable to connect", "econnrefused", "connectionrefused", "enotfound", "failedtoopensocket", "fetch failed", "dns", "timed out", "cannot connect to api"),
		agentcli.NewRule(job.Server, "", "json parsing failed", "overloaded", "internal server error", "server_error", "terminated", "stream", "bad gateway"),
		agentcli.NewRule(job.ResourceExhausted, "", "no space left on device", "enospc", "out of memory"),
	}, message)
}

// retryAfter reads the provider's own headers.
func (f *failure) retryAfter(now time.Time) *worker.RetryAfter {
	header := func(name string) string {
		for k, v := range f.Data.Headers {
			if strings.EqualFold(k, name) {
				return strings.TrimSpace(v)
			}
		}
		return ""
	}
	at, _ := agentcli.RetryHeaders(header, now)
	return at
}
