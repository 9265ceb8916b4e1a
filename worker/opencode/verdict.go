package opencode

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/agentcli"
)

// maxTries is how often opencode may ask the model in vain before the run is
// given up. Its own bound, where it has one, is reached after 80 s; a stream
// that breaks off it asks for again without end.
const maxTries = 3

// requests is what standard error tells of requests to the model, which the
// event stream is silent about.
type requests struct {
	failed int    // in a row, without the beginning of a step between
	words  string // of the last failure
}

// requestFailed matches what opencode logs of a request that failed, be it
// repeated or not. "small" ones ask for a title or the like.
var requestFailed = regexp.MustCompile(`^timestamp=\S+ level=ERROR .*\bmessage="stream error" .*\bsmall=false .*\berror\.error=("(?:[^"\\]|\\.)*"|\S+)`)

// errorLine tells a failed request as a warning and any other line of standard
// error as it is.
func (s *session) errorLine(raw []byte) []worker.Action {
	line := strings.TrimSpace(agentcli.PlainText(strings.ToValidUTF8(string(raw), "\uFFFD")))
	r := &s.requests
	e := agentcli.WithText(job.Event{Kind: job.EventLog}, line)
	if m := requestFailed.FindStringSubmatch(line); m != nil {
		words := m[1]
		if plain, err := strconv.Unquote(words); err == nil {
			words = strings.ToValidUTF8(plain, "\uFFFD")
		}
		r.words, _ = job.Cut(strings.TrimPrefix(words, "AI_APICallError: "), agentcli.MaxMessage)
		r.failed++
		e = agentcli.WithText(job.Event{Kind: job.EventWarning}, "a request to the model failed: "+r.words)
		s.giveUp()
	}
	if e.Text == "" {
		return nil
	}
	return worker.Events(e)
}

// giveUp decides the run when opencode asks the model again and again:
// retries are the scheduler's. The session is resumed by the next attempt. A
// rate limit is left to opencode, which alone knows when to come back.
func (s *session) giveUp() {
	if s.failure != nil { // it has given up by itself, and said more
		return
	}
	r := worker.Result{Answer: s.answer}
	if s.tries >= maxTries {
		r.Class = job.Server
		r.Message = fmt.Sprintf("the provider's answers keep breaking off: opencode started the same step %d times", s.tries)
		s.Decide(r)
		return
	}
	r.Class, r.Hint = byWords(s.requests.words)
	if s.requests.failed < maxTries || r.Class == job.RateLimit {
		return
	}
	if r.Class == job.Unknown {
		r.Class = job.Server
	}
	r.Message = fmt.Sprintf("%d requests to the model failed in a row, the last one: %s", s.requests.failed, s.requests.words)
	s.Decide(r)
}
