package opencode

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/worker/workertest"
)

var update = flag.Bool("update", false, "write the golden files")

// TestTranscripts plays recorded conversations with the real program.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.transcript")
	if err != nil || len(files) < 12 {
		t.Fatalf("%d transcripts, %v", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".transcript")
		t.Run(name, func(t *testing.T) {
			tk := conversationTask(name)
			h := home{data: t.TempDir(), model: "fake/m"}
			if tk.Session != "" {
				if err := os.Mkdir(filepath.Join(h.data, program.Name), 0o700); err != nil {
					t.Fatal(err)
				}
				workertest.Write(t, filepath.Join(h.data, program.Name, "opencode.db"), tk.Session)
			}
			got := workertest.PlayTranscript(t, newSession(tk, h), workertest.Read(t, file))
			golden := strings.TrimSuffix(file, ".transcript") + ".golden"
			if *update {
				workertest.Write(t, golden, string(got))
			}
			if want := workertest.Read(t, golden); !bytes.Equal(got, want) {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}
