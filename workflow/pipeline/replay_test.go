package pipeline_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/workflow/pipeline"
)

// adder is a stage that keeps the sum of what it was given, and publishes it.
func adder(given *[]string) func(in pipeline.Input) (string, job.ErrorClass) {
	return func(in pipeline.Input) (string, job.ErrorClass) {
		sum := 0
		if in.State != nil {
			_ = json.Unmarshal(in.State, &sum)
		}
		var outs []pipeline.Output
		for _, e := range in.Events {
			n, _ := strconv.Atoi(string(e.Data))
			sum += n
			outs = append(outs, out("sum", strconv.Itoa(sum)))
			text := string(e.Data)
			if in.Again {
				text += "*"
			}
			*given = append(*given, text)
		}
		if in.End {
			*given = append(*given, "end")
		}
		return say(pipeline.Answer{Events: outs, State: []byte(strconv.Itoa(sum))}), ""
	}
}

// paused runs a line until the sink has done all its numbers but is not told of
// the end: the source has one more part to do.
func paused(t tb, seeds int, sink job.Stage, do func(pipeline.Input) (string, job.ErrorClass)) *runner {
	sink.Publishes = []job.EventType{"sum"}
	r := newLine(t, seeds+1, sink, do)
	source := r.do
	r.do = func(in pipeline.Input) (string, job.ErrorClass) {
		if in.Stage == "source" && string(in.Events[0].Data) == strconv.Itoa(seeds+1) {
			return publish(), ""
		}
		return source(in)
	}
	r.world.(*memory).skip = func(name job.Name) bool { return name == job.PartName("source", seeds+1) }
	for r.log == nil || r.status()["sink"].Acked < last(r, "number") || len(r.ofType("number")) < seeds {
		if _, err := r.step(); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// goOn lets a paused line come to its end.
func (r *runner) goOn() {
	r.world.(*memory).skip = nil
	r.run()
}

func last(r *runner, typ job.EventType) (seq int64) {
	for _, e := range r.ofType(typ) {
		seq = e.Seq
	}
	return seq
}

func (r *runner) sums() (all []string) {
	for _, e := range r.ofType("sum") {
		all = append(all, string(e.Data))
	}
	return all
}

func TestStateIsKept(t *testing.T) {
	var given []string
	r := newLine(t, 5, job.Stage{Publishes: []job.EventType{"sum"}}, adder(&given))
	r.run()
	if got := fmt.Sprint(given, r.sums()); got != "[1 2 3 4 5 end] [1 3 6 10 15]" {
		t.Errorf("given and sums: %s", got)
	}
}

func TestReplayRebuildsState(t *testing.T) {
	var given []string
	r := paused(t, 5, job.Stage{}, adder(&given))
	before := len(r.events())
	third := r.ofType("number")[2].Seq
	given = nil
	// No state was kept between the numbers, so that it goes back to the first.
	from, err := r.log.Replay(context.Background(), "sink", third, false, r.now)
	check(t, err)
	if first := r.ofType("number")[0].Seq; from != first {
		t.Errorf("it goes on from event %d, want %d", from, first)
	}
	r.goOn()
	if got := fmt.Sprint(given, r.sums()); got != "[1* 2* 3* 4* 5* end] [1 3 6 10 15]" {
		t.Errorf("given again, and sums: %s", got)
	}
	if after := len(r.events()); after != before {
		t.Errorf("the log has grown from %d to %d events", before, after)
	}
}

func TestReplayAgain(t *testing.T) {
	var given []string
	r := paused(t, 5, job.Stage{}, adder(&given))
	third := r.ofType("number")[2].Seq
	given = nil
	_, err := r.log.Replay(context.Background(), "sink", third, true, r.now)
	check(t, err)
	r.goOn()
	// The first two are only given to rebuild the state.
	if got := fmt.Sprint(given, r.sums()); got != "[1* 2* 3 4 5 end] [1 3 6 10 15 6 10 15]" {
		t.Errorf("given again, and sums: %s", got)
	}
}

// TestReplayFromKeptState goes back to a state that was kept on the way, and not
// to one that an earlier replay has made wrong.
func TestReplayFromKeptState(t *testing.T) {
	var given []string
	r := paused(t, 200, job.Stage{}, adder(&given))
	number := r.ofType("number")
	given = nil
	from, err := r.log.Replay(context.Background(), "sink", number[150].Seq, false, r.now)
	check(t, err)
	if from != number[128].Seq {
		t.Fatalf("it goes on from event %d, want the 129th number, %d", from, number[128].Seq)
	}
	for r.status()["sink"].Acked < number[199].Seq {
		_, err := r.step()
		check(t, err)
	}
	if len(given) != 72 || given[0] != "129*" || r.sums()[199] != "20100" || len(r.sums()) != 200 {
		t.Errorf("given again %v", given)
	}
	from, err = r.log.Replay(context.Background(), "sink", number[0].Seq, false, r.now)
	check(t, err)
	if from != number[0].Seq {
		t.Errorf("it goes on from event %d, want %d", from, number[0].Seq)
	}
	// The states kept behind it are void until it has come by again.
	if _, err = r.log.Replay(context.Background(), "sink", number[150].Seq, false, r.now); err == nil {
		t.Error("a replay from ahead of the cursor was done")
	}
	r.goOn()
	if got := r.sums(); len(got) != 200 {
		t.Errorf("%d sums, want 200", len(got))
	}
}

// TestReplayDeadLetter: a replay is how a dead letter is tried again.
func TestReplayDeadLetter(t *testing.T) {
	broken := true
	var given []string
	r := paused(t, 4, job.Stage{Batch: 2}, func(in pipeline.Input) (string, job.ErrorClass) {
		given = append(given, data(in)...)
		if broken && slices.Contains(data(in), "2") {
			return "no", job.Unknown
		}
		var outs []pipeline.Output
		for _, d := range data(in) {
			outs = append(outs, out("sum", d))
		}
		return publish(outs...), ""
	})
	if got := fmt.Sprint(r.sums()); got != "[1 3 4]" {
		t.Fatalf("published %s", got)
	}
	broken, given = false, nil
	_, err := r.log.Replay(context.Background(), "sink", 1, false, r.now)
	check(t, err)
	r.goOn()
	if got := fmt.Sprint(r.sums()); got != "[1 3 4 2]" {
		t.Errorf("published %s, want what the dead letter gives beside what was there", got)
	}
	letters, err := r.log.DeadLetters(context.Background(), "sink")
	check(t, err)
	if len(letters) != 1 || letters[0].MendedAt == nil || string(letters[0].Event.Data) != "2" {
		t.Errorf("dead letters %+v", letters)
	}
	if s := r.status()["sink"]; s.Dead != 0 {
		t.Errorf("status %+v", s)
	}
}

func TestReplayStopsWhatIsAtWork(t *testing.T) {
	var given []string
	r := paused(t, 3, job.Stage{}, adder(&given))
	m := r.world.(*memory)
	_, err := r.log.Replay(context.Background(), "sink", 1, true, r.now)
	check(t, err)
	_, err = r.log.Advance(context.Background(), m, r.now)
	check(t, err)
	var old entry
	for {
		e, some, err := m.claim(0)
		check(t, err)
		if !some {
			t.Fatal("the sink was given nothing")
		}
		if e.Spec.Flow.Node == "sink" {
			old = e
			break
		}
		check(t, m.finish(e, publish(), ""))
	}
	_, err = r.log.Replay(context.Background(), "sink", 1, true, r.now)
	if err == nil || !strings.Contains(err.Error(), "acknowledged") {
		t.Fatalf("error %v: nothing is acknowledged since the last replay", err)
	}
	check(t, m.finish(old, publish(out("sum", "0")), ""))
	_, err = r.log.Advance(context.Background(), m, r.now)
	check(t, err)
	e, _, err := m.claim(0)
	check(t, err)
	_, err = r.log.Replay(context.Background(), "sink", 1, true, r.now)
	check(t, err)
	moves, err := r.log.Advance(context.Background(), m, r.now)
	check(t, err)
	if !slices.Equal(kinds(moves, "sink"), []pipeline.MoveKind{pipeline.Stopped}) || moves[0].ID != e.ID {
		t.Fatalf("moves %+v, want that part %s is stopped and nothing else runs beside it", moves, e.Spec.Name)
	}
	given = nil
	check(t, m.finish(e, publish(out("sum", "-1")), ""))
	r.goOn()
	if slices.Contains(r.sums(), "-1") {
		t.Error("the answer of a part that was stopped is in the log")
	}
	if got := fmt.Sprint(given); got != "[1 2 3 end]" {
		t.Errorf("given %s", got)
	}
}

func TestReplayRefused(t *testing.T) {
	var given []string
	r := paused(t, 3, job.Stage{}, adder(&given))
	for _, test := range []struct {
		stage job.Name
		from  int64
		want  string
	}{
		{"nobody", 1, `no stage "nobody"`},
		{"sink", 0, "from 1"},
		{"sink", 1000, "acknowledged its events up to"},
	} {
		if _, err := r.log.Replay(context.Background(), test.stage, test.from, false, r.now); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("replay %s from %d: %v, want an error that says %q", test.stage, test.from, err, test.want)
		}
	}
	r.goOn()
	if _, err := r.log.Replay(context.Background(), "sink", 1, false, r.now); !errors.Is(err, pipeline.ErrOver) {
		t.Errorf("replay of a stage that has ended: %v", err)
	}
}

// TestReplayAnyTime sets stages of the web-testing pipeline back at any moment,
// kills it at others, and gets the same report.
func TestReplayAnyTime(t *testing.T) {
	stages := newWebStages(t)
	rapid.Check(t, func(t *rapid.T) {
		r := newWeb(t, stages)
		crashes := rapid.SliceOfN(rapid.IntRange(1, 100), 0, 3).Draw(t, "crashes")
		r.world.(*memory).fail = func(n int) (bool, error) {
			if slices.Contains(crashes, n) {
				return n%2 == 0, errCrash
			}
			return true, nil
		}
		replays := rapid.SliceOfN(rapid.IntRange(1, 80), 1, 4).Draw(t, "replays")
		steps := 0
		r.pick = func() int {
			if steps++; slices.Contains(replays, steps) {
				id := r.line.Stages[rapid.IntRange(0, 4).Draw(t, "stage")].ID
				from := rapid.Int64Range(1, 60).Draw(t, "from")
				if _, err := r.log.Replay(context.Background(), id, from, false, r.now); err != nil && strings.Contains(err.Error(), "killed") {
					r.log = nil
				}
			}
			return rapid.IntRange(0, 7).Draw(t, "next")
		}
		r.run()
		r.wantReport()
	})
}
