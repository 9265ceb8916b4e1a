package sqlite

import (
	"path/filepath"
	"testing"

	"github.com/rs/zerolog"
)

// TestWatchDuringACommit: who begins to watch while a commit is under way, of which
// nothing was noted since nobody had asked, may read what was before it, and must hear
// of it.
func TestWatchDuringACommit(t *testing.T) {
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "queue.db"), Options{Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	tx := s.writer.tx
	tx.changes.committed() // an earlier one
	if err := tx.noteChanges(); err != nil {
		t.Fatal(err)
	}
	signal := s.Watch(t.Context())
	before := tx.changes.now()
	select {
	case <-signal:
		t.Error("told before the commit, when there is nothing to read")
	default:
	}
	tx.changes.committed()
	select {
	case <-signal:
	default:
		t.Error("the commit was not told")
	}
	if lanes, known := tx.changes.lanesSince(sharedPool, before); known {
		t.Errorf("the lanes that it changed are said to be %v", lanes)
	}
}
