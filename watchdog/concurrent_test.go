package watchdog

import (
	"encoding/json"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/job"
)

// What says that it is safe for concurrent use is, as the race detector sees
// it, and no count is lost.
func TestConcurrentUse(t *testing.T) {
	m, d, e := NewMetrics(time.Minute), NewDefence(Default().Defence), NewEscalations(Default().Escalation)
	s := NewStall(Default().Stall, midnight)
	var book isolation.Book
	var wg sync.WaitGroup
	const each, workers = 200, 4
	for range workers {
		wg.Go(func() {
			for n := range each {
				now := midnight.Add(time.Duration(n) * time.Millisecond)
				m.RunStarted("codex")
				m.LockWait(now, time.Millisecond)
				m.EventsDropped(1)
				m.Core(now, CoreUse{CPU: time.Duration(n)})
				d.Step(now, Inputs{Metrics: m.Snapshot(now)})
				d.Admit(Request{Kind: "codex"})
				for _, x := range e.Observe(now, WorkerCrash{Kind: "codex", Tenant: "ann", Job: job.ID(strconv.Itoa(n % 7))}) {
					book.Apply(now, x.Isolation())
				}
				book.Blocked(isolation.Run{Kind: "codex"}, now)
				if _, err := json.Marshal(&book); err != nil {
					t.Error(err)
				}
				s.Output(now)
				s.Check(now, func() (time.Duration, error) { return 0, nil })
				if n%2 == 0 {
					m.RunEnded(now, "codex", job.Crash)
				}
			}
		})
	}
	wg.Wait()
	got := m.Snapshot(midnight.Add(time.Second))
	if got.Inflight != each*workers/2 || got.EventsDropped != each*workers || got.LockWait.Count != each*workers || got.Kinds["codex"].Sick.Of != each*workers/2 {
		t.Errorf("counts were lost: %+v", got)
	}
	if len(book.List(midnight.Add(time.Second))) != 1 {
		t.Error("codex is not isolated after its crashes")
	}
}
