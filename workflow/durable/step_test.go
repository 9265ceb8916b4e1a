package durable_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/workflow/durable"
)

const space = "job/j/steps"

func newRun(m *memory, observe func(durable.What, string)) *durable.Run {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return durable.New(durable.Config{Store: m, Space: space, Attempt: 2, Now: func() time.Time { return at }, Observe: observe})
}

func TestStepIsComputedOnce(t *testing.T) {
	m := newMemory()
	computed := 0
	add := func(ctx context.Context) (int, error) {
		computed++
		return 40 + computed, nil
	}
	var told []string
	for range 2 { // two processes
		ctx := durable.With(t.Context(), newRun(m, func(w durable.What, id string) { told = append(told, string(w)+" "+id) }))
		for range 2 {
			got, err := durable.StepOf(ctx, "add", map[string]int{"a": 1}, add)
			if err != nil || got != 41 {
				t.Fatalf("got %d, %v; want the first result, 41", got, err)
			}
		}
	}
	if computed != 1 {
		t.Errorf("computed %d times", computed)
	}
	if want := "step_completed add,step_replayed add,step_replayed add,step_replayed add"; strings.Join(told, ",") != want {
		t.Errorf("told %q, want %s", told, want)
	}
	steps, more, err := durable.Page(t.Context(), m, space, "", 0)
	hash, _ := durable.Hash(json.RawMessage(` {"a" : 1}`))
	if err != nil || more || len(steps) != 1 || steps[0].ID != "add" || steps[0].Inputs != hash || string(steps[0].Result) != "41" || steps[0].Attempt != 2 || steps[0].At.IsZero() {
		t.Errorf("stored %+v, more %v, %v; want inputs %s", steps, more, err, hash)
	}
}

// What JSON does not keep is lost the first time too.
func TestFreshAndStoredResultsAreTheSame(t *testing.T) {
	type pair struct {
		Kept string
		lost string
	}
	m := newMemory()
	var got [2]pair
	for i := range got {
		ctx := durable.With(t.Context(), newRun(m, nil))
		var err error
		if got[i], err = durable.Step(ctx, "s", func(context.Context) (pair, error) { return pair{"a", "b"}, nil }); err != nil {
			t.Fatal(err)
		}
	}
	if got[0] != got[1] || got[0].Kept != "a" || got[0].lost != "" {
		t.Errorf("first %+v, then %+v", got[0], got[1])
	}
}

func TestCollision(t *testing.T) {
	m := newMemory()
	one := func(context.Context) (int, error) { return 1, nil }
	never := func(context.Context) (int, error) { t.Error("computed"); return 0, nil }
	ctx := durable.With(t.Context(), newRun(m, nil))
	if _, err := durable.StepOf(ctx, "s", "first", one); err != nil {
		t.Fatal(err)
	}
	first, _ := durable.Hash("first")
	other, _ := durable.Hash("other")
	_, err := durable.StepOf(ctx, "s", "other", never)
	var c *durable.CollisionError
	if !errors.As(err, &c) || c.ID != "s" || c.Stored != first || c.Asked != other {
		t.Fatalf("error %v, want a collision of %s with %s", err, first, other)
	}
	for _, part := range []string{`"s"`, first, other} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not name %s", err, part)
		}
	}
	if _, err := durable.Step(ctx, "s", never); !errors.As(err, &c) || !strings.Contains(err.Error(), "no inputs") {
		t.Errorf("error %v, want a collision with no inputs", err)
	}
}

