package durable_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/agentsched/agentsched/workflow/durable"
)

// node is a step of a random program, with steps within it.
type node struct {
	id       string
	failures int  // how often it fails before it succeeds, counted over all processes
	parallel bool // its inner steps run at the same time
	inner    []node
}

func drawProgram(t *rapid.T, depth int) []node {
	n := rapid.IntRange(1, 4).Draw(t, "steps")
	list := make([]node, n)
	for i := range list {
		list[i] = node{
			id:       fmt.Sprint(i),
			failures: rapid.SampledFrom([]int{0, 0, 0, 1, 2}).Draw(t, "failures"),
			parallel: rapid.Bool().Draw(t, "parallel"),
		}
		if depth > 0 && rapid.Bool().Draw(t, "nests") {
			list[i].inner = drawProgram(t, depth-1)
		}
	}
	return list
}

// world is what outlives the processes: the disk, and the test's notes.
type world struct {
	t    *rapid.T
	disk *memory

	mu       sync.Mutex
	drawn    int            // results given out; no two computations give the same
	seen     map[string]int // what the program was told of a step, the first time
	failures map[string]int // of a step so far
	cutAt    int            // the computation at whose end the context is cut; 0: none
	computed int
	cut      context.CancelCauseFunc
}

var errBroken = errors.New("the computation failed")

// play runs the nodes, each from the results before it, and returns the sum of
// their results.
func (w *world) play(ctx context.Context, path string, nodes []node, parallel bool) (int, error) {
	if !parallel {
		sum := 0
		for i := range nodes {
			got, err := w.step(ctx, path, &nodes[i], sum)
			if err != nil {
				return 0, err
			}
			sum += got
		}
		return sum, nil
	}
	results, errs := make([]int, len(nodes)), make([]error, len(nodes))
	var wg sync.WaitGroup
	for i := range nodes {
		wg.Go(func() { results[i], errs[i] = w.step(ctx, path, &nodes[i], 0) })
	}
	wg.Wait()
	sum := 0
	for _, r := range results {
		sum += r
	}
	return sum, errors.Join(errs...)
}

// step takes a step. Its computation is not deterministic: only the store can
// make the results the same.
func (w *world) step(ctx context.Context, path string, n *node, input int) (int, error) {
	whole := n.id
	if path != "" {
		whole = path + "/" + n.id
	}
	got, err := durable.StepOf(ctx, n.id, input, func(ctx context.Context) (int, error) {
		if w.disk.has(space, whole) {
			w.t.Errorf("step %s is computed although its result is stored", whole)
		}
		sum, err := w.play(ctx, whole, n.inner, n.parallel)
		if err != nil {
			return 0, err
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.computed++; w.computed == w.cutAt {
			w.cut(errKilled)
		}
		if w.failures[whole] < n.failures {
			w.failures[whole]++
			return 0, errBroken
		}
		w.drawn++
		return sum + 1000*w.drawn, nil
	})
	if err != nil {
		return 0, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if before, ok := w.seen[whole]; ok && before != got {
		w.t.Errorf("step %s gave %d, and %d before", whole, got, before)
	}
	w.seen[whole] = got
	return got, nil
}

// TestTheorem: a program that is run to any prefix, killed and run again, as often
// as one likes, sees the same result of each step, and no step is computed once its
// result is stored.
func TestTheorem(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		program := drawProgram(t, 2)
		w := &world{t: t, disk: newMemory(), seen: map[string]int{}, failures: map[string]int{}}
		kills := rapid.IntRange(0, 8).Draw(t, "kills")
		for process := 0; ; process++ {
			if process > 1000 {
				t.Fatal("the program does not come to its end")
			}
			w.cutAt, w.computed = 0, 0
			w.disk.reopen(0, false)
			if process < kills {
				at := rapid.IntRange(1, 8).Draw(t, "kill at")
				switch rapid.SampledFrom([]string{"before commit", "after commit", "context"}).Draw(t, "kill") {
				case "before commit":
					w.disk.reopen(at, false)
				case "after commit":
					w.disk.reopen(at, true)
				case "context":
					w.cutAt = at
				}
			}
			ctx, cut := context.WithCancelCause(context.Background())
			w.cut = cut
			sum, err := w.play(durable.With(ctx, newRun(w.disk, nil)), "", program, false)
			cut(nil)
			switch {
			case err == nil:
				w.check(program, sum)
				return
			case !errors.Is(err, errKilled) && !errors.Is(err, errBroken):
				t.Fatalf("process %d: %v", process, err)
			}
		}
	})
}

// check runs the finished program once more: all of it comes from the store.
func (w *world) check(program []node, sum int) {
	computed := w.computed
	w.disk.reopen(1, false) // a single commit would be fatal
	again, err := w.play(durable.With(context.Background(), newRun(w.disk, nil)), "", program, false)
	if err != nil || again != sum || w.computed != computed {
		w.t.Fatalf("the replay gave %d, %v after %d computations; want %d and none", again, err, w.computed-computed, sum)
	}
}
