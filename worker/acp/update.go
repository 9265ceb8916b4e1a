package acp

import (
	"crypto/sha256"
	"encoding/json"
	"math"
	"strings"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker/agentcli"
)

// update is what an agent notifies of, of any kind.
type update struct {
	SessionUpdate string
	MessageID     string
	Content       json.RawMessage // of a chunk a block, of a tool call a list
	Entries       []planEntry
	Cost          *struct {
		Amount   float64
		Currency string
	}
	Meta struct {
		Usage *tokens // qwen-code: of one request to the model
	} `json:"_meta"`
}

type planEntry struct{ Content, Status string }

// block is a piece of content. What is not text is left out.
type block struct{ Type, Text string }

// update takes a notification of the session.
func (s *session) update(params json.RawMessage) {
	var n struct {
		SessionID string
		Update    json.RawMessage
	}
	agentcli.Decode(params, &n)
	var u update
	if !agentcli.Decode(n.Update, &u) {
		return
	}
	if s.replaying {
		s.replayed(u)
		return
	}
	if s.id == "" || n.SessionID != string(s.id) {
		return
	}
	if s.phase == turning {
		s.fold()
	}
	switch u.SessionUpdate {
	case "agent_message_chunk":
		s.endThought()
		s.chunk(&s.words, u, s.endWords)
		if t := u.Meta.Usage; t != nil {
			s.charge(s.used.add(t))
		}
	case "agent_thought_chunk":
		s.endWords()
		s.chunk(&s.thought, u, s.endThought)
	case "tool_call", "tool_call_update":
		s.flush()
		s.toolCall(n.Update, u.SessionUpdate == "tool_call")
	case "plan":
		s.flush()
		s.planned(u.Entries)
	case "usage_update":
		if c := u.Cost; c != nil && strings.EqualFold(c.Currency, "USD") {
			s.costs(c.Amount)
		}
	}
}

// replayed takes an update of the history of a session that is loaded, of which only the
// user's words count.
func (s *session) replayed(u update) {
	var b block
	if u.SessionUpdate == "user_message_chunk" && agentcli.Decode(u.Content, &b) && len(s.history) < 10*maxCalls {
		s.history[sha256.Sum256([]byte(strings.TrimSpace(b.Text)))] = true
	}
}

// message is words of the agent that come in pieces.
type message struct {
	id   string
	text strings.Builder
}

// maxMessage is how much of one message is kept, in bytes.
const maxMessage = 1 << 20

// chunk adds a piece to m, after the end of another message if it is of a new one.
func (s *session) chunk(m *message, u update, end func()) {
	if u.MessageID != m.id && m.text.Len() > 0 {
		end()
	}
	m.id = u.MessageID
	var b block
	if agentcli.Decode(u.Content, &b) && b.Type == "text" {
		m.text.WriteString(b.Text[:min(len(b.Text), maxMessage-m.text.Len())])
	}
}

// flush ends what was being said.
func (s *session) flush() {
	s.endThought()
	s.endWords()
}

// endWords tells a message of the agent as a whole. The last one is the answer; but where
// messages have ids, one without is a remark of the program's.
func (s *session) endWords() {
	text := strings.ToValidUTF8(s.words.text.String(), "\uFFFD")
	named := s.words.id != ""
	s.words = message{}
	if strings.TrimSpace(text) == "" {
		return
	}
	s.say(job.EventText, text)
	if named || !s.named {
		s.answer, _ = job.Cut(text, job.MaxEventText)
		s.named = named
		s.emit(job.Event{Kind: job.EventStep})
	}
}

// endThought tells what the agent thought as a whole.
func (s *session) endThought() {
	text := strings.ToValidUTF8(s.thought.text.String(), "\uFFFD")
	s.thought = message{}
	if strings.TrimSpace(text) != "" {
		s.say(job.EventLog, "thought: "+text)
	}
}

// planned tells the agent's plan when it has changed.
func (s *session) planned(entries []planEntry) {
	marks := map[string]string{"completed": "[x] ", "in_progress": "[>] "}
	var lines []string
	for _, e := range entries {
		mark, ok := marks[e.Status]
		if !ok {
			mark = "[ ] "
		}
		lines = append(lines, mark+e.Content)
	}
	plan, _ := job.Cut("plan:\n"+strings.Join(lines, "\n"), job.MaxEventText)
	if len(lines) > 0 && plan != s.plan {
		s.plan = plan
		s.say(job.EventLog, plan)
	}
}

