package breaker_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/breaker"
	"github.com/agentsched/agentsched/job"
)

func TestTrip(t *testing.T) {
	bubble(t, small, func(b bench) {
		running := b.allow(codex)
		b.set.Trip(codexKey, time.Now().Add(time.Hour), "the watchdog saw five crashes")
		running.Settle(breaker.Result{})
		open := b.refused(codex, codexKey, breaker.Open)
		if open.Cause != "the watchdog saw five crashes" || time.Until(open.RetryAt) != time.Hour {
			t.Errorf("refused with %+v", open)
		}
		b.set.Trip(codexKey, time.Now().Add(time.Minute), "shorter")
		if got := b.state(codexKey); time.Until(got.OpenUntil) != time.Hour || got.Cause != open.Cause {
			t.Errorf("a shorter trip left %+v", got)
		}
		b.set.Trip(gptKey, time.Time{}, "no time is the open time")
		if got := time.Until(b.state(gptKey).OpenUntil); got != small.OpenFor.Std() {
			t.Errorf("open for %s", got)
		}
		time.Sleep(time.Hour)
		lost := b.allow(codex) // takes the only probe and never ends
		b.set.Trip(codexKey, time.Now().Add(time.Minute), "while its probe is out")
		b.refused(codex, codexKey, breaker.Open)
		time.Sleep(time.Minute)
		b.runs(codex, job.NoError)
		b.is(codexKey, breaker.Closed)
		lost.Discard()
	})
}

func TestReset(t *testing.T) {
	bubble(t, small, func(b bench) {
		b.set.Reset(codexKey) // nobody knows it
		late := b.allow(codex)
		b.set.Trip(codexKey, time.Now().Add(time.Hour), "a test")
		b.set.Reset(codexKey)
		if s := b.state(codexKey); s.State != breaker.Closed || s.Cause != "" || !s.OpenUntil.IsZero() {
			t.Errorf("after the reset: %+v", s)
		}
		late.Settle(breaker.Result{Class: job.Crash})
		b.runs(codex, job.Crash, job.Crash)
		b.counted(codexKey, 2, 2, 0)
		late = b.allow(codex)
		b.set.Reset(codexKey)
		late.Settle(breaker.Result{Class: job.Crash})
		b.counted(codexKey, 0, 0, 0)

		b.set.Trip(codexKey, time.Now().Add(time.Hour), "a test")
		time.Sleep(time.Hour)
		b.allow(codex) // lost
		b.set.Reset(codexKey)
		b.runs(codex, job.NoError, job.NoError)
		want := []string{
			"codex closed→open", "codex open→closed", "codex closed→open", "codex open→half-open", "codex half-open→closed",
		}
		if got := b.changes(); !slices.Equal(got, want) {
			t.Errorf("changes %q, want %q", got, want)
		}
	})
}

