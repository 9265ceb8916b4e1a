package gateway

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	cooldownDefault = 20 * time.Second   // of a limit that names no time
	cooldownCredit  = time.Hour          // of a spent credit, which a person has to fill up
	cooldownMost    = 8 * 24 * time.Hour // more than a weekly limit; what is later is taken for a mistake
)

// limitBody is what providers say of a limit in the body.
//
//	OpenAI     {"error": {"type": "insufficient_quota", "code": "insufficient_quota"}}
//	ChatGPT    {"error": {"type": "usage_limit_reached", "resets_at": 1764115200, "resets_in_seconds": 3600}}
//	Anthropic  {"type": "error", "error": {"type": "rate_limit_error"}}
type limitBody struct {
	Error struct {
		Type            string  `json:"type"`
		Code            any     `json:"code"`
		Message         string  `json:"message"`
		ResetsAt        float64 `json:"resets_at"`
		ResetsInSeconds float64 `json:"resets_in_seconds"`
	} `json:"error"`
}

// limitOf reports whether an answer says that the key is used up for now, whether all of the account is, and until when.
func limitOf(now time.Time, h *buffered) (limited, account bool, until time.Time) {
	var b limitBody
	_ = json.Unmarshal(h.body, &b) // not JSON: the status alone counts
	code, _ := b.Error.Code.(string)
	kinds := []string{b.Error.Type, code}
	credit := h.status == http.StatusPaymentRequired || slices.Contains(kinds, "insufficient_quota") || slices.Contains(kinds, "billing_error") ||
		strings.HasPrefix(b.Error.Message, "Your credit balance is too low") // not anywhere: errors repeat what a run has sent
	account = credit || slices.Contains(kinds, "usage_limit_reached") || slices.Contains(kinds, "usage_not_included") ||
		h.header.Get("Anthropic-Ratelimit-Unified-Status") == "rejected"
	if h.status != http.StatusTooManyRequests && !credit {
		return false, false, time.Time{}
	}
	until = resetOf(now, h.header, &b)
	switch {
	case until.IsZero() && credit:
		until = now.Add(cooldownCredit)
	case until.IsZero():
		until = now.Add(cooldownDefault)
	}
	if latest := now.Add(cooldownMost); until.After(latest) {
		until = latest
	}
	if earliest := now.Add(time.Second); until.Before(earliest) {
		until = earliest
	}
	return true, account, until
}

// resetOf returns when the limit is over, zero if nothing says so. What is said of this refusal counts before what is said
// of single limits; of these, the latest of those that are exhausted.
func resetOf(now time.Time, h http.Header, b *limitBody) time.Time {
	if at := b.Error.ResetsAt; at > 0 && at < 1e11 {
		return time.Unix(int64(at), 0)
	}
	if in := b.Error.ResetsInSeconds; in > 0 && in < 1e9 {
		return now.Add(time.Duration(in * float64(time.Second)))
	}
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil && ms > 0 && ms < 1e12 {
		return now.Add(time.Duration(ms * float64(time.Millisecond)))
	}
	if at := when(now, h.Get("Retry-After")); !at.IsZero() {
		return at
	}
	var latest time.Time
	for name := range h {
		lower := strings.ToLower(name)
		limit := strings.HasPrefix(lower, "anthropic-ratelimit-") || strings.HasPrefix(lower, "x-ratelimit-")
		if !limit || !strings.Contains(lower, "reset") {
			continue
		}
		if left := h.Get(strings.Replace(lower, "reset", "remaining", 1)); left != "" && left != "0" {
			continue
		}
		if at := when(now, h.Get(name)); at.After(latest) {
			latest = at
		}
	}
	return latest
}

// when reads a time in any of the forms that providers use: seconds from now, seconds since 1970, a span such as 6m0s, RFC
// 3339, or an HTTP date.
func when(now time.Time, text string) time.Time {
	if n, err := strconv.ParseFloat(text, 64); err == nil {
		switch {
		case n <= 0 || n >= 1e11:
			return time.Time{}
		case n > 1e9:
			return time.Unix(int64(n), 0)
		}
		return now.Add(time.Duration(n * float64(time.Second)))
	}
	if d, err := time.ParseDuration(text); err == nil && d > 0 {
		return now.Add(d)
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at
	}
	if at, err := http.ParseTime(text); err == nil {
		return at
	}
	return time.Time{}
}

// messageOf returns the sentence of an error, at most 500 bytes.
func messageOf(body []byte) string {
	var b limitBody
	_ = json.Unmarshal(body, &b) // not JSON: no sentence
	message := strings.ToValidUTF8(b.Error.Message, "?")
	if len(message) > 500 {
		message = strings.ToValidUTF8(message[:500], "")
	}
	return message
}