// tokens are the protocol's numbers. Agents leave out what they do not know.
type tokens struct {
	InputTokens, OutputTokens, ThoughtTokens, CachedReadTokens, CachedWriteTokens, TotalTokens int64
}

// maxTokensOfTurn is far above any real turn, and far below what makes a sum overflow.
const maxTokensOfTurn = 1_000_000_000

// usage returns the numbers as events have them, where cached tokens are input tokens and
// reasoning tokens are output tokens: for most agents they are beside them, which the
// total shows.
func (t tokens) usage() (u job.Usage, ok bool) {
	for _, n := range []int64{t.InputTokens, t.OutputTokens, t.ThoughtTokens, t.CachedReadTokens, t.CachedWriteTokens} {
		if n < 0 || n > maxTokensOfTurn {
			return u, false
		}
	}
	u = job.Usage{InputTokens: t.InputTokens, CachedTokens: t.CachedReadTokens, CacheWriteTokens: t.CachedWriteTokens,
		OutputTokens: t.OutputTokens, ReasoningTokens: t.ThoughtTokens}
	cached, beside := t.CachedReadTokens+t.CachedWriteTokens, t.TotalTokens-t.InputTokens-t.OutputTokens
	if cached > 0 && (beside >= cached || cached > t.InputTokens) {
		u.InputTokens += cached
		beside -= cached
	}
	if t.ThoughtTokens > 0 && (beside >= t.ThoughtTokens || t.ThoughtTokens > t.OutputTokens) {
		u.OutputTokens += t.ThoughtTokens
	}
	return u, true
}

// turnUsage is what was told of the running turn: the sum of its requests, as far as the
// agent tells them, and what was charged.
type turnUsage struct {
	sum     tokens
	charged job.Usage
}

// add returns the sum with one more request.
func (u *turnUsage) add(t *tokens) *tokens {
	if _, ok := t.usage(); !ok {
		return nil
	}
	for _, n := range []struct{ to, from *int64 }{
		{&u.sum.InputTokens, &t.InputTokens}, {&u.sum.OutputTokens, &t.OutputTokens}, {&u.sum.ThoughtTokens, &t.ThoughtTokens},
		{&u.sum.CachedReadTokens, &t.CachedReadTokens}, {&u.sum.CachedWriteTokens, &t.CachedWriteTokens}, {&u.sum.TotalTokens, &t.TotalTokens},
	} {
		*n.to += *n.from
	}
	return &u.sum
}

// charge tells what a turn has used beyond what was told of it before.
func (s *session) charge(t *tokens) {
	if t == nil {
		return
	}
	total, ok := t.usage()
	if !ok {
		s.warn("tokens", "the agent's usage was ignored: its numbers of tokens make no sense")
		return
	}
	was := s.used.charged
	u := job.Usage{
		InputTokens: max(total.InputTokens-was.InputTokens, 0), CachedTokens: max(total.CachedTokens-was.CachedTokens, 0),
		CacheWriteTokens: max(total.CacheWriteTokens-was.CacheWriteTokens, 0),
		OutputTokens:     max(total.OutputTokens-was.OutputTokens, 0), ReasoningTokens: max(total.ReasoningTokens-was.ReasoningTokens, 0),
	}
	if u == (job.Usage{}) {
		return
	}
	s.used.charged = was.Add(u)
	u.CostKnown = s.cost != nil // the agent tells it
	s.emit(job.Event{Kind: job.EventUsage, Usage: &u})
}

// costs takes the agent's total of the session in US dollars.
func (s *session) costs(total float64) {
	const most = 1e6
	if math.IsNaN(total) || total < 0 || total > most {
		s.warn("cost", "the agent's cost was ignored: it makes no sense")
		return
	}
	was := 0.0
	if s.cost != nil {
		was = *s.cost
	}
	more := total - was
	if s.cost != nil && more <= 0 {
		return
	}
	s.cost = &total
	if more > 0 {
		s.emit(job.Event{Kind: job.EventUsage, Usage: &job.Usage{CostUSD: more, CostKnown: true}})
	}
}
