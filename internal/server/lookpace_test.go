package server

import (
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/queue"
)

// TestLookPace: the first update after a while is looked at soon, those of a busy job less
// often, and once more after the last one.
func TestLookPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := httptest.NewRequest("GET", "/", nil)
		updates := make(chan api.Update, 100)
		alive, look := time.NewTicker(time.Hour), time.NewTimer(time.Hour)
		defer alive.Stop()
		defer look.Stop()
		pace := lookPace{after: lookFirst}
		wait := func() time.Duration {
			began := time.Now()
			if !pace.await(r, queue.Entry{ID: "a"}, updates, alive, look, nil) {
				t.Fatal("the stream is over")
			}
			return time.Since(began)
		}
		var got []time.Duration
		for range 6 {
			updates <- api.Update{Job: "a"}
			updates <- api.Update{Job: "a"}
			updates <- api.Update{Job: "b"}
			got = append(got, wait())
		}
		got = append(got, wait(), wait())
		updates <- api.Update{Job: "a"}
		got = append(got, wait(), wait(), wait())
		ms := time.Millisecond
		want := []time.Duration{20 * ms, 40 * ms, 80 * ms, 160 * ms, 200 * ms, 200 * ms, lookSoon, lookSlow, 20 * ms, lookSoon, lookSlow}
		if !slices.Equal(got, want) {
			t.Errorf("looks after %v, want %v", got, want)
		}
	})
}
