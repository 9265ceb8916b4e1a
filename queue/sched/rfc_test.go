package sched_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/queue/sched"
)

// documented returns the rows of the table in docs/queue.md that has these columns.
func documented(t *testing.T, columns ...string) (rows [][]string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/queue.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), "\n| "+strings.Join(columns, " | ")+" |\n")
	if !found {
		t.Fatalf("docs/queue.md has no table of %q", columns)
	}
	for _, line := range strings.Split(table, "\n")[1:] {
		if !strings.HasPrefix(line, "|") {
			break
		}
		var row []string
		for _, cell := range strings.Split(strings.Trim(line, "|"), "|") {
			row = append(row, strings.TrimSpace(cell))
		}
		rows = append(rows, row)
	}
	return rows
}

// scenes returns what opens a kernel with what the examples of docs/queue.md speak
// of, as if nothing had been done with it before.
func scenes(t *testing.T) func() *desk {
	t.Helper()
	d := open(t)
	d.enqueue(sched.EnqueueRequest{SchedID: "claimed"})
	if got := d.claim("sup-6", 1); len(got) != 1 {
		t.Fatalf("claimed %v", got)
	}
	deadline := d.now.Add(time.Hour)
	d.enqueue(sched.EnqueueRequest{SchedID: "waiting", Agent: "pid:7", Deadline: &deadline})
	d.enqueue(sched.EnqueueRequest{SchedID: "another"})
	dir := t.TempDir()
	n := 0
	return func() *desk {
		t.Helper()
		n++
		path := filepath.Join(dir, fmt.Sprintf("%d.db", n))
		if err := d.store.Backup(t.Context(), path); err != nil {
			t.Fatal(err)
		}
		return openAt(t, path)
	}
}

// example makes a call that is written as `method {…}`.
func (d *desk) example(cell string) (any, error) {
	d.Helper()
	method, params, ok := strings.Cut(strings.Trim(cell, "`"), " ")
	if !ok {
		d.Fatalf("%q is no call", cell)
	}
	return d.Call(d.Context(), "kernel.sched."+method, json.RawMessage(params))
}

// outcome is a result and what the store holds then, as JSON without ids that are
// drawn at random.
func (d *desk) outcome(result any) string {
	d.Helper()
	list, _, err := d.List(d.Context(), sched.ListRequest{})
	if err != nil {
		d.Fatal(err)
	}
	text, err := json.Marshal([]any{result, list})
	if err != nil {
		d.Fatal(err)
	}
	return regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}`).ReplaceAllString(string(text), "ID")
}

// TestSpellings: each line of the table is one call in two spellings, with the same
// result and the same effect.
func TestSpellings(t *testing.T) {
	rows := documented(t, "RFC 0007", "here")
	seen := map[string]bool{}
	scene := scenes(t)
	for _, row := range rows {
		theirs, ours := scene(), scene()
		before := ours.outcome(nil)
		var said [2]string
		for i, d := range []*desk{theirs, ours} {
			result, err := d.example(row[i])
			if err != nil {
				t.Errorf("%s: %v", row[i], err)
			}
			said[i] = d.outcome(result)
		}
		if said[0] != said[1] {
			t.Errorf("%s gives\n%s\nand %s gives\n%s", row[0], said[0], row[1], said[1])
		}
		method, _, _ := strings.Cut(strings.Trim(row[0], "`"), " ")
		seen[method] = true
		changes := method != "get" && method != "list" && method != "update_grant"
		if changes == strings.HasSuffix(said[0], strings.TrimPrefix(before, "[null")) {
			t.Errorf("%s: afterwards there is\n%s\nbefore there was\n%s", row[0], said[0], before)
		}
	}
	for _, method := range []string{"enqueue", "enqueue_unique", "claim", "complete", "cancel", "get", "list", "gc_expired", "gc_dispatched", "update_grant"} {
		if !seen[method] {
			t.Errorf("no line of the table is about %s", method)
		}
	}
}

// TestErrorTable: each code is given, under its name, for its example.
func TestErrorTable(t *testing.T) {
	rows := documented(t, "code", "name", "when", "for example")
	if len(rows) != 6 {
		t.Errorf("%d codes are documented, want 6", len(rows))
	}
	d := scenes(t)()
	for _, row := range rows {
		code, err := strconv.Atoi(row[0])
		if err != nil {
			t.Fatal(err)
		}
		_, err = d.example(row[3])
		d.refused(err, sched.Code(code), "")
		if name := sched.Code(code).Name(); "`"+name+"`" != row[1] && name != row[1] {
			t.Errorf("%d is called %q, documented %s", code, name, row[1])
		}
	}
}

// TestRFCResults: a result in the RFC's spelling has what is documented of it, and
// times are numbers.
func TestRFCResults(t *testing.T) {
	calls := map[string]string{
		"enqueue": `{"pid":1}`, "claim": `{"worker_id":"w"}`, "complete": `{"sched_id":"claimed","exit_kind":"crashed"}`,
		"cancel": `{"sched_id":"another"}`, "get": `{"sched_id":"waiting"}`, "list": `{}`, "gc_expired": `{}`,
	}
	scene := scenes(t)
	for _, row := range documented(t, "result of", "members") {
		method := strings.Trim(row[0], "`")
		d := scene()
		result, err := d.example(method + " " + calls[method])
		if err != nil {
			t.Errorf("%s: %v", method, err)
			continue
		}
		delete(calls, method)
		text, err := json.Marshal(sched.InRFC(result))
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]any
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatal(err)
		}
		for _, member := range strings.Split(row[1], ", ") {
			if _, has := got[strings.Trim(member, "`")]; !has {
				t.Errorf("%s: %s has no %s", method, text, member)
			}
		}
		switch method {
		case "get":
			want := map[string]any{"pid": 7.0, "runnable_at": 1772366400.0, "deadline": 1772370000.0, "dispatched_at": nil, "worker_id": nil, "payload": map[string]any{}, "exit_kind": nil}
			for member, v := range want {
				if !reflect.DeepEqual(got[member], v) {
					t.Errorf("get: %s is %v, want %v", member, got[member], v)
				}
			}
		case "complete":
			if got["exit_kind"] != "crashed" || got["prev_state"] != "dispatched" || got["completed_at"] != 1772366400.0 {
				t.Errorf("complete: %s", text)
			}
		}
	}
	if len(calls) > 0 {
		t.Errorf("nothing is documented of the results of %v", calls)
	}
}

