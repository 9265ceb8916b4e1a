package opencode

import (
	"fmt"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/agentcli"
)

const (
	// maxTries is how often opencode may ask the model in vain before the run is
	// given up. Its own bound, where it has one, is reached after 80 s; a stream
	// that breaks off it asks for again without end.
	maxTries = 3

	// maxPause is how long it may wait before it asks again. By itself it waits for half a minute at most; for longer only
	// where the provider said so, whatever the words of that.
	maxPause = 35 * time.Second
	// maxLimited is the same for a rate limit: a job that waits for longer gives its slot away.
	maxLimited = 10 * time.Second
)

// retries decides the run when opencode asks the model again and again: retries are the scheduler's. The session is
// resumed by the next attempt.
func (s *session) retries(t *thread, st status) {
	words, _ := job.Cut(st.Message, agentcli.MaxMessage)
	s.emit(agentcli.WithText(job.Event{Kind: job.EventRetry, Parent: t.parent}, "a request to the model failed: "+words))
	next := time.UnixMilli(st.Next)
	pause := next.Sub(s.Now)
	r := worker.Result{Answer: s.answer}
	r.Class, r.Hint = byWords(st.Message)
	switch {
	case pause > maxPause:
		if r.Class != job.ResourceExhausted {
			r.Class, r.Hint = job.RateLimit, ""
		}
	case r.Class == job.RateLimit && pause > maxLimited, r.Class == job.ResourceExhausted, st.Attempt >= maxTries:
	default:
		return
	}
	if r.Class == job.Unknown {
		r.Class = job.Server
	}
	if r.Class == job.RateLimit {
		r.RetryAt = &worker.RetryAfter{At: next}
	}
	r.Message = fmt.Sprintf("%d requests to the model failed in a row, the last one: %s", st.Attempt, words)
	if st.Attempt <= 1 {
		r.Message = "a request to the model failed: " + words
	}
	s.Decide(r)
}

// giveUp decides the run when the same step begins again and again.
func (s *session) giveUp(t *thread) {
	if t.tries >= maxTries {
		s.Decide(worker.Result{Answer: s.answer, Class: job.Server,
			Message: fmt.Sprintf("the provider's answers keep breaking off: opencode started the same step %d times", t.tries)})
	}
}
