package telemetry

import (
	"path"
	"strings"
	"time"

	"github.com/agentsched/agentsched/job"
)

// The spans of a job: one root, and under it the others.
//
//	job     from its submission to its end
//	submit  the moment of its submission
//	queue   before each attempt, and before an end without one
//	permit  each question to a core
//	worker  each attempt
//	result  from the end of the last attempt until the job had ended
const (
	spanJob    = "job"
	spanSubmit = "submit"
	spanQueue  = "queue"
	spanPermit = "permit"
	spanWorker = job.WorkerSpan
	spanResult = "result"
)

// Attributes of the semantic conventions for generative AI, which are versioned
// apart from the others.
const (
	genAIOperation   = "gen_ai.operation.name"
	genAIAgent       = "gen_ai.agent.name"
	genAIModel       = "gen_ai.request.model"
	genAISession     = "gen_ai.conversation.id"
	genAIInput       = "gen_ai.usage.input_tokens"
	genAIOutput      = "gen_ai.usage.output_tokens"
	genAICacheRead   = "gen_ai.usage.cache_read.input_tokens"
	genAICacheCreate = "gen_ai.usage.cache_creation.input_tokens"
)

// span is one of a job's, that has ended.
type span struct {
	name       string
	attempt, n int // tell those of one name apart
	begin, end time.Time
	failed     bool
	class      job.ErrorClass // with failed
	attrs      []attr
	commands   []command
}

// trace returns the encoded spans of a job that has ended.
func (t *tracer) trace(e *endedJob, attempts []job.Attempt) [][]byte {
	entry := &e.entry
	if len(attempts) > 0 && attempts[0].Job != entry.ID {
		attempts = nil // of the job whose result it has, which has a trace of its own
	}
	completed := entry.CreatedAt
	if entry.CompletedAt != nil {
		completed = *entry.CompletedAt
	}
	id, rootID := traceID(entry.Spec.Trace, entry.ID), job.SpanID(entry.ID, spanJob, 0, 0)
	var encoded [][]byte
	for _, s := range t.spans(e, attempts, completed) {
		encoded = append(encoded, encodeSpan(id, job.SpanID(entry.ID, s.name, s.attempt, s.n), rootID[:], t.finish(&s)))
	}
	root := t.root(e, completed)
	return append(encoded, encodeSpan(id, rootID, nil, t.finish(&root)))
}

// finish adds to a span what follows from the rest of it.
func (t *tracer) finish(s *span) *span {
	if s.end.Before(s.begin) { // the clock was put back
		s.end = s.begin
	}
	s.class = job.ErrorClass(t.redact(string(s.class)))
	if s.failed && s.class != "" {
		s.attrs = append(s.attrs, attr{"error.type", string(s.class)})
	}
	return s
}

// spans returns those under the root.
func (t *tracer) spans(e *endedJob, attempts []job.Attempt, completed time.Time) []span {
	created := e.entry.CreatedAt
	list := []span{{name: spanSubmit, begin: created, end: created}}
	waits := created
	for i := range attempts {
		a := &attempts[i]
		list = append(list, span{name: spanQueue, attempt: a.Number, begin: waits, end: a.Started, attrs: []attr{number(a.Number)}})
		s := t.worker(a, completed)
		s.commands = e.commands[a.Number]
		list, waits = append(list, s), s.end
	}
	if len(attempts) == 0 {
		list = append(list, span{name: spanQueue, attempt: 1, begin: waits, end: completed})
	} else {
		list = append(list, span{name: spanResult, begin: waits, end: completed, attrs: []attr{t.text("agentsched.outcome", outcome(&e.entry))}})
	}
	for i, p := range e.permits {
		s := span{name: spanPermit, attempt: p.attempt, n: i, begin: p.begin, end: p.end, attrs: append(t.choice(p.choice), number(p.attempt))}
		if p.reason == "" {
			s.attrs = append(s.attrs, attr{"agentsched.permit.result", granted})
		} else {
			s.attrs = append(s.attrs, attr{"agentsched.permit.result", refused}, t.text("agentsched.permit.reason", string(p.reason)))
		}
		list = append(list, s)
	}
	return list
}