func TestRestore(t *testing.T) {
	bubble(t, small, func(b bench) {
		b.runs(job.Choice{Worker: "claude"}, job.Crash)
		b.set.Trip(breaker.Key{Worker: "shell"}, time.Now().Add(time.Second), "half-open soon")
		b.set.Trip(breaker.Key{Worker: "exec"}, time.Now().Add(time.Minute), "over when it is restored")
		b.set.Trip(gptKey, time.Now().Add(time.Hour), "a test")
		time.Sleep(time.Second)
		b.allow(job.Choice{Worker: "shell"}) // its probe dies with the core
		text, err := json.Marshal(b.set.Snapshot())
		if err != nil {
			t.Fatal(err)
		}
		var states []breaker.State
		if err := json.Unmarshal(text, &states); err != nil {
			t.Fatal(err)
		}
		time.Sleep(59 * time.Second)

		b.set = breaker.NewSet(small, zerolog.Nop())
		if err := b.set.Restore(states); err != nil {
			t.Fatal(err)
		}
		if got := b.changes(); got != nil {
			t.Errorf("restoring told of %q", got)
		}
		time.Sleep(time.Millisecond)
		open := b.refused(gpt, gptKey, breaker.Open)
		if want := time.Hour - time.Minute - time.Millisecond; time.Until(open.RetryAt) != want || open.Cause != "a test" {
			t.Errorf("refused for %s because %q, want %s", time.Until(open.RetryAt), open.Cause, want)
		}
		for _, kind := range []job.WorkerKind{"shell", "exec"} {
			probe := b.allow(job.Choice{Worker: kind})
			b.refused(job.Choice{Worker: kind}, breaker.Key{Worker: kind}, breaker.HalfOpen)
			probe.Settle(breaker.Result{})
			b.is(breaker.Key{Worker: kind}, breaker.Closed)
		}
		b.runs(job.Choice{Worker: "claude"}, job.Crash, job.Crash)
		b.is(breaker.Key{Worker: "claude"}, breaker.Closed)

		time.Sleep(time.Hour)
		b.runs(gpt, job.Server) // the restored time is not the next one
		if got := time.Until(b.refused(gpt, gptKey, breaker.Open).RetryAt); got != small.OpenFor.Std() {
			t.Errorf("after a failed probe open for %s, want %s", got, small.OpenFor.Std())
		}
		if got := b.changes(); !slices.Contains(got, "codex:gpt-5 half-open→open") {
			t.Errorf("changes %q lack what happened after it was restored", got)
		}
	})
}

func TestRestoreRefusesNonsense(t *testing.T) {
	bubble(t, small, func(b bench) {
		soon := time.Now().Add(time.Hour)
		err := b.set.Restore([]breaker.State{
			{Key: codexKey, State: breaker.Open, OpenUntil: soon},
			{State: breaker.Closed},
			{Key: codexKey, State: "ajar"},
			{Key: codexKey, State: breaker.Open},
		})
		for _, want := range []string{"breakers[1].worker", "breakers[2].state", "breakers[3].open_until"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v does not name %s", err, want)
			}
		}
		if got := b.set.Snapshot(); len(got) != 0 {
			t.Errorf("and yet restored %+v", got)
		}
	})
}

func TestSnapshotAsJSON(t *testing.T) {
	bubble(t, small, func(b bench) {
		b.runs(gpt, job.Crash)
		b.set.Trip(gptKey, time.Now().Add(time.Hour), "a test")
		b.runs(job.Choice{Worker: "claude"}, job.NoError)
		got, err := json.Marshal(b.set.Snapshot())
		want := `[{"worker":"claude","state":"closed","requests":1,"failures":0,"slow":0},` +
			`{"worker":"codex","state":"closed","requests":1,"failures":1,"slow":0},` +
			`{"worker":"codex","model":"gpt-5","state":"open","open_until":"2000-01-01T01:00:00Z","requests":0,"failures":0,"slow":0,"cause":"a test"}]`
		if err != nil || string(got) != want {
			t.Errorf("got  %s, %v\nwant %s", got, err, want)
		}
	})
}

func TestStateOfAChoice(t *testing.T) {
	bubble(t, small, func(b bench) {
		b.set.Trip(gptKey, time.Now().Add(time.Second), "a test")
		for _, want := range []string{"codex closed, codex:gpt-5 open", "codex closed, codex:gpt-5 half-open"} {
			if got := b.set.State(gpt); got != want {
				t.Errorf("state %q, want %q", got, want)
			}
			time.Sleep(time.Second)
		}
		if got := b.set.State(codex); got != "codex closed" {
			t.Errorf("state %q", got)
		}
	})
}

func TestOldestChangeIsDropped(t *testing.T) {
	bubble(t, small, func(b bench) {
		const n = 1000
		for i := range n {
			b.set.Trip(codexKey, time.Now().Add(time.Duration(i+1)*time.Hour), fmt.Sprint(i))
			b.set.Reset(codexKey)
			b.set.Trip(codexKey, time.Now().Add(time.Hour), fmt.Sprint(i))
			b.set.Reset(codexKey)
		}
		var last breaker.Change
		kept := len(b.set.Changes())
		for range kept {
			last = <-b.set.Changes()
		}
		if kept == 0 || kept >= 4*n || last.To != breaker.Closed || last.Cause != "reset" {
			t.Errorf("%d changes are kept, the last is %+v; want the newest few", kept, last)
		}
	})
}

