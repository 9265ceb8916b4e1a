package pipeline_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/workflow/pipeline"
)

// replayed returns a new run of a run, with the same stages and store.
func replayed(t tb, old *runner, s pipeline.Selection) (r *runner, events int) {
	t.Helper()
	replays, events, err := s.Replay(context.Background(), old.log)
	check(t, err)
	line := *old.line
	line.Replays = replays
	r = &runner{t: t, batch: job.NewBatchID(), line: &line, do: old.do}
	m := newMemory()
	m.records = old.world.(*memory).records
	for _, stage := range line.Stages[stageIndex(&line, replays.Stage):] {
		m.jobs = append(m.jobs, node(r.batch, stage.Job, ""))
	}
	r.world = m
	return r, events
}

func stageIndex(line *job.Pipeline, id job.Name) int {
	return slices.IndexFunc(line.Stages, func(s job.Stage) bool { return s.ID == id })
}

// origins returns the events that a run repeats.
func (r *runner) origins() (all []string) {
	for _, e := range r.events() {
		if e.Replays != "" {
			all = append(all, e.Replays)
		}
	}
	return all
}

// TestReplayFinished runs a finished pipeline again from each of its stages, killed at
// any write: the report is the same, what stages before the first published is
// repeated once, and nothing of theirs is done again.
func TestReplayFinished(t *testing.T) {
	stages := newWebStages(t)
	old := newWeb(t, stages)
	old.run()
	before := marshal(t, old.events())
	rapid.Check(t, func(t *rapid.T) {
		first := rapid.IntRange(0, 4).Draw(t, "first")
		r, events := replayed(t, old, pipeline.Selection{Stage: old.line.Stages[first].ID})
		crashes := rapid.SliceOfN(rapid.IntRange(1, 60), 0, 4).Draw(t, "crashes")
		r.world.(*memory).fail = func(n int) (bool, error) {
			if slices.Contains(crashes, n) {
				return n%2 == 0, errCrash
			}
			return true, nil
		}
		r.pick = func() int { return rapid.IntRange(0, 7).Draw(t, "next") }
		r.do = func(in pipeline.Input) (string, job.ErrorClass) {
			if i := stageIndex(r.line, in.Stage); i < first {
				t.Fatalf("stage %s was given %s", in.Stage, marshal(t, in))
			}
			return stages.do(in)
		}
		r.run()
		if reports := r.ofType("final_report"); len(reports) != 1 || string(reports[0].Data) != webReport {
			t.Fatalf("from %s on: %s", r.line.Replays.Stage, marshal(t, reports))
		}
		for i, s := range r.line.Stages {
			st := r.status()[s.ID]
			if !st.Ended || i < first && st.Given+int(st.Published) > 0 {
				t.Errorf("stage %s: %+v", s.ID, st)
			}
		}
		origins := r.origins()
		if len(origins) != events || !slices.IsSortedFunc(origins, func(a, b string) int { return bySeq(t, a) - bySeq(t, b) }) || len(slices.Compact(slices.Sorted(slices.Values(origins)))) != events {
			t.Errorf("%d events were to be repeated once and in their order: %v", events, origins)
		}
	})
	if after := marshal(t, old.events()); after != before {
		t.Error("the log of the earlier run has changed")
	}
}

func bySeq(t tb, id string) (seq int) {
	_, err := fmt.Sscanf(id[strings.LastIndex(id, "/")+1:], "%d", &seq)
	check(t, err)
	return seq
}

// TestReplayByType gives one type of events, from some number on and up to some time,
// and a replay of that names the first run.
func TestReplayByType(t *testing.T) {
	var given []string
	old := newLine(t, 6, job.Stage{Publishes: []job.EventType{"sum"}}, adder(&given))
	old.run()
	number := old.ofType("number")
	given = nil
	until := number[4].Time
	r, events := replayed(t, old, pipeline.Selection{Types: []job.EventType{"number"}, From: number[1].Seq, Until: &until})
	r.run()
	if got := fmt.Sprint(events, given, r.sums()); got != "3 [2 3 4 end] [2 5 9]" {
		t.Errorf("events, given and sums: %s", got)
	}
	if o := r.origins(); o[0] != number[1].ID || r.line.Replays.Batch != old.batch || r.line.Replays.Stage != "sink" {
		t.Errorf("%+v repeats %v", r.line.Replays, o)
	}
	again, _ := replayed(t, r, pipeline.Selection{Stage: "sink", To: 1})
	again.run()
	if o := again.origins(); len(o) != 1 || o[0] != number[1].ID || again.line.Replays.Batch != r.batch {
		t.Errorf("a replay of a replay: %+v repeats %v, want the event of the first run", again.line.Replays, o)
	}
	if _, _, err := (&pipeline.Selection{}).Replay(context.Background(), again.log); err == nil || !strings.Contains(err.Error(), "stage: source did not run in this run, which replays run "+string(r.batch)) {
		t.Errorf("a replay from a stage that did not run: %v", err)
	}
}

// TestReplayHasRoom: events are copied as the stage that takes them gets on.
func TestReplayHasRoom(t *testing.T) {
	var given []string
	old := newLine(t, 200, job.Stage{Publishes: []job.EventType{"sum"}, Buffer: 3}, adder(&given))
	old.run()
	given = nil
	r, events := replayed(t, old, pipeline.Selection{Stage: "sink"})
	most := 0
	r.pick = func() int {
		most = max(most, r.status()["sink"].Backlog)
		return 0
	}
	r.run()
	if events != 200 || len(given) != 201 || most != 3 {
		t.Errorf("%d events, %d given, at most %d waiting; want 200, 201 with the end, and 3", events, len(given), most)
	}
}