// worker returns the span of an attempt.
func (t *tracer) worker(a *job.Attempt, completed time.Time) span {
	s := span{name: spanWorker, attempt: a.Number, begin: a.Started, end: completed}
	if a.Ended != nil {
		s.end = *a.Ended
	}
	s.attrs = append(t.choice(a.Choice), number(a.Number), t.text("agentsched.state", string(a.State)),
		attr{genAIOperation, "invoke_agent"}, t.text(genAIAgent, string(a.Choice.Worker)))
	if a.Session != "" {
		s.attrs = append(s.attrs, t.text(genAISession, a.Session))
	}
	if a.Lost {
		s.attrs = append(s.attrs, attr{"agentsched.lost", true})
	}
	s.failed = a.State == job.RunFailed
	if o := a.Outcome; o != nil {
		s.class = o.Class
		s.attrs = append(append(s.attrs, usage(o.Usage)...), attr{"process.exit.code", int64(o.ExitCode)}, attr{"agentsched.files", int64(len(o.Files))})
	}
	return s
}

// root returns the span of a job as a whole.
func (t *tracer) root(e *endedJob, completed time.Time) span {
	entry := &e.entry
	how := outcome(entry)
	s := span{name: spanJob, begin: entry.CreatedAt, end: completed, failed: how == string(job.ExitFailed) || how == string(job.Expired), class: entry.ErrorClass}
	if how == string(job.Expired) {
		s.class = job.Timeout
	}
	s.attrs = append(t.choice(job.Choice{Worker: entry.Spec.Worker, Model: entry.Spec.Model}),
		t.text("agentsched.job.id", string(entry.ID)), t.text("agentsched.job.name", string(entry.Spec.Name)),
		t.text("agentsched.tenant", string(entry.Spec.Tenant)), t.text("agentsched.batch", string(entry.Batch)),
		t.text("agentsched.class", string(entry.Spec.Class.Or())), t.text("agentsched.outcome", how),
		attr{"agentsched.attempts", int64(entry.Attempts)})
	if entry.Spec.Agent != "" {
		s.attrs = append(s.attrs, t.text("agentsched.agent", string(entry.Spec.Agent)))
	}
	for _, id := range []struct{ name, value string }{
		{"agentsched.correlation_id", entry.Spec.Context.CorrelationID}, {"user.id", entry.Spec.Context.UserID},
		{"session.id", entry.Spec.Context.SessionID},
	} {
		if id.value != "" {
			s.attrs = append(s.attrs, t.text(id.name, id.value))
		}
	}
	if entry.CoalescedWith != "" {
		s.attrs = append(s.attrs, t.text("agentsched.coalesced_with", string(entry.CoalescedWith)))
	}
	s.attrs = append(s.attrs, usage(entry.Spent)...)
	return s
}

func number(attempt int) attr { return attr{"agentsched.attempt", int64(attempt)} }

func (t *tracer) choice(c job.Choice) []attr {
	attrs := []attr{t.text("agentsched.worker", string(c.Worker))}
	if c.Model != "" {
		attrs = append(attrs, t.text(genAIModel, c.Model))
	}
	return attrs
}

func usage(u job.Usage) []attr {
	attrs := []attr{{genAIInput, u.InputTokens}, {genAIOutput, u.OutputTokens}}
	if u.CachedTokens > 0 {
		attrs = append(attrs, attr{genAICacheRead, u.CachedTokens})
	}
	if u.CacheWriteTokens > 0 {
		attrs = append(attrs, attr{genAICacheCreate, u.CacheWriteTokens})
	}
	if u.CostKnown {
		attrs = append(attrs, attr{"agentsched.cost_usd", u.CostUSD})
	}
	return attrs
}

// unknownCommand stands for a command that does not begin with a plain word.
const unknownCommand = "?"

// firstWord returns the program that a command runs, without its folder. What is
// no plain word, such as the setting of a variable, may be a secret.
func firstWord(text string) string {
	word, _, _ := strings.Cut(strings.TrimSpace(text), " ")
	plain := func(r rune) bool {
		return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("_./+-", r)
	}
	if word == "" || strings.ContainsFunc(word, func(r rune) bool { return !plain(r) }) {
		return unknownCommand
	}
	return path.Base(word)
}
