package codex

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/agentcli"
)

// result says what the run amounts to.
func (s *session) result(e worker.Exit) worker.Result {
	r := worker.Result{Answer: s.answer, Denied: s.denied}
	switch {
	case e.Stopped:
	case s.failure != "":
		s.explain(&r)
	case s.sandbox && !s.ran:
		r.Class, r.Message = job.Config, "codex could not set up its sandbox on this host: no command of the agent ran"
		r.Hint = "allow unprivileged user namespaces (see docs/workers.md), or use worker claude or opencode"
	case e.Code == 0 && s.completed:
	case e.Code == 0 && e.Signal == "" && s.stopped != "":
		r.Checkpointed, r.Message = true, s.stopped
	case e.Signal != "":
		r.Class, r.Message = job.Crash, "codex was ended by signal: "+e.Signal
	case e.Code == 0:
		r.Class, r.Message = job.Crash, "codex ended without finishing its turn"
	default:
		r.Class, r.Message, r.Hint, r.RetryAt = fromStderr(e, s.Now)
		if r.Class == job.Unknown && s.begun {
			r.Class = job.Crash // it fell silent in the middle of its work
		}
	}
	return r
}

// explain tells of a turn that failed, by what Codex says of it and by the last
// answer of the server, where the words hide that: a 500 reads "experiencing
// high demand".
func (s *session) explain(r *worker.Result) {
	r.Message = s.failure
	r.Class, r.Hint, r.RetryAt = classify(s.failure, s.Now)
	code, retry := s.answers.last()
	if code == 0 {
		return
	}
	if r.Class == job.Unknown || r.Class == job.Server {
		if class, hint := byCode(code); class != job.NoError {
			r.Class, r.Hint = class, hint
		}
	}
	if r.Class == job.RateLimit && r.RetryAt == nil {
		r.RetryAt = retry
	}
	if !strings.Contains(r.Message, strconv.Itoa(code)) {
		r.Message += fmt.Sprintf(" (status %d)", code)
	}
}

// fromStderr explains an exit that the stream says nothing about.
func fromStderr(e worker.Exit, now time.Time) (class job.ErrorClass, message, hint string, retry *worker.RetryAfter) {
	said := explanation(e.Stderr)
	if said == "" {
		return job.Crash, fmt.Sprintf("codex ended with exit code %d and no message", e.Code), "", nil
	}
	message = fmt.Sprintf("codex ended with exit code %d: %s", e.Code, said)
	if strings.Contains(said, "panicked at") {
		return job.Crash, message, "", nil
	}
	if e.Code == 2 && strings.HasPrefix(said, "error: ") { // its argument parser
		return job.Config, message, agentcli.VersionHint(program.Name), nil
	}
	class, hint, retry = classify(said, now)
	return class, message, hint, retry
}

// explanation returns the line of stderr that says what went wrong, else its
// last few lines. Server's answers and the address-less stack traces are left
// out.
func explanation(stderr string) string {
	var rest []string
	if _, whole, ok := strings.Cut(stderr, "\n"); ok && len(stderr) >= maxStderr {
		stderr = whole // its first line is the end of one
	}
	for l := range strings.Lines(stderr) {
		l = strings.TrimSpace(agentcli.PlainText(l))
		switch {
		case isAnswer(l): // for the program, not for people
		case strings.HasPrefix(l, "Error: "), strings.HasPrefix(l, "error: "), strings.Contains(l, "panicked at"):
			return l
		case l == "", strings.HasPrefix(l, "WARNING: "), strings.HasPrefix(l, "warning: "), strings.HasPrefix(l, "Reading prompt from stdin"):
		case l == "Stack backtrace:", stackFrame.MatchString(l):
		default:
			rest = append(rest, l)
		}
	}
	return strings.Join(rest[max(0, len(rest)-3):], "\n")
}

var (
	stackFrame = regexp.MustCompile(`^\d+: <unknown>$`)
	status     = regexp.MustCompile(`(?i)\bstatus(?: code)?:? ([1-5]\d\d)\b`)
	tryIn      = regexp.MustCompile(`(?i)\b(?:try again|retry|resets?) (?:in|after) ((?:\s*\d+(?:\.\d+)?\s*(?:milliseconds?|ms|minutes?|mins?|m|seconds?|secs?|s|hours?|h|days?|d))+)`)
	tryAt      = regexp.MustCompile(`(?i)\b(?:try again|resets?) at (?:([A-Z][a-z]{2}) (\d{1,2})(?:st|nd|rd|th)?, (\d{4}) )?(\d{1,2}):(\d{2}) ?([AP]M)`)
)

