package ipc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// The causes with which a Peer's Run returns, and with which every call fails that waits
// for an answer then. The others are a *TornError, a failed read, and the cause of a
// context.
var (
	// ErrClosed is the agreed end: the other side closed its stream at a frame's end after
	// ExpectEOF.
	ErrClosed = errors.New("peer closed the stream as agreed")
	// ErrEOF means that the stream ended without an agreement: the other side died or gave
	// up.
	ErrEOF = errors.New("peer ended the stream unexpectedly")
	// ErrHung means that the other side took no frame for the hang limit. A patient peer
	// (SetPatient) does not return it.
	ErrHung = errors.New("peer does not drain its stream")
	// ErrGarbage means too many lines that are not JSON in too short a time: something else
	// prints on the stream.
	ErrGarbage = errors.New("peer sends garbage")
	// ErrOverrun means that our own handlers fell so far behind that the receive queue
	// stayed at its hard bound for the hang limit.
	ErrOverrun = errors.New("handlers do not keep up with the peer")
	// ErrStopped is the cause after Stop(nil).
	ErrStopped = errors.New("peer was stopped")
	// ErrStarted is returned by a second Run.
	ErrStarted = errors.New("peer was already run")
)

// Error codes of JSON-RPC 2.0, section 5.1 of its specification. This package sends the
// first three itself; a Handler sends the other two with InvalidParams and by returning
// any error that is no *Error.
const (
	CodeParse          = -32700 // the line is not JSON or not UTF-8; the answer's id is null
	CodeInvalidRequest = -32600 // JSON, but not a request: also a frame over MaxFrame, a batch, a second hello
	CodeMethodNotFound = -32601 // the other side is of an older release, or misspelt
	CodeInvalidParams  = -32602 // the params do not decode, or a field is wrong; the message names it
	CodeInternal       = -32603 // the handler failed without a code of its own, or panicked
)

// Error codes of the core. A number keeps its meaning for ever: append only. Two are
// reserved, and no core sends them: a refused permit is a PermitAnswer, and a job that
// cannot be run is accepted and ends as CONFIG. The numbers -32131 to -32135 belong to the
// queue.
const (
	CodePermitRejected = -32151 // reserved
	CodePermitUnknown  = -32152 // submit_job: the permit is not one for what is submitted; the attempt does not count
	CodeNotConfigured  = -32153 // hello or configure is missing; send them first
	CodeVersion        = -32154 // hello: no common ProtocolVersion; install both programs from one release
	CodeShuttingDown   = -32155 // request_permit, submit_job: the core ends; ask the next core
	CodeBadTask        = -32156 // reserved
	CodeCoreGone       = -32157 // any method, from a node: the core that it is for is not up there; it has not answered
)

// Error is an answer that says why a request was not carried out. A Handler returns one to
// choose the code. Callers find it with errors.As in what Peer.Call returns, and branch on
// Code; Message is for people, and Data is empty in every answer of the core.
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
