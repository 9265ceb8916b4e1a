package pipeline_test

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/workflow/pipeline"
)

// tb is what *testing.T, *testing.B and *rapid.T have in common.
type tb interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// runner plays the scheduler in one goroutine: it advances the pipeline and runs
// one part at a time. What fails with errCrash has killed it.
type runner struct {
	t     tb
	world world
	batch job.BatchID
	line  *job.Pipeline
	// do is what a stage's worker does: its answer, or why it failed for good.
	do func(in pipeline.Input) (answer string, class job.ErrorClass)
	// pick says which of the queued parts is run next.
	pick func() int
	// kill says whether the worker is killed that was given this: its attempt is
	// lost and the part waits again.
	kill func(in pipeline.Input) bool

	log     *pipeline.Log
	moves   []pipeline.Move
	crashes int
	now     time.Time
}

var errCrash = errors.New("killed")

// run goes on until nothing is left to do.
func (r *runner) run() {
	r.t.Helper()
	for steps := 0; ; steps++ {
		more, err := r.step()
		switch {
		case errors.Is(err, errCrash):
			r.log = nil
			r.crashes++
			check(r.t, r.world.recover())
		case err != nil:
			r.t.Fatal(err)
		case !more:
			return
		case steps > 10_000:
			r.t.Fatal("it does not come to an end")
		}
	}
}

func (r *runner) step() (more bool, err error) {
	ctx := context.Background()
	if r.now.IsZero() {
		r.now = start
	}
	r.now = r.now.Add(time.Second)
	if r.log == nil {
		if r.log, err = pipeline.Open(ctx, r.world, r.batch, r.line); err != nil {
			return false, err
		}
	}
	moves, err := r.log.Advance(ctx, r.world, r.now)
	r.moves = append(r.moves, moves...)
	if err != nil {
		return false, err
	}
	n := 0
	if r.pick != nil {
		n = r.pick()
	}
	if r.log == nil {
		return true, r.world.recover()
	}
	e, some, err := r.world.claim(n)
	if err != nil || !some {
		return false, err
	}
	in := input(r.t, e)
	answer, class := r.do(in)
	if r.kill != nil && r.kill(in) {
		r.crashes++
		return true, r.world.recover()
	}
	return true, r.world.finish(e, answer, class)
}

func input(t tb, e queue.Entry) pipeline.Input {
	t.Helper()
	var in pipeline.Input
	if e.Resolved == nil || e.Spec.Flow.Node == "" || e.Spec.Flow.Part == 0 {
		t.Fatalf("job %s is no part with an input: %+v", e.Spec.Name, e)
	}
	check(t, json.Unmarshal(e.Resolved.Input, &in))
	return in
}

// events returns the whole log, and checks that it has no gap and only what was
// declared.
func (r *runner) events() []pipeline.Event { return readLog(r.t, r.log, r.line) }

func readLog(t tb, log *pipeline.Log, line *job.Pipeline) []pipeline.Event {
	t.Helper()
	events, err := log.Events(context.Background(), 0, 1_000_000)
	check(t, err)
	for i, e := range events {
		if e.Seq != int64(i+1) {
			t.Fatalf("event %d stands at place %d of the log", e.Seq, i+1)
		}
		if e.Stage == "" && e.Type != pipeline.SeedType || e.Pipeline != line.ID || e.ID == "" || e.Time.IsZero() {
			t.Fatalf("event %+v", e)
		}
	}
	return events
}

func (r *runner) ofType(t job.EventType) (all []pipeline.Event) {
	r.t.Helper()
	for _, e := range r.events() {
		if e.Type == t {
			all = append(all, e)
		}
	}
	return all
}

func (r *runner) status() map[job.Name]pipeline.Status {
	r.t.Helper()
	all, err := r.log.Status(context.Background())
	check(r.t, err)
	by := map[job.Name]pipeline.Status{}
	for _, s := range all {
		by[s.Stage] = s
	}
	return by
}

func (r *runner) job(name job.Name) queue.Entry {
	r.t.Helper()
	e, err := r.world.Job(context.Background(), name)
	check(r.t, err)
	return e
}

// publish writes an answer.
func publish(outs ...pipeline.Output) string { return say(pipeline.Answer{Events: outs}) }

func say(a pipeline.Answer) string {
	if a.Events == nil {
		a.Events = []pipeline.Output{}
	}
	text, err := json.Marshal(a)
	if err != nil {
		panic(err)
	}
	return string(text)
}

func out(t job.EventType, data string) pipeline.Output {
	return pipeline.Output{Type: t, Data: json.RawMessage(data)}
}

// statusUnsafe is status for within a stage's work, when the log may be gone.
func (r *runner) statusUnsafe() []pipeline.Status {
	if r.log == nil {
		return nil
	}
	all, err := r.log.Status(context.Background())
	check(r.t, err)
	return all
}

type entry = queue.Entry
