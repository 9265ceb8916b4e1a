package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
)

// TestDoorDeadListener: listeners that never read a byte slow nobody: a job that
// prints more than any buffer takes ends, and whoever reads hears all of it.
func TestDoorDeadListener(t *testing.T) {
	t.Parallel()
	const lines, dead, alive = 4000, 4, 3
	b := newBench(t)
	b.listenTCP()
	token := b.token("listener", "read")
	r := b.serve()
	base, _ := b.link()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for i := range dead {
		conn := deafTo(t, base, token, i)
		defer conn.Close()
	}
	b.submit(b.jobs(shell("talks", nil, until(b.folder("go"))+fmt.Sprintf("; line=$(printf %%01000d 7); for i in $(seq %d); do echo $i $line; test $((i%%50)) -gt 0 || sleep 0.1; done", lines), nil)))
	// One each of these listens to everything, and one to the job.
	heard := make([]map[string]int, 2*alive)
	var all sync.WaitGroup
	id := b.idOf("talks")
	for i := range heard {
		heard[i] = map[string]int{}
		path := "/v1/stream?kinds=job,event"
		if i >= alive {
			path = "/v1/jobs/" + string(id) + "/stream"
		}
		s, err := b.socketDoor().open(ctx, path, "")
		if err != nil {
			b.fatalf("listener %d: %v", i, err)
		}
		all.Go(func() {
			err := s.each(func(e sent) bool {
				if e.kind == "event" {
					heard[i][said(eventOf(t, e))]++
				}
				return !ends(t, e, id)
			})
			if err != nil {
				t.Errorf("listener %d: %v", i, err)
			}
		})
	}
	b.write(b.folder("go"), "")
	r.end("talks", job.RunCompleted)
	all.Wait()
	want := map[string]int{}
	for _, e := range b.storedEvents("talks") {
		want[said(&e.Event)]++
	}
	delete(want, "") // other events
	// A core leaves out what it cannot store in time; most of it is there.
	t.Logf("%d of %d lines are stored", len(want), lines)
	if len(want) < lines/2 {
		t.Errorf("%d of %d lines show nothing", len(want), lines)
	}
	for i, got := range heard {
		for n := 1; n <= lines; n++ {
			if line := strconv.Itoa(n); got[line] != want[line] {
				t.Errorf("listener %d has heard line %d %d times, and stored it is %d times", i, n, got[line], want[line])
				break
			}
		}
	}
	cancel()
	r.stop()
	b.soundState()
}

// deafTo connects a listener that has asked for everything and will not read.
func deafTo(t *testing.T, base, token string, i int) net.Conn {
	t.Helper()
	host := strings.TrimPrefix(base, "http://")
	conn, err := net.Dial("tcp", host)
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	_, err = fmt.Fprintf(conn, "GET /v1/stream?kinds=job,core,event HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n\r\n", host, token)
	if err != nil {
		t.Fatalf("listener %d: %v", i, err)
	}
	return conn
}

// said returns the first word of what a run has printed, "" of another event.
func said(e *job.Event) string {
	if e == nil || e.Kind != job.EventText {
		return ""
	}
	word, _, _ := strings.Cut(e.Text, " ")
	return word
}

// eventOf returns the event of a run that either of the streams tells of.
func eventOf(t *testing.T, e sent) *job.Event {
	t.Helper()
	type stored api.Event
	var u struct {
		Event *job.Event
		stored
	}
	if err := json.Unmarshal([]byte(e.data), &u); err != nil {
		t.Errorf("%s: %v", e.data, err)
		return nil
	}
	if u.Event != nil {
		return u.Event
	}
	return &u.stored.Event
}

// ends reports whether an event of one of the streams tells of the job's end.
func ends(t *testing.T, e sent, id job.ID) bool {
	t.Helper()
	if e.kind != "job" {
		return e.kind == "end"
	}
	var u api.Update
	if strings.Contains(e.data, `"kind":"job"`) {
		if err := json.Unmarshal([]byte(e.data), &u); err != nil {
			t.Errorf("%s: %v", e.data, err)
			return true
		}
	}
	return u.Job == id && u.Entry.Terminal()
}