func TestFailureIsNotStored(t *testing.T) {
	m := newMemory()
	ctx := durable.With(t.Context(), newRun(m, nil))
	broken := errors.New("broken")
	fails := true
	f := func(ctx context.Context) (string, error) {
		inner, err := durable.Step(ctx, "inner", func(context.Context) (string, error) {
			if !fails {
				t.Error("the inner step, which succeeded, is computed again")
			}
			return "in", nil
		})
		if err != nil || fails {
			return "", errors.Join(err, broken)
		}
		return inner + "out", nil
	}
	if _, err := durable.Step(ctx, "outer", f); !errors.Is(err, broken) || !strings.Contains(err.Error(), `step "outer"`) {
		t.Fatalf("error %v", err)
	}
	if m.has(space, "outer") || !m.has(space, "outer/inner") {
		t.Error("want the inner step stored, and not the outer one")
	}
	fails = false
	if got, err := durable.Step(ctx, "outer", f); err != nil || got != "inout" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestBadSteps(t *testing.T) {
	ctx := durable.With(t.Context(), newRun(newMemory(), nil))
	text := func(s string) func(context.Context) (string, error) {
		return func(context.Context) (string, error) { return s, nil }
	}
	for _, tt := range []struct {
		id, result, want string
	}{
		{"", "", "is empty"},
		{"a/b", "", `contains "/"`},
		{"a\nb", "", "U+000A at byte 1"},
		{"a\xff", "", "not UTF-8"},
		{strings.Repeat("x", job.MaxStepID+1), "", "at most 500"},
		{"big", strings.Repeat("x", job.MaxStepResult), "at most 262144"},
	} {
		if _, err := durable.Step(ctx, tt.id, text(tt.result)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("step %.20q: error %v, want %q in it", tt.id, err, tt.want)
		}
	}
	if _, err := durable.Step(t.Context(), "s", text("")); !errors.Is(err, durable.ErrNoRun) {
		t.Errorf("without a run: %v", err)
	}
	if _, err := durable.StepOf(ctx, "s", func() {}, text("")); err == nil {
		t.Error("inputs that are no JSON were taken")
	}
	if _, err := durable.Step(ctx, "typed", text("a")); err != nil {
		t.Fatal(err)
	}
	if _, err := durable.Step(ctx, "typed", func(context.Context) (int, error) { return 1, nil }); err == nil || !strings.Contains(err.Error(), "is no int") {
		t.Errorf("a text read as a number: %v", err)
	}
}

// TestConcurrentCalls: of many callers one computes, and all get its result.
func TestConcurrentCalls(t *testing.T) {
	defer goleak.VerifyNone(t)
	synctest.Test(t, func(t *testing.T) {
		ctx := durable.With(t.Context(), newRun(newMemory(), nil))
		var computed atomic.Int32
		results := make(chan int)
		for range 50 {
			go func() {
				got, err := durable.Step(ctx, "s", func(context.Context) (int, error) {
					computed.Add(1)
					<-time.After(time.Second)
					return 42, nil
				})
				if err != nil {
					t.Error(err)
				}
				results <- got
			}()
		}
		for range 50 {
			if got := <-results; got != 42 {
				t.Errorf("got %d", got)
			}
		}
		if n := computed.Load(); n != 1 {
			t.Errorf("computed %d times", n)
		}
	})
}

// TestCallerThatEnds: whoever waits for a caller whose context ended, or whose
// computation panicked, is not left waiting.
func TestCallerThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := durable.With(t.Context(), newRun(newMemory(), nil))
		short, cancel := context.WithCancelCause(ctx)
		why := errors.New("enough")
		first := make(chan error, 1)
		go func() {
			_, err := durable.Step(short, "s", func(ctx context.Context) (int, error) {
				<-ctx.Done()
				return 0, context.Cause(ctx)
			})
			first <- err
		}()
		synctest.Wait()
		second := make(chan int, 1)
		go func() {
			got, err := durable.Step(ctx, "s", func(context.Context) (int, error) { return 7, nil })
			if err != nil {
				t.Error(err)
			}
			second <- got
		}()
		synctest.Wait()
		cancel(why)
		if err := <-first; !errors.Is(err, why) {
			t.Errorf("the first caller got %v", err)
		}
		if got := <-second; got != 7 {
			t.Errorf("the second caller got %d", got)
		}

		go func() {
			defer func() { first <- recover().(error) }()
			durable.Step(ctx, "panics", func(context.Context) (int, error) {
				<-time.After(time.Second)
				panic(why)
			})
		}()
		synctest.Wait()
		if _, err := durable.Step(ctx, "panics", func(context.Context) (int, error) { return 0, nil }); err == nil || !strings.Contains(err.Error(), "panicked") {
			t.Errorf("who waited for a panic got %v", err)
		}
		if err := <-first; err != why {
			t.Errorf("the panic was %v", err)
		}
	})
}

// TestKeep is about steps that somebody else computes.
func TestKeep(t *testing.T) {
	m := newMemory()
	keep := func(s durable.Stored, guard ...queue.Op) (durable.Stored, bool, error) {
		t.Helper()
		return durable.Keep(t.Context(), m, space, s, guard...)
	}
	stale, held := queue.Move{Fence: 6}, queue.Move{Fence: 7}
	s := durable.Stored{ID: "a/b", Inputs: "i", Result: json.RawMessage(` [1, 2] `), Attempt: 1}
	if _, _, err := keep(s, stale); !errors.Is(err, queue.ErrFenced) || m.has(space, "a/b") {
		t.Fatalf("with an old fence: %v", err)
	}
	if got, fresh, err := keep(s, held); err != nil || !fresh || string(got.Result) != "[1,2]" {
		t.Fatalf("kept %+v, fresh %v, %v", got, fresh, err)
	}
	s.Result, s.Attempt = json.RawMessage(`3`), 2
	if got, fresh, err := keep(s, held); err != nil || fresh || string(got.Result) != "[1,2]" || got.Attempt != 1 {
		t.Errorf("again: %+v, fresh %v, %v; want the first result", got, fresh, err)
	}
	s.Inputs = "j"
	var c *durable.CollisionError
	if _, _, err := keep(s, held); !errors.As(err, &c) {
		t.Errorf("other inputs: %v", err)
	}
	for _, bad := range []string{"", "{", "1 2"} {
		if _, _, err := keep(durable.Stored{ID: "bad", Result: json.RawMessage(bad)}); err == nil || m.has(space, "bad") {
			t.Errorf("result %q was kept: %v", bad, err)
		}
	}
}

func TestPageAndForget(t *testing.T) {
	m := newMemory()
	var want []string
	for i := range 250 {
		id := string(rune('a'+i/26)) + string(rune('a'+i%26))
		want = append(want, id)
		if _, _, err := durable.Keep(t.Context(), m, space, durable.Stored{ID: id, Result: json.RawMessage(`"xxxxxxxx"`)}); err != nil {
			t.Fatal(err)
		}
	}
	for _, max := range []int{0, 1, 12, 1200, 1e6} {
		var got []string
		for after := ""; ; {
			steps, more, err := durable.Page(t.Context(), m, space, after, max)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range steps {
				got = append(got, s.ID)
			}
			if !more {
				break
			}
			after = steps[len(steps)-1].ID
		}
		if strings.Join(got, ",") != strings.Join(want, ",") {
			t.Errorf("pages of %d bytes: %q", max, got)
		}
	}
	if _, _, err := durable.Keep(t.Context(), m, "job/k/steps", durable.Stored{ID: "a", Result: json.RawMessage(`1`)}); err != nil {
		t.Fatal(err)
	}
	if err := m.Apply(t.Context(), durable.Forget(space)); err != nil {
		t.Fatal(err)
	}
	if steps, _, _ := durable.Page(t.Context(), m, space, "", 0); len(steps) != 0 || !m.has("job/k/steps", "a") {
		t.Errorf("%d steps are left; those of another job: %v", len(steps), m.has("job/k/steps", "a"))
	}
}
