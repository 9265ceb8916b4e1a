package claude

import (
	"cmp"
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/agentcli"
)

// session is one run of claude.
type session struct {
	agentcli.Run
	talk

	dir     string // the workspace
	calls   map[string]call
	id      string            // the program's own of the session
	counted map[string]string // the last message counted of each subagent at work, by its call; "" is the agent itself
	turns   job.Usage         // of the turns that have ended
	told    job.Usage
	answer  string
	apiKind string // what the program calls the last failure, e.g. "rate_limit"
	resetAt time.Time
	end     *line           // the last result
	cost    *float64        // of the run in US dollars; nil until the program has said it
	denied  []string        // calls, as denied names them
	named   map[string]bool // ids of calls that are in denied, or never will be
}

// call is a tool call under way.
type call struct{ name, command, path string }

func newSession(t *worker.Task, h home) *session {
	return &session{
		Run: agentcli.NewRun(t, "session", h.hasSession), talk: talk{asked: map[string]asked{}},
		dir: t.Dir, calls: map[string]call{}, counted: map[string]string{}, named: map[string]bool{},
	}
}

// Step reads what the program prints, and passes on what others have for it.
func (s *session) Step(now time.Time, in worker.Input) []worker.Action {
	s.hear(in)
	actions := append(s.Read(now, in, s.parse, worker.Log, s.outcome), s.todo...)
	s.todo = nil
	return actions
}

// line is what the program prints, one JSON object a line.
type line struct {
	Type      string  `json:"type"`
	Subtype   string  `json:"subtype"`
	SessionID string  `json:"session_id"`
	UUID      string  `json:"uuid"`
	Version   string  `json:"claude_code_version"` // system/init
	Parent    string  `json:"parent_tool_use_id"`  // of what a subagent says or does: the call that started it
	Replay    bool    `json:"isReplay"`            // of a user frame: it is one that the program was told
	Message   message `json:"message"`
	Error     string  `json:"error"` // of an assistant message or a retry

	// control_request, control_cancel_request
	RequestID string  `json:"request_id"`
	Request   control `json:"request"`

	// system/api_retry
	RetryDelay  float64 `json:"retry_delay_ms"`
	ErrorStatus int     `json:"error_status"`

	// rate_limit_event
	RateLimit struct {
		Status   string `json:"status"`
		ResetsAt int64  `json:"resetsAt"` // seconds since 1970
		Kind     string `json:"rateLimitType"`
	} `json:"rate_limit_info"`

	// result
	IsError    bool                  `json:"is_error"`
	APIStatus  int                   `json:"api_error_status"`
	Result     string                `json:"result"`
	Structured json.RawMessage       `json:"structured_output"`
	Errors     []string              `json:"errors"`
	CostUSD    *float64              `json:"total_cost_usd"` // of this run so far, also if it resumed a session
	Usage      tokens                `json:"usage"`          // of the turn
	ModelUsage map[string]modelUsage `json:"modelUsage"`     // of the run so far
	Denials    []denial              `json:"permission_denials"`
	Reason     string                `json:"terminal_reason"`
}

type message struct {
	ID      string          `json:"id"`
	Model   string          `json:"model"`
	Content json.RawMessage `json:"content"` // a string or blocks
	Usage   tokens          `json:"usage"`
}

type block struct {
	Type    string          `json:"type"`
	Text    string          `json:"text"`
	ID      string          `json:"id"`
	Name    string          `json:"name"`
	Input   input           `json:"input"`
	CallID  string          `json:"tool_use_id"`
	Content json.RawMessage `json:"content"` // a string or blocks
	IsError bool            `json:"is_error"`
}

type input struct {
	Command     string `json:"command"`
	Path        string `json:"file_path"`
	Notebook    string `json:"notebook_path"`
	Folder      string `json:"path"`
	Pattern     string `json:"pattern"`
	URL         string `json:"url"`
	Query       string `json:"query"`
	Agent       string `json:"subagent_type"` // that is started
	Description string `json:"description"`
}

type denial struct {
	Tool   string `json:"tool_name"`
	CallID string `json:"tool_use_id"`
	Input  input  `json:"tool_input"`
}

// tokens are those of one message, or of the run; input excludes cached ones.
type tokens struct {
	Input      int64 `json:"input_tokens"`
	CacheRead  int64 `json:"cache_read_input_tokens"`
	CacheWrite int64 `json:"cache_creation_input_tokens"`
	Output     int64 `json:"output_tokens"`
}

type modelUsage struct {
	Input      int64 `json:"inputTokens"`
	Output     int64 `json:"outputTokens"`
	CacheRead  int64 `json:"cacheReadInputTokens"`
	CacheWrite int64 `json:"cacheCreationInputTokens"`
}

