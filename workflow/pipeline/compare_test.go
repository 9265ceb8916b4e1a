package pipeline_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/workflow/pipeline"
)

// race runs the web-testing pipeline with as many workers at once as its stages
// may have, and returns how long that took. In turn, each stage's job waits for
// the end of the one before, as jobs do that need each other.
func race(t tb, r *runner, inTurn bool, work func(pipeline.Input) string) time.Duration {
	ctx := context.Background()
	for i := range r.line.Stages {
		r.line.Stages[i].Buffer = 0 // in turn, all that a stage publishes waits for the next
		if i > 0 && inTurn {
			check(t, r.world.Apply(ctx, queue.Keep{ID: r.job(r.line.Stages[i].Job).ID, For: job.HeldForNeeds}))
		}
	}
	var err error
	began := time.Now()
	r.log, err = pipeline.Open(ctx, r.world, r.batch, r.line)
	check(t, err)
	var workers sync.WaitGroup
	ended := make(chan error)
	for running := 0; ; {
		moves, err := r.log.Advance(ctx, r.world, start)
		check(t, err)
		for _, m := range moves {
			next := 1
			for next < len(r.line.Stages) && r.line.Stages[next-1].ID != m.Stage {
				next++
			}
			if m.Kind == pipeline.Ended && inTurn && next < len(r.line.Stages) {
				check(t, r.world.Apply(ctx, queue.Keep{ID: r.job(r.line.Stages[next].Job).ID, For: job.HeldForParts}))
				workers.Go(func() { ended <- nil }) // for another look
				running++
			}
		}
		for {
			e, some, err := r.world.claim(0)
			check(t, err)
			if !some {
				break
			}
			running++
			workers.Go(func() { ended <- r.world.finish(e, work(input(t, e)), "") })
		}
		if running == 0 {
			break
		}
		check(t, <-ended)
		running--
	}
	workers.Wait()
	took := time.Since(began)
	r.wantReport()
	return took
}

// costs are what a worker takes, beside a second to start: as an agent would that
// looks at each event.
var costs = map[job.Name]time.Duration{
	"recon": 20 * time.Second, "behavior": 3 * time.Second, "load": 4 * time.Second, "observer": time.Second, "synthesis": 2 * time.Second,
}

func cost(in pipeline.Input) time.Duration {
	return time.Second + time.Duration(len(in.Events))*costs[in.Stage]
}

// TestStreamingIsFaster compares streaming with one stage after another, on the
// same work, in virtual time.
func TestStreamingIsFaster(t *testing.T) {
	stages := newWebStages(t)
	newWeb(t, stages).run() // asks the programs, outside of the virtual time
	took := map[bool]time.Duration{}
	for _, inTurn := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			took[inTurn] = race(t, newWeb(t, stages), inTurn, func(in pipeline.Input) string {
				time.Sleep(cost(in))
				answer, _ := stages.do(in)
				return answer
			})
		})
	}
	less := 1 - float64(took[false])/float64(took[true])
	t.Logf("streaming: %s; one stage after another: %s; %.0f %% less", took[false], took[true], 100*less)
	if less < 0.4 {
		t.Errorf("streaming takes %.0f %% less, want at least 40 %%", 100*less)
	}
}

// BenchmarkStreaming runs the real programs of the example over a real store, each
// waiting for a hundredth of its costs like an agent for its model, and reports by
// how much streaming is shorter.
func BenchmarkStreaming(b *testing.B) {
	took := map[bool]time.Duration{}
	for b.Loop() {
		for _, inTurn := range []bool{false, true} {
			stages := newWebStages(b)
			r, _ := newWebOnDisk(b, stages)
			took[inTurn] += race(b, r, inTurn, func(in pipeline.Input) string { return stages.ask(in, cost(in)/100) })
		}
	}
	n := float64(b.N)
	b.ReportMetric(float64(took[false].Milliseconds())/n, "ms-streaming")
	b.ReportMetric(float64(took[true].Milliseconds())/n, "ms-in-turn")
	b.ReportMetric(100*(1-float64(took[false])/float64(took[true])), "%-less")
}
