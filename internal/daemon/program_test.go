package daemon

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/internal/proc"
)

// TestThrough runs real programs on a host of processes.
func TestThrough(t *testing.T) {
	host, err := proc.NewHost(proc.Config{Tag: "AGENTSCHED_RUN", Log: logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := host.Close(); err != nil {
			t.Error(err)
		}
	}()
	run := Through(host, "test/check", append(os.Environ(), "LISTEN_FDS=3", "AGENTSCHED_LISTENERS=api=3"))
	program := func(script string) string {
		path := filepath.Join(t.TempDir(), "scheduler")
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, tt := range []struct{ script, version, err string }{
		{`echo "scheduler v2 $1"`, "v2", ""},
		{`echo "scheduler x$LISTEN_FDS$AGENTSCHED_LISTENERS"`, "x", ""}, // looks for no sockets
		{`echo scheduler v4; exit 3`, "", "run `version`: exit code 3"},
		{`head -c 1000000 /dev/zero`, "", "it is no scheduler"},
	} {
		version, err := Check(t.Context(), program(tt.script), run)
		if version != tt.version || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: got %q, %v, want %q, %q", tt.script, version, err, tt.version, tt.err)
		}
	}
	// One that never ends is killed when the time is up, with all that it prints.
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errors.New("no more time"))
	defer cancel()
	if _, err := Check(ctx, program("echo scheduler v3; exec yes"), run); err == nil || !strings.Contains(err.Error(), "no more time") {
		t.Errorf("got %v", err)
	}
}
