package queuetest

import (
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// rebase: what was put off while the clock stood two hours ahead is runnable
// when the clock is right again; what asked for its time keeps it.
func rebase(e *env) {
	ahead := epoch.Add(2 * time.Hour)
	asked := e.enqueueOne("asked", func(n *queue.Entry) {
		at := ahead
		n.RunnableAt, n.Spec.RunnableAt = at, &at
	})
	released := e.enqueueOne("released")
	c := e.claimOne(ahead.Add(-time.Minute))
	if c.ID != released {
		e.Fatalf("claimed %s", show(c))
	}
	e.apply(queue.Release{ID: released, Fence: c.Fence, Now: ahead, RunnableAt: ahead.Add(time.Second), Waiting: "put off"})
	retried := e.enqueueOne("retried")
	c = e.claimOne(epoch)
	n := e.begin(c, epoch)
	e.apply(queue.Finish{
		ID: retried, Fence: c.Fence, Attempt: n, Now: ahead, Outcome: job.Outcome{State: job.RunFailed, Class: job.Crash, StartedAt: epoch, EndedAt: ahead},
		Retry: queue.Retry{RunnableAt: ahead.Add(time.Second)},
	})
	patient := e.enqueueOne("patient")
	c = e.claimOne(epoch)
	e.apply(queue.Release{ID: patient, Fence: c.Fence, Now: epoch, RunnableAt: epoch.Add(time.Hour), Waiting: "for an hour"})
	ready := e.enqueueOne("ready", runnableAt(ahead)) // its needs ended then, and it was never claimed
	now := epoch.Add(time.Second)

	e.apply(queue.Rebase{Now: now, After: now, Future: true})
	for _, id := range []job.ID{released, retried, ready} {
		if got := e.get(id); !got.RunnableAt.Equal(now) {
			e.Errorf("put off while the clock stood ahead: %s, want it to be runnable at %s", show(got), now)
		}
	}
	if got := e.get(asked); !got.RunnableAt.Equal(ahead) {
		e.Errorf("an entry that asked for its time: %s", show(got))
	}
	if got := e.get(patient); !got.RunnableAt.Equal(epoch.Add(time.Hour)) {
		e.Errorf("an entry of which nothing says that the clock was wrong: %s", show(got))
	}
	e.apply(queue.Rebase{Now: now, After: epoch.Add(2 * time.Hour)})
	if got := e.get(patient); !got.RunnableAt.Equal(epoch.Add(time.Hour)) {
		e.Errorf("an entry that is runnable before After: %s", show(got))
	}
	e.apply(queue.Rebase{Now: now, After: epoch.Add(30 * time.Minute)})
	if got := e.get(patient); !got.RunnableAt.Equal(now) {
		e.Errorf("an entry that is runnable after After: %s, want %s", show(got), now)
	}
}
