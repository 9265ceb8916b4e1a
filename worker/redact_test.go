package worker_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/internal/redact"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// The session is told what was printed; what is kept of it has no secrets, also
// not where it was cut, or where a secret comes line by line.
func TestRunKeepsNoSecrets(t *testing.T) {
	const secret = "swordfish-swordfish"
	dir := filepath.Join(t.TempDir(), "1")
	text := `echo text before ` + secret + `
echo text -----BEGIN PRIVATE KEY-----
echo text MIIEabcd
echo text -----END PRIVATE KEY-----
echo oops ` + secret + ` >&2; exit 3`
	r := redact.New(redact.Value{Name: "K", Text: secret})
	o, events := run(t, t.Context(), &script{text: text}, func(run *worker.Run) { run.LogDir, run.Redact = dir, r })
	var said []string
	for _, e := range events {
		if strings.Contains(e.Text, secret) || strings.Contains(e.Text, "MIIE") {
			t.Errorf("event %+v", e)
		}
		if e.Kind == job.EventText {
			said = append(said, e.Text)
		}
	}
	if len(said) == 0 || !strings.Contains(strings.Join(said, "\n"), "before [redacted:K]") {
		t.Errorf("events %q", said)
	}
	for _, name := range []string{"stdout.log", "stderr.log"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || strings.Contains(string(text), secret) || !strings.Contains(string(text), "[redacted:K]") {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
	if strings.Contains(o.Message, secret) {
		t.Errorf("outcome %+v", o)
	}
}
