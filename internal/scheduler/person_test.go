package scheduler_test

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// hands is a world in which a person takes the job "fix" over, whose run has the session S-1.
type hands struct {
	*world
	id job.ID
	// answer is what the core says when a run is to stop; nil is that it does.
	answer func(stop int) ipc.TellRunResult
	// ends is how a run that was told to stop ends; nil is as one that does.
	ends *job.Outcome
	told int // how often a run was told to stop
	runs int // that have begun
}

var errStopped = errors.New("stopped for a person")

// begin starts a scheduler on the store.
func (h *hands) begin(t *testing.T, path string) {
	h.world = newWorld(t, openStoreAt(t, path), 1, nil)
	h.cores.play = func(core *playedCore) {
		core.run = func(ctx context.Context, r *playedRun) job.Outcome {
			h.runs++
			r.tell(job.Event{Kind: job.EventState, State: job.Running})
			r.tell(job.Event{Kind: job.EventSession, Session: "S-1"})
			switch {
			case sleep(ctx, time.Minute):
				return job.Outcome{State: job.RunCompleted, Answer: "done", Session: "S-1"}
			case !errors.Is(context.Cause(ctx), errStopped):
				return job.Outcome{State: job.RunCancelled, Class: job.CancelledClass, Session: "S-1"}
			case h.ends != nil:
				return *h.ends
			}
			return job.Outcome{State: job.Checkpointed, Interrupted: true, Message: "stopped", Session: "S-1"}
		}
		core.answer = func(_ context.Context, method string, params json.RawMessage) (any, error, bool) {
			var r ipc.TellRun
			if method != ipc.MethodTellRun || json.Unmarshal(params, &r) != nil || r.Interrupt == "" {
				return nil, nil, false
			}
			answer := ipc.TellRunResult{Taken: true}
			core.mu.Lock()
			defer core.mu.Unlock()
			if h.told++; h.answer != nil {
				answer = h.answer(h.told)
			}
			if run := core.runs[r.Job]; run != nil && answer.Taken {
				run.cancel(errStopped)
			}
			return answer, nil, true
		}
	}
	h.start()
}

// again ends the scheduler and starts another.
func (h *hands) again(t *testing.T, path string) {
	h.end()
	h.begin(t, path)
	h.wait(time.Second)
}

func (h *hands) take(by string) (api.TakenOver, error) {
	return h.sched.Conversations.TakeOver(h.Context(), h.id, api.Takeover{By: by})
}

func (h *hands) back(in api.Handback) (api.HandedBack, error) {
	return h.sched.Conversations.HandBack(h.Context(), h.id, in)
}

// refused checks that an error refuses something, and says why.
func (h *hands) refused(what string, err error, why string) {
	h.Helper()
	if !errors.Is(err, queue.ErrIllegalTransition) || !strings.Contains(err.Error(), why) {
		h.Errorf("%s: %v, want it refused with %q", what, err, why)
	}
}

// inHands checks that the job is in the hands of ann after that many runs.
func (h *hands) inHands(runs int) {
	h.Helper()
	e := h.wantState(h.id, job.Queued)
	if e.Held != job.HeldByPerson || !strings.Contains(e.Waiting, "in the hands of ann since") || e.Session != "S-1" || e.Counted != 0 || h.runs != runs {
		h.Fatalf("after %d runs it is %+v, want it in the hands of ann after %d", h.runs, e, runs)
	}
	if st := scheduler.StatusOf(&e, stamp()); st.Waiting == nil || st.Waiting.Reason != job.WaitPerson {
		h.Errorf("it stands as %+v", st)
	}
}

func inBubble(t *testing.T, h *hands, f func(t *testing.T, path string)) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "queue.db")
		h.begin(t, path)
		defer func() { h.end() }()
		h.id = h.submit(task("fix", 0, func(s *job.Spec) { s.Type, s.Worker = job.WorkerTask, "codex" }))[0]
		h.wait(time.Second)
		f(t, path)
	})
}

// TestTakeover: a job that was taken over stays with the person, whatever passes, until they hand it back; then it goes on in its
// session and is told what was said meanwhile.
func TestTakeover(t *testing.T) {
	h := &hands{}
	inBubble(t, h, func(t *testing.T, path string) {
		_, err := h.back(api.Handback{})
		h.refused("handed back before", err, "in nobody's hands")
		taken, err := h.take("ann")
		if err != nil || taken.By != "ann" || taken.Job != h.id {
			t.Fatalf("taken over: %+v, %v", taken, err)
		}
		h.wait(time.Second)
		h.inHands(1)
		if again, err := h.take("ann"); err != nil || !again.Held || !again.Since.Equal(taken.Since) {
			t.Errorf("taken over again: %+v, %v", again, err)
		}
		_, err = h.take("bob")
		h.refused("by another", err, "in the hands of ann since")
		said, err := h.sched.Conversations.Say(h.Context(), h.id, api.Say{Text: "no docs", By: "bob"})
		if err != nil || !strings.Contains(said.Note, "in the hands of ann") {
			t.Errorf("said meanwhile: %+v, %v", said, err)
		}
		h.wait(48 * time.Hour)
		h.inHands(1)
		h.again(t, path)
		h.inHands(1)

		for range 2 { // it had no answer
			if _, err := h.back(api.Handback{ID: "b", Text: "write the tests", By: "ann"}); err != nil {
				t.Fatal(err)
			}
		}
		h.wait(time.Second)
		got := h.cores.at(1).lastSubmitted()
		if got.Attempt != 2 || got.Session != "S-1" || len(got.Messages) != 2 || got.Messages[0].Text != "no docs" ||
			!strings.HasPrefix(got.Messages[1].Text, "A person (ann) has taken this job over") || !strings.HasSuffix(got.Messages[1].Text, "\n\nwrite the tests") {
			t.Errorf("it goes on with %+v, told %+v", got, got.Messages)
		}
		_, err = h.back(api.Handback{Text: "more"})
		h.refused("other words", err, "in nobody's hands")
		if _, err := h.back(api.Handback{}); err != nil {
			t.Errorf("handed back twice: %v", err)
		}

		// And once more: who had it does not matter.
		if _, err := h.take("bob"); err != nil {
			t.Fatal(err)
		}
		h.wait(time.Second)
		if again, err := h.back(api.Handback{ID: "b", Text: "write the tests", By: "ann"}); err != nil || again.Note != "it was handed back before" {
			t.Errorf("what ann has sent comes late once more: %+v, %v", again, err)
		}
		if e := h.get(h.id); e.Held != job.HeldByPerson || h.runs != 2 {
			t.Errorf("taken over a second time: %+v", e)
		}
		if err := h.sched.Cancel(h.Context(), h.id); err != nil {
			t.Error(err)
		}
		h.wait(time.Second)
		h.wantState(h.id, job.Cancelled)
		_, err = h.take("bob")
		h.refused("of a cancelled one", err, "has ended")
		_, err = h.back(api.Handback{})
		h.refused("of a cancelled one", err, "has ended")
		h.again(t, path)
		if spaces, err := h.store.Spaces(h.Context(), "persons/"); err != nil || len(spaces) > 0 {
			t.Errorf("noted of who has jobs: %v, %v", spaces, err)
		}
	})
}

