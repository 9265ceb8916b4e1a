package gateway

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/permit"
)

// request is a body that was understood.
type request struct {
	api     API
	size    int
	model   string
	stream  bool
	choices int64 // answers that are asked for at once: n of chat completions
	limits  []limit
	least   int64 // tokens of output below which the request has no meaning
	content content
	stored  string // what of the provider's own store it goes on with; empty: nothing

	all     []member
	edits   map[string][]byte // a new value for a member; nil takes it out
	removed []string          // what was taken out, for people
}

// limit is a member by which the request limits its output.
type limit struct {
	name   string
	tokens int64
}

// leastOutput is how many tokens of output make a request worth sending.
const leastOutput = 1024

// parse reads a request's body. Its error is a *refusal.
func parse(e endpoint, body []byte) (*request, error) {
	q := &request{api: e.api, size: len(body), choices: 1, least: leastOutput, edits: map[string][]byte{}}
	q.content.api = e.api
	var err error
	q.all, err = members(body, func(name string) *content {
		switch name {
		case "messages", "system", "input", "instructions", "prompt":
			return &q.content
		}
		return nil
	})
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "invalid_json", "the request was not sent: %v", err)
	}
	for _, m := range q.all {
		if strings.ToLower(m.name) != m.name {
			return nil, refuse(http.StatusBadRequest, "unknown_parameter", "%q is not a member of any API: names are in lower case", printable(m.name))
		}
	}
	if q.model = text(find(q.all, "model")); q.model == "" || len(q.model) > maxModel {
		return nil, refuse(http.StatusBadRequest, "missing_required_parameter", "model must be the name of a model, at most %d bytes", maxModel)
	}
	q.stream = string(find(q.all, "stream")) == "true"
	if err := q.bounds(); err != nil {
		return nil, err
	}
	if err := q.outside(); err != nil {
		return nil, err
	}
	q.meter()
	return q, nil
}

const maxModel = 200

// bounds reads what the output is limited by.
func (q *request) bounds() error {
	names := map[API][]string{
		Messages: {"max_tokens"}, Responses: {"max_output_tokens"}, Chat: {"max_tokens", "max_completion_tokens"},
	}[q.api]
	for _, name := range names {
		n, err := q.number(name, 1<<32)
		if err != nil {
			return err
		}
		if n > 0 {
			q.limits = append(q.limits, limit{name, n})
		}
	}
	if q.api == Chat {
		n, err := q.number("n", 128)
		if err != nil {
			return err
		}
		q.choices = max(n, 1)
	}
	if thinking, err := members(find(q.all, "thinking"), nil); err == nil && q.api == Messages {
		// The API wants max_tokens above it.
		if n, err := strconv.ParseInt(string(find(thinking, "budget_tokens")), 10, 32); err == nil {
			q.least = max(q.least, n+1)
		}
	}
	return nil
}