// TestAdmissionCheck: without it a claim gets what an owner has queued that has used
// up its grant.
func TestAdmissionCheck(t *testing.T) {
	d := open(t)
	ctx := t.Context()
	if err := d.UpdateGrant(ctx, queue.Grant{Owner: queue.Owner{Tenant: "acme"}, Tokens: 10}); err != nil {
		t.Fatal(err)
	}
	first := d.enqueue(sched.EnqueueRequest{Tenant: "acme"})
	d.claim("w", 1)
	if _, err := d.Complete(ctx, sched.CompleteRequest{SchedID: first.SchedID, WorkerID: "w", Usage: job.Usage{InputTokens: 10}}); err != nil {
		t.Fatal(err)
	}
	d.enqueue(sched.EnqueueRequest{Tenant: "acme"})
	for _, c := range []struct {
		check string
		want  int
	}{{`{"worker_id":"w"}`, 0}, {`{"worker_id":"w","admission_check":true}`, 0}, {`{"worker_id":"w","admission_check":false}`, 1}} {
		got, err := d.example("claim " + c.check)
		if err != nil || got.(sched.Entries).Total != c.want {
			t.Errorf("claim %s: %+v, %v; want %d", c.check, got, err, c.want)
		}
	}
}

// TestNowOfTheCaller: it decides what is runnable; the lease is from the call on.
func TestNowOfTheCaller(t *testing.T) {
	d := open(t)
	d.enqueue(sched.EnqueueRequest{RunnableAt: new(d.now.Add(time.Hour))})
	if got := d.claim("w", 1); len(got) != 0 {
		t.Fatalf("claimed %v, which lies ahead", got)
	}
	got, err := d.example(fmt.Sprintf(`claim {"worker_id":"w","now":%d}`, d.now.Add(2*time.Hour).Unix()))
	if err != nil {
		t.Fatal(err)
	}
	list := got.(sched.Entries).Entries
	if len(list) != 1 || !list[0].LeaseUntil.Equal(d.now.Add(sched.DefaultLease)) || !list[0].DispatchedAt.Equal(d.now.Add(2*time.Hour)) {
		t.Errorf("claimed %+v", list)
	}
}

// TestWrongTypes: each is refused with the parameter's name and what would be right.
func TestWrongTypes(t *testing.T) {
	d := scenes(t)()
	for _, c := range []struct {
		call string
		code sched.Code
		text string
	}{
		{`enqueue {"priority":1.5}`, sched.InvalidPayload, "priority: a JSON number 1.5 is not allowed, want a whole number"},
		{`enqueue {"pid":"seven"}`, sched.InvalidPayload, "pid: a JSON string is not allowed, want a whole number"},
		{`enqueue {"pid":-1}`, sched.InvalidPayload, "pid: -1 is negative"},
		{`enqueue {"pid":1,"agent":"other"}`, sched.InvalidPayload, "pid: 1 is the agent pid:1"},
		{`enqueue {"runnable_at":"soon"}`, sched.InvalidPayload, `runnable_at: "soon" is not a time`},
		{`enqueue {"runnable_at":-5}`, sched.InvalidPayload, "runnable_at: -5 is out of range"},
		{`enqueue {"runnable_at":1e300}`, sched.InvalidPayload, "runnable_at: 1e300 is out of range"},
		{`enqueue {"deadline":true}`, sched.InvalidPayload, "deadline: true is not a time"},
		{`enqueue {"deadline":1}`, sched.InvalidPayload, "deadline"},
		{`enqueue {"trigger":5}`, sched.InvalidPayload, "trigger: a JSON number is not allowed, want a text"},
		{`enqueue {"trigger":"two words"}`, sched.InvalidPayload, `trigger: "two words" is not a name`},
		{`claim {"worker_id":"w","admission_check":"no"}`, sched.InvalidPayload, "admission_check: a JSON string is not allowed, want true or false"},
		{`claim {"worker_id":"w","lease":60}`, sched.InvalidPayload, `lease: a JSON number is not allowed, want a duration such as "90s"`},
		{`claim {"worker_id":"w","now":"0001-01-01T00:00:00Z"}`, sched.InvalidPayload, "now: 0001-01-01T00:00:00Z is out of range"},
		{`claim {"worker_id":"w","now":"9999-01-01T00:00:00Z"}`, sched.InvalidPayload, "now: 9999-01-01T00:00:00Z is out of range"},
		{`complete {"sched_id":"claimed","exit_kind":"exploded"}`, sched.InvalidPayload, `exit_kind: "exploded" is unknown`},
		{`complete {"sched_id":"claimed","usage":{"steps":"many"}}`, sched.InvalidPayload, "usage.steps: a JSON string is not allowed"},
		{`list {"state":5}`, sched.InvalidStateFilter, "state: a JSON number is not allowed, want a state or a list of states"},
		{`list []`, sched.InvalidParams, "params"},
		{`gc_expired {"then":5}`, sched.InvalidParams, `"then" is no parameter of this call, want some of now`},
	} {
		_, err := d.example(c.call)
		d.refused(err, c.code, c.text)
	}
}
