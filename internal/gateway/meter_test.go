package gateway

import (
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/job"
)

// The usage of each API as its documentation has it, streamed and whole.
var usages = []struct {
	name, path, request, kind, answer string
	want                              job.Usage
	estimated                         bool
}{
	{
		name: "responses, stream", path: "/v1/responses", request: `{"model":"m","stream":true,"input":"hi"}`, kind: events,
		answer: event(`{"type":"response.created","response":{"id":"r","usage":null}}`) +
			event(`{"type":"response.output_text.delta","delta":"usage {\"usage\":{\"input_tokens\":9}}"}`) +
			event(`{"type":"response.completed","response":{"id":"r","output":[{"usage":{"input_tokens":7}}],"usage":{"input_tokens":120,"input_tokens_details":{"cached_tokens":20},"output_tokens":30,"output_tokens_details":{"reasoning_tokens":10},"total_tokens":150}}}`),
		want: job.Usage{InputTokens: 120, CachedTokens: 20, OutputTokens: 30, ReasoningTokens: 10, CostUSD: 240e-6, CostKnown: true},
	},
	{
		name: "responses, incomplete", path: "/responses", request: `{"model":"m","stream":true,"input":"hi"}`, kind: events,
		answer: event(`{"type":"response.incomplete","response":{"usage":{"input_tokens":10,"output_tokens":5}}}`),
		want:   job.Usage{InputTokens: 10, OutputTokens: 5, CostUSD: 30e-6, CostKnown: true},
	},
	{
		name: "responses, whole", path: "/v1/responses", request: `{"model":"m","input":"hi"}`, kind: plainJSON,
		answer: `{"id":"r","output":[{"type":"message","usage":3}],"usage":{"input_tokens":120,"input_tokens_details":{"cached_tokens":20},"output_tokens":30}}`,
		want:   job.Usage{InputTokens: 120, CachedTokens: 20, OutputTokens: 30, CostUSD: 240e-6, CostKnown: true},
	},
	{
		name: "chat, stream", path: "/v1/chat/completions", request: `{"model":"m","stream":true,"messages":[]}`, kind: events,
		answer: event(`{"choices":[{"delta":{"content":"ok"}}],"usage":null}`) +
			event(`{"choices":[],"usage":{"prompt_tokens":120,"completion_tokens":30,"prompt_tokens_details":{"cached_tokens":20},"completion_tokens_details":{"reasoning_tokens":4}}}`) + "data: [DONE]\n\n",
		want: job.Usage{InputTokens: 120, CachedTokens: 20, OutputTokens: 30, ReasoningTokens: 4, CostUSD: 240e-6, CostKnown: true},
	},
	{
		name: "chat, whole", path: "/chat/completions", request: `{"model":"m","messages":[]}`, kind: plainJSON,
		answer: `{"choices":[{"message":{"content":"ok"}}],"usage":{"prompt_tokens":120,"completion_tokens":30}}`,
		want:   job.Usage{InputTokens: 120, OutputTokens: 30, CostUSD: 240e-6, CostKnown: true},
	},
	{
		name: "messages, stream", path: "/v1/messages?beta=true", request: `{"model":"m","stream":true,"max_tokens":100,"messages":[]}`, kind: events,
		answer: event(`{"type":"message_start","message":{"usage":{"input_tokens":100,"cache_creation_input_tokens":15,"cache_read_input_tokens":5,"cache_creation":{"ephemeral_5m_input_tokens":15},"output_tokens":1}}}`) +
			event(`{"type":"content_block_delta","delta":{"type":"text_delta","text":"ok"}}`) +
			event(`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":30}}`) + event(`{"type":"message_stop"}`),
		want: job.Usage{InputTokens: 120, CachedTokens: 5, CacheWriteTokens: 15, OutputTokens: 30, CostUSD: 240e-6, CostKnown: true},
	},
	{
		name: "messages, whole", path: "/v1/messages", request: `{"model":"m","max_tokens":100,"messages":[]}`, kind: plainJSON,
		answer: `{"type":"message","content":[{"type":"text","text":"ok"}],"usage":{"input_tokens":100,"cache_read_input_tokens":20,"output_tokens":30}}`,
		want:   job.Usage{InputTokens: 120, CachedTokens: 20, OutputTokens: 30, CostUSD: 240e-6, CostKnown: true},
	},
	{
		name: "no usage: eight bytes are two tokens of output, the request eleven of input", path: "/v1/chat/completions",
		request: `{"model":"m","messages":["twelve bytes"]}`, kind: plainJSON, answer: `{"a":"b"}`,
		want: job.Usage{InputTokens: 11, OutputTokens: 3, CostUSD: 23e-6, CostKnown: true}, estimated: true,
	},
	{
		name: "an error costs nothing", path: "/v1/messages/count_tokens", request: `{"model":"m","messages":[]}`, kind: plainJSON, answer: `{"input_tokens":100}`,
	},
}

