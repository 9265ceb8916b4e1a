package exec

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// run is one task given to one program.
type run struct {
	command worker.Command
	dir     string
	schema  bool // the answer must satisfy one
	streams bool // the program is the worker of a stream

	warned   map[string]bool   // what was warned of once; at most maxRemembered
	open     map[string]string // id to text of commands that run; at most maxRemembered
	lastText string
	verdict  *result // the one that counts; nil until there is one
	spoiled  string  // why no result of this program can be a success

	asked *string // why the program was asked to stop and go on later; nil: it was not
	talk  talk
}

// maxRemembered bounds what a program can make us keep by inventing ids and types.
const maxRemembered = 1000

func (r *run) Command() worker.Command { return r.command }

// Step reads what the program prints and tells it what it is to know.
func (r *run) Step(_ time.Time, in worker.Input) []worker.Action {
	switch in := in.(type) {
	case worker.Output:
		return r.line(in.Line)
	case worker.ErrorOutput:
		return worker.Log(in.Line)
	case worker.StreamLines:
		return []worker.Action{worker.Write{Data: in.Lines}}
	case worker.Stored:
		return stored(in.KeptStep)
	case worker.Checkpoint:
		r.asked = &in.Reason
		return say(Checkpoint{Type: "checkpoint", Reason: in.Reason})
	case worker.Cancel:
		r.talk.over = "the run is being stopped"
		return say(Cancel{Type: "cancel", Reason: "the scheduler stops this run"})
	case worker.Message:
		return r.tell(in)
	case worker.Interrupt:
		return r.interrupt(in)
	case worker.Answer:
		return r.answered(in)
	case worker.Ended:
		return []worker.Action{worker.Finish{Result: r.outcome(in.Exit)}}
	}
	return nil
}

// line reads one line of the program.
func (r *run) line(line []byte) []worker.Action {
	if len(line) > MaxLine {
		return worker.Events(r.warn("line", "a line of %d bytes was ignored, at most %d are read", len(line), MaxLine)...)
	}
	text := bytes.TrimSpace(line)
	if len(text) == 0 {
		return nil
	}
	var head struct {
		Type string `json:"type"`
	}
	if text[0] != '{' || json.Unmarshal(text, &head) != nil || head.Type == "" {
		return worker.Events(plain(job.EventLog, string(text)))
	}
	if r.streams && ofStream(head.Type) {
		return append(r.meet(nil), worker.Forward{Line: line})
	}
	actions, err := r.message(head.Type, text)
	if err != nil {
		if head.Type == typeResult {
			r.spoil("its result could not be read: %v", err)
		}
		actions = worker.Events(r.warn("malformed "+head.Type, "a %s line was ignored: %v", shown(head.Type), err)...)
	}
	return append(actions, r.meet(nil)...)
}

func (r *run) message(kind string, line []byte) ([]worker.Action, error) {
	switch kind {
	case typeHello:
		return decode(line, r.hello)
	case typeQuestion:
		return decode(line, r.question)
	case typeWithdraw:
		return decode(line, r.withdraw)
	case typeSettle:
		return decode(line, r.settle)
	case typeStep:
		return decode(line, r.step)
	}
	events, err := r.event(kind, line)
	return worker.Events(events...), err
}

// event reads a line that only says what happened.
func (r *run) event(kind string, line []byte) ([]job.Event, error) {
	switch kind {
	case typeSession:
		return decode(line, func(m session) []job.Event {
			if m.Session == "" {
				return nil
			}
			return one(job.Event{Kind: job.EventSession, Session: m.Session})
		})
	case typeText:
		return decode(line, func(m text) []job.Event {
			r.lastText, _ = job.Cut(m.Text, job.MaxEventText)
			return one(plain(job.EventText, m.Text))
		})
	case typeCommand:
		return decode(line, r.toolCommand)
	case typeFile:
		return decode(line, r.file)
	case typeUsage:
		return decode(line, r.usage)
	case typeLog:
		return decode(line, func(m text) []job.Event { return one(plain(job.EventLog, m.Text)) })
	case typeWarning:
		return decode(line, func(m text) []job.Event { return one(plain(job.EventWarning, m.Text)) })
	case typeResult:
		return decode(line, r.result)
	default:
		return r.warn("unknown "+kind, "lines of the unknown type %s are ignored", shown(kind)), nil
	}
}

func decode[M, R any](line []byte, then func(M) []R) ([]R, error) {
	var m M
	if err := json.Unmarshal(line, &m); err != nil {
		return nil, err
	}
	return then(m), nil
}

