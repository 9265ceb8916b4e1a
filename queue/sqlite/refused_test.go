package sqlite_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// TestRefusedByTheGroup: who is refused for what another of the same group has
// written hears so once that is durable, and can read it then.
func TestRefusedByTheGroup(t *testing.T) {
	s := openTemp(t)
	refused := 0
	for round := range 50 {
		id := job.ID(fmt.Sprint("job-", round))
		var mu sync.Mutex
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				err := s.Enqueue(t.Context(), queue.Batch{ID: job.BatchID(fmt.Sprint("batch-", round))}, []queue.Entry{{ID: id, Spec: job.Spec{Name: "one"}}})
				if err == nil {
					return
				}
				if !errors.Is(err, queue.ErrDuplicate) {
					t.Error(err)
				}
				if _, err := s.Get(t.Context(), id); err != nil {
					t.Errorf("%s was refused as a duplicate of what is not there: %v", id, err)
				}
				mu.Lock()
				defer mu.Unlock()
				refused++
			})
		}
		all.Wait()
	}
	if refused != 50*7 {
		t.Errorf("%d were refused, want %d", refused, 50*7)
	}
}
