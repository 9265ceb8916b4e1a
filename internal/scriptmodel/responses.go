package scriptmodel

import (
	"encoding/json"
	"fmt"
	"strings"
)

// responsesAPI is OpenAI's POST /v1/responses, as Codex uses it.
type responsesAPI struct{}

func (responsesAPI) parse(body []byte) (conversation, error) {
	var q struct {
		Model  string          `json:"model"`
		Stream bool            `json:"stream"`
		Input  json.RawMessage `json:"input"`
		Tools  []responsesTool `json:"tools"`
		Text   struct {
			Format struct {
				Schema json.RawMessage `json:"schema"`
			} `json:"format"`
		} `json:"text"`
	}
	if err := json.Unmarshal(body, &q); err != nil {
		return conversation{}, fmt.Errorf("read responses request: %w", err)
	}
	c := conversation{model: q.Model, stream: q.Stream, schema: q.Text.Format.Schema}
	for _, t := range q.Tools {
		if t.Type != "namespace" {
			c.tools = append(c.tools, newTool(t.Name, t.Parameters))
			continue
		}
		for _, in := range t.Tools {
			one := newTool(in.Name, in.Parameters)
			one.space = t.Name
			c.tools = append(c.tools, one)
		}
	}
	var prompt string
	if json.Unmarshal(q.Input, &prompt) == nil {
		c.say(prompt)
		return c, nil
	}
	var items []responsesItem
	if err := json.Unmarshal(q.Input, &items); err != nil {
		return conversation{}, fmt.Errorf("read responses input: %w", err)
	}
	for _, item := range items {
		item.addTo(&c)
	}
	return c, nil
}

// responsesTool is a tool, or those of a server of MCP.
type responsesTool struct {
	Type       string          `json:"type"`
	Name       string          `json:"name"`
	Parameters json.RawMessage `json:"parameters"`
	Tools      []responsesTool `json:"tools"`
}

type responsesItem struct {
	Type    string          `json:"type"` // a message may leave it out
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
	CallID  string          `json:"call_id"`
	Name    string          `json:"name"`
	Output  json.RawMessage `json:"output"`
}

func (i responsesItem) addTo(c *conversation) {
	switch {
	case strings.HasSuffix(i.Type, "_call_output"):
		c.add(entry{kind: toolResult, callID: i.CallID, text: strings.Join(contentTexts(i.Output), "\n")})
	case i.Type == "function_call" || i.Type == "custom_tool_call":
		c.add(entry{kind: toolCall, callID: i.CallID, name: i.Name})
	case i.Role == "user":
		for _, text := range contentTexts(i.Content) {
			c.say(text)
		}
	case i.Role == "assistant":
		c.reply(strings.Join(contentTexts(i.Content), ""))
	}
}

func (a responsesAPI) stream(r reply) []event {
	response := func(status string) object {
		o := a.whole(r).(object)
		if status != "completed" {
			o["status"], o["output"], o["usage"] = status, []any{}, nil
		}
		return o
	}
	var events []event
	emit := func(kind string, paced bool, fields object) {
		fields["type"], fields["sequence_number"] = kind, len(events)
		events = append(events, event{name: kind, data: fields, paced: paced})
	}
	emit("response.created", false, object{"response": response("in_progress")})
	index := 0
	if len(r.chunks) > 0 {
		id := "msg_" + r.id
		emit("response.output_item.added", false, object{"output_index": index, "item": a.message(r, "in_progress", "")})
		for i, chunk := range r.chunks {
			emit("response.output_text.delta", i > 0, object{"item_id": id, "output_index": index, "content_index": 0, "delta": chunk})
		}
		emit("response.output_text.done", false, object{"item_id": id, "output_index": index, "content_index": 0, "text": r.text()})
		emit("response.output_item.done", false, object{"output_index": index, "item": a.message(r, "completed", r.text())})
		index++
	}
	if r.call != nil {
		emit("response.output_item.added", false, object{"output_index": index, "item": a.call(r, "in_progress", "")})
		emit("response.output_item.done", false, object{"output_index": index, "item": a.call(r, "completed", string(r.call.args))})
	}
	emit("response.completed", false, object{"response": response("completed")})
	return events
}

func (a responsesAPI) whole(r reply) any {
	output := []any{}
	if len(r.chunks) > 0 {
		output = append(output, a.message(r, "completed", r.text()))
	}
	if r.call != nil {
		output = append(output, a.call(r, "completed", string(r.call.args)))
	}
	return object{
		"id": "resp_" + r.id, "object": "response", "created_at": r.created.Unix(), "model": r.model,
		"status": "completed", "error": nil, "output": output,
		"usage": object{
			"input_tokens":          r.usage.Input,
			"input_tokens_details":  object{"cached_tokens": r.usage.Cached},
			"output_tokens":         r.usage.Output,
			"output_tokens_details": object{"reasoning_tokens": 0},
			"total_tokens":          r.usage.Input + r.usage.Output,
		},
	}
}

func (responsesAPI) message(r reply, status, text string) object {
	content := []any{}
	if text != "" {
		content = append(content, object{"type": "output_text", "text": text, "annotations": []any{}})
	}
	return object{"type": "message", "id": "msg_" + r.id, "role": "assistant", "status": status, "content": content}
}

func (responsesAPI) call(r reply, status, args string) object {
	o := object{
		"type": "function_call", "id": "fc_" + r.id, "call_id": r.call.id, "status": status,
		"name": r.call.name, "arguments": args,
	}
	if r.call.space != "" {
		o["namespace"] = r.call.space
	}
	return o
}

func (responsesAPI) failure(status int, message string) any { return openAIFailure(status, message) }
