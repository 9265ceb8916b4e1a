package pipeline_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/workflow/pipeline"
)

// newLine is a pipeline of two stages: numbers are published by "source", one a
// seed, and taken by "sink".
func newLine(t tb, seeds int, sink job.Stage, do func(in pipeline.Input) (string, job.ErrorClass)) *runner {
	sink.ID, sink.Job, sink.Subscribes = "sink", "sink", []job.EventType{"number"}
	line := &job.Pipeline{ID: "line", Stages: []job.Stage{
		{ID: "source", Job: "source", Publishes: []job.EventType{"number"}}, sink,
	}}
	r := &runner{t: t, batch: job.NewBatchID(), line: line}
	r.do = func(in pipeline.Input) (string, job.ErrorClass) {
		if in.Stage == "source" {
			return publish(out("number", string(in.Events[0].Data))), ""
		}
		return do(in)
	}
	r.world = newMemory(node(r.batch, "source", numbers(seeds)), node(r.batch, "sink", ""))
	return r
}

func numbers(n int) string {
	all := make([]int, n)
	for i := range all {
		all[i] = i + 1
	}
	text, _ := json.Marshal(all)
	return string(text)
}

// data returns what the events of an input hold.
func data(in pipeline.Input) (all []string) {
	for _, e := range in.Events {
		all = append(all, string(e.Data))
	}
	return all
}

func kinds(moves []pipeline.Move, stage job.Name) (all []pipeline.MoveKind) {
	for _, m := range moves {
		if m.Stage == stage {
			all = append(all, m.Kind)
		}
	}
	return all
}

func TestPoisonIsSplitOffAndBuried(t *testing.T) {
	var handled []string
	r := newLine(t, 6, job.Stage{Batch: 4}, func(in pipeline.Input) (string, job.ErrorClass) {
		if slices.Contains(data(in), "3") {
			return "cannot do 3", job.Crash
		}
		handled = append(handled, data(in)...)
		return publish(), ""
	})
	// The source is done first, so that batches are full.
	r.pick = func() int { return 0 }
	r.run()
	slices.Sort(handled)
	if want := []string{"1", "2", "4", "5", "6"}; !slices.Equal(handled, want) {
		t.Errorf("handled %v, want %v", handled, want)
	}
	letters, err := r.log.DeadLetters(t.Context(), "sink")
	check(t, err)
	if len(letters) != 1 || string(letters[0].Event.Data) != "3" || letters[0].Class != job.Crash || letters[0].Message != "cannot do 3" || letters[0].Job == "" {
		t.Fatalf("dead letters %+v", letters)
	}
	sink := r.job("sink")
	if sink.ExitKind != job.ExitSucceeded || string(sink.Result) != `{"events":6,"published":0,"dead_letters":1}` {
		t.Errorf("the stage's job is %s: %s", sink.ExitKind, sink.Result)
	}
	if s := r.status()["sink"]; s.Backlog != 0 || s.Dead != 1 || !s.Ended || len(s.Alone) > 0 {
		t.Errorf("status %+v", s)
	}
}

// TestSplit has a batch of three of which one is poison.
func TestSplit(t *testing.T) {
	var given [][]string
	r := newLine(t, 3, job.Stage{Batch: 3}, func(in pipeline.Input) (string, job.ErrorClass) {
		given = append(given, data(in))
		if slices.Contains(data(in), "2") {
			return "no", job.Unknown
		}
		return publish(), ""
	})
	r.pick = func() int { return 0 }
	// One seed publishes all three numbers.
	r.world = newMemory(node(r.batch, "source", "1"), node(r.batch, "sink", ""))
	do := r.do
	r.do = func(in pipeline.Input) (string, job.ErrorClass) {
		if in.Stage == "source" {
			return publish(out("number", "1"), out("number", "2"), out("number", "3")), ""
		}
		return do(in)
	}
	r.run()
	if got := fmt.Sprint(given); got != "[[1 2 3] [1] [2] [3]]" {
		t.Errorf("given %s", got)
	}
	want := []pipeline.MoveKind{
		pipeline.Gave, pipeline.Split, pipeline.Gave, pipeline.Acked, pipeline.Gave, pipeline.Buried,
		pipeline.Gave, pipeline.Acked, pipeline.Ended,
	}
	if got := kinds(r.moves, "sink"); !slices.Equal(got, want) {
		t.Errorf("moves %v, want %v", got, want)
	}
	if part := r.job(job.PartName("sink", 1)); part.DroppedAt == nil {
		t.Error("the part that was split stays a dead letter")
	}
}

