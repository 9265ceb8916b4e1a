package claude

import (
	"errors"
	"flag"
	"io/fs"
	"os"
	"testing"
	"time"

	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/workertest"
)

var update = flag.Bool("update", false, "write the golden files")

var testNow = time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)

// TestTranscripts plays recorded runs of the real program.
func TestTranscripts(t *testing.T) {
	workertest.Golden(t, 10, *update, func(t *testing.T) worker.Session { return testSession(t) })
}

func testSession(t *testing.T) *session {
	t.Helper()
	return newSession(&worker.Task{Dir: "/workspace"}, home{dir: t.TempDir()}, func() time.Time { return testNow })
}

func readFile(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return data
}
