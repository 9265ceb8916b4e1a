package terminal

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
)

var update = flag.Bool("update", false, "write the golden files")

func TestMain(m *testing.M) {
	time.Local = time.UTC // of the times in logs
	if os.Getenv(topChild) != "" {
		os.Exit(runTopChild())
	}
	if os.Getenv(liveChild) != "" {
		os.Exit(runLiveChild())
	}
	goleak.VerifyTestMain(m)
}

// golden compares got with testdata/name.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; write it with go test -update", err)
	}
	if got != string(want) {
		t.Errorf("%s differs; if that is meant, go test -update\n--- got\n%s\n--- want\n%s", file, got, want)
	}
}
