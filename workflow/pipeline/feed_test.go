package pipeline_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/workflow/pipeline"
)

// TestStreamsWithBackpressure has three stages, the last of which is slow, with
// room for two events between them.
func TestStreamsWithBackpressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const seeds = 20
		log := openLog(t, newMemory(), streams(3, 2, 1), seeds)
		var all sync.WaitGroup
		worst := 0
		var took []string
		for i := range 3 {
			all.Go(func() {
				id := job.Name(fmt.Sprintf("s%d", i))
				err := feed(t.Context(), &pipeline.Feed{Log: log, Stage: id}, copier(job.EventType(fmt.Sprintf("e%d", i)), func(l line) {
					if i < 2 {
						return
					}
					time.Sleep(time.Second)
					worst = max(worst, status(t, log, "s1").Backlog, status(t, log, "s2").Backlog)
					took = append(took, string(l.Data))
				}))
				if err != nil {
					t.Errorf("feed of %s: %v", id, err)
				}
			})
		}
		all.Wait()
		if worst != 2 {
			t.Errorf("up to %d events were waiting, want 2", worst)
		}
		if got := fmt.Sprint("[", strings.Join(took, ","), "]"); strings.ReplaceAll(got, " ", "") != numbers(seeds) {
			t.Errorf("the last stage took %s", got)
		}
		if events := readLog(t, log, streams(3, 2, 1)); len(events) != 4*seeds {
			t.Errorf("%d events, want %d", len(events), 4*seeds)
		}
	})
}

// TestWorkerDies: with several events at a time the next worker gets them one by
// one, and the one of which three die goes to the dead letters.
func TestWorkerDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := streams(1, 0, 3)
		log := openLog(t, newMemory(), p, 5)
		var had []string
		var died *pipeline.DiedError
		for workers := 0; ; workers++ {
			most := 0
			err := feed(t.Context(), &pipeline.Feed{Log: log, Stage: "s0", Job: "s0"}, func(p *peer) {
				var open []int64
				for l, ok := p.read(); ok; l, ok = p.read() {
					switch l.Type {
					case "event":
						open = append(open, l.Seq)
						most = max(most, len(open))
						if workers == 0 && len(open) < 3 {
							continue // it waits for a whole batch
						}
						for _, seq := range open {
							if seq == 2 {
								return
							}
							p.publish(seq, "e0", fmt.Sprint(seq))
							p.ack(seq, "")
						}
						open = nil
					case "end":
						p.ack(0, "")
						return
					}
				}
			})
			had = append(had, fmt.Sprint(most))
			if err == nil {
				break
			}
			if !errors.As(err, &died) || died.Stage != "s0" {
				t.Fatalf("error %v", err)
			}
			if workers > 10 {
				t.Fatal("it does not come to an end")
			}
		}
		// The first dies of 2 and 3; then three die of 2 alone.
		if got := fmt.Sprint(had); got != "[3 1 1 1 1]" {
			t.Errorf("events with a worker at once: %s", got)
		}
		letters, err := log.DeadLetters(t.Context(), "s0")
		check(t, err)
		if len(letters) != 1 || letters[0].Event.Seq != 2 || letters[0].Attempts != 3 || letters[0].Job != "s0" {
			t.Errorf("dead letters %+v", letters)
		}
		var published []string
		for _, e := range readLog(t, log, p)[5:] {
			published = append(published, string(e.Data))
		}
		if got := fmt.Sprint(published); got != "[1 3 4 5]" {
			t.Errorf("published %s", got)
		}
	})
}

