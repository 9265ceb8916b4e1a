package codex

import (
	"strings"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/agentcli"
)

// session is one run of codex.
type session struct {
	agentcli.Run
	talk
	asks bool // the program asks about each command

	answer    string
	used      map[string]*usage    // by thread: subagents have their own
	held      map[string]job.Event // commands that wait to be allowed, by their item
	denied    []string
	completed bool   // the last turn's own end said success
	failure   string // what the last failure said
	sandbox   bool   // its sandbox could not be set up
	ran       bool   // a command ran nevertheless
	lastOdd   string // the last warning, which Codex likes to repeat
	answers   answers
}

const (
	maxThreads = 1000 // of which the usage is counted
	maxItems   = 1000 // that are remembered while they run
	maxDenied  = 1000
)

// usage is what was counted of a thread.
type usage struct {
	turn    string // the last that began in this process
	known   bool
	counted tokens
}

func newSession(t *worker.Task, g grant, recorded func(thread string) bool) *session {
	s := &session{Run: agentcli.NewRun(t, "thread", recorded), asks: g.asks,
		used: map[string]*usage{}, held: map[string]job.Event{},
		talk: talk{calls: map[int64]string{}, changes: map[string][]change{}}}
	p := threadParams{ThreadID: s.Resume, ExcludeTurns: s.Resume != "", Dir: t.Dir, Approval: g.approval(), Sandbox: g.sandbox, Model: agentcli.Model(t)}
	method := "thread/start"
	switch {
	case s.Resume != "" && t.Fork:
		method = "thread/fork"
	case s.Resume != "":
		method = "thread/resume"
	}
	s.opening = opening{thread: request{Method: method, Params: p}, text: t.Instructions, schema: t.Output}
	return s
}

// Step reads what the program prints, and tells it what others have for it.
func (s *session) Step(now time.Time, in worker.Input) []worker.Action {
	s.hear(in)
	actions := append(s.Read(now, in, s.parse, s.errorLine, s.result), s.todo...)
	s.todo = nil
	return actions
}

// parse reads a line; its actions are todo.
func (s *session) parse(raw []byte) []job.Event {
	var l line
	switch {
	case !agentcli.Decode(raw, &l) || l.Method == "" && l.ID == nil:
		return []job.Event{agentcli.WithText(job.Event{Kind: job.EventLog}, string(raw))}
	case l.Method == "":
		s.response(&l)
	case l.ID != nil:
		s.ask(&l)
	default:
		s.notice(l.Method, &l.Params)
	}
	return nil
}

// notice reads a notification.
func (s *session) notice(method string, p *params) {
	main := s.thread == "" || p.ThreadID == s.thread
	switch method {
	case "turn/started":
		if u := s.usageOf(p.ThreadID); u != nil {
			u.turn = p.Turn.ID
		}
		if main {
			s.turn, s.begun, s.starting = p.Turn.ID, true, false
		}
	case "turn/completed":
		if main {
			s.turnEnds(p.Turn)
		}
	case "error":
		switch {
		case p.WillRetry:
			s.emit(agentcli.WithText(job.Event{Kind: job.EventRetry}, p.Error.Message))
		case main:
			s.failed(p.Error.Message)
		default:
			s.odd(p.Error.Message)
		}
	case "thread/tokenUsage/updated":
		s.count(p)
	case "item/started":
		s.started(p.Item)
	case "item/commandExecution/outputDelta":
		s.run(p.ItemID)
	case "item/completed":
		s.finished(p.Item, main)
	case "serverRequest/resolved":
		s.resolved(p.RequestID)
	case "warning", "guardianWarning":
		s.odd(p.Message)
	case "deprecationNotice":
		s.odd(p.Summary)
	case "configWarning":
		s.odd(strings.TrimSuffix(p.Summary+"\n"+p.Details, "\n"))
		if strings.HasPrefix(p.Summary, "Invalid configuration") && s.thread == "" {
			// It would go on with its defaults: another provider, another key.
			s.Decide(worker.Result{Class: job.Config, Message: "codex cannot read its configuration: " + p.Details,
				Hint: "repair the user's config.toml of codex, of which the settings of the model are taken over"})
		}
	}
}

// failed keeps what ended the turn and tells it once: Codex says it both as an error and at the
// turn's end.
func (s *session) failed(message string) {
	if message == "" {
		message = "codex reported a failure without a message"
	}
	known := s.failure == message
	s.completed, s.failure = false, message
	if !known {
		s.emit(agentcli.WithText(job.Event{Kind: job.EventError}, message))
	}
}

func (s *session) odd(message string) {
	if message == "" || message == s.lastOdd {
		return
	}
	s.lastOdd = message
	s.emit(agentcli.WithText(job.Event{Kind: job.EventWarning}, message))
}

func (s *session) usageOf(thread string) *usage {
	u := s.used[thread]
	if u == nil && len(s.used) < maxThreads {
		u = &usage{}
		s.used[thread] = u
	}
	return u
}

