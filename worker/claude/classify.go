package claude

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

const loginHint = "run `claude` and log in, or set ANTHROPIC_API_KEY or CLAUDE_CODE_OAUTH_TOKEN in the scheduler's environment"

// outcome says what the run amounts to. The program's word alone is not enough:
// a failed run can say "subtype":"success" with "is_error":true.
func (s *session) outcome(e worker.Exit) worker.Result {
	r := worker.Result{Answer: s.answer, CostUSD: s.cost, Denied: s.denied}
	if s.end != nil && len(s.end.Structured) > 0 && string(s.end.Structured) != "null" {
		r.Answer, _ = job.Cut(string(s.end.Structured), job.MaxEventText)
	}
	switch {
	case e.Stopped:
	case s.end == nil:
		s.silent(&r, e)
	case s.end.IsError || s.end.Subtype != "success":
		s.failed(&r)
	case e.Code != 0:
		r.Class = job.Crash
		r.Message = fmt.Sprintf("claude reported success, but ended with exit code %d", e.Code)
		if e.Signal != "" {
			r.Message = "claude reported success, but was ended by signal: " + e.Signal
		}
	case s.end.Result != "" && r.Answer == "":
		r.Answer, _ = job.Cut(s.end.Result, job.MaxEventText)
	}
	return r
}

// silent explains an end without a result.
func (s *session) silent(r *worker.Result, e worker.Exit) {
	said := agentcli.LastLines(e.Stderr, 3, func(line string) bool { return strings.HasPrefix(line, "Warning: ") })
	switch {
	case e.Signal != "":
		r.Class, r.Message = job.Crash, "claude was ended by signal: "+e.Signal
	case said == "":
		r.Class, r.Message = job.Crash, fmt.Sprintf("claude ended with exit code %d and no result", e.Code)
	case strings.Contains(said, "error: unknown option"), strings.Contains(said, "error: option"):
		r.Class, r.Message = job.Config, "claude: "+said
		r.Hint = agentcli.VersionHint(program.Name)
	default:
		r.Class, r.Hint = byWords(said)
		if r.Class == job.Unknown {
			r.Class = job.Crash
		}
		r.Message = fmt.Sprintf("claude ended with exit code %d and no result: %s", e.Code, said)
	}
}

// failed explains a result that is a failure.
func (s *session) failed(r *worker.Result) {
	l := s.end
	r.Message = l.Result
	if r.Message == "" {
		r.Message = strings.Join(l.Errors, "; ")
	}
	if r.Message == "" {
		r.Message = "claude failed: " + l.Subtype
	}
	switch l.Subtype {
	case "error_max_budget_usd":
		r.Class, r.Hint = job.Budget, "raise max_cost_usd if the work is worth it"
		return
	case "error_max_turns":
		r.Class = job.Budget
		return
	case "error_max_structured_output_retries":
		r.Class, r.Hint = job.InvalidOutput, "check that the output schema can be satisfied"
		return
	}
	r.Class, r.Hint = classify(l.APIStatus, s.apiKind, r.Message)
	if strings.HasPrefix(l.Reason, "aborted") {
		r.Class, r.Message = job.Crash, "claude was interrupted: "+l.Reason
	}
	if r.Class == job.RateLimit {
		r.RetryAt = retryAfter(r.Message, s.Now)
		if r.RetryAt == nil && s.resetAt.After(s.Now) {
			r.RetryAt = &worker.RetryAfter{At: s.resetAt}
		}
	}
}

// classify sorts a failure by the HTTP status, then by the program's own name
// for it, then by its words.
func classify(status int, kind, message string) (job.ErrorClass, string) {
	class, hint := byWords(message)
	if class == job.ResourceExhausted { // comes as a status 400, as so much else does
		return class, hint
	}
	if class, hint := agentcli.ByStatus(status, loginHint, agentcli.ModelHint); class != job.NoError {
		return class, hint
	}
	if class != job.Unknown {
		return class, hint
	}
	switch kind {
	case "authentication_failed", "oauth_org_not_allowed":
		return job.Auth, loginHint
	case "rate_limit":
		return job.RateLimit, ""
	case "billing_error":
		return job.ResourceExhausted, agentcli.BillingHint
	case "overloaded", "server_error":
		return job.Server, ""
	case "model_not_found":
		return job.Config, agentcli.ModelHint
	case "invalid_request":
		return job.Config, ""
	case "max_output_tokens":
		return job.ResourceExhausted, agentcli.ContextHint
	}
	return job.Unknown, ""
}

