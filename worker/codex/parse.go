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
	home home

	thread    string
	answer    string
	before    counted // by an earlier process
	counted   tokens  // of the thread, reported so far
	working   bool    // a turn was started
	completed bool    // the stream's own terminal event said success
	failure   string  // what the last failure said
	sandbox   bool    // its sandbox could not be set up
	ran       bool    // a command ran nevertheless
	lastOdd   string  // the last warning, which Codex likes to repeat
	answers   answers
}

func newSession(t *worker.Task, h home) *session {
	return &session{Run: agentcli.NewRun(t, "thread", h.hasSession), home: h, before: h.loadCounted()}
}

// Step reads what the program prints. Nothing is said to it: it ends at once and
// cleanly on SIGINT.
func (s *session) Step(now time.Time, in worker.Input) []worker.Action {
	return s.Read(now, in, s.parse, s.errorLine, s.result)
}

// Close keeps what was counted for the thread's next process.
func (s *session) Close() error {
	if s.thread != "" {
		s.home.saveCounted(s.thread, s.counted)
	}
	return nil
}

// line is what Codex prints, one JSON object a line.
type line struct {
	Type     string  `json:"type"`
	ThreadID string  `json:"thread_id"`
	Message  string  `json:"message"`
	Item     item    `json:"item"`
	Usage    *tokens `json:"usage"`
	Error    struct {
		Message string `json:"message"`
	} `json:"error"`
}

type item struct {
	ID      string `json:"id"`
	Type    string `json:"type"`
	Text    string `json:"text"`
	Message string `json:"message"`
	Status  string `json:"status"`

	Command  string `json:"command"`
	Output   string `json:"aggregated_output"`
	ExitCode *int   `json:"exit_code"`

	Changes []struct {
		Path string `json:"path"`
		Kind string `json:"kind"`
	} `json:"changes"`

	Server string `json:"server"`
	Tool   string `json:"tool"`
	Query  string `json:"query"`
}

// tokens counts a thread from its start, cached input included in the input.
type tokens struct {
	Input      int64 `json:"input_tokens"`
	Cached     int64 `json:"cached_input_tokens"`
	CacheWrite int64 `json:"cache_write_input_tokens"`
	Output     int64 `json:"output_tokens"`
	Reasoning  int64 `json:"reasoning_output_tokens"`
}

func (s *session) parse(raw []byte) []job.Event {
	var l line
	if !agentcli.Decode(raw, &l) || l.Type == "" {
		return []job.Event{agentcli.WithText(job.Event{Kind: job.EventLog}, string(raw))}
	}
	switch l.Type {
	case "thread.started":
		s.thread = l.ThreadID
		if s.thread == "" {
			return nil
		}
		s.counted = tokens{}
		if s.before.Thread == s.thread {
			s.counted = s.before.Usage
		}
		return []job.Event{{Kind: job.EventSession, Session: s.thread}}
	case "turn.started":
		s.working = true
	case "turn.completed":
		s.completed, s.failure = true, ""
		return s.usage(l.Usage)
	case "turn.failed":
		return s.failed(l.Error.Message)
	case "error":
		if isRetry(l.Message) {
			return []job.Event{agentcli.WithText(job.Event{Kind: job.EventRetry}, l.Message)}
		}
		return s.failed(l.Message)
	case "item.started":
		return s.started(l.Item)
	case "item.completed":
		return s.ended(l.Item)
	}
	return nil
}

// failed keeps what ended the turn and tells it once: Codex prints it both as
// error and as turn.failed.
func (s *session) failed(message string) []job.Event {
	if message == "" {
		message = "codex reported a failure without a message"
	}
	known := s.failure == message
	s.completed, s.failure = false, message
	if known {
		return nil
	}
	return []job.Event{agentcli.WithText(job.Event{Kind: job.EventError}, message)}
}

// usage returns what the thread used since the last report.
func (s *session) usage(total *tokens) []job.Event {
	if total == nil {
		return nil
	}
	was := s.counted
	if total.Input < was.Input || total.Output < was.Output {
		was = tokens{} // not a running total after all
	}
	s.counted = *total
	u := job.Usage{
		InputTokens: total.Input - was.Input, CachedTokens: total.Cached - was.Cached,
		CacheWriteTokens: total.CacheWrite - was.CacheWrite, OutputTokens: total.Output - was.Output,
		ReasoningTokens: total.Reasoning - was.Reasoning,
	}
	return []job.Event{{Kind: job.EventUsage, Usage: &u}}
}

func (s *session) started(i item) []job.Event {
	if i.Type == "command_execution" {
		return []job.Event{{Kind: job.EventCommand, CallID: i.ID, Command: i.Command}}
	}
	return nil
}

// ended tells a finished item. Codex does not show the turns of its loop: each
// thing that it does or says counts as a step.
func (s *session) ended(i item) []job.Event {
	step := job.Event{Kind: job.EventStep}
	switch i.Type {
	case "agent_message":
		s.answer, _ = job.Cut(i.Text, job.MaxEventText)
		return []job.Event{agentcli.WithText(job.Event{Kind: job.EventText}, i.Text), step}
	case "command_execution":
		code := -1
		if i.ExitCode != nil {
			code = *i.ExitCode
		}
		e := agentcli.WithText(job.Event{Kind: job.EventCommand, CallID: i.ID, Command: i.Command, ExitCode: &code}, i.Output)
		if sandboxBroken(code, i.Output) {
			s.sandbox = true
		} else {
			s.ran = true
		}
		return []job.Event{e, step}
	case "file_change":
		if i.Status != "completed" {
			return []job.Event{{Kind: job.EventTool, Tool: i.Type, CallID: i.ID, Text: i.Status}, step}
		}
		var events []job.Event
		for _, c := range i.Changes {
			events = append(events, job.Event{Kind: job.EventFile, CallID: i.ID, Path: s.Relative(c.Path), Change: changeOf(c.Kind)})
		}
		return append(events, step)
	case "error":
		if i.Message == s.lastOdd {
			return nil
		}
		s.lastOdd = i.Message
		return []job.Event{agentcli.WithText(job.Event{Kind: job.EventWarning}, i.Message)}
	case "reasoning", "todo_list":
		return nil
	case "mcp_tool_call":
		return []job.Event{{Kind: job.EventTool, CallID: i.ID, Tool: strings.Trim(i.Server+"."+i.Tool, "."), Text: i.Status}, step}
	case "":
		return nil
	default:
		return []job.Event{agentcli.WithText(job.Event{Kind: job.EventTool, CallID: i.ID, Tool: i.Type}, i.Query), step}
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

// isRetry reports whether an error message says that Codex tries again by itself.
func isRetry(message string) bool { return strings.HasPrefix(message, "Reconnecting...") }

// sandboxBroken recognises the messages of the sandbox helper itself, which
// stand in place of the command's own output.
func sandboxBroken(code int, output string) bool {
	return code != 0 && (strings.HasPrefix(output, "bwrap: ") || strings.Contains(output, "LandlockRestrict") ||
		strings.HasPrefix(output, "codex-linux-sandbox"))
}
