package exec

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// maxRetryAfter is the longest that a program can put its job off.
const maxRetryAfter = 7 * 24 * time.Hour

// schedulersOwn are the classes that a worker cannot know: they are about what
// people and the scheduler did.
var schedulersOwn = []job.ErrorClass{job.CancelledClass, job.HumanRejected, job.SandboxClass, job.VerifyFailed}

// result notes a result line after making sense of it. Of several, a failed
// one counts before a completed one, and the first before the others.
func (r *run) result(m result) []job.Event {
	var events []job.Event
	switch {
	case (m.Status == "completed" || m.Status == checkpointed) && m.Class == job.NoError:
	case m.Status == "completed" || m.Status == checkpointed:
		events = r.warn("status", "the result has the status %s and the error class %s: it counts as failed", m.Status, shown(string(m.Class)))
		m.Status = "failed"
	case m.Status != "failed":
		events = r.warn("status", "the result has the status %s, want completed, failed or checkpointed: it counts as failed", shown(m.Status))
		m.Status = "failed"
	}
	if m.Status == "failed" && (!slices.Contains(job.ErrorClasses(), m.Class) || slices.Contains(schedulersOwn, m.Class)) {
		if m.Class != job.NoError {
			events = append(events, r.warn("class", "the result has the unknown class %s: it counts as UNKNOWN", shown(string(m.Class)))...)
		}
		m.Class = job.Unknown
	}
	if ms := m.RetryMillis; ms != nil && (*ms < 0 || *ms > maxRetryAfter.Milliseconds()) {
		events = append(events, r.warn("retry", "retry_after_ms %d was ignored, want 0 to %d", *ms, maxRetryAfter.Milliseconds())...)
		m.RetryMillis = nil
	}
	if r.verdict != nil {
		events = append(events, r.warn("results", "there is more than one result")...)
		if m.Status != "failed" || r.verdict.Status == "failed" {
			return events
		}
	}
	r.verdict = &m
	r.talk.over = "the worker has said its result"
	return events
}

// outcome joins what the program said with how it ended; the worse counts.
func (r *run) outcome(e worker.Exit) worker.Result {
	answer, length := r.answer()
	out := worker.Result{Answer: answer}
	v := r.verdict
	switch {
	case e.Stopped:
		out.Class, out.Message = job.CancelledClass, "the worker was stopped"
	case r.spoiled != "":
		out.Class, out.Message = job.Config, "the worker broke the worker protocol: "+r.spoiled
		out.Hint = "see docs/worker-protocol.md, and run the worker by hand with a task line"
	case v != nil && v.Status == "failed":
		out.Class = v.Class
		out.Message = cmp.Or(cut(v.Message), "the worker reported a failure without a message")
		out.Hint = cut(v.Hint)
		if v.RetryMillis != nil {
			out.RetryAt = &worker.RetryAfter{After: time.Duration(*v.RetryMillis) * time.Millisecond}
		}
	case e.Signal != "":
		out.Class, out.Message = job.Crash, "the worker was ended by a signal: "+e.Signal
	case v == nil && e.Code != 0:
		out.Class, out.Message = job.Crash, withStderr(fmt.Sprintf("the worker exited with status %d and without a result", e.Code), e.Stderr)
	case v == nil:
		out.Class, out.Message = job.Unknown, withStderr("the worker ended without a result", e.Stderr)
		out.Hint = "the last line that a worker prints must be its result, see docs/worker-protocol.md"
	case e.Code != 0:
		out.Class, out.Message = job.Unknown, withStderr(fmt.Sprintf("the worker reported %s but exited with status %d", v.Status, e.Code), e.Stderr)
	case v.Status == checkpointed:
		r.checkpointed(&out)
	case r.schema && length > job.MaxEventText:
		out.Class, out.Message = job.InvalidOutput, fmt.Sprintf("the answer has %d bytes; an answer with an output schema may have at most %d", length, job.MaxEventText)
	}
	return out
}

// answer returns the result's answer, or the last text if it has none, and how
// long it was before it was cut.
func (r *run) answer() (string, int) {
	if r.verdict == nil || len(r.verdict.Answer) == 0 || string(r.verdict.Answer) == "null" {
		return r.lastText, len(r.lastText)
	}
	raw := r.verdict.Answer
	var words string
	if err := json.Unmarshal(raw, &words); err != nil { // any other JSON value stands for itself
		var compact bytes.Buffer
		if json.Compact(&compact, raw) == nil {
			raw = compact.Bytes()
		}
		words = string(raw)
	}
	words = strings.ToValidUTF8(words, "\uFFFD")
	answer, _ := job.Cut(words, job.MaxEventText)
	return answer, len(words)
}

// withStderr adds the last lines of standard error to a message.
func withStderr(message, stderr string) string {
	const lines = 5
	text := strings.TrimSpace(strings.ToValidUTF8(stderr, "\uFFFD"))
	if text == "" {
		return message
	}
	if all := strings.Split(text, "\n"); len(all) > lines {
		text = strings.Join(all[len(all)-lines:], "\n")
	}
	return message + ": " + cut(text)
}

// cut bounds a message for people.
func cut(message string) string {
	message, _ = job.Cut(message, 4<<10)
	return message
}
