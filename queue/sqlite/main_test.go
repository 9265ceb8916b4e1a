package sqlite_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/agentsched/agentsched/internal/testrun"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/queue/queuetest"
	"github.com/agentsched/agentsched/queue/sqlite"
)

func TestMain(m *testing.M) {
	if code, is := queuetest.Child(openPlace); is {
		os.Exit(code)
	}
	goleak.VerifyTestMain(m)
}

func openPlace(ctx context.Context, path string) (queue.Store, error) {
	return sqlite.Open(ctx, path, sqlite.Options{})
}

func newPlace(t *testing.T) func() string {
	return func() string { return filepath.Join(t.TempDir(), "queue.db") }
}

func TestCrash(t *testing.T) {
	rounds := 10 // a sample
	if testrun.Soaking() {
		rounds = 200
	}
	queuetest.Crash(t, testrun.Seed(t), rounds, newPlace(t), openPlace)
}

func TestLinearizable(t *testing.T) {
	queuetest.Linearizable(t, testrun.Seed(t), 12, newPlace(t), openPlace)
}