// TestRefusedLines: what a worker must not say has no effect, and it is told.
func TestRefusedLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := streams(1, 0, 2)
		log := openLog(t, newMemory(), p, 3)
		var refused, other []string
		f := &pipeline.Feed{Log: log, Stage: "s0", Line: func(l []byte) { other = append(other, string(l)) }}
		err := feed(t.Context(), f, func(p *peer) {
			events := 0
			for l, ok := p.read(); ok; l, ok = p.read() {
				switch l.Type {
				case "open":
					p.say(map[string]any{"type": "text", "text": "hello"})
				case "refused":
					refused = append(refused, fmt.Sprintf("%s %d", l.Error, l.Seq))
				case "event":
					if events++; events == 2 {
						p.publish(2, "page", "1")
						p.publish(77, "e0", "1")
						p.publish(2, "e0", `"`+strings.Repeat("x", pipeline.MaxData)+`"`)
						p.ack(2, "")
						p.ack(78, "")
						p.say(map[string]any{"type": "ack", "seq": "one"})
						p.say(pipeline.AckLine{Type: "checkpoint", Seq: 1})
						fmt.Fprintf(p.out, "%s\n", strings.Repeat("y", pipeline.MaxLine+1))
						fmt.Fprintln(p.out, "no JSON")
						p.publish(1, "e0", "11")
						p.ack(1, "")
						p.ack(1, "")
						p.ack(2, "")
					} else if events == 3 {
						p.ack(l.Seq, "")
					}
				case "end":
					p.ack(0, "")
					return
				}
			}
		})
		check(t, err)
		want := []string{
			"unauthorized_publish 2", "unknown_input 77", "invalid 2", "out_of_order 2", "unknown_input 78", "invalid 0",
			"invalid 1", "invalid 0", "unknown_input 1",
		}
		if !slices.Equal(refused, want) {
			t.Errorf("refused\n%q\nwant\n%q", refused, want)
		}
		if !slices.Equal(other, []string{`{"text":"hello","type":"text"}`, "no JSON"}) {
			t.Errorf("other lines %q", other)
		}
		if events := readLog(t, log, p); len(events) != 4 || string(events[3].Data) != "11" {
			t.Errorf("events %v", events)
		}
	})
}

// TestCheckpoint: a worker that dies in the middle of a long event goes on from
// its last checkpoint, and nothing is published twice.
func TestCheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := streams(2, 100, 1)
		store := newMemory()
		log := openLog(t, store, p, 1)
		work := func(die int) func(*peer) {
			return func(p *peer) {
				page := 0
				for l, ok := p.read(); ok; l, ok = p.read() {
					switch l.Type {
					case "open":
						if string(l.State) != "null" {
							check(t, json.Unmarshal(l.State, &page))
						}
					case "event":
						for page < 10 {
							page++
							p.publish(l.Seq, "e0", fmt.Sprint(page))
							if page == die {
								return // this page was not made durable
							}
							p.say(pipeline.AckLine{Type: "checkpoint", Seq: l.Seq, State: json.RawMessage(fmt.Sprint(page))})
						}
						p.ack(l.Seq, "")
					case "end":
						p.ack(0, "")
						return
					}
				}
			}
		}
		for _, die := range []int{4, 7} {
			var died *pipeline.DiedError
			if err := feed(t.Context(), &pipeline.Feed{Log: log, Stage: "s0"}, work(die)); !errors.As(err, &died) {
				t.Fatalf("error %v", err)
			}
			if backlog := status(t, log, "s1").Backlog; backlog != die-1 {
				t.Errorf("the next stage has %d pages, want %d before the first is done", backlog, die-1)
			}
			log = openLog(t, store, p, 1) // the scheduler was killed, too
		}
		check(t, feed(t.Context(), &pipeline.Feed{Log: log, Stage: "s0"}, work(0)))
		var pages []string
		for _, e := range readLog(t, log, p)[1:] {
			pages = append(pages, string(e.Data))
		}
		if got := strings.Join(pages, ","); "["+got+"]" != numbers(10) {
			t.Errorf("pages %s", got)
		}
	})
}

func TestFeedIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := openLog(t, newMemory(), streams(1, 0, 1), 2)
		cause := errors.New("the job was cancelled")
		ctx, cancel := context.WithCancelCause(t.Context())
		got := false
		err := feed(ctx, &pipeline.Feed{Log: log, Stage: "s0"}, func(p *peer) {
			for l, ok := p.read(); ok; l, ok = p.read() {
				if l.Type == "event" {
					got = true
					cancel(cause)
				}
			}
		})
		if !errors.Is(err, cause) || !got {
			t.Errorf("error %v, want the cause", err)
		}
		if s := status(t, log, "s0"); len(s.Alone)+len(s.Tries) > 0 {
			t.Errorf("the event is blamed for it: %+v", s)
		}
		if err := feed(t.Context(), &pipeline.Feed{Log: log, Stage: "s0"}, copier("e0", func(line) {})); err != nil {
			t.Errorf("the next worker: %v", err)
		}
		if err := feed(t.Context(), &pipeline.Feed{Log: log, Stage: "s0"}, func(*peer) {}); !errors.Is(err, pipeline.ErrOver) {
			t.Errorf("a worker after the end: %v", err)
		}
	})
}

// TestReplayOfAStream ends the worker, and the next one rebuilds its state.
func TestReplayOfAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := streams(2, 0, 1)
		log := openLog(t, newMemory(), p, 3)
		sum := func(stop int64, then func()) func(*peer) {
			return func(p *peer) {
				total := 0
				for l, ok := p.read(); ok; l, ok = p.read() {
					switch l.Type {
					case "open":
						_ = json.Unmarshal(l.State, &total)
					case "event":
						if l.Seq == stop {
							then()
							continue
						}
						var n int
						check(t, json.Unmarshal(l.Data, &n))
						total += n
						p.publish(l.Seq, "e0", fmt.Sprintf(`{"total":%d,"again":%v}`, total, l.Again))
						p.ack(l.Seq, fmt.Sprint(total))
					case "end":
						p.ack(0, "")
						return
					}
				}
			}
		}
		err := feed(t.Context(), &pipeline.Feed{Log: log, Stage: "s0"}, sum(3, func() {
			from, err := log.Replay(t.Context(), "s0", 2, false, time.Now())
			if err != nil || from != 1 {
				t.Errorf("it goes on from %d, %v", from, err)
			}
		}))
		if !errors.Is(err, pipeline.ErrReplayed) {
			t.Fatalf("error %v, want ErrReplayed", err)
		}
		check(t, feed(t.Context(), &pipeline.Feed{Log: log, Stage: "s0"}, sum(0, nil)))
		var totals []string
		for _, e := range readLog(t, log, p)[3:] {
			totals = append(totals, string(e.Data))
		}
		if got := strings.Join(totals, " "); got != `{"total":1,"again":false} {"total":3,"again":false} {"total":6,"again":false}` {
			t.Errorf("totals %s", got)
		}
	})
}

// TestPublishersAtOnce has four stages publish at once while writes fail and
// workers die; the log has no gap and each seed came through once.
func TestPublishersAtOnce(t *testing.T) {
	const seeds, stages = 40, 4
	for _, every := range []int{0, 7, 3} {
		synctest.Test(t, func(t *testing.T) {
			store := newMemory()
			p := streams(stages, 3, 2)
			log := openLog(t, store, p, seeds)
			store.fail = func(n int) (bool, error) {
				if every > 0 && n%every == 0 {
					return n%2 == 0, errCrash // after it was written, or before
				}
				return true, nil
			}
			var all sync.WaitGroup
			for i := range stages {
				all.Go(func() {
					for {
						err := feed(t.Context(), &pipeline.Feed{Log: log, Stage: p.Stages[i].ID, Attempts: 1000}, copier(p.Stages[i].Publishes[0], func(line) {
							time.Sleep(time.Millisecond)
						}))
						if err == nil || errors.Is(err, pipeline.ErrOver) {
							return // ErrOver: the write of the end had failed, but was done
						}
						if !errors.Is(err, errCrash) {
							t.Errorf("stage %d: %v", i, err)
							return
						}
					}
				})
			}
			all.Wait()
			events := readLog(t, log, p)
			if len(events) != seeds*(stages+1) {
				t.Fatalf("%d events, want %d", len(events), seeds*(stages+1))
			}
			through := map[job.EventType][]string{}
			for _, e := range events {
				through[e.Type] = append(through[e.Type], string(e.Data))
			}
			for typ, data := range through {
				if got := "[" + strings.Join(data, ",") + "]"; got != numbers(seeds) {
					t.Errorf("events of type %s: %s", typ, got)
				}
			}
		})
	}
}
