package gateway

import (
	"net/http"
	"strings"
)

// API is one of the interfaces that models are reached by.
type API string

const (
	Responses API = "responses" // OpenAI Responses
	Chat      API = "chat"      // OpenAI chat completions
	Messages  API = "messages"  // Anthropic Messages
)

// endpoint is something that can be asked of the gateway.
type endpoint struct {
	api    API
	method string
	path   string // below the base URL of a provider; empty: answered here
	free   bool   // costs nothing
}

var (
	endpointMessages = endpoint{Messages, http.MethodPost, "/messages", false}
	endpointCount    = endpoint{Messages, http.MethodPost, "/messages/count_tokens", true}
	endpointReply    = endpoint{Responses, http.MethodPost, "/responses", false}
	endpointChat     = endpoint{Chat, http.MethodPost, "/chat/completions", false}
	endpointModels   = endpoint{Chat, http.MethodGet, "", true}
)

// endpointOf returns what a path means. With and without /v1: clients differ in what they take for the base URL.
func endpointOf(path string) (endpoint, bool) {
	switch strings.TrimPrefix(path, "/v1") {
	case "/messages":
		return endpointMessages, true
	case "/messages/count_tokens":
		return endpointCount, true
	case "/responses":
		return endpointReply, true
	case "/chat/completions":
		return endpointChat, true
	case "/models":
		return endpointModels, true
	}
	return endpoint{}, false
}

// speaker returns the API in whose shape a request that is not understood is answered.
func speaker(r *http.Request) API {
	if r.Header.Get("Anthropic-Version") != "" || strings.Contains(r.URL.Path, "/messages") {
		return Messages
	}
	return Chat
}
