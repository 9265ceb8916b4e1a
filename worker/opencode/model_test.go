package opencode

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// model is a scripted model that speaks OpenAI's chat completions, on loopback. Turn n is the answer to a conversation in
// which the model has spoken n times.
type model struct {
	*httptest.Server
	turns []turn // of the agent
	sub   []turn // of a subagent, whose prompt begins with "SUB"

	mu    sync.Mutex
	heard []string // the whole last messages of the requests
}

// turn is what the model answers: calls, a text, or a status.
type turn struct {
	text       string
	calls      []toolCall
	status     int
	retryAfter string
	broken     string // what the stream ends with instead of its end
}

// cut is the broken end that is none.
const cut = "cut"

type toolCall struct {
	tool string
	args map[string]any
}

func say(text string) turn { return turn{text: text} }

func bash(command string) turn {
	return turn{calls: []toolCall{{"bash", map[string]any{"command": command, "description": "d"}}}}
}

func newModel(t *testing.T, turns, sub []turn) *model {
	m := &model{turns: turns, sub: sub}
	m.Server = httptest.NewServer(m)
	t.Cleanup(m.Close)
	return m
}

func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var q struct {
		Messages []struct {
			Role    string
			Content any
		}
		Tools []json.RawMessage
	}
	if err != nil || json.Unmarshal(body, &q) != nil {
		http.Error(w, "no request", http.StatusBadRequest)
		return
	}
	turns, n, user := m.turns, 0, ""
	for _, one := range q.Messages {
		switch text := fmt.Sprint(one.Content); one.Role {
		case "assistant":
			n++
		case "user":
			if user == "" && (strings.HasPrefix(text, "SUB") || strings.Contains(text, "text:SUB")) {
				turns = m.sub
			}
			user = text
		}
	}
	m.mu.Lock()
	m.heard = append(m.heard, fmt.Sprint(q.Messages[len(q.Messages)-1].Content))
	m.mu.Unlock()
	answer := say("title")
	if len(q.Tools) > 0 {
		answer = turns[min(n, len(turns)-1)]
	}
	answer.write(w, n)
}

func (a turn) write(w http.ResponseWriter, n int) {
	if a.status != 0 {
		if a.retryAfter != "" {
			w.Header().Set("Retry-After", a.retryAfter)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(a.status)
		fmt.Fprintf(w, `{"error":{"message":%q}}`, a.text)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	chunk := func(members map[string]any) {
		all := map[string]any{"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": []any{}}
		for k, v := range members {
			all[k] = v
		}
		fmt.Fprintf(w, "data: %s\n\n", encode(all))
	}
	choice := func(delta any, finish any) {
		chunk(map[string]any{"choices": []any{map[string]any{"index": 0, "delta": delta, "finish_reason": finish}}})
	}
	delta := map[string]any{"role": "assistant"}
	if a.text != "" {
		delta["content"] = a.text
	}
	finish := "stop"
	if len(a.calls) > 0 {
		finish = "tool_calls"
		var calls []any
		for i, c := range a.calls {
			calls = append(calls, map[string]any{"index": i, "id": fmt.Sprintf("call_%d_%d", n, i), "type": "function",
				"function": map[string]any{"name": c.tool, "arguments": strings.TrimSpace(string(encode(c.args)))}})
		}
		delta["tool_calls"] = calls
	}
	choice(delta, nil)
	if a.broken == cut {
		return
	}
	if a.broken != "" {
		fmt.Fprintf(w, "data: %s\n\n", a.broken)
		return
	}
	choice(map[string]any{}, finish)
	chunk(map[string]any{"usage": map[string]any{"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}})
	fmt.Fprint(w, "data: [DONE]\n\n")
}
