package server

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentsched/agentsched/queue"
)

// TestCachedForget: an answer stays until something was done.
func TestCachedForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // it is fresh however long this host stands still
		var c cached[int]
		made := 0
		get := func() int {
			v, err := c.get(t.Context(), func(context.Context) (int, error) { made++; return made, nil })
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		if a, b := get(), get(); a != 1 || b != 1 {
			t.Errorf("%d, then %d; want the first again", a, b)
		}
		c.forget()
		if v := get(); v != 2 {
			t.Errorf("%d after something was done, want a new answer", v)
		}
	})
}

// TestCachedUnavailable: who has waited for an answer while the database could not be asked has its error, and does not
// wait for it once more. Who comes later has it asked again.
func TestCachedUnavailable(t *testing.T) {
	var c cached[int]
	made := 0
	get := func() error {
		_, err := c.get(t.Context(), func(context.Context) (int, error) { made++; return 0, queue.ErrUnavailable })
		return err
	}
	for n := 1; n <= 2; n++ {
		if err := get(); !errors.Is(err, queue.ErrUnavailable) || made != n {
			t.Errorf("ask %d: computed %d times, %v", n, made, err)
		}
	}
	c.failed = c.failed.Add(time.Hour) // while the next one waits
	if err := get(); !errors.Is(err, queue.ErrUnavailable) || made != 2 {
		t.Errorf("computed %d times, %v", made, err)
	}
}
