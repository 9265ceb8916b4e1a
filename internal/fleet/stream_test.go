package fleet_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/fleet"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// sse is a stream of Server-Sent Events as a browser reads it.
type sse struct {
	t     *testing.T
	body  io.ReadCloser
	lines *bufio.Scanner
	last  string // id
}

// stream opens one at the door for clients, going on after the event last.
func (h *host) stream(path, last string) *sse {
	h.w.Helper()
	r, err := http.NewRequest("GET", h.door+path, nil)
	h.w.must(err)
	r.Header.Set("Authorization", "Bearer "+h.w.token[read])
	if last != "" {
		r.Header.Set("Last-Event-ID", last)
	}
	r.Close = true
	resp, err := http.DefaultClient.Do(r)
	h.w.must(err)
	if resp.StatusCode != 200 {
		h.w.Fatalf("%s: %s", path, resp.Status)
	}
	h.w.Cleanup(func() { resp.Body.Close() })
	return &sse{t: h.w.T, body: resp.Body, lines: bufio.NewScanner(resp.Body), last: last}
}

// next returns the next frame: its event, and its data; "" where the frame has none.
// over: the stream has ended in order.
func (s *sse) next() (event, data string, over bool) {
	s.t.Helper()
	for s.lines.Scan() {
		name, value, _ := strings.Cut(s.lines.Text(), ":")
		switch value = strings.TrimPrefix(value, " "); name {
		case "":
			if s.lines.Text() == "" {
				return event, data, false
			}
			if strings.Contains(value, "revision") {
				s.t.Errorf("a mark has come through: %s", s.lines.Text())
			}
		case "id":
			s.last = value
		case "event":
			event = value
		case "data":
			data = value
		}
	}
	if err := s.lines.Err(); err != nil {
		s.t.Errorf("the stream broke: %v", err)
	}
	return "", "", true
}

// await reads up to an event, and fails if the stream ends before.
func (s *sse) await(event, text string) {
	s.t.Helper()
	for {
		got, data, over := s.next()
		switch {
		case over:
			s.t.Fatalf("it ended before %s with %q", event, text)
		case got == event && strings.Contains(data, text):
			return
		case got != "":
			s.t.Errorf("%s %s, want %s with %q", got, data, event, text)
		}
	}
}

// begin reads up to where the stream says at which update it begins: it listens by then.
func (s *sse) begin() {
	s.t.Helper()
	for s.last == "" {
		if _, _, over := s.next(); over {
			s.t.Fatal("it ended before it had begun")
		}
	}
}

// A stream that is passed on ends when the leader changes. Who comes back hears that some
// updates are missing, as after a restart, and goes on with the new leader; who comes back
// to the same one misses none.
func TestStreamOfUpdates(t *testing.T) {
	w := newWorld(t)
	a := w.leader("a").leads()
	b := w.standby("b")
	s := b.stream("/v1/stream?kinds=core", "")
	s.begin()
	a.sched.Feed.Tell("of a")
	s.await("core", "of a")

	s.body.Close()
	a.sched.Feed.Tell("meanwhile")
	s = b.stream("/v1/stream?kinds=core", s.last)
	s.await("core", "meanwhile")

	c := w.leader("c").leads()
	if event, data, over := s.next(); !over {
		t.Errorf("goes on with %s %s", event, data)
	}
	s = b.stream("/v1/stream?kinds=core", s.last)
	s.await("gap", `"kind":"gap"`)
	c.sched.Feed.Tell("of c")
	s.await("core", "of c")

	// The end of the standby ends it, too.
	b.stop()
	if event, data, over := s.next(); !over {
		t.Errorf("goes on with %s %s", event, data)
	}
}

