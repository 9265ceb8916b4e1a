package gateway

import (
	"net/http"
	"net/textproto"
	"strings"
)

// Names that pass, in canonical form; one that ends with "-" stands for all that begin so. Everything else stays behind:
// keys, cookies, accounts, addresses, whatever a hop adds.
var (
	toProvider = []string{
		"Accept", "Anthropic-Version", "Anthropic-Beta", "Openai-Beta", "Originator", "User-Agent", "Version",
		"Session_id", "Session-Id", "Conversation_id", "Conversation-Id", "Thread-Id", "X-Client-Request-Id", "X-Codex-", "X-App", "X-Stainless-",
	}
	toRun = []string{
		"Content-Type", "Cache-Control", "Retry-After", "Retry-After-Ms", "X-Should-Retry", "Request-Id", "X-Request-Id",
		"Anthropic-Ratelimit-", "X-Ratelimit-", "X-Codex-", "Openai-Processing-Ms", "Openai-Model", "X-Models-Etag", "X-Reasoning-Included",
	}
)

// Bounds of the headers that pass, either way.
const (
	maxHeaders     = 64
	maxHeaderValue = 4 << 10 // bytes
)

// pass copies the headers that the list allows. clean is applied to each value.
func pass(to, from http.Header, list []string, clean func(string) string) {
	n := 0
	for name, values := range from {
		if !listed(list, textproto.CanonicalMIMEHeaderKey(name)) {
			continue
		}
		for _, v := range values {
			if n++; n > maxHeaders || len(v) > maxHeaderValue {
				continue
			}
			to.Add(name, clean(v))
		}
	}
}

func listed(list []string, name string) bool {
	for _, l := range list {
		if name == l || strings.HasSuffix(l, "-") && strings.HasPrefix(name, l) {
			return true
		}
	}
	return false
}
