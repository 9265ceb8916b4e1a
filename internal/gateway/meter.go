package gateway

import (
	"bytes"
	"encoding/json"

	"github.com/agentsched/agentsched/job"
)

// meter reads what an answer has used while it passes.
type meter struct {
	finder finder
	events bool // the answer is a stream of server-sent events
	line   int  // how much of "data:" the line has; field and skipped beyond

	usage    job.Usage // what was said last
	hour     int64     // of CacheWriteTokens: those that are kept for an hour
	final    bool      // usage is that of the whole answer
	received int64     // bytes of a body that is no stream
	changed  func()    // the usage has become more; may be nil
}

const (
	field   = len("data:")
	skipped = -1
)

func newMeter(events bool, changed func()) *meter {
	m := &meter{events: events, changed: changed}
	m.finder.found = m.found
	return m
}

// feed takes the next bytes of the answer. It allocates nothing but for a usage.
func (m *meter) feed(p []byte) {
	if !m.events {
		m.received += int64(len(p))
		m.finder.feed(p)
		return
	}
	// https://html.spec.whatwg.org/multipage/server-sent-events.html: the lines that begin with "data:", up to an empty line,
	// are one event.
	for len(p) > 0 {
		end := bytes.IndexByte(p, '\n')
		ended := end >= 0
		if !ended {
			end = len(p)
		}
		piece := p[:end]
		for m.line >= 0 && m.line < field && len(piece) > 0 {
			switch {
			case piece[0] == "data:"[m.line]:
				m.line++
			case piece[0] == '\r' && m.line == 0: // the end of an empty line
			default:
				m.line = skipped
			}
			piece = piece[1:]
		}
		if m.line == field {
			m.finder.feed(piece)
		}
		if !ended {
			return
		}
		if m.line == 0 {
			m.finder.reset()
		}
		m.line = 0
		p = p[end+1:]
	}
}

// output estimates the tokens of output of an answer that was cut: four bytes are one token, rounded up.
func (m *meter) output() int64 {
	if m.events {
		return (m.finder.text + 3) / 4
	}
	return (m.received + 3) / 4
}

// usageJSON is a usage in the words of all three APIs. A pointer tells what was left out from zero.
type usageJSON struct {
	Input      *int64 `json:"input_tokens"`
	Output     *int64 `json:"output_tokens"`
	CacheRead  *int64 `json:"cache_read_input_tokens"`     // Messages: beside input_tokens
	CacheWrite *int64 `json:"cache_creation_input_tokens"` // Messages: beside input_tokens
	CacheParts struct {
		Hour int64 `json:"ephemeral_1h_input_tokens"`
	} `json:"cache_creation"` // Messages: of what is written
	InputParts  parts  `json:"input_tokens_details"` // Responses: within input_tokens
	OutputParts parts  `json:"output_tokens_details"`
	Prompt      *int64 `json:"prompt_tokens"` // chat completions
	Completion  *int64 `json:"completion_tokens"`
	PromptParts parts  `json:"prompt_tokens_details"`
	DoneParts   parts  `json:"completion_tokens_details"`
}

type parts struct {
	Cached    int64 `json:"cached_tokens"`
	Reasoning int64 `json:"reasoning_tokens"`
}

func (m *meter) found(raw []byte, started bool) {
	var u usageJSON
	if json.Unmarshal(raw, &u) != nil {
		return
	}
	switch {
	case u.Prompt != nil || u.Completion != nil:
		m.usage.InputTokens, m.usage.CachedTokens = count(u.Prompt, 0), sane(u.PromptParts.Cached)
		m.usage.OutputTokens, m.usage.ReasoningTokens = count(u.Completion, 0), sane(u.DoneParts.Reasoning)
	case u.Input != nil || u.Output != nil:
		m.tokens(&u)
	default:
		return
	}
	m.usage.CachedTokens = min(m.usage.CachedTokens, m.usage.InputTokens)
	m.usage.ReasoningTokens = min(m.usage.ReasoningTokens, m.usage.OutputTokens)
	m.final = m.final || !started
	if m.changed != nil {
		m.changed()
	}
}

// tokens takes the usage of Responses and Messages. The latter says its input at the start and need not say it again.
func (m *meter) tokens(u *usageJSON) {
	read := count(u.CacheRead, 0)
	write := count(u.CacheWrite, 0)
	plain := m.usage.InputTokens - m.usage.CachedTokens - m.usage.CacheWriteTokens
	if u.CacheRead == nil {
		read = m.usage.CachedTokens
	}
	if u.CacheWrite == nil {
		write = m.usage.CacheWriteTokens
	}
	m.usage.InputTokens = count(u.Input, plain) + read + write
	m.usage.CachedTokens, m.usage.CacheWriteTokens = read, write
	if u.CacheWrite != nil {
		m.hour = min(sane(u.CacheParts.Hour), write)
	}
	if cached := sane(u.InputParts.Cached); cached > 0 {
		m.usage.InputTokens -= read
		m.usage.CachedTokens = cached
	}
	m.usage.OutputTokens = count(u.Output, m.usage.OutputTokens)
	m.usage.ReasoningTokens = sane(u.OutputParts.Reasoning)
}

func count(n *int64, otherwise int64) int64 {
	if n == nil {
		return otherwise
	}
	return sane(*n)
}

// sane cuts a figure to what one answer can be, so that no sum overflows.
func sane(n int64) int64 { return min(max(n, 0), 1<<40) }
