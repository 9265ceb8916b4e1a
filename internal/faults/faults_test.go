//go:build linux

package faults

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agentsched/agentsched/internal/testrun"
)

const scenariosVariable = "AGENTSCHED_SCENARIOS"

// The sample is the first row of scenarios in which everything strikes that can, a
// full disk more than once.
const (
	sampleFirst = 28 // seeds are counted from here
	sampleSize  = 24
)

// TestScenarios plays scenarios, each from a seed of its own.
func TestScenarios(t *testing.T) {
	first, n := testrun.Seed(t), 1
	switch {
	case os.Getenv(testrun.SeedVariable) != "":
	case testrun.Soaking():
		n = 200
	default:
		first, n = sampleFirst+first, sampleSize
	}
	if text := os.Getenv(scenariosVariable); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatalf("%s: %v", scenariosVariable, err)
		}
	}
	total := &tally{what: "faults", first: first}
	t.Cleanup(func() { fmt.Println(total) }) // also without -v
	for i := range n {
		seed := first + uint64(i)
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			play(t, seed, total)
		})
	}
}

// TestSample: everything that can strike does so in the sample.
func TestSample(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("an ordinary user has other scenarios of a seed")
	}
	struck := map[faultKind]bool{}
	for i := range sampleSize {
		p := newPlan(uint64(sampleFirst + 1 + i))
		for _, f := range p.Faults {
			struck[f.Do] = true
		}
		struck[tearFrames] = struck[tearFrames] || len(p.Tears) > 0
	}
	for _, kind := range []faultKind{
		killCore, stopCore, pauseCore, killScheduler, killAll, pauseAll, freezeAll, interrupt, hurry, killWorker,
		stopWorker, cancelJob, restartCore, drainCore, reload, fillDisk, jumpClocks, tearFrames,
	} {
		if !struck[kind] {
			t.Errorf("%s never strikes", kind)
		}
	}
}

// play plays the scenario of a seed and checks it.
func play(t *testing.T, seed uint64, total *tally) {
	if end, limited := t.Deadline(); limited && time.Until(end) < patience+30*time.Second {
		t.Fatal("there is no time left to play this: give -timeout")
	}
	p := newPlan(seed)
	if p.SmallDisk && os.Geteuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatal("a disk that can be filled needs root, and here it must be there")
		}
		total.skip()
		t.Skip("a disk that can be filled needs root")
	}
	s, err := newScene(t, p)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	}()
	err = s.play(t.Context())
	var wrong []string
	if err != nil {
		wrong = append(s.census.errors(), err.Error())
		s.dump()
	} else {
		wrong = s.check(t.Context())
	}
	total.add(s)
	if len(wrong) > 0 {
		t.Errorf("again with %s=%d:\n%s\n\n%s", testrun.SeedVariable, seed, strings.Join(wrong, "\n"), s.story())
	}
}

// tally sums up what was played.
type tally struct {
	what                                 string
	first                                uint64        // seed; the others follow it
	window                               time.Duration // the longest that a run lived after a thaw, beside its successor
	mu                                   sync.Mutex
	scenarios, skipped, attempts, starts int
	workers, most                        int
	struck                               map[faultKind]int
}

func (t *tally) skip() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.skipped++
}

func (t *tally) add(s *scene) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.scenarios++
	t.attempts += s.attempts
	t.starts += len(s.runs)
	t.workers += s.census.seen
	t.most = max(t.most, s.census.most)
	t.window = max(t.window, s.census.window)
	if t.struck == nil {
		t.struck = map[faultKind]int{}
	}
	for kind, n := range s.struck {
		t.struck[kind] += n
	}
	t.struck[tearFrames] += s.torn()
}

func (t *tally) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var faults []string
	sum := 0
	for _, kind := range slices.Sorted(maps.Keys(t.struck)) {
		faults = append(faults, fmt.Sprintf("%s %d", kind, t.struck[kind]))
		sum += t.struck[kind]
	}
	window := ""
	if t.window > 0 {
		window = fmt.Sprintf("; after a thaw, a run lived for %s beside its successor", t.window)
	}
	return fmt.Sprintf("%s: from seed %d, %d scenarios (%d skipped), %d schedulers started, %d attempts, %d worker processes, at most %d runs at once; %d faults: %s%s",
		t.what, t.first, t.scenarios, t.skipped, t.starts, t.attempts, t.workers, t.most, sum, strings.Join(faults, ", "), window)
}
