package codex

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
	if err != nil || len(files) < 25 {
		t.Fatalf("%d transcripts, %v", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".transcript")
		t.Run(name, func(t *testing.T) {
			tk := conversationOf(t, name).task(name)
			s := newSession(tk, grantOf(tk), func(string) bool { return true })
			got := workertest.PlayTranscript(t, s, workertest.Read(t, file))
			golden := strings.TrimSuffix(file, ".transcript") + ".golden"
			if *update {
				if err := os.WriteFile(golden, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if want := workertest.Read(t, golden); !bytes.Equal(got, want) {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}
