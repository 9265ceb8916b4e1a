package scriptmodel

import (
	"net/http"
	"strconv"
	"time"
)

// Fault is a way to fail instead of answering. The zero Fault is none.
type Fault struct {
	kind       faultKind
	status     int
	retryAfter time.Duration
}

type faultKind int

const (
	faultNone faultKind = iota
	faultStatus
	faultHang
	faultBroken
	faultMalformed
)

// Status answers with an HTTP error in the API's own form, and a retry-after header in seconds if retryAfter is above 0.
func Status(code int, retryAfter time.Duration) Fault {
	return Fault{kind: faultStatus, status: code, retryAfter: retryAfter}
}

// Hang sends nothing, not even headers, until the client leaves or the server closes.
func Hang() Fault { return Fault{kind: faultHang} }

// BrokenSSE cuts the connection in the middle of an event of the stream, or of the body if none was asked for.
func BrokenSSE() Fault { return Fault{kind: faultBroken} }

// Malformed answers 200 with something that is not JSON, and ends the response in good order.
func Malformed() Fault { return Fault{kind: faultMalformed} }

// fail plays the fault; a reply is only the material that broken streams are cut from.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, d dialect, f Fault, rep reply, stream bool) {
	switch f.kind {
	case faultStatus:
		if f.retryAfter > 0 {
			seconds := int64((f.retryAfter + time.Second - 1) / time.Second)
			w.Header().Set("Retry-After", strconv.FormatInt(seconds, 10))
		}
		writeJSON(w, f.status, d.failure(f.status, "scripted failure: "+http.StatusText(f.status)))
	case faultHang:
		<-r.Context().Done()        // also when the server closes
		panic(http.ErrAbortHandler) // an empty 200 would be an answer
	case faultBroken:
		s.cut(w, d, rep, stream)
	case faultMalformed:
		if stream {
			startStream(w)
			_, _ = w.Write([]byte("data: {\"type\": \"scripted, and not JSON\n\n"))
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"id": "scripted, and not JSON`))
	}
}

// cut writes up to the middle of the second event, or of the body, and drops the connection.
func (s *Server) cut(w http.ResponseWriter, d dialect, rep reply, stream bool) {
	var whole []byte
	if stream {
		startStream(w)
		events := d.stream(rep)
		_, _ = w.Write(events[0].bytes())
		whole = events[1].bytes()
	} else {
		w.Header().Set("Content-Type", "application/json")
		whole = mustJSON(d.whole(rep))
	}
	_, _ = w.Write(whole[:len(whole)/2])
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler) // the one way to end a chunked response without its last chunk
}
