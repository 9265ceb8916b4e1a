package queuetest

import (
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

func event(id job.ID, attempt int, seq int64) job.Event {
	return job.Event{Job: id, Attempt: attempt, Seq: seq, Time: epoch.Add(time.Duration(seq) * time.Millisecond),
		Kind: job.EventText, Text: fmt.Sprintf("%d/%d", attempt, seq)}
}

func eventsOnce(e *env) {
	a, b := e.enqueueOne("a"), e.enqueueOne("b")
	code := 3
	full := job.Event{Job: a, Attempt: 2, Seq: 1, Time: epoch, Kind: job.EventCommand, Text: "out\x1b[0m <&>", Truncated: 9, Command: "ls",
		CallID: "c1", Tool: "bash", ExitCode: &code, Millis: 12, Path: "p", Change: "added", Session: "s", State: job.Running, Step: "one",
		Usage: &job.Usage{InputTokens: 1}, Dropped: 4, Trace: "t"}
	e.apply(queue.Append{Events: []job.Event{event(a, 1, 1), event(b, 1, 1), event(a, 1, 3), full}})
	// Delivered again, in part with other contents: the first stays.
	again := event(a, 1, 3)
	again.Text = "changed"
	e.apply(queue.Append{Events: []job.Event{again, event(a, 1, 1), event(a, 1, 2), event(a, 1, 2)}}, queue.Append{Events: []job.Event{full}})
	var got []job.Event
	for _, s := range e.events(a, 0, 100) {
		got = append(got, s.Event)
	}
	wantSame(e, "events in the order in which they were stored", got, []job.Event{event(a, 1, 1), event(a, 1, 3), full, event(a, 1, 2)})
	if got := e.events(b, 0, 100); len(got) != 1 {
		e.Errorf("the other job has events %s", show(got))
	}
	e.apply(queue.Append{})
}

func eventsCursor(e *env) {
	a, b := e.enqueueOne("a"), e.enqueueOne("b")
	const n = 25
	for seq := int64(1); seq <= n; seq++ {
		e.apply(queue.Append{Events: []job.Event{event(a, 1, seq), event(b, 1, seq)}})
	}
	var seen []int64
	after := int64(0)
	for {
		page := e.events(a, after, 7)
		if len(page) == 0 {
			break
		}
		if len(page) > 7 {
			e.Fatalf("%d events, at most 7 were asked for", len(page))
		}
		for _, s := range page {
			if s.Cursor <= after {
				e.Fatalf("cursor %d after %d", s.Cursor, after)
			}
			after = s.Cursor
			seen = append(seen, s.Seq)
		}
	}
	for i, seq := range seen {
		if seq != int64(i+1) {
			e.Fatalf("read %v by pages", seen)
		}
	}
	if len(seen) != n {
		e.Fatalf("read %d events by pages, want %d", len(seen), n)
	}
	for _, want := range []int{1, 7, n, 2 * n} {
		last, err := e.store.LastEvents(e.ctx, a, want)
		if all := e.events(a, 0, 2*n); err != nil || !reflect.DeepEqual(last, all[max(0, n-want):]) {
			e.Errorf("the last %d events are %s (%v), want the end of %s", want, show(last), err, show(all))
		}
	}
	e.apply(queue.Append{Events: []job.Event{event(a, 2, 1)}})
	if tail := e.events(a, after, 7); len(tail) != 1 || tail[0].Attempt != 2 {
		e.Errorf("after the last cursor there is %s, want the new event", show(tail))
	}
}

// eventsConcurrently follows a job while others write: nobody who reads on
// from a cursor misses an event that was stored before it.
func eventsConcurrently(e *env) {
	const writers, each = 4, 30
	id := e.enqueueOne("a")
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for seq := range int64(each) {
				if err := e.store.Apply(e.ctx, queue.Append{Events: []job.Event{event(id, w+1, seq+1)}}); err != nil {
					e.Error(err)
					return
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	seen, after, last := map[int]int64{}, int64(0), false
	for {
		page, err := e.store.Events(e.ctx, id, after, 10)
		if err != nil {
			e.Error(err)
			break
		}
		for _, s := range page {
			if s.Seq != seen[s.Attempt]+1 {
				e.Errorf("follower sees event %d of attempt %d after %d", s.Seq, s.Attempt, seen[s.Attempt])
			}
			seen[s.Attempt], after = s.Seq, s.Cursor
		}
		if last && len(page) == 0 {
			break
		}
		select {
		case <-done:
			last = true
		default:
		}
	}
	<-done
	for w := range writers {
		if seen[w+1] != each {
			e.Errorf("follower saw %d events of attempt %d, want %d", seen[w+1], w+1, each)
		}
	}
}
