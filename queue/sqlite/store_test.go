package sqlite_test

import (
	"path/filepath"
	"testing"

	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/queue/queuetest"
	"github.com/agentsched/agentsched/queue/sqlite"
)

func TestConformance(t *testing.T) {
	queuetest.Run(t, func(t *testing.T, dir string) queue.Store {
		s, err := sqlite.Open(t.Context(), filepath.Join(dir, "queue.db"), sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
}
