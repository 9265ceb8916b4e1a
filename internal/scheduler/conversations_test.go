package scheduler_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// TestMessages: words from several clients at once keep one order, the same id says nothing twice, and no more waits for a
// job than its next attempt can begin with.
func TestMessages(t *testing.T) {
	store := openStore(t)
	defer func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}()
	s := scheduler.Idle(store, &isolation.Book{}, nil)
	b, entries := scheduler.NewBatch("test", "", []job.Spec{task("talk", 0, func(s *job.Spec) { s.Type, s.Worker = job.WorkerTask, "codex" }), task("plain", 0)}, job.Workflow{}, stamp())
	if err := store.Enqueue(t.Context(), b, entries); err != nil {
		t.Fatal(err)
	}
	id := entries[0].ID
	var clients sync.WaitGroup
	for c := range 4 {
		clients.Go(func() {
			for n := range 5 {
				for range 2 { // it had no answer
					if _, err := s.Conversations.Say(t.Context(), id, api.Say{ID: fmt.Sprintf("%d-%d", c, n), Text: fmt.Sprintf("word %d of %d", n, c), By: "ann"}); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	clients.Wait()
	list, err := scheduler.Messages(t.Context(), store, id)
	if err != nil || len(list) != 20 {
		t.Fatalf("%d messages, %v; want 20", len(list), err)
	}
	next := [4]int{}
	for i, m := range list {
		var c, n int
		if _, err := fmt.Sscanf(m.ID, "%d-%d", &c, &n); err != nil || n != next[c] || m.Number != i+1 || m.State != api.MessageQueued {
			t.Errorf("message %d is %+v, %v; want word %d of that client", i+1, m, err, next[c])
		}
		next[c]++
	}
	for name, in := range map[string]api.Say{
		"other words of the same id": {ID: "0-0", Text: "something else"},
		"no id":                      {ID: "a b", Text: "x"},
	} {
		if _, err := s.Conversations.Say(t.Context(), id, in); !errors.Is(err, queue.ErrIllegalTransition) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := s.Conversations.Say(t.Context(), entries[1].ID, api.Say{Text: "x"}); !errors.Is(err, queue.ErrIllegalTransition) {
		t.Errorf("a command was told something: %v", err)
	}
	long := strings.Repeat("\x01", 10<<10) // which takes six times as much on the wire
	var full error
	for range 3 {
		if _, err := s.Conversations.Say(t.Context(), id, api.Say{Text: long}); err != nil {
			full = err
			break
		}
	}
	if !errors.Is(full, queue.ErrIllegalTransition) {
		t.Errorf("more waits than an attempt can begin with: %v", full)
	}
}
