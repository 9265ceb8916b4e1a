package scriptmodel

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// dialect is one API: how a request is read and an answer written.
type dialect interface {
	// parse reads a request's body.
	parse(body []byte) (conversation, error)
	// stream is the answer as events, at least two.
	stream(reply) []event
	// whole is the answer as one JSON value.
	whole(reply) any
	// failure is the body of an HTTP error.
	failure(status int, message string) any
}

// reply is an answer before it is put into an API's words.
type reply struct {
	id       string // unique by conversation; only the suffix of the API's own form
	model    string
	created  time.Time
	chunks   []string // text in the pieces in which it is streamed; none if there is no text
	interval time.Duration
	call     *call
	usage    Usage
}

func (r reply) text() string {
	var b bytes.Buffer
	for _, c := range r.chunks {
		b.WriteString(c)
	}
	return b.String()
}

// event is one server-sent event.
type event struct {
	name  string // empty for APIs that name none
	data  any    // marshalled, or written as it is if a string
	paced bool   // comes after the reply's interval
}

func (e event) bytes() []byte {
	var b bytes.Buffer
	if e.name != "" {
		fmt.Fprintf(&b, "event: %s\n", e.name)
	}
	b.WriteString("data: ")
	if s, ok := e.data.(string); ok {
		b.WriteString(s)
	} else {
		b.Write(mustJSON(e.data))
	}
	b.WriteString("\n\n")
	return b.Bytes()
}

// object is a JSON object.
type object = map[string]any

// mustJSON marshals what this package built itself from strings, numbers and maps.
func mustJSON(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // commands are full of > and &, and CLIs show them as they come
	if err := e.Encode(v); err != nil {
		panic(fmt.Sprintf("scriptmodel: marshal %T: %v", v, err))
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(mustJSON(v)) // a client that left is not our error
}

func startStream(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	w.WriteHeader(http.StatusOK)
}

// contentTexts reads a content field that is a string or a list of parts with a "text".
func contentTexts(raw json.RawMessage) []string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return []string{s}
	}
	var parts []struct {
		Text string `json:"text"`
	}
	_ = json.Unmarshal(raw, &parts) // other content, such as an image, has no text
	var texts []string
	for _, p := range parts {
		if p.Text != "" {
			texts = append(texts, p.Text)
		}
	}
	return texts
}