// TestReplayOfWhatIsGone: the earlier run was pruned before all was copied.
func TestReplayOfWhatIsGone(t *testing.T) {
	var given []string
	old := newLine(t, 5, job.Stage{Publishes: []job.EventType{"sum"}}, adder(&given))
	old.run()
	r, _ := replayed(t, old, pipeline.Selection{Stage: "sink"})
	maps.DeleteFunc(r.world.(*memory).records, func(space string, _ map[string]queue.Record) bool { return strings.Contains(space, string(old.batch)) })
	r.run()
	if e := r.job("sink"); e.ExitKind != job.ExitFailed || e.ErrorClass != job.Config || !strings.Contains(e.DeadLetter, "the events of the run that it replays, "+string(old.batch)+", are not there any more") {
		t.Errorf("the sink: %+v", e)
	}
}

// TestReplayToAStream: a worker that streams is given the events as the log gets them,
// no more than there is room for, and the id that each had first; the stage before it
// is not started.
func TestReplayToAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const seeds = 150
		ctx, world, p := t.Context(), newMemory(), streams(2, 3, 1)
		old := openLog(t, world, p, seeds)
		var all sync.WaitGroup
		for i := range 2 {
			all.Go(func() {
				id, typ := job.Name(fmt.Sprintf("s%d", i)), job.EventType(fmt.Sprintf("e%d", i))
				check(t, feed(ctx, &pipeline.Feed{Log: old, Stage: id}, copier(typ, func(line) {})))
			})
		}
		all.Wait()

		replays, events, err := (&pipeline.Selection{Stage: "s1"}).Replay(ctx, old)
		check(t, err)
		again := *p
		again.Replays = replays
		e := node("again", "s1", "")
		e.State, e.Held = job.Dispatched, ""
		world.jobs = append(world.jobs, e)
		log, err := pipeline.Open(ctx, world, "again", &again)
		check(t, err)
		over := make(chan struct{})
		all.Go(func() { // as the scheduler does
			for changed := log.Changed(); ; changed = log.Changed() {
				_, err := log.Advance(ctx, world, time.Now())
				check(t, err)
				select {
				case <-changed:
				case <-over:
					return
				}
			}
		})
		var took, ids []string
		most := 0
		check(t, feed(ctx, &pipeline.Feed{Log: log, Stage: "s1"}, copier("e1", func(l line) {
			took, ids = append(took, string(l.Data)), append(ids, l.Replays)
			most = max(most, status(t, log, "s1").Backlog)
		})))
		close(over)
		all.Wait()
		if got := "[" + strings.Join(took, ",") + "]"; got != numbers(seeds) || events != seeds || most > 3 {
			t.Errorf("given %s of %d events, with up to %d waiting; want all in order, and 3", got, events, most)
		}
		n := 0
		for _, e := range readLog(t, old, p) {
			if e.Type == "e0" {
				if ids[n] != e.ID {
					t.Errorf("event %d repeats %q, want %q", n, ids[n], e.ID)
				}
				n++
			}
		}
		if s := status(t, log, "s0"); !s.Ended || s.Published > 0 || !status(t, log, "s1").Ended {
			t.Errorf("the stage before: %+v", s)
		}
	})
}

func TestReplaySelection(t *testing.T) {
	r := newWeb(t, newWebStages(t))
	r.run()
	now := time.Now()
	for _, c := range []struct {
		s    pipeline.Selection
		want string
	}{
		{pipeline.Selection{}, "recon [seed]"},
		{pipeline.Selection{Stage: "load"}, "load [flow_mapped test_generated]"},
		{pipeline.Selection{Types: []job.EventType{"flow_mapped"}}, "load [flow_mapped]"},
		{pipeline.Selection{Types: []job.EventType{"perf_metric"}, Stage: "observer"}, "observer [perf_metric]"},
		{pipeline.Selection{Types: []job.EventType{"flow_maped"}}, `types: pipeline web-testing has no event type "flow_maped"; did you mean flow_mapped? It has seed, anomaly_detected, api_found, final_report, flow_mapped,`},
		{pipeline.Selection{Stage: "laod"}, `stage: pipeline web-testing has no stage "laod"; did you mean load? It has recon, behavior, load, observer, synthesis`},
		{pipeline.Selection{Types: []job.EventType{"final_report"}}, "no stage of pipeline web-testing takes final_report"},
		{pipeline.Selection{Types: []job.EventType{"page_discovered", "load_result"}}, "load_result is published by stage load, which runs again and publishes it anew"},
		{pipeline.Selection{Types: []job.EventType{"page_discovered"}, Stage: "load"}, "no stage from load on takes page_discovered"},
		{pipeline.Selection{From: 5, To: 4}, "from: 5 to 4 is no range"},
		{pipeline.Selection{From: -1}, "from: -1 to 0 is no range"},
		{pipeline.Selection{Since: &now, Until: &now}, "since: "},
		{pipeline.Selection{From: 1_000_000}, "none of the"},
		{pipeline.Selection{Stage: "load", Since: &now}, "is one of those: flow_mapped, test_generated"},
	} {
		got := ""
		if replays, n, err := c.s.Replay(context.Background(), r.log); err != nil {
			got = err.Error()
		} else if got = fmt.Sprint(replays.Stage, " ", replays.Types); n == 0 {
			t.Errorf("%+v: no events", c.s)
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%+v:\ngot  %s\nwant %s", c.s, got, c.want)
		}
	}
}
