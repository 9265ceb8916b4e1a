package opencode

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/agentcli"
)

// line is one of the relay's.
type line struct {
	ID     int             `json:"id"` // of the request; 0 of an event
	Status *int            `json:"status"`
	Body   json.RawMessage `json:"body"`
	Error  string          `json:"error"`
	Event  struct {
		Type       string          `json:"type"`
		Properties json.RawMessage `json:"properties"`
	} `json:"event"`
}

// properties are those of the events that count.
type properties struct {
	Session string  `json:"sessionID"`
	Request string  `json:"requestID"`
	Info    info    `json:"info"`
	Part    part    `json:"part"`
	Error   failure `json:"error"`
	Status  status  `json:"status"`
}

// info is of a message, or of a session.
type info struct {
	ID      string `json:"id"`
	Parent  string `json:"parentID"`
	Role    string `json:"role"`
	Agent   string `json:"agent"`
	Summary any    `json:"summary"`
	Time    struct {
		Completed int64 `json:"completed"` // milliseconds since 1970
	} `json:"time"`
}

// status is of a session.
type status struct {
	Type    string `json:"type"`    // busy, idle, retry
	Attempt int    `json:"attempt"` // of a request that failed: how many have, in a row
	Message string `json:"message"`
	Next    int64  `json:"next"` // milliseconds since 1970
}

type part struct {
	ID      string    `json:"id"`
	Type    string    `json:"type"`
	Message string    `json:"messageID"`
	Text    string    `json:"text"`
	Tool    string    `json:"tool"`
	CallID  string    `json:"callID"`
	State   toolState `json:"state"`
	Reason  string    `json:"reason"`
	Tokens  tokens    `json:"tokens"`
	Cost    float64   `json:"cost"`
	Time    struct {
		End int64 `json:"end"`
	} `json:"time"`
}

// tokens are those of one step; input excludes cached ones.
type tokens struct {
	Total     int64 `json:"total"`
	Input     int64 `json:"input"`
	Output    int64 `json:"output"`
	Reasoning int64 `json:"reasoning"`
	Cache     struct {
		Read  int64 `json:"read"`
		Write int64 `json:"write"`
	} `json:"cache"`
}

// failure is what the program knows of an error.
type failure struct {
	Name string      `json:"name"`
	Data failureData `json:"data"`
}

type failureData struct {
	Message  string            `json:"message"`
	Status   int               `json:"statusCode"`
	Headers  map[string]string `json:"responseHeaders"`
	Body     string            `json:"responseBody"`
	Provider string            `json:"providerID"`
}

// line reads a line of the relay's.
func (s *session) line(raw []byte) []job.Event {
	var l line
	if !agentcli.Decode(raw, &l) || l.ID == 0 && l.Event.Type == "" {
		return []job.Event{agentcli.WithText(job.Event{Kind: job.EventLog}, string(raw))}
	}
	if then := s.answers[l.ID]; then != nil {
		delete(s.answers, l.ID)
		a := answer{Body: l.Body, Error: l.Error}
		if l.Status != nil {
			a.Status = *l.Status
		}
		then(a)
	} else if l.ID == 0 {
		s.event(l.Event.Type, l.Event.Properties)
	}
	events := s.events
	s.events = nil
	return events
}

// event reads an event of the server's. Events of sessions that are none of the run's, and those of main before it has
// the run's first prompt, tell of other runs.
func (s *session) event(kind string, raw json.RawMessage) {
	var p properties
	agentcli.Decode(raw, &p)
	if kind == "session.created" {
		if parent := s.threads[p.Info.Parent]; parent != nil && s.threads[p.Info.ID] == nil {
			s.threads[p.Info.ID] = &thread{id: p.Info.ID, parent: parent.parent}
		}
		return
	}
	t := s.threads[p.Session]
	switch kind {
	case "permission.asked", "question.asked":
		r := new(request)
		agentcli.Decode(raw, r)
		s.request(r)
		return
	case "permission.replied", "question.replied", "question.rejected":
		s.replied(p.Request)
		return
	}
	if t == nil {
		return
	}
	switch kind {
	case "session.status":
		s.status(t, p.Status)
	case "session.idle":
		if t == s.main {
			s.isIdle()
		}
	case "session.error":
		s.erred(t, &p.Error)
	case "message.updated":
		s.updated(t, p.Info)
	case "message.part.updated":
		if t != s.main || s.began {
			s.part(t, p.Part)
		}
	}
}

func (s *session) status(t *thread, st status) {
	if t == s.main && st.Type != "idle" {
		s.isBusy()
	}
	if st.Type == "retry" {
		s.retries(t, st)
	}
}

