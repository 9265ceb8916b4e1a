package worker_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// Logs are made with their first line, folder and all; those of an earlier run
// are not taken for this one's.
func TestLogsAreMadeWithTheirFirstLine(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "job", "1")
	within := func(r *worker.Run) { r.LogDir = dir }
	if o, _ := run(t, t.Context(), &script{text: "exit 0"}, within); o.State != job.RunCompleted || len(o.Artifacts) > 0 {
		t.Errorf("a silent run: %+v", o)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("a silent run made its folder: %v", err)
	}
	if o, _ := run(t, t.Context(), &script{text: "echo text x; echo; echo oops >&2"}, within); len(o.Artifacts) != 2 {
		t.Errorf("artifacts %+v", o.Artifacts)
	}
	for name, want := range map[string]string{"stdout.log": "text x\n\n", "stderr.log": "oops\n"} {
		if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(text) != want {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
	if o, _ := run(t, t.Context(), &script{text: "exit 0"}, within); len(o.Artifacts) > 0 {
		t.Errorf("artifacts of a silent run: %+v", o.Artifacts)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("logs of the run before: %v, %v", left, err)
	}
}

func TestLogThatCannotBeMadeEndsTheRun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	o, _ := run(t, t.Context(), &script{text: "echo text x; exec sleep 300"}, func(r *worker.Run) { r.LogDir = filepath.Join(file, "1") })
	if o.State != job.RunFailed || o.Class != job.ResourceExhausted || !strings.Contains(o.Message, "open log") {
		t.Errorf("outcome %+v", o)
	}
}
