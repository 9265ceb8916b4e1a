package codex

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

// model is a scripted model that speaks OpenAI's responses, on loopback. Turn n is the answer to a conversation in which n
// tools have answered or the model has spoken.
type model struct {
	*httptest.Server
	turns []reaction

	mu    sync.Mutex
	heard []string // the whole input of each request
}

// reaction is what the model answers: calls, a text, or a failure.
type reaction struct {
	text       string
	calls      []call
	status     int // with text as the error's message
	code       string
	retryAfter string
	failed     string // code of an error in the stream, with text as its message
	cut        bool   // the stream ends in the middle
}

type call struct {
	tool string
	args map[string]any
}

func say(text string) reaction { return reaction{text: text} }

func run(command string) reaction {
	return reaction{calls: []call{{"exec_command", map[string]any{"cmd": command, "yield_time_ms": 30000}}}}
}

// patch changes files in Codex's own format.
func patch(body string) reaction {
	return run("apply_patch <<'EOF'\n*** Begin Patch\n" + body + "*** End Patch\nEOF\n")
}

func newModel(t *testing.T, turns []reaction) *model {
	m := &model{turns: turns}
	m.Server = httptest.NewServer(m)
	t.Cleanup(m.Close)
	return m
}

func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var q struct {
		Input []struct{ Type, Role string }
	}
	if r.Method != http.MethodPost || err != nil || json.Unmarshal(body, &q) != nil {
		http.NotFound(w, r)
		return
	}
	n := 0
	for _, one := range q.Input {
		if strings.HasSuffix(one.Type, "_call_output") || one.Role == "assistant" {
			n++
		}
	}
	m.mu.Lock()
	m.heard = append(m.heard, string(body))
	m.mu.Unlock()
	m.turns[min(n, len(m.turns)-1)].write(w, n)
}

func (a reaction) write(w http.ResponseWriter, n int) {
	if a.status != 0 {
		if a.retryAfter != "" {
			w.Header().Set("Retry-After", a.retryAfter)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(a.status)
		fmt.Fprintf(w, `{"error":{"message":%q,"code":%q}}`, a.text, a.code)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	event := func(kind string, members map[string]any) {
		members["type"] = kind
		data, err := json.Marshal(members)
		if err != nil {
			panic(err)
		}
		fmt.Fprintf(w, "event: %s\ndata: %s\n\n", kind, data)
	}
	response := func(status string, members map[string]any) map[string]any {
		all := map[string]any{"id": fmt.Sprintf("resp_%d", n), "object": "response", "created_at": 1, "model": "m", "status": status, "output": []any{}}
		for k, v := range members {
			all[k] = v
		}
		return map[string]any{"response": all}
	}
	event("response.created", response("in_progress", nil))
	if a.failed != "" {
		event("response.failed", response("failed", map[string]any{"error": map[string]any{"code": a.failed, "message": a.text}}))
		return
	}
	var items []any
	if a.text != "" {
		items = append(items, map[string]any{"type": "message", "id": fmt.Sprintf("msg_%d", n), "role": "assistant", "status": "completed",
			"content": []any{map[string]any{"type": "output_text", "text": a.text, "annotations": []any{}}}})
	}
	for i, c := range a.calls {
		args, err := json.Marshal(c.args)
		if err != nil {
			panic(err)
		}
		items = append(items, map[string]any{"type": "function_call", "id": fmt.Sprintf("fc_%d_%d", n, i), "call_id": fmt.Sprintf("call_%d_%d", n, i),
			"status": "completed", "name": c.tool, "arguments": string(args)})
	}
	for i, one := range items {
		event("response.output_item.added", map[string]any{"output_index": i, "item": one})
		event("response.output_item.done", map[string]any{"output_index": i, "item": one})
	}
	if a.cut {
		return
	}
	event("response.completed", response("completed", map[string]any{"output": items, "usage": map[string]any{
		"input_tokens": 100, "input_tokens_details": map[string]any{"cached_tokens": 10},
		"output_tokens": 20, "output_tokens_details": map[string]any{"reasoning_tokens": 5}, "total_tokens": 120,
	}}))
}
