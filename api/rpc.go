package api

import "encoding/json"

// RPCRequest is a call of kernel.sched, as JSON-RPC 2.0 has it. docs/queue.md tells
// the methods.
type RPCRequest struct {
	// Version is 2.0.
	Version string `json:"jsonrpc"`
	// ID comes back in the answer. Absent: a notification, which has no answer.
	ID json.RawMessage `json:"id"`
	// Method is kernel.sched.NAME.
	Method string `json:"method"`
	// Params are the method's, by name.
	Params json.RawMessage `json:"params"`
}

// RPCResponse is the answer to a call. It has a result or an error.
type RPCResponse struct {
	// Version is 2.0.
	Version string `json:"jsonrpc"`
	// ID is that of the call, or null of one that could not be read.
	ID json.RawMessage `json:"id"`
	// Result is the method's.
	Result any `json:"result,omitempty"`
	// Error says why there is none.
	Error *RPCError `json:"error,omitempty"`
}

// RPCError says why a call has no result.
type RPCError struct {
	// Code is for programs. Those from -32135 to -32131 are of kernel.sched.
	Code int `json:"code"`
	// Message is for a person.
	Message string `json:"message"`
	// Data is that of an error of kernel.sched.
	Data *RPCErrorData `json:"data,omitempty"`
}

// RPCErrorData names an error of kernel.sched.
type RPCErrorData struct {
	// Name is the code in words, e.g. kernel_sched_unknown_id.
	Name string `json:"name"`
}

// Error returns the message.
func (e *RPCError) Error() string { return e.Message }
