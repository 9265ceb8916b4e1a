package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
)

// asked remembers the questions that a client was told of, or that its user did not want to answer: these do not end
// another wait, and are not asked again.
type asked struct {
	mu   sync.Mutex // guards what follows
	left map[askedOf]bool
}

type askedOf struct {
	session *sdk.ServerSession
	job     job.ID
	number  int
}

// maxLeft bounds what is remembered.
const maxLeft = 1000

func (a *asked) leave(q askedOf) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.left == nil || len(a.left) >= maxLeft {
		a.left = map[askedOf]bool{}
	}
	a.left[q] = true
}

func (a *asked) was(q askedOf) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.left[q]
}

// asking is a question that the user of a client is asked. nil is none.
type asking struct {
	question api.Question
	cancel   context.CancelFunc
	done     chan struct{} // closed when result and err are set
	result   *sdk.ElicitResult
	err      error
}

// answered is closed when the user has answered.
func (a *asking) answered() <-chan struct{} {
	if a == nil {
		return nil
	}
	return a.done
}

// stop takes the question back, if it is not answered.
func (a *asking) stop() {
	if a != nil {
		a.cancel()
		<-a.done
	}
}

// ask has the client's user asked the first of the questions that he was not, and takes back one that is no longer open.
func (w *waiter) ask(ctx context.Context) {
	if w.asking != nil {
		if slices.ContainsFunc(w.questions, w.asking.about) {
			return
		}
		w.asking.stop()
		w.asking = nil
	}
	if !covers(w.server.role, operate) || !elicits(w.request.Session) {
		return
	}
	for _, q := range w.questions {
		form := formOf(&q)
		if form == nil || w.server.asked.was(w.key(&q)) {
			continue
		}
		ctx, cancel := context.WithCancel(ctx)
		a := &asking{question: q, cancel: cancel, done: make(chan struct{})}
		w.asking = a
		go func() {
			defer close(a.done)
			defer cancel()
			a.result, a.err = w.request.Session.Elicit(ctx, &sdk.ElicitParams{Message: wording(&q), RequestedSchema: form})
		}()
		return
	}
}

// newQuestions reports whether there are questions that the client was not told of, and remembers that it is now.
func (w *waiter) newQuestions() (some bool) {
	for i := range w.questions {
		if key := w.key(&w.questions[i]); !w.server.asked.was(key) {
			w.server.asked.leave(key)
			some = true
		}
	}
	return some
}

func (a *asking) about(q api.Question) bool {
	return q.Job == a.question.Job && q.Number == a.question.Number
}

func (w *waiter) key(q *api.Question) askedOf { return askedOf{w.request.Session, q.Job, q.Number} }

// answer gives the question that was asked the answer of the client's user. One that he declines, or that the client
// could not ask, stays open.
func (w *waiter) answer(ctx context.Context) error {
	a := w.asking
	w.asking = nil
	if a.err != nil || a.result.Action != "accept" {
		w.server.asked.leave(w.key(&a.question))
		return nil
	}
	_, err := w.AnswerQuestion(ctx, string(a.question.Job), a.question.Number, answerOf(&a.question, a.result.Content, w.server.opt.By))
	if p, ok := errors.AsType[*api.Problem](err); ok && p.Status < http.StatusInternalServerError {
		w.server.asked.leave(w.key(&a.question)) // somebody was faster, or this role may not answer
		w.tell(ctx, fmt.Sprintf("%s: the answer to question %d was not taken: %s", a.question.Name, a.question.Number, p.Detail))
		return nil
	}
	return err
}

// elicits reports whether a client can ask its user with a form.
func elicits(s *sdk.ServerSession) bool {
	in := s.InitializeParams()
	if in == nil || in.Capabilities == nil || in.Capabilities.Elicitation == nil {
		return false
	}
	e := in.Capabilities.Elicitation
	return e.Form != nil || e.URL == nil
}

// wording is how a person is asked a question. What the run wrote of it stands below a line that says so.
func wording(q *api.Question) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Job %s (tenant %s) asks you something, question %d. In the words of its agent:\n\n%s\n", q.Name, q.Tenant, q.Number, whole(q.Text, maxAsked))
	for _, part := range []struct{ name, text string }{{"command", q.Command}, {"file", q.Path}, {"host", q.Host}, {"tool", q.Tool}, {"change", q.Diff}} {
		if part.text != "" {
			fmt.Fprintf(&b, "\n%s: %s\n", part.name, whole(part.text, maxAsked))
		}
	}
	return b.String()
}

// The fields of a form.
const (
	fieldDecision = "decision"
	fieldFor      = "for"
	fieldText     = "text"
)

// formOf returns the schema of the form for the answer to a question; nil if a form cannot have it.
func formOf(q *api.Question) any {
	text := func(title, about string) map[string]any {
		return map[string]any{"type": "string", "title": title, "description": about}
	}
	choice := func(title, about string, of []string, usual string) map[string]any {
		m := text(title, about)
		m["enum"] = of
		if usual != "" {
			m["default"] = usual
		}
		return m
	}
	switch {
	case len(q.Decisions) > 0:
		fields := map[string]any{
			fieldDecision: choice("Decision", "allow: the agent may; deny: it may not, and goes on; deny_and_stop: it may not, and stops", q.Decisions, ""),
			fieldText:     text("Words for the agent", "why not, or what to do instead"),
		}
		if slices.Contains(q.Decisions, api.Allow) {
			fields[fieldFor] = choice("If allowed, for", "once, this job's further runs, or all jobs of its tenant: exactly what was asked", []string{string(api.GrantOnce), string(api.GrantJob), string(api.GrantTenant)}, string(api.GrantOnce))
		}
		return map[string]any{"type": "object", "properties": fields, "required": []string{fieldDecision}}
	case len(q.Schema) > 0:
		return flatForm(q.Schema)
	}
	return map[string]any{"type": "object", "properties": map[string]any{fieldText: text("Answer", "")}, "required": []string{fieldText}}
}

// flatForm returns a schema if a form can have it: an object of texts, numbers and yes or no. Else nil.
func flatForm(schema json.RawMessage) any {
	var s struct {
		Type       string                    `json:"type"`
		Properties map[string]map[string]any `json:"properties"`
	}
	if json.Unmarshal(schema, &s) != nil || s.Type != "object" || len(s.Properties) == 0 || len(s.Properties) > 20 || len(schema) > maxAsked {
		return nil
	}
	for _, p := range s.Properties {
		kind, _ := p["type"].(string)
		if !slices.Contains([]string{"string", "number", "integer", "boolean"}, kind) {
			return nil
		}
	}
	return schema
}

// answerOf returns the answer that a filled in form is.
func answerOf(q *api.Question, form map[string]any, by string) api.AnswerQuestion {
	a := api.AnswerQuestion{By: by}
	a.Text, _ = form[fieldText].(string)
	if len(q.Decisions) == 0 && len(q.Schema) > 0 {
		a.Text = ""
		a.Value, _ = json.Marshal(form) // of what JSON was
		return a
	}
	a.Decision, _ = form[fieldDecision].(string)
	if scope, _ := form[fieldFor].(string); a.Decision == api.Allow && scope != "" {
		a.Scope = api.RunGrantScope(scope)
	}
	return a
}
