package opencode

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// maxTries is how often opencode may ask the model in vain before the run is
// given up. Its own bound, where it has one, is reached after 80 s; a stream
// that breaks off it asks for again without end.
const maxTries = 3

// maxLogEvents bounds how many lines of standard error become events, as the
// Runner does it for a session that does not read them itself.
const maxLogEvents = 2000

// requests is what standard error tells of requests to the model, which the
// event stream is silent about.
type requests struct {
	failed int    // in a row, without the beginning of a step between
	words  string // of the last failure
	logged int    // lines told as events
}

// requestFailed matches what opencode logs of a request that failed, be it
// repeated or not. "small" ones ask for a title or the like.
var requestFailed = regexp.MustCompile(`^timestamp=\S+ level=ERROR .*\bmessage="stream error" .*\bsmall=false .*\berror\.error=("(?:[^"\\]|\\.)*"|\S+)`)

// ErrorLine tells a failed request as a warning and any other line of standard
// error as it is.
func (s *session) ErrorLine(raw []byte) []job.Event {
	line := strings.TrimSpace(plainText(string(bytes.ToValidUTF8(raw, []byte("\uFFFD")))))
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &s.requests
	e := withText(job.Event{Kind: job.EventLog}, line)
	if m := requestFailed.FindStringSubmatch(line); m != nil {
		words := m[1]
		if plain, err := strconv.Unquote(words); err == nil {
			words = strings.ToValidUTF8(plain, "\uFFFD")
		}
		r.words, _ = job.Cut(strings.TrimPrefix(words, "AI_APICallError: "), 4<<10)
		r.failed++
		e = withText(job.Event{Kind: job.EventWarning}, "a request to the model failed: "+r.words)
	}
	if line == "" || r.logged >= maxLogEvents {
		return nil
	}
	r.logged++
	return []job.Event{e}
}

// Verdict gives the run up when opencode asks the model again and again:
// retries are the scheduler's. The session is resumed by the next attempt. A
// rate limit is left to opencode, which alone knows when to come back.
func (s *session) Verdict() (worker.Result, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := worker.Result{Answer: s.answer}
	if s.failure != nil { // it has given up by itself, and said more
		return worker.Result{}, false
	}
	if s.tries >= maxTries {
		r.Class = job.Server
		r.Message = fmt.Sprintf("the provider's answer breaks off: opencode has begun the same step %d times", s.tries)
		return r, true
	}
	r.Class, r.Hint = byWords(s.requests.words)
	if s.requests.failed < maxTries || r.Class == job.RateLimit {
		return worker.Result{}, false
	}
	if r.Class == job.Unknown {
		r.Class = job.Server
	}
	r.Message = fmt.Sprintf("%d requests to the model failed in a row, the last one: %s", s.requests.failed, s.requests.words)
	return r, true
}
