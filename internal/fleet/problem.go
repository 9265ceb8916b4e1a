package fleet

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/agentsched/agentsched/api"
)

// refuse answers with a problem (RFC 9457).
func refuse(w http.ResponseWriter, name string, status int, format string, args ...any) {
	title := strings.ToUpper(name[:1]) + strings.ReplaceAll(name[1:], "_", " ")
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(api.Problem{Type: api.ProblemType + name, Title: title, Status: status, Detail: fmt.Sprintf(format, args...)}) //nolint:errcheck // nobody is there to be told
}

// isStream reports whether an answer is Server-Sent Events.
func isStream(h http.Header) bool {
	kind, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	return strings.TrimSpace(kind) == "text/event-stream"
}