func TestAnswersThatCannotBeUsed(t *testing.T) {
	tests := []struct{ name, answer, want string }{
		{"undeclared", publish(out("page", "1")), `unauthorized_publish: stage "sink" may not publish "page"; it may publish only total`},
		{"no JSON", "all done", "no JSON object"},
		{"state beside others", say(pipeline.Answer{State: []byte("1")}), "max_parallel 1: it has 2"},
		{"too much", publish(out("total", `"`+strings.Repeat("x", pipeline.MaxData)+`"`)), "at most 262144"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			sink := job.Stage{MaxParallel: 2, Publishes: []job.EventType{"total"}}
			r := newLine(t, 2, sink, func(in pipeline.Input) (string, job.ErrorClass) {
				if data(in)[0] == "1" {
					return test.answer, ""
				}
				return publish(out("total", "2")), ""
			})
			r.run()
			letters, err := r.log.DeadLetters(t.Context(), "sink")
			check(t, err)
			if len(letters) != 1 || letters[0].Class != job.InvalidOutput || !strings.Contains(letters[0].Message, test.want) {
				t.Errorf("dead letters %+v, want one that says %q", letters, test.want)
			}
			if totals := r.ofType("total"); len(totals) != 1 || string(totals[0].Data) != "2" {
				t.Errorf("published %v", totals)
			}
			if pages := r.ofType("page"); len(pages) != 0 {
				t.Errorf("undeclared events are in the log: %v", pages)
			}
		})
	}
}

// TestBrokenStage: a worker that is not there is not the events' fault.
func TestBrokenStage(t *testing.T) {
	tries := 0
	r := newLine(t, 20, job.Stage{Buffer: 1}, func(pipeline.Input) (string, job.ErrorClass) {
		tries++
		return "no such program", job.Config
	})
	r.run()
	sink := r.job("sink")
	if tries != 1 || sink.ExitKind != job.ExitFailed || sink.DeadLetter != "no such program" || sink.ErrorClass != job.Config {
		t.Errorf("after %d tries the stage's job is %s: %s (%s)", tries, sink.ExitKind, sink.DeadLetter, sink.ErrorClass)
	}
	if n := len(r.ofType("number")); n != 20 || r.job("source").ExitKind != job.ExitSucceeded {
		t.Errorf("the source published %d numbers and is %s: its subscriber's end must free it", n, r.job("source").ExitKind)
	}
}

func TestAllPoison(t *testing.T) {
	r := newLine(t, 3, job.Stage{}, func(pipeline.Input) (string, job.ErrorClass) { return "no", job.Unknown })
	r.run()
	if sink := r.job("sink"); sink.ExitKind != job.ExitFailed || !strings.Contains(sink.DeadLetter, "none of its 3 events") {
		t.Errorf("the stage's job is %s: %s", sink.ExitKind, sink.DeadLetter)
	}
}

func TestCancelledStage(t *testing.T) {
	r := newLine(t, 10, job.Stage{Buffer: 1}, func(pipeline.Input) (string, job.ErrorClass) { return publish(), "" })
	m := r.world.(*memory)
	for range 5 {
		_, err := r.step()
		check(t, err)
	}
	m.mu.Lock()
	i := m.index(func(e *entry) bool { return e.Spec.Name == "sink" })
	m.jobs[i].State = job.Cancelled
	m.mu.Unlock()
	r.run()
	if s := r.status()["sink"]; s.Failed == "" || len(s.Units)+len(s.Stale) > 0 {
		t.Errorf("status %+v", s)
	}
	if r.job("source").ExitKind != job.ExitSucceeded {
		t.Error("the source waits for a stage that was cancelled")
	}
	for _, e := range m.jobs {
		if !e.State.Terminal() {
			t.Errorf("job %s is still %s", e.Spec.Name, e.State)
		}
	}
}

