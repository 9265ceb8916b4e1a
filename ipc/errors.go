package ipc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// What ends a Peer's Run, and with it every call that waits for an answer. A *TornError and the cause of a context are
// the two others.
var (
	// ErrClosed is the good end: the other side closed its stream at a frame's end after ExpectEOF.
	ErrClosed = errors.New("peer closed the stream as agreed")
	// ErrEOF is the stream's end that nobody agreed on: the other side died or gave up.
	ErrEOF = errors.New("peer ended the stream unexpectedly")
	// ErrHung means that the other side took no frame for the hang limit.
	ErrHung = errors.New("peer does not drain its stream")
	// ErrGarbage means too many lines that are not JSON in too short a time: something else prints on the stream.
	ErrGarbage = errors.New("peer sends garbage")
	// ErrOverrun means that our own handlers fell so far behind that the receive queue reached its hard bound and took
	// nothing off it for the hang limit.
	ErrOverrun = errors.New("handlers do not keep up with the peer")
	// ErrStopped is the cause after Stop(nil).
	ErrStopped = errors.New("peer was stopped")
	// ErrStarted is returned by a second Run.
	ErrStarted = errors.New("peer was already run")
)

// Error codes of JSON-RPC 2.0, section 5.1 of its specification.
const (
	CodeParse          = -32700 // the line is not JSON
	CodeInvalidRequest = -32600 // JSON, but not a request; also a frame over the limit, a batch
	CodeMethodNotFound = -32601
	CodeInvalidParams  = -32602
	CodeInternal       = -32603 // the handler failed in a way that has no code, or panicked
)

// Error codes of the core. A number keeps its meaning for ever: append only. (-32131 … -32135 are the queue's.)
const (
	CodePermitRejected = -32151 // the core refuses to let the job run now; data says the reason and when to ask again
	CodePermitUnknown  = -32152 // submit_job named a permit that was never given, is used, or has expired
	CodeNotConfigured  = -32153 // a request that needs `configure` came before it
	CodeVersion        = -32154 // the two sides share no protocol version
	CodeShuttingDown   = -32155 // the core takes no new work: `shutdown` has been asked for
	CodeBadTask        = -32156 // the task cannot be run as it is written; trying again will not help
)

// Error is the other side's answer that it did not do what was asked; a Handler returns one to choose the code.
type Error struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

func (e *Error) Error() string { return fmt.Sprintf("%s (code %d)", e.Message, e.Code) }

// MethodNotFound is what a Handler returns for a method that it does not know.
func MethodNotFound(method string) *Error {
	return &Error{Code: CodeMethodNotFound, Message: fmt.Sprintf("method %q is not known", method)}
}

// InvalidParams is what a Handler returns for params that it cannot use.
func InvalidParams(err error) *Error {
	return &Error{Code: CodeInvalidParams, Message: "invalid params: " + err.Error()}
}

// DecodeParams decodes a request's params into v. Members that v does not know are ignored, absent params are an empty
// object. The error is an *Error with CodeInvalidParams, ready to be returned by a Handler.
func DecodeParams(params json.RawMessage, v any) error {
	if len(bytes.TrimSpace(params)) == 0 {
		params = json.RawMessage("{}")
	}
	if err := json.Unmarshal(params, v); err != nil {
		return InvalidParams(err)
	}
	return nil
}

// asError gives the answer for a handler's error.
func asError(err error) *Error {
	var e *Error
	if errors.As(err, &e) && e != nil {
		return e
	}
	return &Error{Code: CodeInternal, Message: err.Error()}
}