const loginHint = "run `codex login`, or set CODEX_API_KEY (or OPENAI_API_KEY) in the scheduler's environment"

var rules = []agentcli.Rule{
	agentcli.NewRule(job.RateLimit, "the plan's usage limit is reached; wait for its reset or use another worker", "usage limit"),
	agentcli.NewRule(job.ResourceExhausted, "check the plan and billing details of the account", "quota exceeded", "insufficient_quota", "exceeded your current quota"),
	agentcli.NewRule(job.ResourceExhausted, agentcli.ContextHint, "ran out of room", "context window", "context_length_exceeded"),
	agentcli.NewRule(job.Auth, loginHint, "refresh token", "not logged in", "sign in again", "log in again", "missing environment variable", "invalid api key",
		"incorrect api key", "missing bearer", "token could not be refreshed", "unauthorized"),
	agentcli.NewRule(job.RateLimit, "", "rate limit", "too many requests", "rate_limit"),
	agentcli.NewRule(job.Server, "", "high demand", "overloaded", "stream disconnected", "at capacity", "internal server error", "server_error", "idle timeout", "bad gateway"),
	agentcli.NewRule(job.Network, agentcli.NetworkHint, "connection failed", "error sending request", "dns error", "connection refused", "timed out", "network is unreachable",
		"workspace routing discovery failed", "connection reset"),
	agentcli.NewRule(job.Config, agentcli.ModelHint, "does not exist or you do not have access", "model_not_found", "not supported when using codex", "is not supported", "unknown model"),
	agentcli.NewRule(job.Config, "", "invalid_request_error", "\"type\":\"error\"", "bad request", "error loading config", "no rollout found", "input_too_large"),
	agentcli.NewRule(job.ResourceExhausted, "", "no space left on device", "cannot allocate memory", "out of memory"),
}

// classify sorts what Codex says of a failure. The HTTP status stands only in
// the words, and often not even there.
func classify(message string, now time.Time) (job.ErrorClass, string, *worker.RetryAfter) {
	class, hint := byStatus(message)
	if class == job.NoError {
		class, hint = agentcli.Classify(rules, message)
	}
	if class == job.RateLimit {
		return class, hint, retryAfter(message, now)
	}
	return class, hint, nil
}

func byStatus(message string) (job.ErrorClass, string) {
	m := status.FindStringSubmatch(message)
	if m == nil {
		return job.NoError, ""
	}
	code, _ := strconv.Atoi(m[1]) // three digits
	class, hint := byCode(code)
	if full, contextHint := agentcli.Classify(contextRules, message); class == job.Config && full != job.Unknown {
		return full, contextHint
	}
	return class, hint
}

// contextRules tell what comes with the status of a bad request and is none.
var contextRules = []agentcli.Rule{agentcli.NewRule(job.ResourceExhausted, agentcli.ContextHint, "context window", "context_length_exceeded")}

// byCode leaves to the words what the status says too little of.
func byCode(code int) (job.ErrorClass, string) {
	switch code {
	case 400, 404, 422:
		return job.Config, agentcli.ModelHint
	}
	if class, hint := agentcli.ByStatus(code, loginHint, ""); code == 401 || code == 403 || code == 429 || code >= 500 {
		return class, hint
	}
	return job.NoError, ""
}

// retryAfter reads when to come back out of the words. Moments without a date
// are in local time, within the next day.
func retryAfter(message string, now time.Time) *worker.RetryAfter {
	if m := tryIn.FindStringSubmatch(message); m != nil {
		return agentcli.After(m[1])
	}
	m := tryAt.FindStringSubmatch(message)
	if m == nil {
		return nil
	}
	clock := m[4] + ":" + m[5] + " " + strings.ToUpper(m[6])
	if m[1] != "" {
		at, err := time.ParseInLocation("Jan 2 2006 3:04 PM", m[1]+" "+m[2]+" "+m[3]+" "+clock, now.Location())
		if err != nil {
			return nil
		}
		return &worker.RetryAfter{At: at}
	}
	c, err := time.ParseInLocation("3:04 PM", clock, now.Location())
	if err != nil {
		return nil
	}
	return agentcli.NextTime(now, c.Hour(), c.Minute())
}
