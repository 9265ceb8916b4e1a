package gateway

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"
)

// refusal is an answer of the gateway itself.
type refusal struct {
	status  int
	code    string // OpenAI's code, such as model_not_found
	message string
	until   time.Time // when to come back; zero: never
}

func (r *refusal) Error() string { return r.message }

func refuse(status int, code, format string, values ...any) *refusal {
	return &refusal{status: status, code: code, message: fmt.Sprintf(format, values...)}
}

// anthropicTypes are the names of errors in the Messages API (docs.anthropic.com, "Errors").
var anthropicTypes = map[int]string{
	http.StatusUnauthorized: "authentication_error", http.StatusPaymentRequired: "billing_error",
	http.StatusForbidden: "permission_error", http.StatusNotFound: "not_found_error",
	http.StatusRequestEntityTooLarge: "request_too_large", http.StatusTooManyRequests: "rate_limit_error",
}

// write answers in the shape of the API. SDKs of both vendors obey x-should-retry: what is refused for good is not asked
// again.
func (r *refusal) write(w http.ResponseWriter, api API) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("X-Should-Retry", strconv.FormatBool(!r.until.IsZero() || r.status >= 500))
	if !r.until.IsZero() {
		h.Set("Retry-After", seconds(time.Until(r.until)))
	}
	w.WriteHeader(r.status)
	_ = json.NewEncoder(w).Encode(r.body(api)) // a run that left needs no answer
}

func (r *refusal) body(api API) any {
	if api == Messages {
		kind, known := anthropicTypes[r.status]
		switch {
		case known:
		case r.status >= 500:
			kind = "api_error"
		default:
			kind = "invalid_request_error"
		}
		return map[string]any{"type": "error", "error": map[string]any{"type": kind, "message": r.message}}
	}
	kind := "invalid_request_error"
	switch {
	case r.status == http.StatusTooManyRequests:
		kind = "rate_limit_error"
	case r.status >= 500:
		kind = "server_error"
	}
	return map[string]any{"error": map[string]any{"message": r.message, "type": kind, "param": nil, "code": r.code}}
}

// seconds returns a span as Retry-After has it: whole seconds, rounded up, at least one.
func seconds(d time.Duration) string {
	return strconv.FormatInt(int64(max(math.Ceil(d.Seconds()), 1)), 10)
}

// mustJSON marshals what this package made of strings, numbers and maps.
func mustJSON(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("gateway: marshal %T: %v", v, err))
	}
	return text
}