// count reports what a thread used since the last report. The first one may be of an earlier
// process, which Codex repeats when it resumes a thread; and a thread that was copied begins
// with what its original used.
func (s *session) count(p *params) {
	total, u := p.Usage.Total, s.usageOf(p.ThreadID)
	if total == nil || u == nil {
		return
	}
	before := u.counted
	switch {
	case !u.known && (u.turn == "" || p.TurnID != u.turn):
		before = *total
	case !u.known:
		before = total.less(p.Usage.Last)
	case total.Input < before.Input || total.Output < before.Output:
		before = tokens{} // not a running total after all
	}
	u.known, u.counted = true, *total
	d := total.less(before)
	if d == (tokens{}) {
		return
	}
	s.emit(job.Event{Kind: job.EventUsage, Usage: &job.Usage{InputTokens: d.Input, CachedTokens: d.Cached,
		CacheWriteTokens: d.CacheWrite, OutputTokens: d.Output, ReasoningTokens: d.Reasoning}})
}

// less returns what t has more than o.
func (t tokens) less(o tokens) tokens {
	return tokens{max(0, t.Input-o.Input), max(0, t.Cached-o.Cached), max(0, t.CacheWrite-o.CacheWrite),
		max(0, t.Output-o.Output), max(0, t.Reasoning-o.Reasoning)}
}

// started tells of a command. One that is asked about has no process yet: it is told when it was
// allowed, since how long a person thinks is no time of the command.
func (s *session) started(i item) {
	switch i.Type {
	case "commandExecution":
		e := job.Event{Kind: job.EventCommand, CallID: i.ID, Command: i.Command}
		if s.asks && i.ProcessID == nil && len(s.held) < maxItems {
			s.held[i.ID] = e
			return
		}
		s.emit(e)
	case "fileChange":
		if len(s.changes) < maxItems {
			s.changes[i.ID] = i.Changes
		}
	}
}

// run tells of a command that was held back.
func (s *session) run(id string) {
	if e, ok := s.held[id]; ok {
		delete(s.held, id)
		s.emit(e)
	}
}

// finished tells a finished item. Codex does not show the turns of its loop: each thing that it
// does or says counts as a step. What a subagent says it says to the agent.
func (s *session) finished(i item, main bool) {
	step := job.Event{Kind: job.EventStep}
	switch i.Type {
	case "userMessage":
		s.folded(i.ClientID)
	case "agentMessage":
		if main {
			s.answer, _ = job.Cut(i.Text, job.MaxEventText)
			s.emit(agentcli.WithText(job.Event{Kind: job.EventText}, i.Text), step)
		}
	case "commandExecution":
		if i.Status == "declined" {
			delete(s.held, i.ID)
			s.deny(i.Type, i.Command)
			return
		}
		s.run(i.ID)
		code := -1
		if i.ExitCode != nil {
			code = *i.ExitCode
		}
		if sandboxBroken(code, i.Output) {
			s.sandbox = true
		} else {
			s.ran = true
		}
		s.emit(agentcli.WithText(job.Event{Kind: job.EventCommand, CallID: i.ID, Command: i.Command, ExitCode: &code}, i.Output), step)
	case "fileChange":
		delete(s.changes, i.ID)
		switch i.Status {
		case "completed":
			for _, c := range i.Changes {
				s.emit(job.Event{Kind: job.EventFile, CallID: i.ID, Path: s.Relative(c.Path), Change: changeOf(c.Kind.Type)})
			}
			s.emit(step)
		case "declined":
			var paths []string
			for _, c := range i.Changes {
				paths = append(paths, s.Relative(c.Path))
			}
			s.deny(i.Type, strings.Join(paths, ", "))
		default:
			s.emit(agentcli.WithText(job.Event{Kind: job.EventTool, Tool: i.Type, CallID: i.ID}, i.Status), step)
		}
	case "", "reasoning", "plan", "hookPrompt", "contextCompaction", "functionCallOutput", "enteredReviewMode", "exitedReviewMode":
	case "mcpToolCall":
		s.emit(agentcli.WithText(job.Event{Kind: job.EventTool, CallID: i.ID, Tool: strings.Trim(i.Server+"."+i.Tool, ".")}, i.Status), step)
	default:
		s.emit(agentcli.WithText(job.Event{Kind: job.EventTool, CallID: i.ID, Tool: i.Type}, i.Query), step)
	}
}

// deny notes a call that was refused.
func (s *session) deny(tool, about string) {
	call, _ := job.Cut(tool+"("+about, agentcli.MaxMessage)
	call += ")"
	s.emit(agentcli.WithText(job.Event{Kind: job.EventWarning}, "not allowed: "+call), job.Event{Kind: job.EventStep})
	if len(s.denied) < maxDenied {
		s.denied = append(s.denied, call)
	}
}

func changeOf(kind string) string {
	switch kind {
	case "add":
		return "added"
	case "delete":
		return "deleted"
	default:
		return "modified"
	}
}

// sandboxBroken recognises the messages of the sandbox helper itself, which
// stand in place of the command's own output.
func sandboxBroken(code int, output string) bool {
	return code != 0 && (strings.HasPrefix(output, "bwrap: ") || strings.Contains(output, "LandlockRestrict") ||
		strings.HasPrefix(output, "codex-linux-sandbox"))
}