func (r *run) hello(m hello) []worker.Action {
	if m.Protocol != Protocol {
		r.spoil("it speaks version %d of the worker protocol, not %d", m.Protocol, Protocol)
	}
	actions := worker.Events(plain(job.EventLog, strings.TrimSpace("worker "+m.Name+" "+m.Version)))
	return append(actions, r.meet(m.Converses)...)
}

func (r *run) toolCommand(m command) []job.Event {
	e := plain(job.EventCommand, m.Output)
	e.CallID, e.Command, e.Millis = m.ID, m.Command, max(m.Millis, 0)
	switch m.Phase {
	case "start":
		if len(r.open) < maxRemembered {
			r.open[m.ID], _ = job.Cut(m.Command, 1<<10)
		}
	case "end":
		e.Command = cmp.Or(m.Command, r.open[m.ID])
		delete(r.open, m.ID)
		unknown := -1
		e.ExitCode = cmp.Or(m.ExitCode, &unknown)
	default:
		return r.warn("phase", "a command line was ignored: phase %s, want start or end", shown(m.Phase))
	}
	return one(e)
}

func (r *run) file(m file) []job.Event {
	if m.Path == "" {
		return r.warn("path", "a file line was ignored: it has no path")
	}
	if filepath.IsAbs(m.Path) {
		if rel, err := filepath.Rel(r.dir, m.Path); err == nil && filepath.IsLocal(rel) {
			m.Path = rel
		}
	}
	if !slices.Contains([]string{"added", "modified", "deleted", "renamed"}, m.Change) {
		m.Change = "modified"
	}
	return one(job.Event{Kind: job.EventFile, Path: m.Path, Change: m.Change})
}

// The most that one increment can be: far above any real one, far below what
// makes a sum overflow.
const (
	maxTokens  = 1_000_000_000
	maxCostUSD = 10_000
)

func (r *run) usage(m usage) []job.Event {
	for _, n := range []int64{m.InputTokens, m.CachedTokens, m.CacheWriteTokens, m.OutputTokens, m.ReasoningTokens} {
		if n < 0 || n > maxTokens {
			return r.warn("tokens", "a usage line was ignored: %d tokens, want an increment of 0 to %d", n, maxTokens)
		}
	}
	u := job.Usage{
		InputTokens: m.InputTokens, CachedTokens: m.CachedTokens, CacheWriteTokens: m.CacheWriteTokens,
		OutputTokens: m.OutputTokens, ReasoningTokens: m.ReasoningTokens,
	}
	if m.CostUSD != nil {
		if *m.CostUSD < 0 || *m.CostUSD > maxCostUSD {
			return r.warn("cost", "a usage line was ignored: cost_usd %g, want an increment of 0 to %d", *m.CostUSD, maxCostUSD)
		}
		u.CostUSD, u.CostKnown = *m.CostUSD, true
	}
	var events []job.Event
	if parts := u.CachedTokens + u.CacheWriteTokens; parts > u.InputTokens {
		events = r.warn("parts", "a usage line has %d input tokens but %d of them cached; the larger number counts", u.InputTokens, parts)
		u.InputTokens = parts
	}
	if u.ReasoningTokens > u.OutputTokens {
		events = append(events, r.warn("reasoning", "a usage line has %d output tokens but %d of them reasoning; the larger number counts", u.OutputTokens, u.ReasoningTokens)...)
		u.OutputTokens = u.ReasoningTokens
	}
	return append(events, job.Event{Kind: job.EventUsage, Usage: &u})
}

// warn returns a warning the first time that it is called with this key.
func (r *run) warn(key, format string, args ...any) []job.Event {
	if r.warned[key] || len(r.warned) >= maxRemembered {
		return nil
	}
	r.warned[key] = true
	return one(plain(job.EventWarning, fmt.Sprintf(format, args...)))
}

// spoil notes the first reason why the run is a failure whatever its result says.
func (r *run) spoil(format string, args ...any) {
	if r.spoiled == "" {
		r.spoiled = fmt.Sprintf(format, args...)
	}
}

// plain returns an event with text that fits.
func plain(kind job.EventKind, text string) job.Event {
	text, cut := job.Cut(text, job.MaxEventText)
	// A byte that is no UTF-8 becomes a longer mark, hence the second cut.
	text, more := job.Cut(strings.ToValidUTF8(text, "\uFFFD"), job.MaxEventText)
	return job.Event{Kind: kind, Text: text, Truncated: cut + more}
}

func one(e job.Event) []job.Event { return []job.Event{e} }

// shown returns a foreign word as a message quotes it.
func shown(word string) string {
	word, _ = job.Cut(word, 100)
	return fmt.Sprintf("%q", word)
}
