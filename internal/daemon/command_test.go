package daemon

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/internal/proc"
)

func through(t *testing.T, environ ...string) Run {
	t.Helper()
	host, err := proc.NewHost(proc.Config{Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := host.Close(); err != nil {
			t.Error(err)
		}
	})
	return Through(host, "test/hook", append(environ, "PATH="+os.Getenv("PATH")))
}

func TestCommandGetsThePayload(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	run := through(t, "GREETING=hello", "OUT="+out)
	if _, err := run(t.Context(), []string{"sh", "-c", `{ echo "$GREETING $1"; cat; } > "$OUT"`, "sh", "you"}, []byte(`{"a":1}`)); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(out)
	if want := "hello you\n{\"a\":1}"; string(got) != want || err != nil {
		t.Errorf("the command got %q, %v; want %q", got, err, want)
	}
	// Nobody need read the payload.
	if _, err := run(t.Context(), []string{"true"}, make([]byte, 1<<20)); err != nil {
		t.Errorf("a command that reads nothing: %v", err)
	}
}

func TestCommandFails(t *testing.T) {
	run := through(t)
	_, err := run(t.Context(), []string{"sh", "-c", "yes no | head -c 100000 >&2; echo the end >&2; exit 3"}, nil)
	if err == nil || !strings.Contains(err.Error(), "exit code 3") || !strings.Contains(err.Error(), `the end\n"`) || len(err.Error()) > 2*maxSaid {
		t.Errorf("error %v", err)
	}
	if _, err := run(t.Context(), []string{"/no/such/program"}, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a program that is not there: %v", err)
	}
}

// TestCommandIsKilled: at the time limit nothing of the command is left, also
// what it started and what ignores signals.
func TestCommandIsKilled(t *testing.T) {
	dir := t.TempDir()
	ready, alive := filepath.Join(dir, "ready"), filepath.Join(dir, "alive")
	for _, path := range []string{ready, alive} {
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Skipf("no named pipes: %v", err)
		}
	}
	run := through(t, "READY="+ready, "ALIVE="+alive)
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		// Opened for reading when the command's child has opened it for writing.
		os.ReadFile(ready)
		cancel(errTimeout)
	}()
	held := make(chan error, 1)
	go func() {
		_, err := os.ReadFile(alive) // ends when the last process that holds it is gone
		held <- err
	}()
	_, err := run(ctx, []string{"sh", "-c", `trap "" TERM INT HUP; exec 3> "$ALIVE"; sleep 600 & echo > "$READY"; sleep 600`}, []byte("{}"))
	if !errors.Is(err, errTimeout) {
		t.Errorf("error %v, want %v", err, errTimeout)
	}
	if err := <-held; err != nil {
		t.Error(err)
	}
}