// erred notes that a turn failed. What is too long for the model the program shortens, and goes on.
func (s *session) erred(t *thread, f *failure) {
	if s.interrupted && f.Name == "MessageAbortedError" {
		return
	}
	if t != s.main {
		s.emit(agentcli.WithText(job.Event{Kind: job.EventWarning, Parent: t.parent}, "a subagent failed: "+f.String()))
		return
	}
	s.failure = f
	s.emit(agentcli.WithText(job.Event{Kind: job.EventError}, f.String()))
	if f.Name == "ContextOverflowError" {
		if t.overflows++; t.overflows == maxTries {
			s.Decide(s.failed(f))
		}
	}
}

// updated reads a message's head. That of an assistant's message names the user's that it answers.
func (s *session) updated(t *thread, m info) {
	switch {
	case m.Role == "user":
		if t == s.main && len(s.prompts) > 0 && m.ID == "msg_"+s.prompts[0].id {
			s.began = true
		}
		return
	case m.Role != "assistant":
		return
	case t == s.main:
		s.read(m.Parent)
	}
	if m.ID != t.message {
		t.message, t.compacting = m.ID, m.Summary == true || m.Agent == "compaction"
		if t == s.main && s.interrupted {
			s.abort() // it came too early for this turn
		}
	}
	t.open = m.Time.Completed == 0
}

// part reads a part of a message, which comes again and again until it is whole.
func (s *session) part(t *thread, p part) {
	switch {
	case p.Type == "tool":
		s.tool(t, p)
	case p.Message != t.message: // of a user's
	case p.Type == "step-start":
		s.stepStart(t)
	case p.Type == "step-finish":
		s.stepFinish(t, p)
	case p.Type == "text" && p.Time.End > 0 && strings.TrimSpace(p.Text) != "" && !t.compacting:
		if t == s.main {
			s.say(p)
		}
		s.emit(agentcli.WithText(job.Event{Kind: job.EventText, Parent: t.parent}, p.Text))
	}
}

func (s *session) stepStart(t *thread) {
	if t.step {
		s.emit(job.Event{Kind: job.EventRetry, Parent: t.parent, Text: "opencode repeats a request that was cut off"})
	}
	maps.DeleteFunc(s.calls, func(_ string, c *call) bool { return c.session == t.id && !c.began }) // of an answer that broke off
	t.step = true
	t.tries++
	if t == s.main {
		s.finish, s.failure = "", nil
	}
	s.giveUp(t)
}

func (s *session) stepFinish(t *thread, p part) {
	t.step = false
	if t == s.main && !t.compacting {
		s.finish = p.Reason
	}
	s.emit(job.Event{Kind: job.EventStep, Parent: t.parent})
	if p.Reason != "unknown" {
		t.tries = 0
		if !t.compacting {
			t.overflows = 0
		}
	} else { // it goes on so without end or pause, if the provider does
		s.emit(job.Event{Kind: job.EventRetry, Parent: t.parent, Text: "the provider's answer broke off: opencode asks again"})
	}
	if u := p.usage(); u.Tokens() > 0 || u.CostUSD > 0 {
		s.emit(job.Event{Kind: job.EventUsage, Parent: t.parent, Usage: &u})
	}
}

// say keeps what the last message says.
func (s *session) say(p part) {
	if p.Message == s.message && s.answer != "" {
		s.answer += "\n" + p.Text
	} else {
		s.answer = p.Text
	}
	s.message = p.Message
	s.answer, _ = job.Cut(s.answer, job.MaxEventText)
}

// usage returns the step's usage. A price of 0 for tokens means that the
// program does not know the model's. Whether output includes reasoning depends
// on the provider; the total tells.
func (p part) usage() job.Usage {
	t := p.Tokens
	input := t.Input + t.Cache.Read + t.Cache.Write
	output := max(t.Output, t.Total-input, t.Reasoning)
	return job.Usage{
		InputTokens: input, CachedTokens: t.Cache.Read, CacheWriteTokens: t.Cache.Write,
		OutputTokens: output, ReasoningTokens: t.Reasoning,
		CostUSD: p.Cost, CostKnown: p.Cost > 0,
	}
}

// errorLine tells a line of standard error as it is.
func (s *session) errorLine(raw []byte) []worker.Action {
	line := []byte(agentcli.PlainText(string(raw)))
	if slices.ContainsFunc(relayNoise, func(n string) bool { return strings.Contains(string(line), n) }) {
		return nil
	}
	return worker.Log(line)
}

// relayNoise are parts of lines that say nothing.
var relayNoise = []string{"opencode server listening on "}
