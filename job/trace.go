package job

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
)

// Traces and their spans have ids as W3C Trace Context has them: 32 and 16
// hexadecimal digits, in lower case. A job's trace is its Spec.Trace where that is
// such an id.

// SpanID returns the id of a job's span of that name, number n of an attempt. It is
// the same in each process that asks, so that what they tell of fits together.
func SpanID(id ID, name string, attempt, n int) [8]byte {
	sum := sha256.Sum256([]byte(string(id) + "\x00" + name + "\x00" + strconv.Itoa(attempt) + "\x00" + strconv.Itoa(n)))
	return [8]byte(sum[:8])
}

// WorkerSpan is the name of the span of an attempt's run.
const WorkerSpan = "worker"

// TraceParent returns the traceparent of an attempt's run, by which what the worker
// tells of itself becomes a part of the job's trace; "" if the job's trace has no id
// of that form.
func TraceParent(trace string, id ID, attempt int) string {
	if digits, err := hex.DecodeString(trace); err != nil || len(digits) != 16 || strings.ToLower(trace) != trace || strings.Count(trace, "0") == len(trace) {
		return ""
	}
	span := SpanID(id, WorkerSpan, attempt, 0)
	return "00-" + trace + "-" + hex.EncodeToString(span[:]) + "-01"
}
