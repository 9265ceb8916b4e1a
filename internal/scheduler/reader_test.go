package scheduler

import (
	"context"
	"slices"
	"testing"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/schedule"
)

// slowClaims is a store whose claims take until they are let go.
type slowClaims struct {
	queue.Store
	claims chan []job.ID
	let    chan struct{}
}

func (s *slowClaims) Claim(_ context.Context, spec queue.ClaimSpec) (queue.Claims, error) {
	s.claims <- spec.IDs
	<-s.let
	return queue.Claims{}, nil
}

// TestClaimsThatWaitShareATransaction: what is chosen while a claim is being committed is
// claimed at once, by batches.
func TestClaimsThatWaitShareATransaction(t *testing.T) {
	store := &slowClaims{claims: make(chan []job.ID), let: make(chan struct{})}
	r := &reader{store: store, loop: newLoop(schedule.Config{})}
	asks := make(chan schedule.Ready, 8)
	ask := func(batch job.BatchID, id job.ID) {
		asks <- schedule.Ready{Claims: []schedule.Claim{{Batch: batch, IDs: []job.ID{id}}}}
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.answer(asks, func(err error) { t.Error(err) })
	}()
	ask("", "a")
	var got [][]job.ID
	got = append(got, <-store.claims)
	ask("", "b")
	ask("batch", "c")
	ask("", "d")
	close(asks)
	for range 2 {
		store.let <- struct{}{}
		got = append(got, <-store.claims)
	}
	store.let <- struct{}{}
	<-ended
	if want := [][]job.ID{{"a"}, {"b", "d"}, {"c"}}; !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("claimed %v, want %v", got, want)
	}
}