// number returns a member that counts something, 0 if it is missing.
func (q *request) number(name string, most int64) (int64, error) {
	raw := find(q.all, name)
	if raw == nil {
		return 0, nil
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil || n < 1 || n > most {
		return 0, refuse(http.StatusBadRequest, "invalid_value", "%s is %s, want a whole number from 1 to %d", name, printable(string(raw)), most)
	}
	return n, nil
}

// outside notes what the provider would do beyond running the model.
func (q *request) outside() error {
	has := func(name string) bool { return find(q.all, name) != nil }
	for _, name := range map[API][]string{
		Responses: {"previous_response_id", "conversation", "prompt"},
		Messages:  {"mcp_servers", "container"},
		Chat:      {"models"}, // a router's: other models than the one that was looked at
	}[q.api] {
		if raw := find(q.all, name); raw != nil && string(raw) != "[]" && q.stored == "" {
			q.stored = name
		}
	}
	if q.stored == "" {
		q.stored = q.content.fetched
	}
	if q.api == Responses && string(find(q.all, "background")) == "true" {
		return refuse(http.StatusBadRequest, "unsupported_parameter", "background is not allowed: an answer that nobody waits for cannot be metered")
	}
	// Dearer than the price that is known.
	if tier := text(find(q.all, "service_tier")); tier == "priority" || tier == "fast" {
		q.edits["service_tier"] = nil
	}
	if has("speed") {
		q.edits["speed"] = nil
	}
	return nil
}

// confine takes out the tools that the provider carries out, and refuses what it would fetch.
func (q *request) confine() error {
	if q.stored != "" {
		return refuse(http.StatusBadRequest, "unsupported_parameter",
			"%s is not allowed to this run: the provider would get it from elsewhere. Send the content itself", q.stored)
	}
	for _, name := range []string{"web_search_options", "plugins"} {
		if q.api == Chat && find(q.all, name) != nil {
			q.edits[name] = nil
			q.removed = append(q.removed, "tool "+name)
		}
	}
	raw := find(q.all, "tools")
	tools, err := elements(raw, maxTools)
	if err != nil {
		return refuse(http.StatusBadRequest, "invalid_value", "tools: %v", err)
	}
	if tools == nil && raw != nil {
		return refuse(http.StatusBadRequest, "invalid_value", "tools must be a list")
	}
	kept := tools[:0]
	for _, tool := range tools {
		kind, outside, err := runsOutside(q.api, tool)
		if err != nil {
			return refuse(http.StatusBadRequest, "invalid_value", "tools: %v", err)
		}
		if !outside {
			kept = append(kept, tool)
			continue
		}
		if what := "tool " + printable(kind); !slices.Contains(q.removed, what) {
			q.removed = append(q.removed, what)
		}
	}
	switch {
	case len(q.removed) == 0:
		return nil
	case len(kept) == 0 && raw != nil:
		q.edits["tools"], q.edits["tool_choice"], q.edits["parallel_tool_calls"] = nil, nil, nil
	case raw != nil:
		q.edits["tools"] = slices.Concat([]byte{'['}, bytes.Join(kept, []byte{','}), []byte{']'})
	}
	if choice, err := members(find(q.all, "tool_choice"), nil); err == nil {
		switch text(find(choice, "type")) {
		case "auto", "any", "none", "tool", "function", "custom", "allowed_tools":
		default:
			q.edits["tool_choice"] = nil
		}
	}
	return nil
}

// meter asks for the usage where it is not given by itself.
func (q *request) meter() {
	if q.api != Chat || !q.stream {
		return
	}
	options := map[string]json.RawMessage{}
	if given, err := members(find(q.all, "stream_options"), nil); err == nil {
		for _, m := range given {
			options[m.name] = m.value
		}
	}
	options["include_usage"] = json.RawMessage("true")
	q.edits["stream_options"], _ = json.Marshal(options) // of valid JSON
}

// maxEdits is more than the bytes by which a request grows: by a limit, and by asking for its usage.
const maxEdits = 96

// demand returns what the request can cost with a model of these bounds.
func (q *request) demand(m Model, price *job.Price) permit.Demand {
	size := int64(q.size)
	d := permit.Demand{
		Input:    size + maxEdits + tokensOfImage*int64(q.content.images), // a byte is a token at most
		Estimate: (max(size-q.content.imageBytes, 0)+3)/4 + int64(q.content.images)*tokensOfImage/4,
		Price:    price,
	}
	if d.Input > m.Context || q.stored != "" || q.content.documents > 0 {
		d.Input = m.Context // what is compressed, or not here, fills it at most
	}
	d.Estimate = min(d.Estimate, d.Input)
	one := m.MaxOutput
	for i, l := range q.limits { // of two, the provider takes one
		if i == 0 {
			one = 0
		}
		one = max(one, min(l.tokens, m.MaxOutput))
	}
	d.Output = one * q.choices
	d.Least = min(q.least*q.choices, d.Output)
	d.Beside = d.Least
	if len(q.limits) > 0 {
		d.Beside = d.Output
	}
	return d
}

// allow limits the output to tokens, where that is less than the request asks for. field is how a request without a limit
// is limited; empty: not at all.
func (q *request) allow(tokens int64, m Model, field string) {
	each := max(tokens/q.choices, 1)
	value := strconv.AppendInt(nil, each, 10)
	for _, l := range q.limits {
		if l.tokens > each && each < m.MaxOutput {
			q.edits[l.name] = value
		}
	}
	if len(q.limits) == 0 && field != "" && each < m.MaxOutput {
		q.edits[field] = value
	}
}

// body returns the request as it is sent.
func (q *request) body(as []byte) []byte {
	if len(q.edits) == 0 {
		return as
	}
	out := make([]byte, 0, len(as)+256)
	put := func(piece ...[]byte) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		for _, p := range piece {
			out = append(out, p...)
		}
	}
	out = append(out, '{')
	done := map[string]bool{}
	for _, m := range q.all {
		value, edited := q.edits[m.name]
		done[m.name] = true
		switch {
		case !edited:
			put(as[m.start:m.end])
		case value != nil:
			put(as[m.start:m.end-len(m.value)], value)
		}
	}
	for name, value := range q.edits {
		if !done[name] && value != nil {
			put(strconv.AppendQuote(nil, name), []byte{':'}, value)
		}
	}
	return append(out, '}')
}
