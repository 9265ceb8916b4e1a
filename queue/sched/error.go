package sched

import (
	"context"
	"errors"
	"fmt"

	"github.com/agentsched/agentsched/queue"
)

// Code tells errors apart, on the wire and in Go.
type Code int

// The codes of kernel.sched, and those of JSON-RPC 2.0 that it uses.
const (
	// IllegalTransition: the entry's state does not allow it, or the claim is no
	// longer held.
	IllegalTransition Code = -32131
	// UnknownID: there is no such entry.
	UnknownID Code = -32132
	// InvalidPayload: the value of a parameter is not right.
	InvalidPayload Code = -32133
	// AdmissionDenied: the owner is dead, its tenant's queue is full, or the entry is
	// refused as a duplicate.
	AdmissionDenied Code = -32134
	// InvalidStateFilter: a state to list is none.
	InvalidStateFilter Code = -32135

	MethodNotFound Code = -32601
	// InvalidParams: a parameter is missing, or the call has none of that name.
	InvalidParams Code = -32602
	Internal      Code = -32603
)

// Name returns the symbolic name of a code of kernel.sched; "" of another.
func (c Code) Name() string {
	switch c {
	case IllegalTransition:
		return "kernel_sched_illegal_transition"
	case UnknownID:
		return "kernel_sched_unknown_id"
	case InvalidPayload:
		return "kernel_sched_invalid_payload"
	case AdmissionDenied:
		return "kernel_sched_admission_denied"
	case InvalidStateFilter:
		return "kernel_sched_invalid_state_filter"
	}
	return ""
}

// Error is what every method of Kernel fails with.
type Error struct {
	Code    Code
	Message string
	err     error
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Unwrap returns what the store said, if that was the reason.
func (e *Error) Unwrap() error { return e.err }

func refuse(code Code, format string, args ...any) error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// explain gives an error of the store its code.
func explain(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*Error](err); ok {
		return err
	}
	code := Internal
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
	case errors.Is(err, queue.ErrDeadOwner), errors.Is(err, queue.ErrDuplicate), errors.Is(err, queue.ErrQueueFull):
		code = AdmissionDenied
	case errors.Is(err, queue.ErrNotFound):
		code = UnknownID
	case errors.Is(err, queue.ErrIllegalTransition), errors.Is(err, queue.ErrFenced):
		code = IllegalTransition
	}
	return &Error{Code: code, Message: err.Error(), err: err}
}