func TestMetering(t *testing.T) {
	for _, c := range usages {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, says(c.kind, c.answer), nil)
			got := r.post(c.path, c.request)
			if got.status != http.StatusOK || got.body != c.answer {
				t.Fatalf("answered %d %q, want the provider's answer as it was", got.status, got.body)
			}
			u, estimated, last := r.total()
			if !near(u, c.want) || estimated != c.estimated || last == strings.Contains(c.path, "count") {
				t.Errorf("charged %+v (estimated: %v, last: %v), want %+v (%v)", u, estimated, last, c.want, c.estimated)
			}
			if tokens, usd := r.spent(); tokens != c.want.Tokens() || !near(job.Usage{CostUSD: usd}, job.Usage{CostUSD: c.want.CostUSD}) {
				t.Errorf("the job has spent %d tokens, the tenant %f US dollars; want %+v", tokens, usd, c.want)
			}
		})
	}
}

// near compares with a cost that is a sum of floats.
func near(a, b job.Usage) bool {
	d := a.CostUSD - b.CostUSD
	a.CostUSD, b.CostUSD = 0, 0
	return a == b && d < 1e-12 && d > -1e-12
}

// TestMeterInPieces: however a stream is cut into pieces, the same is metered.
func TestMeterInPieces(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, c := range usages {
		if c.kind != events {
			continue
		}
		for _, lines := range []string{c.answer, strings.ReplaceAll(c.answer, "\n", "\r\n")} {
			whole := newMeter(true, nil)
			whole.feed([]byte(lines))
			for range 200 {
				m, rest := newMeter(true, nil), []byte(lines)
				for len(rest) > 0 {
					n := 1 + random.IntN(min(len(rest), 1+random.IntN(40)))
					m.feed(rest[:n])
					rest = rest[n:]
				}
				if m.usage != whole.usage || m.final != whole.final || m.output() != whole.output() || m.usage.Tokens() != c.want.Tokens() {
					t.Fatalf("%s: metered %+v %d in pieces, %+v %d whole", c.name, m.usage, m.output(), whole.usage, whole.output())
				}
			}
		}
	}
}

// TestDeltaText: what an answer that is cut is charged for is the text of its deltas alone.
func TestDeltaText(t *testing.T) {
	for stream, want := range map[string]int64{
		event(`{"type":"response.output_text.delta","delta":"12345678"}`) + event(`{"type":"response.output_text.done","text":"12345678"}`): 2,
		event(`{"choices":[{"delta":{"content":"1234","tool_calls":[{"function":{"arguments":"56789"}}]}}]}`):                               3,
		event(`{"type":"content_block_delta","delta":{"text":"12\n45\"7"}}`):                                                                3,
		event(`{"type":"ping"}`): 0,
	} {
		m := newMeter(true, nil)
		m.feed([]byte(stream))
		if m.output() != want {
			t.Errorf("%d tokens in %q, want %d", m.output(), stream, want)
		}
	}
}

func TestMeterAllocatesNothing(t *testing.T) {
	m := newMeter(true, nil)
	piece := []byte(event(`{"type":"response.output_text.delta","item_id":"msg_1","output_index":0,"content_index":0,"delta":"some words of text","obfuscation":"xyz"}`))
	if n := testing.AllocsPerRun(1000, func() { m.feed(piece) }); n != 0 {
		t.Errorf("%v allocations an event, want 0", n)
	}
}

// FuzzMeter: whatever a provider sends, nothing of it grows or fails.
func FuzzMeter(f *testing.F) {
	for _, c := range usages {
		f.Add(c.answer, c.kind == events)
	}
	f.Add(`data: {"usage":{"input_tokens":1e99,"output_tokens":-5}}`+"\n\n", true)
	f.Fuzz(func(t *testing.T, text string, events bool) {
		m := newMeter(events, nil)
		m.feed([]byte(text))
		if cap(m.finder.raw) > 2*maxUsage || m.usage.InputTokens < 0 || m.usage.OutputTokens < 0 || m.usage.CachedTokens > m.usage.InputTokens {
			t.Errorf("%d bytes held, usage %+v", cap(m.finder.raw), m.usage)
		}
	})
}
