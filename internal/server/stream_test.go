package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/server"
	"github.com/agentsched/agentsched/job"
)

// sse is one Server-Sent Event.
type sse struct{ id, kind, data string }

// listen opens a stream; next returns its next event.
func (d *served) listen(ctx context.Context, path string, header ...string) (next func() sse, resp *http.Response) {
	d.t.Helper()
	r, err := http.NewRequestWithContext(ctx, "GET", "http://scheduler"+path, nil)
	if err != nil {
		d.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	if resp, err = d.http.Do(r); err != nil {
		d.t.Fatal(err)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	return func() (e sse) {
		for lines.Scan() {
			name, value, _ := strings.Cut(lines.Text(), ": ")
			switch name {
			case "id":
				e.id = value
			case "event":
				e.kind = value
			case "data":
				e.data = value
			case "":
				if e.kind != "" {
					return e
				}
			}
		}
		return sse{}
	}, resp
}

func (e sse) update(t *testing.T) (u api.Update) {
	t.Helper()
	if err := json.Unmarshal([]byte(e.data), &u); err != nil {
		t.Fatalf("event %+v: %v", e, err)
	}
	return u
}

// TestStream: a listener hears what it asked for, and after a break what it missed.
func TestStream(t *testing.T) {
	d := open(t, 0)
	ctx, cancel := context.WithCancel(t.Context())
	next, resp := d.listen(ctx, "/v1/stream?kinds=job,core")
	if resp.Header.Get("Content-Type") != "text/event-stream" || resp.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("header %v", resp.Header)
	}
	d.sched.Feed.Tell("first")
	first := next()
	if u := first.update(t); first.kind != "core" || u.Text != "first" || u.ID != first.id || first.id == "" {
		t.Errorf("event %+v", first)
	}
	cancel()
	resp.Body.Close()

	d.sched.Feed.Tell("missed")
	c := client.New(d.socket)
	defer c.Close()
	for _, ref := range d.ids {
		if _, err := c.Cancel(t.Context(), string(ref)); err != nil {
			t.Fatal(err)
		}
	}
	next, resp = d.listen(t.Context(), "/v1/stream?kinds=job,core", "Last-Event-ID", first.id)
	if u := next().update(t); u.Text != "missed" {
		t.Errorf("after the break: %+v", u)
	}
	if u := next().update(t); u.Job != d.ids[0] || u.State != job.RunCancelled {
		t.Errorf("after the break: %+v", u)
	}
	resp.Body.Close()
	// One that has been away for too long, or hears another scheduler, is told so.
	next, resp = d.listen(t.Context(), "/v1/stream?kinds=circuit", "Last-Event-ID", "another-7")
	defer resp.Body.Close()
	if gap := next(); gap.kind != "gap" || gap.update(t).Kind != api.UpdateGap {
		t.Errorf("a gap: %+v", gap)
	}
}

// TestStreamTellsItsPosition: one that is cut off before it has heard anything knows from
// where to go on.
func TestStreamTellsItsPosition(t *testing.T) {
	d := open(t, 0)
	_, resp := d.listen(t.Context(), "/v1/stream")
	id := ""
	for lines := bufio.NewScanner(resp.Body); id == "" && lines.Scan(); {
		if at, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
			id = at
		}
	}
	resp.Body.Close()
	d.sched.Feed.Tell("missed")
	next, resp := d.listen(t.Context(), "/v1/stream?kinds=core", "Last-Event-ID", id)
	defer resp.Body.Close()
	if u := next().update(t); u.Text != "missed" {
		t.Errorf("after the break: %+v", u)
	}
}

// TestStreamOfOneJob tells of no other.
func TestStreamOfOneJob(t *testing.T) {
	d := open(t, 0)
	next, resp := d.listen(t.Context(), "/v1/stream?job="+string(d.ids[1]))
	defer resp.Body.Close()
	c := client.New(d.socket)
	defer c.Close()
	for _, ref := range d.ids {
		if _, err := c.Cancel(t.Context(), string(ref)); err != nil {
			t.Fatal(err)
		}
	}
	if u := next().update(t); u.Job != d.ids[1] {
		t.Errorf("update %+v", u)
	}
}

// TestListenersAreBounded, and a place is given back.
func TestListenersAreBounded(t *testing.T) {
	d := open(t, 0, func(o *server.Options) { o.MaxListeners = 1 })
	ctx, cancel := context.WithCancel(t.Context())
	next, resp := d.listen(ctx, "/v1/stream")
	_, second := d.listen(t.Context(), "/v1/jobs/one/stream")
	if p := problemIn(t, second); p.Name() != "too_many_listeners" || p.Status != http.StatusServiceUnavailable || second.Header.Get("Retry-After") == "" {
		t.Errorf("the second: %+v", p)
	}
	second.Body.Close()
	d.sched.Feed.Tell("x")
	next()
	cancel()
	resp.Body.Close()
	for {
		_, resp := d.listen(t.Context(), "/v1/stream")
		status := resp.StatusCode
		resp.Body.Close()
		if status == http.StatusOK {
			return
		}
		if t.Context().Err() != nil {
			t.Fatal("the place is not given back")
		}
	}
}

