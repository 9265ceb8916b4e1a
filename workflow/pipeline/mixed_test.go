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

	"github.com/agentsched/agentsched/internal/jobfile"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/workflow/pipeline"
)

// TestMixed has a stage that streams between two whose workers are started for
// each batch.
func TestMixed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		p := streams(3, 2, 1)
		p.Stages[0].Streams, p.Stages[2].Streams = false, false
		m := newMemory(node("batch", "s0", numbers(9)), node("batch", "s1", ""), node("batch", "s2", ""))
		m.jobs[1].Held, m.jobs[1].State = "", job.Dispatched
		log, streaming := openLog(t, m, p, 0), m.jobs[1]
		var worker sync.WaitGroup
		worker.Go(func() {
			check(t, feed(ctx, &pipeline.Feed{Log: log, Stage: "s1"}, copier("e1", func(line) {})))
			check(t, m.finish(streaming, "", ""))
		})
		var got []string
		for {
			changed := log.Changed()
			_, err := log.Advance(ctx, m, start)
			check(t, err)
			e, some, err := m.claim(0)
			check(t, err)
			if !some {
				if status(t, log, "s2").Ended {
					break
				}
				<-changed
				continue
			}
			in, answer := input(t, e), publish()
			if in.Stage == "s0" {
				answer = publish(out("e0", string(in.Events[0].Data)))
			} else {
				got = append(got, string(in.Events[0].Data))
			}
			check(t, m.finish(e, answer, ""))
		}
		worker.Wait()
		if text := "[" + strings.Join(got, ",") + "]"; text != numbers(9) {
			t.Errorf("the last stage was given %s", text)
		}
		moves, err := log.Advance(ctx, m, start)
		if err != nil || len(moves) > 0 {
			t.Errorf("afterwards there are still moves %v, %v", moves, err)
		}
	})
}

// TestStreamAtTheHead: Advance seeds a first stage that streams when its job runs.
func TestStreamAtTheHead(t *testing.T) {
	p := streams(1, 0, 1)
	m := newMemory(node("batch", "s0", `["a","b"]`))
	log := openLog(t, m, p, 0)
	for _, stand := range []struct {
		held  job.Hold
		state job.EntryState
		want  int
	}{{job.HeldForNeeds, job.Queued, 0}, {"", job.Dispatched, 2}, {"", job.Dispatched, 2}} {
		m.jobs[0].Held, m.jobs[0].State = stand.held, stand.state
		_, err := log.Advance(t.Context(), m, start)
		check(t, err)
		if events := readLog(t, log, p); len(events) != stand.want {
			t.Errorf("with its job %s, held %q: %d events, want %d", stand.state, stand.held, len(events), stand.want)
		}
	}
}

// TestStreamThatEndsTooEarly: a worker that is done before the end of the stream
// does not keep the others waiting.
func TestStreamThatEndsTooEarly(t *testing.T) {
	p := streams(2, 1, 1)
	p.Stages[0].Streams = false
	m := newMemory(node("batch", "s0", numbers(5)), node("batch", "s1", ""))
	m.jobs[1].Held, m.jobs[1].State, m.jobs[1].ExitKind = "", job.Completed, job.ExitSucceeded
	r := &runner{t: t, batch: "batch", line: p, world: m}
	r.do = func(in pipeline.Input) (string, job.ErrorClass) { return publish(out("e0", "1")), "" }
	r.run()
	if s := r.status(); !s["s0"].Ended || !strings.Contains(s["s1"].Failed, "(succeeded) before the stream did") {
		t.Errorf("status %+v", s)
	}
}

// TestAnotherProcessWrote: what another process has added is not overwritten.
func TestAnotherProcessWrote(t *testing.T) {
	ctx := context.Background()
	store, p := newMemory(), streams(1, 0, 1)
	ours, theirs := openLog(t, store, p, 0), openLog(t, store, p, 0)
	check(t, theirs.Seed(ctx, json.RawMessage(`["theirs"]`), start))
	if err := ours.Seed(ctx, json.RawMessage(`["ours"]`), start); !errors.Is(err, queue.ErrExists) {
		t.Fatalf("error %v, want ErrExists", err)
	}
	check(t, ours.Seed(ctx, json.RawMessage(`["ours"]`), start)) // it has read what is there
	if events := readLog(t, ours, p); len(events) != 1 || string(events[0].Data) != `"theirs"` {
		t.Errorf("events %v", events)
	}
}

// TestLogWithAGap is not taken for a whole one.
func TestLogWithAGap(t *testing.T) {
	store, p := newMemory(), streams(1, 0, 1)
	openLog(t, store, p, 3)
	for space, records := range store.records {
		if strings.HasSuffix(space, "/log") {
			delete(records, fmt.Sprintf("%016d", 2))
		}
	}
	if _, err := pipeline.Open(context.Background(), store, "batch", p); err == nil || !strings.Contains(err.Error(), "event 3 follows event 1") {
		t.Errorf("error %v", err)
	}
}

// TestExample keeps the pipeline of the tests that of the example's job file.
func TestExample(t *testing.T) {
	jobs, err := jobfile.LoadJobs([]string{"../../examples/web-testing/pipeline.yaml"}, jobfile.Options{Now: start, Workers: []string{"shell"}})
	check(t, err)
	specs, got := jobs.Specs, jobs.Workflow.Pipelines
	if len(got) != 1 || marshal(t, got[0]) != marshal(t, webLine()) {
		t.Errorf("pipelines %s\nwant %s", marshal(t, got), marshal(t, webLine()))
	}
	if problems := pipeline.Check(&got[0], specs); len(problems) > 0 {
		t.Errorf("problems %v", problems)
	}
	i := slices.IndexFunc(specs, func(s job.Spec) bool { return s.Name == "recon" })
	var want, seeds any
	check(t, json.Unmarshal([]byte(webSeeds), &want))
	check(t, json.Unmarshal(specs[i].Flow.Input, &seeds))
	if marshal(t, seeds) != marshal(t, want) {
		t.Errorf("seeds %s", specs[i].Flow.Input)
	}
}
