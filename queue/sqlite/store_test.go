package sqlite_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/job"
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

// TestFind: a job is found by either end of its id, and of several the error names
// each.
func TestFind(t *testing.T) {
	s, at := openTemp(t), time.Unix(1, 0)
	entry := func(id job.ID, name job.Name) queue.Entry {
		spec := job.Spec{Name: name, Tenant: "t", Type: job.Tool, Worker: "shell", Instructions: "true"}
		return queue.Entry{ID: id, Batch: "b", Spec: spec, State: job.Queued, CreatedAt: at, RunnableAt: at}
	}
	err := s.Enqueue(t.Context(), queue.Batch{ID: "b", CreatedAt: at}, []queue.Entry{
		entry("01a1fcce-6b90-7022-94af-83e4d513c5ef", "one"), entry("01a1fcce-6b91-7022-94af-83e4aaaaaaaa", "two"),
		entry("01a1fccf-6b92-7022-94af-83e4aaaaaaaa", "three"),
	})
	if err != nil {
		t.Fatal(err)
	}
	for ref, want := range map[string]job.Name{"d513c5ef": "one", "01a1fccf": "three", "two": "two", "01a1fcce-6b91": "two"} {
		if e, err := queue.Find(t.Context(), s, ref); err != nil || e.Spec.Name != want {
			t.Errorf("%s is %s, %v, want %s", ref, e.Spec.Name, err, want)
		}
	}
	for ref, names := range map[string][]string{"01a1fcce": {"(one)", "(two)"}, "aaaaaaaa": {"(two)", "(three)"}} {
		_, err := queue.Find(t.Context(), s, ref)
		several, ok := errors.AsType[*queue.AmbiguousError](err)
		if !ok || several.Total != 2 || !strings.Contains(err.Error(), names[0]) || !strings.Contains(err.Error(), names[1]) {
			t.Errorf("%s: %v, want the names %v", ref, err, names)
		}
	}
	for _, ref := range []string{"513c5ef", "bbbbbbbb", ""} {
		if e, err := queue.Find(t.Context(), s, ref); !errors.Is(err, queue.ErrNotFound) {
			t.Errorf("%q is %s, %v", ref, e.ID, err)
		}
	}
}
