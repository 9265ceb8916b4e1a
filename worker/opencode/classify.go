package opencode

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

const (
	loginHint   = "run `opencode auth login`, or set the provider's key where the scheduler runs"
	modelHint   = "write the model as provider/model; `opencode models` lists those that are known"
	contextHint = "split the job, or use a model with a larger context window"
	networkHint = "check the network, and the proxy variables if there is a proxy"
	billingHint = "check the credit and the plan of the account"
)

// Result says what the run amounts to.
func (s *session) Result(e worker.Exit) worker.Result {
	r := worker.Result{Answer: s.answer}
	switch {
	case e.Stopped:
		return r
	case s.failure != nil:
		r.Message = s.failure.String()
		r.Class, r.Hint = s.failure.classify()
		if r.Class == job.RateLimit {
			r.RetryAt = s.failure.retryAfter(s.now())
		}
	case e.Code == 0 && s.finish == "stop" && !s.open:
		return r
	case e.Signal != "":
		r.Class, r.Message = job.Crash, "opencode was ended by signal: "+e.Signal
	case s.finish == "length":
		r.Class, r.Message, r.Hint = job.ResourceExhausted, "the answer was cut off at the model's output limit", contextHint
	case s.finish == "content-filter":
		r.Class, r.Message = job.Unknown, "the provider's content filter ended the answer"
	case s.finish == "unknown":
		r.Class, r.Message = job.Server, "the provider's answer broke off"
	case e.Code == 0:
		r.Class, r.Message = job.Crash, "opencode ended before its answer was complete"
	default:
		s.silent(&r, e)
	}
	r.Message, _ = job.Cut(r.Message, 4<<10)
	return r
}

// silent explains a failure that the stream says nothing about.
func (s *session) silent(r *worker.Result, e worker.Exit) {
	said := lastLines(e.Stderr, 3)
	if said == "" {
		said = s.requests.words
	}
	r.Message = fmt.Sprintf("opencode ended with exit code %d", e.Code)
	if said == "" {
		r.Class = job.Crash
		r.Message += " and no explanation"
		return
	}
	r.Message += ": " + said
	r.Class, r.Hint = byWords(said)
	if r.Class == job.Unknown && s.sawEvent {
		r.Class = job.Crash // it fell silent in the middle of its work
	}
	if r.Class == job.Unknown && strings.Contains(e.Stderr, "opencode run [message..]") { // its usage
		r.Class = job.Config
		r.Hint = "this version of opencode does not know an option that is used here; see docs/workers.md for the versions tried"
	}
}

// String returns the words of the failure.
func (f *failure) String() string {
	message := f.Data.Message
	if message == "" {
		message = f.Name
	}
	if message == "" {
		message = "opencode reported a failure without saying which"
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
		return job.ResourceExhausted, contextHint
	case "ProviderModelNotFoundError":
		return job.Config, modelHint
	case "MessageAbortedError":
		return job.Crash, ""
	}
	switch code := f.Data.Status; {
	case class == job.ResourceExhausted: // comes as a status 400 or 429, as so much else does
		return class, hint
	case code == 401 || code == 403:
		return job.Auth, loginHint
	case code == 429:
		return job.RateLimit, ""
	case code == 408:
		return job.Network, networkHint
	case code >= 500:
		return job.Server, ""
	case code == 404:
		return job.Config, modelHint
	case code >= 400:
		return job.Config, hint
	}
	return class, hint
}

// byWords sorts what is said without a status.
func byWords(message string) (job.ErrorClass, string) {
	low := strings.ToLower(message)
	for _, r := range []struct {
		class job.ErrorClass
		hint  string
		words []string
	}{
		{job.ResourceExhausted, contextHint, []string{"context window", "context_length_exceeded", "prompt is too long", "maximum context length"}},
		{job.ResourceExhausted, billingHint, []string{"insufficient_quota", "exceeded your current quota", "credit balance is too low", "insufficient balance"}},
		{job.RateLimit, "", []string{"rate limit", "rate_limit", "too many requests", "usagelimiterror", "usage limit"}},
		{job.Auth, loginHint, []string{"invalid api key", "api key is missing", "api_key", "unauthorized", "authentication_error", "auth login", "not logged in"}},
		{job.Config, modelHint, []string{"model not found", "modelnotfound", "model_not_found", "does not exist or you do not have access", "provider not found"}},
		{job.Config, "", []string{"session not found", "config file at", "configuration is invalid", "configinvaliderror"}},
		{job.Server, "", []string{"econnreset", "socket connection was closed"}}, // its first words are "cannot connect to api", too
		{job.Network, networkHint, []string{"unable to connect", "econnrefused", "connectionrefused", "enotfound", "failedtoopensocket", "fetch failed", "dns", "timed out", "cannot connect to api"}},
		{job.Server, "", []string{"json parsing failed", "overloaded", "internal server error", "server_error", "terminated", "stream", "bad gateway"}},
		{job.ResourceExhausted, "", []string{"no space left on device", "enospc", "out of memory"}},
	} {
		for _, w := range r.words {
			if strings.Contains(low, w) {
				return r.class, r.hint
			}
		}
	}
	return job.Unknown, ""
}

// retryAfter reads the provider's own headers: milliseconds, seconds or an HTTP
// date (RFC 9110, section 10.2.3).
func (f *failure) retryAfter(now time.Time) *worker.RetryAfter {
	header := func(name string) string {
		for k, v := range f.Data.Headers {
			if strings.EqualFold(k, name) {
				return strings.TrimSpace(v)
			}
		}
		return ""
	}
	for _, h := range []struct {
		name string
		unit time.Duration
	}{{"retry-after-ms", time.Millisecond}, {"retry-after", time.Second}} {
		n, err := strconv.ParseFloat(header(h.name), 64)
		if err == nil && n >= 0 && !math.IsInf(n, 0) && n*float64(h.unit) < math.MaxInt64 {
			return &worker.RetryAfter{After: time.Duration(n * float64(h.unit))}
		}
	}
	if at, err := http.ParseTime(header("retry-after")); err == nil && at.After(now) {
		return &worker.RetryAfter{At: at}
	}
	return nil
}

// lastLines returns the last n lines that say something, without the program's
// log and the colours that it prints even to a file.
func lastLines(text string, n int) string {
	var kept []string
	for l := range strings.Lines(text) {
		if l = strings.TrimSpace(plainText(l)); l != "" && !strings.HasPrefix(l, "timestamp=") {
			kept = append(kept, l)
		}
	}
	return strings.Join(kept[max(0, len(kept)-n):], "\n")
}

// plainText leaves out the escape sequences of a terminal.
func plainText(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != 0x1b {
			b.WriteByte(s[i])
			continue
		}
		for i++; i < len(s) && (s[i] < '@' || s[i] > '~' || s[i] == '['); i++ {
		}
	}
	return b.String()
}
