package cli

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
)

// TestSuccessorOfNobody: who waits for the new program of a server that has ended is told.
func TestSuccessorOfNobody(t *testing.T) {
	path := filepath.Join(t.TempDir(), "scheduler.sock")
	synctest.Test(t, func(t *testing.T) {
		c := client.New(path)
		defer c.Close()
		began := time.Now()
		if _, err := successor(t.Context(), c, &api.Status{PID: 1}); !errors.Is(err, errEnded) {
			t.Errorf("nobody listens: %v", err)
		}
		if waited := time.Since(began); waited < endedAfter || waited > 2*endedAfter {
			t.Errorf("it waited %s, want about %s", waited, endedAfter)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := successor(ctx, c, &api.Status{PID: 1}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("interrupted: %v", err)
		}
	})
}