// TestTakeoverOnItsWay: what keeps a run from stopping at once, the end of the scheduler included, does not lose who takes it over.
func TestTakeoverOnItsWay(t *testing.T) {
	notNow := ipc.TellRunResult{Why: "its worker is not running at this moment"}
	for name, c := range map[string]struct {
		hands
		runs   int
		during func(h *hands, t *testing.T, path string)
	}{
		"its worker does not run yet": {runs: 1, hands: hands{answer: func(stop int) ipc.TellRunResult {
			if stop < 4 {
				return notNow
			}
			return ipc.TellRunResult{Taken: true}
		}}},
		"it fails instead":   {runs: 1, hands: hands{ends: &job.Outcome{State: job.RunFailed, Class: job.Server, Session: "S-1"}}},
		"it goes on instead": {runs: 1, hands: hands{ends: &job.Outcome{State: job.Checkpointed, Session: "S-1"}}},
		"the scheduler ends before the run hears": {runs: 1, hands: hands{answer: func(int) ipc.TellRunResult { return notNow }},
			during: func(h *hands, t *testing.T, path string) {
				h.answer = nil
				h.again(t, path)
			}},
		"the core dies": {runs: 1, hands: hands{answer: func(int) ipc.TellRunResult { return notNow }},
			during: func(h *hands, t *testing.T, _ string) {
				h.answer = nil
				h.cores.down(1, errors.New("killed"))
				h.cores.up(1)
			}},
	} {
		t.Run(name, func(t *testing.T) {
			h := &c.hands
			inBubble(t, h, func(t *testing.T, path string) {
				taken, err := h.take("ann")
				if err != nil || taken.Held {
					t.Fatalf("taken over: %+v, %v", taken, err)
				}
				if c.during != nil {
					c.during(h, t, path)
				}
				h.wait(20 * time.Second)
				e := h.wantState(h.id, job.Queued)
				if e.Held != job.HeldByPerson || e.Session != "S-1" || h.runs > 2 {
					t.Fatalf("after %d runs it is %+v", h.runs, e)
				}
				h.wait(time.Hour)
				if e := h.get(h.id); e.Held != job.HeldByPerson {
					t.Errorf("later it is %+v", e)
				}
			})
		})
	}
}

// TestTakeoverRefused: a run that cannot be stopped, or is over first, is nobody's, and the job goes on as ever.
func TestTakeoverRefused(t *testing.T) {
	t.Run("its worker cannot stop", func(t *testing.T) {
		h := &hands{answer: func(int) ipc.TellRunResult {
			return ipc.TellRunResult{Why: "worker codex cannot be interrupted", Never: true}
		}}
		inBubble(t, h, func(t *testing.T, path string) {
			_, err := h.take("ann")
			h.refused("a run that cannot stop", err, "cannot be interrupted")
			h.wait(2 * time.Minute)
			h.wantState(h.id, job.Completed)
		})
	})
	t.Run("it is over first", func(t *testing.T) {
		h := &hands{answer: func(int) ipc.TellRunResult { return ipc.TellRunResult{Why: "it is about to end"} }}
		inBubble(t, h, func(t *testing.T, path string) {
			if taken, err := h.take("ann"); err != nil || taken.Held {
				t.Fatalf("taken over: %+v, %v", taken, err)
			}
			h.wait(2 * time.Minute)
			h.wantState(h.id, job.Completed)
			_, err := h.back(api.Handback{})
			h.refused("handed back", err, "has ended")
			if spaces, err := h.store.Spaces(h.Context(), "persons/"); err != nil || len(spaces) > 0 {
				t.Errorf("noted of who has jobs: %v, %v", spaces, err)
			}
		})
	})
	t.Run("it has not begun", func(t *testing.T) {
		h := &hands{}
		inBubble(t, h, func(t *testing.T, path string) {
			h.id = h.submit(task("later", 0, func(s *job.Spec) {
				s.Type, s.Worker, s.RunnableAt = job.WorkerTask, "codex", new(stamp().Add(time.Hour))
			}))[0]
			_, err := h.take("ann")
			h.refused("a job that waits for its first attempt", err, "no session yet")
		})
	})
}