func (s *session) parse(raw []byte) []job.Event {
	var l line
	if !agentcli.Decode(raw, &l) || l.Type == "" {
		return []job.Event{agentcli.WithText(job.Event{Kind: job.EventLog}, string(raw))}
	}
	switch l.Type {
	case "system":
		return s.system(l)
	case "assistant":
		return nested(s.assistant(l), l.Parent)
	case "user":
		if l.Replay {
			s.replayed(l.UUID)
			return nil
		}
		return nested(s.results(l), l.Parent)
	case "control_request":
		s.controlled(l)
	case "control_cancel_request":
		s.withdrawn(l.RequestID)
	case "rate_limit_event":
		s.resetAt = time.Time{}
		if l.RateLimit.Status == "" || l.RateLimit.Status == "allowed" {
			return nil
		}
		if l.RateLimit.ResetsAt > 0 {
			s.resetAt = time.Unix(l.RateLimit.ResetsAt, 0).UTC()
		}
		return []job.Event{{Kind: job.EventWarning, Text: strings.TrimSpace("rate limit " + l.RateLimit.Status + " " + l.RateLimit.Kind)}}
	case "result":
		return s.result(l)
	}
	return nil
}

// nested says of events of nobody yet that they are a subagent's; "" says that they are not.
func nested(events []job.Event, call string) []job.Event {
	for i := range events {
		events[i].Parent = cmp.Or(events[i].Parent, call)
	}
	return events
}

func (s *session) system(l line) []job.Event {
	switch l.Subtype {
	case "init":
		events := s.RunsOn(Adapter{}.Package(), l.Version)
		s.turnBegins()
		if l.SessionID != "" && l.SessionID != s.id { // it is said again with each turn
			s.id = l.SessionID
			events = append(events, job.Event{Kind: job.EventSession, Session: l.SessionID})
		}
		return events
	case "api_retry":
		return s.retries(l)
	}
	return nil
}

// assistant tells what the model said. A message comes in several lines, one
// for each block, all with the same usage, whose output is a placeholder: its
// input is counted once, the rest with the result.
func (s *session) assistant(l line) []job.Event {
	var events []job.Event
	synthetic := l.Message.Model == "<synthetic>" // the program's own words
	if l.Error != "" {
		s.apiKind = l.Error
	}
	if !synthetic && l.Message.ID != s.counted[l.Parent] {
		s.counted[l.Parent] = l.Message.ID
		s.apiKind = ""
		events = append(events, job.Event{Kind: job.EventStep})
		if u := l.Message.Usage.usage(); u.InputTokens > 0 {
			u.OutputTokens = 0
			events = append(events, s.count(u))
		}
	}
	for _, b := range blocks(l.Message.Content) {
		switch b.Type {
		case "text":
			kind := job.EventText
			if l.Error != "" {
				kind = job.EventError
			} else if l.Parent == "" {
				s.answer, _ = job.Cut(b.Text, job.MaxEventText)
			}
			events = append(events, agentcli.WithText(job.Event{Kind: kind}, b.Text))
		case "tool_use":
			events = append(events, s.call(b)...)
		}
	}
	return events
}

func (s *session) call(b block) []job.Event {
	c := call{name: b.Name, command: b.Input.Command, path: b.Input.Path + b.Input.Notebook}
	s.calls[b.ID] = c
	switch c.name {
	case "Bash":
		return []job.Event{{Kind: job.EventCommand, CallID: b.ID, Command: c.command}}
	case "Edit", "Write", "NotebookEdit":
		return nil // told when it is done
	default:
		what := b.Input.Path + b.Input.Pattern + b.Input.URL + b.Input.Query
		if b.Input.Agent != "" {
			what = b.Input.Agent + ": " + b.Input.Description
		}
		return []job.Event{agentcli.WithText(job.Event{Kind: job.EventTool, CallID: b.ID, Tool: c.name}, what)}
	}
}