func TestSeeds(t *testing.T) {
	for input, want := range map[string]string{"": "[<nil>]", `{"a":1}`: "[map[a:1]]", `[1,2]`: "[1 2]", `[]`: "[[]]"} {
		var got []any
		line := &job.Pipeline{ID: "line", Stages: []job.Stage{{ID: "only", Job: "only"}}}
		r := &runner{t: t, batch: job.NewBatchID(), line: line, world: newMemory(node("", "only", input))}
		r.do = func(in pipeline.Input) (string, job.ErrorClass) {
			var v any
			if d := in.Events[0].Data; d != nil {
				check(t, json.Unmarshal(d, &v))
			}
			got = append(got, v)
			return publish(), ""
		}
		r.run()
		if fmt.Sprint(got) != want {
			t.Errorf("input %q: the stage was given %v, want %s", input, got, want)
		}
	}
}

// TestWaitsForItsJob: nothing is done for a stage whose job waits for others.
func TestWaitsForItsJob(t *testing.T) {
	r := newLine(t, 3, job.Stage{}, func(pipeline.Input) (string, job.ErrorClass) { return publish(), "" })
	m := r.world.(*memory)
	m.jobs[0].Held = job.HeldForNeeds
	r.run()
	if len(r.moves) != 0 || len(r.events()) != 0 {
		t.Fatalf("moves %v", r.moves)
	}
	m.jobs[0].Held, m.jobs[1].Held = job.HeldForParts, job.HeldForNeeds
	r.run()
	if kinds(r.moves, "sink") != nil || !r.status()["source"].Ended {
		t.Fatalf("moves %v", r.moves)
	}
	m.jobs[1].Held = job.HeldForParts
	r.run()
	if !r.status()["sink"].Ended {
		t.Fatalf("moves %v", r.moves)
	}
}

// TestAnyPipeline runs random lines with random failures, kills and orders, and
// checks what is promised of every one.
func TestAnyPipeline(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { anyPipeline(t) })
}

