package scriptmodel

import (
	"encoding/json"
	"fmt"
	"strings"
)

// chatAPI is OpenAI's POST /v1/chat/completions, as OpenCode and most other tools use it.
type chatAPI struct{}

func (chatAPI) parse(body []byte) (conversation, error) {
	var q struct {
		Model    string        `json:"model"`
		Stream   bool          `json:"stream"`
		Messages []chatMessage `json:"messages"`
		Tools    []struct {
			Function struct {
				Name       string          `json:"name"`
				Parameters json.RawMessage `json:"parameters"`
			} `json:"function"`
		} `json:"tools"`
		ResponseFormat struct {
			JSONSchema struct {
				Schema json.RawMessage `json:"schema"`
			} `json:"json_schema"`
		} `json:"response_format"`
	}
	if err := json.Unmarshal(body, &q); err != nil {
		return conversation{}, fmt.Errorf("read chat request: %w", err)
	}
	c := conversation{model: q.Model, stream: q.Stream, schema: q.ResponseFormat.JSONSchema.Schema}
	for _, t := range q.Tools {
		c.tools = append(c.tools, newTool(t.Function.Name, t.Function.Parameters))
	}
	for _, m := range q.Messages {
		m.addTo(&c)
	}
	return c, nil
}

type chatMessage struct {
	Role       string          `json:"role"`
	Content    json.RawMessage `json:"content"`
	ToolCallID string          `json:"tool_call_id"`
	ToolCalls  []struct {
		ID       string `json:"id"`
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	} `json:"tool_calls"`
}

func (m chatMessage) addTo(c *conversation) {
	texts := contentTexts(m.Content)
	switch m.Role {
	case "user":
		for _, text := range texts {
			c.say(text)
		}
	case "assistant":
		c.reply(strings.Join(texts, ""))
		for _, t := range m.ToolCalls {
			c.add(entry{kind: toolCall, callID: t.ID, name: t.Function.Name})
		}
	case "tool":
		c.add(entry{kind: toolResult, callID: m.ToolCallID, text: strings.Join(texts, "\n")})
	}
}

func (a chatAPI) stream(r reply) []event {
	chunk := func(paced bool, finish any, delta object) event {
		o := a.envelope(r, "chat.completion.chunk")
		o["choices"] = []any{object{"index": 0, "delta": delta, "finish_reason": finish}}
		return event{data: o, paced: paced}
	}
	events := []event{chunk(false, nil, object{"role": "assistant", "content": ""})}
	for i, text := range r.chunks {
		events = append(events, chunk(i > 0, nil, object{"content": text}))
	}
	if r.call != nil {
		events = append(events, chunk(false, nil, object{"tool_calls": []any{a.call(r)}}))
	}
	events = append(events, chunk(false, a.finish(r), object{}))
	last := a.envelope(r, "chat.completion.chunk")
	last["choices"], last["usage"] = []any{}, a.usage(r)
	return append(events, event{data: last}, event{data: "[DONE]"})
}

func (a chatAPI) whole(r reply) any {
	message := object{"role": "assistant", "content": r.text()}
	if r.call != nil {
		message["tool_calls"] = []any{a.call(r)}
	}
	o := a.envelope(r, "chat.completion")
	o["choices"] = []any{object{"index": 0, "message": message, "finish_reason": a.finish(r)}}
	o["usage"] = a.usage(r)
	return o
}

func (chatAPI) envelope(r reply, kind string) object {
	return object{"id": "chatcmpl-" + r.id, "object": kind, "created": r.created.Unix(), "model": r.model}
}

func (chatAPI) call(r reply) object {
	return object{
		"index": 0, "id": r.call.id, "type": "function",
		"function": object{"name": r.call.name, "arguments": string(r.call.args)},
	}
}

func (chatAPI) finish(r reply) string {
	if r.call != nil {
		return "tool_calls"
	}
	return "stop"
}

func (chatAPI) usage(r reply) object {
	return object{
		"prompt_tokens":         r.usage.Input,
		"prompt_tokens_details": object{"cached_tokens": r.usage.Cached},
		"completion_tokens":     r.usage.Output,
		"total_tokens":          r.usage.Input + r.usage.Output,
	}
}

func (chatAPI) failure(status int, message string) any { return openAIFailure(status, message) }

// openAIFailure is the body of an error in both of OpenAI's APIs.
func openAIFailure(status int, message string) object {
	kind, code := "invalid_request_error", any(nil)
	switch {
	case status == 401:
		code = "invalid_api_key"
	case status == 429:
		kind, code = "requests", "rate_limit_exceeded"
	case status >= 500:
		kind = "server_error"
	}
	return object{"error": object{"message": message, "type": kind, "param": nil, "code": code}}
}
