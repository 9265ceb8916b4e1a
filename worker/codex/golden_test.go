package codex

import (
	"flag"
	"testing"

	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/workertest"
)

var update = flag.Bool("update", false, "write the golden files")

// TestTranscripts plays recorded runs of the real program.
func TestTranscripts(t *testing.T) {
	workertest.Golden(t, 10, *update, testSession)
}

func testSession(t *testing.T) worker.Session {
	t.Helper()
	return newSession(&worker.Task{Dir: "/workspace"}, home{dir: t.TempDir()})
}
