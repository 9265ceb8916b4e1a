package schedule_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/schedule"
)

// BenchmarkTurn measures what it takes to end one job and choose the next, with so many
// tenants that have a job queued, each of them in a lane of its own.
func BenchmarkTurn(b *testing.B) {
	for _, tenants := range []int{10, 1000, 10_000} {
		b.Run(fmt.Sprintf("tenants=%d", tenants), func(b *testing.B) {
			w := newWorld(b, schedule.Config{Bounds: schedule.Bounds{Slots: 16}})
			read := schedule.HeadsRead{}
			read.Version, read.All = 1, true
			for n := range tenants {
				r := task(n, job.Tenant(fmt.Sprint("t", n)), 0)
				read.Lanes = append(read.Lanes, queue.LaneHeads{Lane: r.lane, Heads: []queue.Head{r.Head}})
			}
			w.m.Step(midnight, up())
			ready := w.m.Step(midnight, read)
			flying := ready.Claims[0].IDs
			claimed := func(ids []job.ID) schedule.Claimed {
				c := schedule.Claimed{Asked: ids}
				for _, id := range ids {
					c.Entries = append(c.Entries, queue.Entry{ID: id})
				}
				return c
			}
			w.m.Step(midnight, claimed(flying))
			at := midnight
			for n := 0; b.Loop(); n++ {
				// The job goes back behind all others, so that there are as many as before.
				at = at.Add(time.Millisecond)
				id := flying[0]
				var number int
				if _, err := fmt.Sscanf(string(id), "j%d", &number); err != nil {
					b.Fatal(err)
				}
				r := task(number, job.Tenant(fmt.Sprint("t", number)), 0)
				r.RunnableAt = at
				back := schedule.HeadsRead{}
				back.Version = uint64(n + 2)
				back.Lanes = []queue.LaneHeads{{Lane: r.lane, Heads: []queue.Head{r.Head}}}
				w.m.Step(at, schedule.Changed{}, schedule.Gone{ID: id})
				ready := w.m.Step(at, back)
				if len(ready.Claims) != 1 {
					b.Fatalf("turn %d: %d claims", n, len(ready.Claims))
				}
				next := ready.Claims[0].IDs
				w.m.Step(at, claimed(next))
				flying = append(flying[1:], next...)
			}
		})
	}
}