// results tells the ends of tool calls.
func (s *session) results(l line) []job.Event {
	var events []job.Event
	for _, b := range blocks(l.Message.Content) {
		c, ok := s.calls[b.CallID]
		if b.Type != "tool_result" || !ok {
			continue
		}
		delete(s.calls, b.CallID)
		delete(s.counted, b.CallID)
		text := texts(b.Content)
		switch {
		case c.name == "Bash":
			code := exitCode(b.IsError, text)
			events = append(events, agentcli.WithText(job.Event{Kind: job.EventCommand, CallID: b.CallID, Command: c.command, ExitCode: &code}, text))
		case b.IsError:
			code := 1
			events = append(events, agentcli.WithText(job.Event{Kind: job.EventTool, CallID: b.CallID, Tool: c.name, Path: s.Relative(c.path), ExitCode: &code}, text))
		case c.name == "Agent" || c.name == starter: // what a subagent says last is here alone; what follows is the program's
			if said := blocks(b.Content); len(said) > 0 {
				events = append(events, agentcli.WithText(job.Event{Kind: job.EventText, Parent: b.CallID}, said[0].Text))
			}
		case c.path != "" && (c.name == "Edit" || c.name == "Write" || c.name == "NotebookEdit"):
			change := "modified"
			if strings.HasPrefix(text, "File created") {
				change = "added"
			}
			events = append(events, job.Event{Kind: job.EventFile, CallID: b.CallID, Path: s.Relative(c.path), Change: change})
		}
	}
	return events
}

var exitLine = regexp.MustCompile(`^(?:Error: )?Exit code (\d{1,3})\b`)

// exitCode reads the code out of a command's result; -1 if it never ran.
func exitCode(failed bool, text string) int {
	if !failed {
		return 0
	}
	if m := exitLine.FindStringSubmatch(text); m != nil {
		if n, err := strconv.Atoi(m[1]); err == nil {
			return n
		}
	}
	return -1
}

// result keeps how a turn ended and tells what was not counted yet.
func (s *session) result(l line) []job.Event {
	s.end = &l
	var events []job.Event
	if what := s.denials(l.Denials); len(what) > 0 {
		events = append(events, agentcli.WithText(job.Event{Kind: job.EventWarning},
			"not allowed: "+strings.Join(what, ", ")))
	}
	s.turns = s.turns.Add(l.Usage.usage())
	total := s.turns
	var models job.Usage
	for _, m := range l.ModelUsage { // the helpers' tokens included; usage is empty when a budget ran out
		models = models.Add(tokens{m.Input, m.CacheRead, m.CacheWrite, m.Output}.usage())
	}
	if models.Tokens() > total.Tokens() {
		total = models
	}
	rest := job.Usage{
		InputTokens:      max(0, total.InputTokens-s.told.InputTokens),
		CachedTokens:     max(0, total.CachedTokens-s.told.CachedTokens),
		CacheWriteTokens: max(0, total.CacheWriteTokens-s.told.CacheWriteTokens),
		OutputTokens:     max(0, total.OutputTokens-s.told.OutputTokens),
	}
	if c := l.CostUSD; c != nil && *c >= 0 && (*c > 0 || total.Tokens() == 0) {
		s.cost = c
	}
	if rest != (job.Usage{}) {
		events = append(events, s.count(rest))
	}
	s.turnEnds(&l)
	return events
}

// denials names the calls that were denied and that are not named yet, e.g.
// "Bash(make deploy)". A question without an answer is none.
func (s *session) denials(all []denial) (calls []string) {
	for _, d := range all {
		if d.Tool == "AskUserQuestion" || s.named[d.CallID] || len(s.denied) >= maxDenied {
			continue
		}
		if d.CallID != "" {
			s.named[d.CallID] = true
		}
		arg, _ := job.Cut(d.Input.Command+d.Input.Path+d.Input.Notebook+d.Input.Folder+d.Input.URL, 200)
		calls = append(calls, d.Tool+"("+arg+")")
		s.denied = append(s.denied, calls[len(calls)-1])
	}
	return calls
}

// maxDenied is of how many calls it is remembered that they were denied.
const maxDenied = 1000

// count tells an increment. It has no cost: the program prints that once, for
// the whole run. Until then the table of prices stands in for it.
func (s *session) count(u job.Usage) job.Event {
	s.told = s.told.Add(u)
	return job.Event{Kind: job.EventUsage, Usage: &u}
}

func (t tokens) usage() job.Usage {
	return job.Usage{
		InputTokens: t.Input + t.CacheRead + t.CacheWrite, CachedTokens: t.CacheRead,
		CacheWriteTokens: t.CacheWrite, OutputTokens: t.Output,
	}
}

// blocks reads content that is a list of blocks; a plain string is one text.
func blocks(content json.RawMessage) []block {
	var text string
	if len(content) > 0 && content[0] == '"' && agentcli.Decode(content, &text) {
		return []block{{Type: "text", Text: text}}
	}
	var list []block
	if len(content) == 0 || !agentcli.Decode(content, &list) {
		return nil
	}
	return list
}

// texts joins the texts of a content.
func texts(content json.RawMessage) string {
	list := blocks(content)
	if len(list) == 1 {
		return list[0].Text
	}
	var b strings.Builder
	for _, part := range list {
		b.WriteString(part.Text)
	}
	return b.String()
}