// byWords sorts what the program says where it names no status.
func byWords(message string) (job.ErrorClass, string) {
	return agentcli.Classify([]agentcli.Rule{
		agentcli.NewRule(job.ResourceExhausted, agentcli.ContextHint, "prompt is too long", "context window", "exceeded the model's maximum"),
		agentcli.NewRule(job.ResourceExhausted, agentcli.BillingHint, "credit balance is too low", "out of usage credits", "monthly spend limit"),
		agentcli.NewRule(job.RateLimit, "the plan's usage limit is reached; wait for its reset or use another worker", "usage limit", "limit reached", "hit your "),
		agentcli.NewRule(job.RateLimit, "", "rate limit", "request rejected (429)", "too many requests"),
		agentcli.NewRule(job.Auth, loginHint, "not logged in", "/login", "failed to authenticate", "invalid api key", "oauth token has expired"),
		agentcli.NewRule(job.Server, "", "empty or malformed response", "failed to parse json", "connection to the api was lost", "overloaded", "api error: 5", "stream", "internal server error"),
		agentcli.NewRule(job.Network, agentcli.NetworkHint, "unable to connect", "connectionrefused", "econnrefused", "enotfound", "failedtoopensocket", "request timed out", "connection error", "network"),
		agentcli.NewRule(job.Config, agentcli.ModelHint, "issue with the selected model"),
		agentcli.NewRule(job.ResourceExhausted, "", "no space left on device", "heap out of memory", "enomem"),
	}, message)
}

var (
	resetClock = regexp.MustCompile(`\bresets? (?:at )?(?:([A-Z][a-z]{2}) (\d{1,2}),? (?:(\d{4}),? )?(?:at )?)?(\d{1,2})(?::(\d{2}))? ?([ap]m)(?: \(([A-Za-z0-9_+/-]+)\))?`)
	resetEpoch = regexp.MustCompile(`limit reached\|(\d{9,11})\b`)
	resetIn    = regexp.MustCompile(`\b(?:resets?|try again|retry) (?:in|after) ((?:\s*\d+\s*(?:s|m|h|d)[a-z]*)+)`)
)

// retryAfter reads when to come back out of the words, e.g. "resets 7pm
// (Europe/Berlin)", "resets Nov 25, 3:30pm (UTC)" or "limit reached|1795290000".
// Without a zone it is the local one; without a date, the next such time.
func retryAfter(message string, now time.Time) *worker.RetryAfter {
	if m := resetEpoch.FindStringSubmatch(message); m != nil {
		if n, err := strconv.ParseInt(m[1], 10, 64); err == nil {
			return &worker.RetryAfter{At: time.Unix(n, 0).UTC()}
		}
	}
	if m := resetIn.FindStringSubmatch(message); m != nil {
		return agentcli.After(m[1])
	}
	m := resetClock.FindStringSubmatch(message)
	if m == nil {
		return nil
	}
	zone := now.Location()
	if m[7] != "" {
		z, err := time.LoadLocation(m[7])
		if err != nil {
			return nil
		}
		zone = z
	}
	now = now.In(zone)
	hour, _ := strconv.Atoi(m[4])
	minute, _ := strconv.Atoi("0" + m[5])
	if hour < 1 || hour > 12 || minute > 59 {
		return nil
	}
	hour = hour%12 + map[string]int{"am": 0, "pm": 12}[m[6]]
	if m[1] == "" {
		return agentcli.NextTime(now, hour, minute)
	}
	month, err := time.Parse("Jan", m[1])
	if err != nil {
		return nil
	}
	day, _ := strconv.Atoi(m[2])
	year := now.Year()
	if m[3] != "" {
		year, _ = strconv.Atoi(m[3])
	}
	at := time.Date(year, month.Month(), day, hour, minute, 0, 0, zone)
	if m[3] == "" && at.Before(now.AddDate(0, -1, 0)) { // said in December of January
		at = at.AddDate(1, 0, 0)
	}
	return &worker.RetryAfter{At: at}
}