// TestModelsAreBounded asks for more models than are kept.
func TestModelsAreBounded(t *testing.T) {
	const bound = 256
	model := func(i int) job.Choice { return job.Choice{Worker: "opencode", Model: fmt.Sprintf("m%04d", i)} }
	key := func(i int) breaker.Key { return breaker.Key{Worker: "opencode", Model: model(i).Model} }
	has := func(b bench, i int) bool {
		return slices.ContainsFunc(b.set.Snapshot(), func(s breaker.State) bool { return s.Key == key(i) })
	}
	bubble(t, small, func(b bench) {
		b.set.Trip(key(0), time.Now().Add(time.Hour), "kept since it is open")
		running := b.allow(model(1)) // kept since it runs
		for i := 2; i < bound+10; i++ {
			time.Sleep(time.Millisecond)
			b.runs(model(i), job.NoError)
			if i == bound-1 {
				b.runs(model(2), job.NoError) // its turn to go, had it not been asked again
			}
		}
		if n := len(b.set.Snapshot()); n != bound+1 { // the kind's
			t.Errorf("%d breakers are kept, want %d", n, bound+1)
		}
		if !has(b, 0) || !has(b, 1) || !has(b, 2) || has(b, 3) || has(b, 12) || !has(b, 13) || !has(b, bound+9) {
			t.Error("want the open, the running and the latest ones kept, and those forgotten that were asked longest ago")
		}
		running.Discard()

		// With all of them out, a newcomer has its kind's breaker alone.
		var out []*breaker.Ticket
		for i := range bound {
			out = append(out, b.allow(model(10_000+i)))
		}
		if n := len(b.set.Snapshot()); n != bound+1 || has(b, 10_000+bound-1) {
			t.Errorf("%d breakers are kept, want %d without the last", n, bound+1)
		}
		time.Sleep(small.Window.Std()) // the successes leave
		for _, ticket := range out {
			ticket.Settle(breaker.Result{Class: job.Crash})
		}
		b.is(breaker.Key{Worker: "opencode"}, breaker.Open)
	})
}

// TestConcurrentUse is for the race detector, in real time: every ticket is
// ended from two sides at once.
func TestConcurrentUse(t *testing.T) {
	cfg := small
	cfg.OpenFor, cfg.MinRequests = job.Duration(time.Millisecond), 1
	set := breaker.NewSet(cfg, zerolog.Nop())
	classes := job.ErrorClasses()
	var workers sync.WaitGroup
	for w := range 8 {
		workers.Go(func() {
			for i := range 300 {
				ticket, err := set.Allow([]job.Choice{codex, gpt, mini}[(i+w)%3])
				if err == nil {
					workers.Go(ticket.Discard)
					ticket.Settle(breaker.Result{Class: classes[(i*7+w)%len(classes)]})
				}
				switch i % 50 {
				case 10:
					set.Trip(gptKey, time.Now().Add(time.Millisecond), "a test")
				case 20:
					set.Reset(gptKey)
				case 30:
					if err := breaker.NewSet(cfg, zerolog.Nop()).Restore(set.Snapshot()); err != nil {
						t.Error(err)
					}
				case 40:
					next := cfg
					next.Probes = 1 + i%2 + w%2
					if err := set.Configure(next); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	stop := make(chan struct{})
	var reader sync.WaitGroup
	reader.Go(func() {
		for {
			select {
			case <-set.Changes():
			case <-stop:
				return
			}
		}
	})
	workers.Wait()
	close(stop)
	reader.Wait()
	set.Reset(gptKey)
	set.Reset(codexKey)
	ticket, err := set.Allow(gpt)
	if err != nil {
		t.Fatalf("after all that, and a reset: %v", err)
	}
	ticket.Settle(breaker.Result{})
}