// TestDeadListener: one that reads nothing keeps neither the scheduler nor another
// listener from going on.
func TestDeadListener(t *testing.T) {
	d := open(t, 0)
	dead, err := net.Dial("unix", d.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer dead.Close()
	if _, err := fmt.Fprint(dead, "GET /v1/stream HTTP/1.1\r\nHost: scheduler\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(dead).ReadString('\n'); err != nil || !strings.Contains(line, "200") {
		t.Fatalf("%q, %v", line, err)
	}
	next, resp := d.listen(t.Context(), "/v1/stream")
	defer resp.Body.Close()
	text := strings.Repeat("x", 1000)
	for i := range 5000 {
		d.sched.Feed.Tell(fmt.Sprint(i, " ", text))
		if i%100 == 99 {
			for heard := ""; !strings.HasPrefix(heard, fmt.Sprint(i, " ")); {
				heard = next().update(t).Text
			}
		}
	}
}

// TestStreamEndsWithServe: a listener does not hold up the end.
func TestStreamEndsWithServe(t *testing.T) {
	d := open(t, 0)
	next, resp := d.listen(t.Context(), "/v1/stream")
	t.Cleanup(func() { resp.Body.Close() })
	d.sched.Feed.Tell("x")
	next()
	d.stop()
	// One that had to be cut off would lack the end of its body.
	if _, err := io.ReadAll(resp.Body); err != nil {
		t.Errorf("the stream was cut off: %v", err)
	}
}

// TestJobStream follows a job's log, goes on after a cursor and ends with the job.
func TestJobStream(t *testing.T) {
	d := world(t)
	next, resp := d.listen(t.Context(), "/v1/jobs/"+string(d.last)+"/stream")
	defer resp.Body.Close()
	first, second, state, end := next(), next(), next(), next()
	var e api.Event
	if err := json.Unmarshal([]byte(first.data), &e); err != nil || first.kind != "event" || e.Text != "hello" || first.id != fmt.Sprint(e.Cursor) {
		t.Errorf("first %+v, %v", first, err)
	}
	if second.kind != "event" || state.kind != "job" || state.id != "" || end.kind != "end" || end.data != `{"state":"completed"}` {
		t.Errorf("then %+v, %+v, %+v", second, state, end)
	}
	if last := next(); last.kind != "" {
		t.Errorf("after the end: %+v", last)
	}
	resumed, resp2 := d.listen(t.Context(), "/v1/jobs/"+string(d.last)+"/stream", "Last-Event-ID", first.id)
	defer resp2.Body.Close()
	if e := resumed(); e.id != second.id {
		t.Errorf("resumed with %+v, want %+v", e, second)
	}
	_, bad := d.listen(t.Context(), "/v1/jobs/"+string(d.last)+"/stream", "Last-Event-ID", "x")
	defer bad.Body.Close()
	if p := problemIn(t, bad); p.Status != http.StatusBadRequest {
		t.Errorf("a bad id: %+v", p)
	}
}

// TestJobStreamHearsChanges: it is told of a job that changes while it listens.
func TestJobStreamHearsChanges(t *testing.T) {
	d := open(t, 0)
	next, resp := d.listen(t.Context(), "/v1/jobs/one/stream")
	defer resp.Body.Close()
	if e := next(); e.kind != "job" || !strings.Contains(e.data, `"state":"queued"`) {
		t.Errorf("first %+v", e)
	}
	c := client.New(d.socket)
	defer c.Close()
	if _, err := c.Cancel(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	if e := next(); e.kind != "job" || !strings.Contains(e.data, `"state":"cancelled"`) {
		t.Errorf("then %+v", e)
	}
	if e := next(); e.kind != "end" || e.data != `{"state":"cancelled"}` {
		t.Errorf("at last %+v", e)
	}
}

// TestStreamsOfOne: one who follows as many streams as may be leaves room for others.
func TestStreamsOfOne(t *testing.T) {
	who := "greedy"
	d := open(t, 0, func(o *server.Options) { o.MaxListeners, o.Principal = 8, principal(&who) })
	follow := func() *http.Response {
		resp, err := d.http.Get("http://scheduler/v1/stream")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp
	}
	first := follow()
	for i := range 6 {
		want := http.StatusOK
		if i >= 1 {
			want = http.StatusTooManyRequests
		}
		if resp := follow(); resp.StatusCode != want || want != http.StatusOK && resp.Header.Get("Retry-After") == "" {
			t.Fatalf("stream %d of one is answered %s, want %d", i+2, resp.Status, want)
		}
	}
	for _, who = range []string{"another", "a third", "a fourth"} {
		for range 2 {
			if resp := follow(); resp.StatusCode != http.StatusOK {
				t.Fatalf("a stream of %s is answered %s", who, resp.Status)
			}
		}
	}
	if who = "a fifth"; follow().StatusCode != http.StatusServiceUnavailable {
		t.Error("a ninth stream is not refused")
	}
	// A place that is given back is free.
	first.Body.Close()
	for who = "greedy"; follow().StatusCode != http.StatusOK; {
	}
}