// The log of a job goes on at the new leader after the last event that was heard.
func TestStreamOfJob(t *testing.T) {
	w := newWorld(t)
	a := w.leader("a").leads()
	b := w.standby("b")
	id := a.job("one")
	now := time.Now().UTC().Round(0)
	claims, err := a.store.Claim(t.Context(), queue.ClaimSpec{Holder: "test", Max: 1, Now: now, Lease: time.Hour})
	w.must(err)
	fence := claims.Entries[0].Fence
	event := func(n int64, text string) queue.Op {
		return queue.Append{Events: []job.Event{{Job: id, Attempt: 1, Seq: n, Time: now, Kind: job.EventText, Text: text}}}
	}
	w.must(a.store.Apply(t.Context(),
		queue.Begin{ID: id, Fence: fence, Attempt: job.Attempt{Job: id, Number: 1, Fence: fence, Choice: claims.Entries[0].Spec.Choices()[0], State: job.Pending, Started: now}},
		queue.Move{ID: id, Fence: fence, Attempt: 1, To: job.Running}, event(1, "at a")))

	c, err := client.Dial(client.Options{URL: b.door, Token: w.token[read]})
	w.must(err)
	defer c.Close()
	breaks := 0
	var heard []string
	var next *host
	for f, err := range c.Follow(t.Context(), "one", client.FollowOptions{OnBreak: func(error, time.Duration) {
		breaks++
		if to := next; to != nil { // nobody can have heard of this from a
			next = nil
			w.must(to.store.Apply(t.Context(), event(2, "at c"), queue.Finish{ID: id, Fence: fence, Attempt: 1, Now: now, Exit: job.ExitSucceeded, Outcome: job.Outcome{State: job.RunCompleted, StartedAt: now, EndedAt: now}}))
			to.leads()
		}
	}}) {
		w.must(err)
		switch {
		case f.Event != nil:
			heard = append(heard, f.Event.Text)
		case f.Job != nil:
			heard = append(heard, string(f.Job.State))
		}
		if len(heard) == 2 { // all that a has to tell: the lead goes on to another scheduler
			next = w.leader("c")
			w.members.lead("", "", nil)
		}
	}
	slices.Sort(heard)
	if want := []string{"at a", "at c", "completed", "dispatched"}; !slices.Equal(heard, want) || breaks == 0 {
		t.Errorf("heard %q over %d breaks, want %q", heard, breaks, want)
	}
}

// A stream tells nothing that a read of the copy would not show.
func TestStreamWaitsForCopy(t *testing.T) {
	w := newWorld(t)
	a := w.leader("a").leads()
	local := &copyOf{asked: make(chan int64), goOn: make(chan struct{})}
	b := w.standby("b", func(c *fleet.PassConfig) { c.Copy = local })
	a.revision.Store(5)
	done := make(chan struct{})
	var arrived atomic.Bool
	listens := make(chan struct{})
	go func() {
		defer close(done)
		s := b.stream("/v1/stream?kinds=core", "")
		s.begin()
		close(listens)
		s.await("core", "news")
		if !arrived.Load() {
			t.Error("it is told before the copy has it")
		}
		s.body.Close()
	}()
	if at := <-local.asked; at != 5 {
		t.Errorf("waits for %d", at)
	}
	local.goOn <- struct{}{}
	<-listens
	a.revision.Store(6)
	a.sched.Feed.Tell("news")
	if at := <-local.asked; at != 6 {
		t.Errorf("waits for %d", at)
	}
	arrived.Store(true)
	local.goOn <- struct{}{}
	<-done
}

// slow is a body whose parts are read one by one.
type slow struct{ parts []string }

func (s *slow) Read(p []byte) (int, error) {
	if len(s.parts) == 0 {
		return 0, errors.New("the connection broke")
	}
	n := copy(p, s.parts[0])
	if s.parts[0] = s.parts[0][n:]; s.parts[0] == "" {
		s.parts = s.parts[1:]
	}
	return n, nil
}

func (*slow) Close() error { return nil }

// However a stream is cut into parts, its lines come through as they are, and the marks
// between them do not.
func TestMarks(t *testing.T) {
	long := strings.Repeat("x", 70<<10)
	u, err := json.Marshal(api.Update{Text: ":revision 3"})
	if err != nil {
		t.Fatal(err)
	}
	text := ":revision 1\nretry: 2000\n\n:revision 2\nid: a-1\nevent: job\ndata: " + string(u) + "\n\n:revision 12\ndata: " + long + "\n\n: alive\n\n"
	want := "retry: 2000\n\nid: a-1\nevent: job\ndata: " + string(u) + "\n\ndata: " + long + "\n\n: alive\n\n"
	for _, size := range []int{1, 2, 7, 100, 5000, len(text)} {
		var parts []string
		for part := range slices.Chunk([]byte(text), size) {
			parts = append(parts, string(part))
		}
		var waited []int64
		s := fleet.NewStream(&slow{append(parts, "data: cut")}, make(chan struct{}), func(at int64) { waited = append(waited, at) })
		got, err := io.ReadAll(s)
		if err != nil || string(got) != want || !slices.Equal(waited, []int64{1, 2, 12}) {
			t.Errorf("in parts of %d: %d bytes, waited for %v, %v; want %d", size, len(got), waited, err, len(want))
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
