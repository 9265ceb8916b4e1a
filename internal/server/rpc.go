package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"reflect"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/queue/sched"
)

// maxCalls bounds how many calls one request to /v1/rpc makes.
const maxCalls = 1000

// Errors of the frame itself, by JSON-RPC 2.0.
const (
	rpcParse   sched.Code = -32700
	rpcInvalid sched.Code = -32600
)

// rpcQuery are the parameters of /v1/rpc.
type rpcQuery struct {
	Spelling string `query:"spelling" enum:"rfc" doc:"the format of results; rfc: that of RFC 0007, with times as seconds since 1970; absent: that of this API"`
}

// rpc answers JSON-RPC 2.0 requests about kernel.sched.
type rpc struct {
	queue   *sched.Kernel
	wake    func() // has the scheduler look again at what may run
	log     zerolog.Logger
	maxBody int64
}

func (p rpc) routes(r *router) {
	stream(r, route{id: "call", method: "POST", path: "/v1/rpc", role: operate, tag: "queue", body: p.maxBody, takes: reflect.TypeFor[json.RawMessage](), other: http.StatusNoContent,
		about: "Make calls of kernel.sched, by JSON-RPC 2.0.\nThe body is a call or a list of at most 1,000. The status is 200 whatever the calls return, 204 if none of them has an answer."},
		"application/json", p.answer)
}

// answer answers a request of one call or of a batch.
func (p rpc) answer(w http.ResponseWriter, r *http.Request, in *rpcQuery) error {
	if err := checkType(r); err != nil {
		return err
	}
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, p.maxBody))
	if err != nil {
		return badBody(err, p.maxBody)
	}
	body = bytes.TrimSpace(body)
	if len(body) > 0 && body[0] == '[' {
		p.batch(w, r, body, in)
		return nil
	}
	var call json.RawMessage
	if err := json.Unmarshal(body, &call); err != nil {
		p.write(w, r, failed(nil, rpcParse, "not JSON: "+err.Error()))
		return nil
	}
	if answer := p.call(r.Context(), call, in); answer != nil {
		p.write(w, r, answer)
		return nil
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// rpcBatch makes calls in their order.
func (p rpc) batch(w http.ResponseWriter, r *http.Request, body []byte, in *rpcQuery) {
	var calls []json.RawMessage
	switch err := json.Unmarshal(body, &calls); {
	case err != nil:
		p.write(w, r, failed(nil, rpcParse, "not JSON: "+err.Error()))
		return
	case len(calls) == 0 || len(calls) > maxCalls:
		p.write(w, r, failed(nil, rpcInvalid, "a batch has 1 to 1000 calls"))
		return
	}
	var answers []*api.RPCResponse
	for _, c := range calls {
		if answer := p.call(r.Context(), c, in); answer != nil {
			answers = append(answers, answer)
		}
	}
	if len(answers) == 0 {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	p.write(w, r, answers)
}

// call makes one call; nil for a notification.
func (p rpc) call(ctx context.Context, text json.RawMessage, in *rpcQuery) *api.RPCResponse {
	var c api.RPCRequest
	if err := json.Unmarshal(text, &c); err != nil || c.Version != "2.0" || c.Method == "" {
		return failed(nil, rpcInvalid, `not a call, want {"jsonrpc":"2.0","id":1,"method":"kernel.sched.…","params":{…}}`)
	}
	result, err := p.queue.Call(ctx, c.Method, c.Params)
	if err != nil {
		p.log.Debug().Err(err).Str("method", c.Method).Msg("call refused")
	}
	if err == nil && c.Method == sched.MethodUpdateGrant {
		p.wake()
	}
	if c.ID == nil {
		return nil
	}
	if refused, ok := errors.AsType[*sched.Error](err); ok {
		return failed(c.ID, refused.Code, refused.Message)
	}
	if in.Spelling == "rfc" {
		result = sched.InRFC(result)
	}
	return &api.RPCResponse{Version: "2.0", ID: c.ID, Result: result}
}

func failed(id json.RawMessage, code sched.Code, message string) *api.RPCResponse {
	if id == nil {
		id = json.RawMessage("null")
	}
	e := &api.RPCError{Code: int(code), Message: message}
	if name := code.Name(); name != "" {
		e.Data = &api.RPCErrorData{Name: name}
	}
	return &api.RPCResponse{Version: "2.0", ID: id, Error: e}
}

func (p rpc) write(w http.ResponseWriter, r *http.Request, v any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(v); err != nil {
		p.log.Debug().Err(err).Str("path", r.URL.Path).Msg("answer not sent")
	}
}