// TestDoorResume: a listener that is cut off again and again, and goes on at the
// last event that it has heard, hears what one hears who was never cut off.
func TestDoorResume(t *testing.T) {
	t.Parallel()
	const cuts, between = 40, 7
	b := newBench(t)
	r := b.serve()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	d := b.socketDoor()
	const path = "/v1/stream?kinds=job,event"
	last := func(e sent) bool {
		return strings.Contains(e.data, `"name":"last"`) && strings.Contains(e.data, `"entry_state":"completed"`)
	}
	uncut, err := d.open(ctx, path, "")
	if err != nil {
		t.Fatal(err)
	}
	cut, err := d.open(ctx, path, "")
	if err != nil {
		t.Fatal(err)
	}
	var whole, pieces []string
	var all sync.WaitGroup
	all.Go(func() {
		err := uncut.each(func(e sent) bool {
			whole = append(whole, e.id+" "+e.kind)
			return !last(e)
		})
		if err != nil {
			t.Errorf("the one who was never cut off: %v", err)
		}
	})
	all.Go(func() {
		id, over := "", false
		for n := 0; !over; n++ {
			if cut == nil {
				if cut, err = d.open(ctx, path, id); err != nil {
					t.Errorf("after %q: %v", id, err)
					return
				}
			}
			heard := 0
			err := cut.each(func(e sent) bool {
				pieces = append(pieces, e.id+" "+e.kind)
				id, over = e.id, last(e)
				heard++
				return !over && (n >= cuts || heard < between)
			})
			if err != nil {
				t.Errorf("after %q: %v", id, err)
				return
			}
			cut = nil
		}
	})
	var more []obj
	for i := range 20 {
		more = append(more, shell(fmt.Sprintf("more-%02d", i), nil, "seq 20", nil))
	}
	b.submit(b.jobs(more...))
	r.ends(len(more))
	b.submit(b.jobsOf("tests", "last.yaml", shell("last", nil, "true", nil)))
	all.Wait()
	if len(whole) != len(pieces) {
		t.Fatalf("%d events with cuts, %d without", len(pieces), len(whole))
	}
	if len(pieces) < cuts*between {
		t.Errorf("%d events show nothing", len(pieces))
	}
	for i := range whole {
		if whole[i] != pieces[i] {
			t.Fatalf("event %d of %d is %s, and %s with cuts", i, len(whole), whole[i], pieces[i])
		}
	}
	r.stop()
	b.soundState()
}

// TestDoorResumeOverKill: the log of a job goes on where its listener was, also
// when the server was killed with SIGKILL in between and the job done again.
func TestDoorResumeOverKill(t *testing.T) {
	t.Parallel()
	const lines = 200
	b := newBench(t)
	r := b.serve()
	b.submit(b.jobs(shell("long", nil, fmt.Sprintf("seq %d; echo begun; ", lines)+until(b.folder("go"))+fmt.Sprintf("; seq %d", lines), nil)))
	id := b.idOf("long")
	path := "/v1/jobs/" + string(id) + "/stream"
	d := b.socketDoor()
	r.await("the first half", onText("long", "begun"))
	var got []int64
	cursor, over := "", false
	take := func(until int) func(sent) bool {
		return func(e sent) bool {
			if e.kind == "event" {
				n, err := strconv.ParseInt(e.id, 10, 64)
				if err != nil {
					t.Errorf("the id of an event is %q", e.id)
				}
				got, cursor = append(got, n), e.id
			}
			over = e.kind == "end"
			return !over && len(got) < until
		}
	}
	if err := d.hear(t.Context(), path, "", take(lines/2)); err != nil {
		b.fatalf("the first half: %v", err)
	}
	r.kill()
	if err := d.hear(t.Context(), path, cursor, take(lines)); err == nil {
		t.Error("a server that was killed tells more")
	}
	r = b.serve()
	// Cut off once more while the job runs again, then until its end.
	if err := d.hear(t.Context(), path, cursor, take(lines/2+20)); err != nil {
		b.fatalf("after the kill: %v", err)
	}
	b.write(b.folder("go"), "")
	if err := d.hear(t.Context(), path, cursor, take(1<<20)); err != nil || !over {
		b.fatalf("to the end: %v", err)
	}
	r.stop()
	b.soundState()
	var want []int64
	for _, e := range b.storedEvents("long") {
		want = append(want, e.Cursor)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the listener has heard %d events, stored are %d:\n%v\n%v", len(got), len(want), got, want)
	}
	if j := b.show("long"); len(j.Attempts) < 2 {
		t.Errorf("the kill cost no attempt: %s", asJSON(t, j))
	}
}

// storedEvents returns what the store has of a job's log.
func (b *bench) storedEvents(name string) (list []api.Event) {
	b.t.Helper()
	out, errs, code := b.command("logs", name, "--json")
	if code != 0 {
		b.fatalf("logs %s: exit code %d\n%s", name, code, errs)
	}
	for line := range strings.Lines(out) {
		var e api.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			b.fatalf("logs %s: %v\n%s", name, err, line)
		}
		list = append(list, e)
	}
	return list
}