func anyPipeline(t *rapid.T) {
	n := rapid.IntRange(1, 4).Draw(t, "stages")
	line := &job.Pipeline{ID: "any"}
	var nodes []entry
	batch := job.NewBatchID()
	seeds := rapid.IntRange(1, 5).Draw(t, "seeds")
	for i := range n {
		name := job.Name(fmt.Sprintf("s%d", i))
		s := job.Stage{
			ID: name, Job: name, Publishes: []job.EventType{job.EventType(fmt.Sprintf("e%d", i))},
			Batch: rapid.IntRange(0, 3).Draw(t, "batch"), MaxParallel: rapid.IntRange(0, 3).Draw(t, "parallel"), Buffer: rapid.IntRange(1, 4).Draw(t, "buffer"),
		}
		for j := range i {
			if j == i-1 || rapid.Bool().Draw(t, "subscribes") {
				s.Subscribes = append(s.Subscribes, job.EventType(fmt.Sprintf("e%d", j)))
			}
		}
		line.Stages = append(line.Stages, s)
		nodes = append(nodes, node(batch, name, numbers(seeds)))
	}
	m := newMemory(nodes...)
	r := &runner{t: t, batch: batch, line: line, world: m}
	fan := rapid.IntRange(0, 3).Draw(t, "fan")
	poison := rapid.SliceOfN(rapid.Int64Range(1, 30), 0, 3).Draw(t, "poison")
	crashes := rapid.SliceOfN(rapid.IntRange(1, 60), 0, 4).Draw(t, "crashes")
	m.fail = func(n int) (bool, error) {
		if slices.Contains(crashes, n) {
			return n%2 == 0, errCrash
		}
		return true, nil
	}
	r.pick = func() int { return rapid.IntRange(0, 7).Draw(t, "next") }
	given := map[job.Name][]int64{}
	r.do = func(in pipeline.Input) (string, job.ErrorClass) {
		var outs []pipeline.Output
		for _, e := range in.Events {
			given[in.Stage] = append(given[in.Stage], e.Seq)
			if slices.Contains(poison, e.Seq) {
				return "poison", job.Crash
			}
			for i := range fan {
				outs = append(outs, out(stageOf(line, in.Stage).Publishes[0], fmt.Sprintf(`"%s.%d"`, strings.Trim(string(e.Data), `"`), i)))
			}
		}
		// The backlog of a subscriber stays within its buffer and one answer.
		for _, s := range r.statusUnsafe() {
			if limit := stageOf(line, s.Stage).Buffer - 1 + fan*3; s.Stage != "s0" && s.Backlog > limit {
				t.Fatalf("stage %s has a backlog of %d, at most %d are allowed", s.Stage, s.Backlog, limit)
			}
		}
		return publish(outs...), ""
	}
	r.run()

	events := r.events()
	status := r.status()
	for _, s := range line.Stages {
		letters, err := r.log.DeadLetters(context.Background(), s.ID)
		if err != nil {
			t.Fatal(err)
		}
		dead := map[int64]bool{}
		for _, d := range letters {
			dead[d.Event.Seq] = true
		}
		answers := map[int64]int{} // how many events name an input
		for _, e := range events {
			if e.Stage == s.ID {
				for _, in := range e.For {
					answers[in] += 1
				}
			}
		}
		inputs := 0
		for _, e := range events {
			if s.ID == "s0" && e.Type == pipeline.SeedType || slices.Contains(s.Subscribes, e.Type) {
				inputs++
				if slices.Contains(poison, e.Seq) != dead[e.Seq] {
					t.Fatalf("stage %s: event %d is poison: %v, a dead letter: %v", s.ID, e.Seq, slices.Contains(poison, e.Seq), dead[e.Seq])
				}
				if !dead[e.Seq] && fan > 0 && (answers[e.Seq] == 0 || answers[e.Seq]%fan != 0) || dead[e.Seq] && answers[e.Seq] > 0 {
					t.Fatalf("stage %s: %d events were published for event %d", s.ID, answers[e.Seq], e.Seq)
				}
				if !slices.Contains(given[s.ID], e.Seq) {
					t.Fatalf("stage %s was not given event %d", s.ID, e.Seq)
				}
			}
		}
		if got := int(status[s.ID].Published); got != fan*(inputs-len(dead)) {
			t.Fatalf("stage %s published %d events for %d inputs of which %d are dead, want %d each", s.ID, got, inputs, len(dead), fan)
		}
		if s.MaxParallel <= 1 && !inOrder(given[s.ID]) {
			t.Fatalf("stage %s was given %v", s.ID, given[s.ID])
		}
		if e := r.job(s.Job); !e.State.Terminal() || (e.ExitKind == job.ExitFailed) != (inputs > 0 && len(dead) == inputs) {
			t.Fatalf("the job of stage %s is %s %s", s.ID, e.State, e.ExitKind)
		}
	}
	if total := len(events); total != seeds+func() (n int) {
		for _, s := range status {
			n += int(s.Published)
		}
		return n
	}() {
		t.Fatalf("the log has %d events, other than were published", total)
	}
}

// inOrder reports whether no event comes before an earlier one came first: what
// is given again after a kill or a split goes back, never ahead.
func inOrder(given []int64) bool {
	top := int64(0)
	for i, seq := range given {
		if seq > top {
			top = seq
		} else if !slices.Contains(given[:i], seq) {
			return false
		}
	}
	return true
}

func stageOf(line *job.Pipeline, id job.Name) *job.Stage {
	i := slices.IndexFunc(line.Stages, func(s job.Stage) bool { return s.ID == id })
	return &line.Stages[i]
}
