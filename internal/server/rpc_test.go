package server_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue/sched"
)

// TestRPC: the whole life of an entry over the socket, through the client.
func TestRPC(t *testing.T) {
	d := open(t, 0)
	c := client.New(d.socket)
	defer c.Close()
	call := func(method string, params, result any) {
		t.Helper()
		if err := c.Call(t.Context(), method, params, result); err != nil {
			t.Fatalf("%s: %v", method, err)
		}
	}
	var made sched.Enqueued
	call(sched.MethodEnqueue, sched.EnqueueRequest{Tenant: "acme", Payload: json.RawMessage(`{"n":1}`)}, &made)
	var got sched.Entries
	call(sched.MethodClaim, sched.ClaimRequest{WorkerID: "w", MaxN: 10}, &got)
	if got.Total != 1 || got.Entries[0].SchedID != made.SchedID || string(got.Entries[0].Payload) != `{"n":1}` {
		t.Fatalf("claimed %+v", got)
	}
	var done sched.Entry
	call(sched.MethodComplete, sched.CompleteRequest{SchedID: made.SchedID, WorkerID: "w"}, &done)
	if done.State != job.Completed {
		t.Errorf("completed %+v", done)
	}
	call(sched.MethodList, sched.ListRequest{}, &got)
	if got.Total != 3 { // and the scheduler's own two
		t.Errorf("listed %+v", got)
	}
	err := c.Call(t.Context(), sched.MethodCancel, sched.ByID{SchedID: made.SchedID}, nil)
	if refused, ok := errors.AsType[*api.RPCError](err); !ok || refused.Code != int(sched.IllegalTransition) {
		t.Errorf("cancel what is completed: %v", err)
	}
	// What the scheduler runs itself is not for others.
	err = c.Call(t.Context(), sched.MethodComplete, sched.CompleteRequest{SchedID: d.ids[0], WorkerID: "w"}, nil)
	if refused, ok := errors.AsType[*api.RPCError](err); !ok || refused.Code != int(sched.IllegalTransition) {
		t.Errorf("complete a job of the scheduler: %v", err)
	}
}

// TestRPCFrames: what JSON-RPC 2.0 says of frames, notifications and batches.
func TestRPCFrames(t *testing.T) {
	d := open(t, 0)
	for _, c := range []struct{ what, body, want string }{
		{"a call", `{"jsonrpc":"2.0","id":"a","method":"kernel.sched.gc_expired"}`, `{"jsonrpc":"2.0","id":"a","result":{"sched_ids":[],"count":0,"swept":0}}`},
		{"an id of null", `{"jsonrpc":"2.0","id":null,"method":"kernel.sched.gc_expired"}`, `{"jsonrpc":"2.0","id":null,"result":{"sched_ids":[],"count":0,"swept":0}}`},
		{"a notification", `{"jsonrpc":"2.0","method":"kernel.sched.gc_expired"}`, ``},
		{"no JSON", `{`, `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,`},
		{"an empty body", ``, `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,`},
		{"no call", `{"id":1}`, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,`},
		{"a text", `"hello"`, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,`},
		{"an empty batch", `[]`, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,`},
		{"a batch", `[{"jsonrpc":"2.0","id":1,"method":"kernel.sched.gc_expired"},{"jsonrpc":"2.0","method":"kernel.sched.gc_expired"},7,{"jsonrpc":"2.0","id":2,"method":"fly"}]`,
			`[{"jsonrpc":"2.0","id":1,"result":{"sched_ids":[],"count":0,"swept":0}},{"jsonrpc":"2.0","id":null,"error":{"code":-32600,`},
		{"a batch of notifications", `[{"jsonrpc":"2.0","method":"kernel.sched.gc_expired"}]`, ``},
		{"an unknown state", `{"jsonrpc":"2.0","id":1,"method":"kernel.sched.list","params":{"state":["asleep"]}}`, `{"jsonrpc":"2.0","id":1,"error":{"code":-32135,`},
	} {
		resp, err := d.http.Post("http://scheduler/v1/rpc", "application/json", strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		status := http.StatusOK
		if c.want == "" {
			status = http.StatusNoContent
		}
		if err != nil || resp.StatusCode != status || !strings.HasPrefix(string(text), c.want) || c.want == "" && len(text) > 0 {
			t.Errorf("%s: %d %s, %v; want %d %s…", c.what, resp.StatusCode, text, err, status, c.want)
		}
	}
}

// TestRPCSpelling: results as RFC 0007 has them, where they are asked for so, and
// the names of errors.
func TestRPCSpelling(t *testing.T) {
	d := open(t, 0)
	for _, c := range []struct{ query, body, want string }{
		{"?spelling=rfc", `{"jsonrpc":"2.0","id":1,"method":"kernel.sched.enqueue","params":{"pid":7,"sched_id":"a","runnable_at":1772366400.5}}`, `"runnable_at":1772366400.5,`},
		{"?spelling=rfc", `[{"jsonrpc":"2.0","id":1,"method":"kernel.sched.get","params":{"sched_id":"a"}}]`, `"pid":7,`},
		{"", `{"jsonrpc":"2.0","id":1,"method":"kernel.sched.get","params":{"sched_id":"a"}}`, `"runnable_at":"2026-03-01T12:00:00.5Z"`},
		{"", `{"jsonrpc":"2.0","id":1,"method":"kernel.sched.get","params":{"sched_id":"b"}}`, `"data":{"name":"kernel_sched_unknown_id"}`},
		{"?spelling=ours", `{"jsonrpc":"2.0","id":1,"method":"kernel.sched.get","params":{"sched_id":"a"}}`, `query.spelling`},
	} {
		resp, err := d.http.Post("http://scheduler/v1/rpc"+c.query, "application/json", strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		if said := readAll(t, resp); !strings.Contains(said, c.want) {
			t.Errorf("%s%s: %s, want %s", c.query, c.body, said, c.want)
		}
	}
}
