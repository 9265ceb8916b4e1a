package server

import (
	"context"
	"testing"
)

// TestCachedForget: an answer stays until something was done.
func TestCachedForget(t *testing.T) {
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
}
