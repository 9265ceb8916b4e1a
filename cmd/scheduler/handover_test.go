package main

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentsched/agentsched/internal/statedir"
)

// TestPatiently: a scheduler that has just started holds the state directory before
// it answers, and a command that comes between is not refused.
func TestPatiently(t *testing.T) {
	starting := usage(&statedir.LockedError{Path: "/s", PID: 7})
	other := errors.New("another failure")
	for _, tt := range []struct {
		name     string
		silent   time.Duration // how long it does not answer
		then     error
		want     error
		at, most time.Duration // when that is known
	}{
		{"answers at once", 0, nil, nil, 0, 0},
		{"answers later", 3 * time.Second, nil, nil, 3 * time.Second, 4 * time.Second},
		{"refuses later", 3 * time.Second, other, other, 3 * time.Second, 4 * time.Second},
		{"never answers", time.Hour, nil, starting, answerTime, answerTime + time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				err := patiently(t.Context(), func() error {
					if time.Since(began) < tt.silent {
						return starting
					}
					return tt.then
				})
				if took := time.Since(began); !errors.Is(err, tt.want) || took < tt.at || took > tt.most {
					t.Errorf("got %v after %s", err, took)
				}
			})
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := patiently(ctx, func() error { return starting }); !errors.Is(err, starting) {
		t.Errorf("of a command that is cancelled: %v", err)
	}
}
