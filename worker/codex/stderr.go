package codex

import (
	"math"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/agentcli"
)

// logFilter is the value of RUST_LOG with which Codex prints on standard error
// what its event stream hides: one line for each answer of a server, with the
// status and the headers. Nothing else of that module is asked for, and
// "error" is what Codex prints without the variable.
const (
	logVariable = "RUST_LOG"
	logFilter   = logModule + "[{status}]=debug"
	logModule   = "codex_http_client::client"
	logDefault  = "error"
)

// maxStderr is the size of worker.Exit's Stderr if it is only an end.
const maxStderr = 16 << 10

// answers is what standard error told of the model server's answers.
type answers struct {
	status int                // of the last one; 0 if there was none, or none since the connection failed
	retry  *worker.RetryAfter // when the last one, of status 429, says to come back
}

// errorLine returns a line of standard error as a log event. The lines on
// answers are noted and not told: headers can hold cookies.
func (s *session) errorLine(raw []byte) []worker.Action {
	line := agentcli.PlainText(string(raw))
	if isAnswer(line) {
		s.answers.note(line, s.Now)
		return nil
	}
	return worker.Log([]byte(line))
}

// last returns the status of the last answer if it was a failure, else 0, and
// when to come back.
func (a *answers) last() (status int, retry *worker.RetryAfter) {
	if a.status < 400 {
		return 0, nil
	}
	return a.status, a.retry
}

var (
	answered = regexp.MustCompile(`^\S+ +DEBUG .*?\b` + logModule + `: Request (completed|failed) method=(\S+) url=(\S+)(?: status=(\d{3})\b)?`)
	// header matches those of interest. A name ends in what is limited, e.g.
	// "-tokens", or in nothing.
	header = regexp.MustCompile(`"(retry-after(?:-ms)?|x-ratelimit-(?:reset|remaining)(?:-[a-z-]+)?)": "([^"\\]*)"`)
)

// isAnswer reports whether a line of standard error is one on a server's answer.
func isAnswer(line string) bool { return answered.MatchString(line) }

// note keeps what a line says of an answer of the model's endpoint. Codex asks
// its server other things as well, whose failures do not end a turn.
func (a *answers) note(line string, now time.Time) {
	m := answered.FindStringSubmatch(line)
	if u, err := url.Parse(m[3]); err != nil || m[2] != "POST" || !strings.Contains(u.Path, "/responses") {
		return
	}
	a.status, a.retry = 0, nil
	if m[1] == "completed" && m[4] != "" {
		a.status, _ = strconv.Atoi(m[4]) // three digits
	}
	if a.status == agentcli.StatusTooManyRequests {
		a.retry = retryHeaders(line, now)
	}
}

// retryHeaders reads when to come back. Without retry-after, the resets of OpenAI's and its
// imitators' limits count: the latest of those that are used up, else of all.
func retryHeaders(line string, now time.Time) *worker.RetryAfter {
	h := map[string]string{}
	for _, m := range header.FindAllStringSubmatch(line, -1) {
		h[m[1]] = strings.TrimSpace(m[2])
	}
	if at, said := agentcli.RetryHeaders(func(name string) string { return h[name] }, now); said {
		return at
	}
	var usedUp, all time.Duration
	for name, value := range h {
		limit, ok := strings.CutPrefix(name, "x-ratelimit-reset")
		if !ok {
			continue
		}
		d := untilReset(value, now)
		all = max(all, d)
		if h["x-ratelimit-remaining"+limit] == "0" {
			usedUp = max(usedUp, d)
		}
	}
	if usedUp > 0 {
		all = usedUp
	}
	if all <= 0 {
		return nil
	}
	return &worker.RetryAfter{After: all}
}

// untilReset reads "6m0s", "850ms", a number of seconds, or a moment in seconds
// or milliseconds since 1970. It is 0 for what is none of these.
func untilReset(value string, now time.Time) time.Duration {
	if d, err := time.ParseDuration(value); err == nil {
		return d
	}
	n, err := strconv.ParseFloat(value, 64)
	switch {
	case err != nil || math.IsNaN(n) || n < 0 || n > 1e14:
		return 0
	case n > 1e11:
		return time.UnixMilli(int64(n)).Sub(now)
	case n > 1e8: // three years would be a strange limit
		return time.Unix(int64(n), 0).Sub(now)
	}
	return time.Duration(n * float64(time.Second))
}
