package scriptmodel

import (
	"encoding/json"
	"fmt"
	"strings"
)

// messagesAPI is Anthropic's POST /v1/messages, as Claude Code uses it.
type messagesAPI struct{}

func (messagesAPI) parse(body []byte) (conversation, error) {
	var q struct {
		Model    string `json:"model"`
		Stream   bool   `json:"stream"`
		Messages []struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
		} `json:"messages"`
		Tools []struct {
			Name        string          `json:"name"`
			InputSchema json.RawMessage `json:"input_schema"`
		} `json:"tools"`
	}
	if err := json.Unmarshal(body, &q); err != nil {
		return conversation{}, fmt.Errorf("read messages request: %w", err)
	}
	c := conversation{model: q.Model, stream: q.Stream}
	for _, t := range q.Tools {
		c.tools = append(c.tools, newTool(t.Name, t.InputSchema))
	}
	for _, m := range q.Messages {
		var blocks []messagesBlock
		if json.Unmarshal(m.Content, &blocks) != nil {
			blocks = []messagesBlock{{Type: "text", Text: strings.Join(contentTexts(m.Content), "")}}
		}
		for _, b := range blocks {
			b.addTo(&c, m.Role)
		}
	}
	return c, nil
}

type messagesBlock struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	ToolUseID string          `json:"tool_use_id"`
	Content   json.RawMessage `json:"content"`
}

func (b messagesBlock) addTo(c *conversation, role string) {
	switch {
	case b.Type == "tool_use":
		c.add(entry{kind: toolCall, callID: b.ID, name: b.Name})
	case b.Type == "tool_result":
		c.add(entry{kind: toolResult, callID: b.ToolUseID, text: strings.Join(contentTexts(b.Content), "\n")})
	case b.Type == "text" && role == "user":
		c.say(b.Text)
	case b.Type == "text" && role == "assistant":
		c.reply(b.Text)
	}
}

func (a messagesAPI) stream(r reply) []event {
	var events []event
	emit := func(kind string, paced bool, fields object) {
		fields["type"] = kind
		events = append(events, event{name: kind, data: fields, paced: paced})
	}
	start := a.whole(r).(object)
	start["content"], start["stop_reason"] = []any{}, nil
	emit("message_start", false, object{"message": start})
	index := 0
	if len(r.chunks) > 0 {
		emit("content_block_start", false, object{"index": index, "content_block": object{"type": "text", "text": ""}})
		for i, chunk := range r.chunks {
			emit("content_block_delta", i > 0, object{"index": index, "delta": object{"type": "text_delta", "text": chunk}})
		}
		emit("content_block_stop", false, object{"index": index})
		index++
	}
	if r.call != nil {
		block := object{"type": "tool_use", "id": r.call.id, "name": r.call.name, "input": object{}}
		emit("content_block_start", false, object{"index": index, "content_block": block})
		delta := object{"type": "input_json_delta", "partial_json": string(r.call.args)}
		emit("content_block_delta", false, object{"index": index, "delta": delta})
		emit("content_block_stop", false, object{"index": index})
	}
	emit("message_delta", false, object{
		"delta": object{"stop_reason": a.stop(r), "stop_sequence": nil},
		"usage": a.usage(r),
	})
	emit("message_stop", false, object{})
	return events
}

func (a messagesAPI) whole(r reply) any {
	content := []any{}
	if len(r.chunks) > 0 {
		content = append(content, object{"type": "text", "text": r.text()})
	}
	if r.call != nil {
		content = append(content, object{"type": "tool_use", "id": r.call.id, "name": r.call.name, "input": r.call.args})
	}
	return object{
		"id": "msg_" + r.id, "type": "message", "role": "assistant", "model": r.model, "content": content,
		"stop_reason": a.stop(r), "stop_sequence": nil, "usage": a.usage(r),
	}
}

func (messagesAPI) stop(r reply) string {
	if r.call != nil {
		return "tool_use"
	}
	return "end_turn"
}

// usage counts cached tokens beside input_tokens, not within them as OpenAI does.
func (messagesAPI) usage(r reply) object {
	return object{
		"input_tokens":                r.usage.Input - r.usage.Cached,
		"cache_read_input_tokens":     r.usage.Cached,
		"cache_creation_input_tokens": 0,
		"output_tokens":               r.usage.Output,
	}
}

func (messagesAPI) failure(status int, message string) any {
	kind := "invalid_request_error"
	switch {
	case status == 401:
		kind = "authentication_error"
	case status == 429:
		kind = "rate_limit_error"
	case status == 529:
		kind = "overloaded_error"
	case status >= 500:
		kind = "api_error"
	}
	return object{"type": "error", "error": object{"type": kind, "message": message}}
}
