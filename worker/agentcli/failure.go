package agentcli

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// Hints that fit every program.
const (
	ModelHint   = "check the model's name and that your account may use it"
	ContextHint = "split the job, or use a model with a larger context window"
	NetworkHint = "check the network, and the proxy variables if there is a proxy"
	BillingHint = "check the credit and the plan of the account"
)

// VersionHint is the hint where a program refuses its command line.
func VersionHint(program string) string {
	return "this version of " + program + " does not support an option that the scheduler uses; docs/workers.md lists the tested versions"
}

// MaxMessage bounds the message of a failure, in bytes.
const MaxMessage = 4 << 10

// Rule is one line of a table by which a program's words are classified.
type Rule struct {
	class job.ErrorClass
	hint  string
	words []string
}

// NewRule returns a rule. The words are in lower case, with straight apostrophes.
func NewRule(class job.ErrorClass, hint string, words ...string) Rule {
	return Rule{class, hint, words}
}

// Classify returns the class and hint of the first rule of which a word stands
// in message, else UNKNOWN.
func Classify(rules []Rule, message string) (job.ErrorClass, string) {
	low := strings.ToLower(strings.ReplaceAll(message, "’", "'"))
	for _, r := range rules {
		for _, w := range r.words {
			if strings.Contains(low, w) {
				return r.class, r.hint
			}
		}
	}
	return job.Unknown, ""
}

// Statuses of HTTP that say which failure one is. This program speaks no HTTP: net/http
// would make it a tenth larger.
const (
	statusUnauthorized    = 401
	statusForbidden       = 403
	statusNotFound        = 404
	statusRequestTimeout  = 408
	StatusTooManyRequests = 429
)

// ByStatus returns the class of an HTTP status of a model's API, NoError if it
// is no failure. login and model are hints.
func ByStatus(code int, login, model string) (job.ErrorClass, string) {
	switch {
	case code == statusUnauthorized || code == statusForbidden:
		return job.Auth, login
	case code == StatusTooManyRequests:
		return job.RateLimit, ""
	case code == statusRequestTimeout:
		return job.Network, NetworkHint
	case code >= 500:
		return job.Server, ""
	case code == statusNotFound:
		return job.Config, model
	case code >= 400:
		return job.Config, ""
	}
	return job.NoError, ""
}

// RetryHeaders reads when to come back out of the headers of an answer:
// milliseconds, seconds or an HTTP date (RFC 9110, section 10.2.3). said is false
// if they do not name a time; a date that is past is named, and of no use.
func RetryHeaders(header func(name string) string, now time.Time) (at *worker.RetryAfter, said bool) {
	for _, h := range []struct {
		name string
		unit time.Duration
	}{{"retry-after-ms", time.Millisecond}, {"retry-after", time.Second}} {
		n, err := strconv.ParseFloat(header(h.name), 64)
		if err == nil && n >= 0 && n*float64(h.unit) < math.MaxInt64 { // false for NaN and infinity
			return &worker.RetryAfter{After: time.Duration(n * float64(h.unit))}, true
		}
	}
	date, err := parseDate(header("retry-after"))
	if err != nil {
		return nil, false
	}
	if !date.After(now) {
		return nil, true
	}
	return &worker.RetryAfter{At: date}, true
}

// parseDate reads a date of HTTP (RFC 9110, section 5.6.7).
func parseDate(text string) (date time.Time, err error) {
	for _, layout := range []string{"Mon, 02 Jan 2006 15:04:05 GMT", time.RFC850, time.ANSIC} {
		if date, err = time.Parse(layout, text); err == nil {
			return date.UTC(), nil
		}
	}
	return date, err
}

var amount = regexp.MustCompile(`(?i)(\d+(?:\.\d+)?)\s*(ms|milli|s|m|h|d)[a-z]*`)

var units = map[string]time.Duration{
	"ms": time.Millisecond, "milli": time.Millisecond, "s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour,
}

// After reads a length of time out of words, such as "1 day 2 hours" or "850ms";
// nil if a number of them is too large.
func After(words string) *worker.RetryAfter {
	var d time.Duration
	for _, part := range amount.FindAllStringSubmatch(words, -1) {
		n, err := strconv.ParseFloat(part[1], 64)
		if err != nil || n > 1e6 {
			return nil
		}
		d += time.Duration(n * float64(units[strings.ToLower(part[2])]))
	}
	return &worker.RetryAfter{After: d}
}

// NextTime returns when it is hour:minute next, in the zone of now.
func NextTime(now time.Time, hour, minute int) *worker.RetryAfter {
	at := time.Date(now.Year(), now.Month(), now.Day(), hour, minute, 0, 0, now.Location())
	if at.Before(now) {
		at = at.AddDate(0, 0, 1)
	}
	return &worker.RetryAfter{At: at}
}
