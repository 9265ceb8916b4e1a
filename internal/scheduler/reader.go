package scheduler

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/agentsched/agentsched/internal/workspace"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/schedule"
)

// reader reads the store for the machine, and claims.
type reader struct {
	store   queue.Store
	feed    *Feed
	loop    *loop
	folders *workspace.Resolver
	holder  string
	lease   time.Duration
}

// answer reads the store for the machine and claims what it has chosen. What was asked for
// while a claim was being committed is answered together, the reads first. It is answered
// also when the scheduler ends meanwhile: a claim may be committed.
func (r *reader) answer(asks <-chan schedule.Ready, failure func(error)) {
	for ready := range asks {
		for waiting := len(asks); waiting > 0; waiting-- {
			add(&ready, <-asks)
		}
		ctx, cancel := context.WithTimeout(context.Background(), writeTime)
		for _, spec := range ready.Reads {
			if e, err := r.heads(ctx, spec); err != nil {
				failure(err)
			} else {
				r.loop.post(e)
			}
		}
		for _, c := range ready.Claims {
			claims, err := r.claim(ctx, queue.ClaimSpec{Batch: c.Batch, IDs: c.IDs, Now: now()})
			if err != nil {
				failure(fmt.Errorf("claim jobs: %w", err))
			}
			r.loop.post(schedule.Claimed{Asked: c.IDs, Entries: claims.Entries})
		}
		cancel()
	}
}

// add adds what else was asked for.
func add(to *schedule.Ready, more schedule.Ready) {
	to.Reads = append(to.Reads, more.Reads...)
	for _, c := range more.Claims {
		i := slices.IndexFunc(to.Claims, func(known schedule.Claim) bool { return known.Batch == c.Batch })
		if i < 0 {
			to.Claims = append(to.Claims, c)
			continue
		}
		to.Claims[i].IDs = append(to.Claims[i].IDs, c.IDs...)
	}
}

// heads reads what the machine wants to know of the store.
func (r *reader) heads(ctx context.Context, spec queue.HeadsSpec) (schedule.HeadsRead, error) {
	spec.Now = now()
	heads, err := r.store.Heads(ctx, spec)
	for _, id := range heads.Expired {
		r.feed.publishEntry(ctx, id)
	}
	if err != nil {
		return schedule.HeadsRead{}, fmt.Errorf("read what is queued: %w", err)
	}
	e := schedule.HeadsRead{Batch: spec.Batch, Heads: heads, Folders: map[string]string{}}
	for _, list := range [][]queue.LaneHeads{heads.Lanes, heads.Pages} {
		for i := range list {
			for n := range list[i].Heads {
				path := list[i].Heads[n].Workspace.Path
				if real, known := r.folders.Peek(path); path != "" && known {
					e.Folders[path] = real
				}
			}
		}
	}
	return e, nil
}

// claim is how the scheduler claims, and the only way. A claim may let jobs
// expire, also one that asks for none: that is told.
func (r *reader) claim(ctx context.Context, spec queue.ClaimSpec) (queue.Claims, error) {
	spec.Holder, spec.Lease = r.holder, r.lease
	claims, err := r.store.Claim(ctx, spec)
	for _, id := range claims.Expired {
		r.feed.publishEntry(ctx, id)
	}
	return claims, err
}
