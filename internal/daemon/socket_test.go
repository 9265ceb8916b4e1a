package daemon_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/daemon"
)

// inherited returns a listener on the same socket as a program that comes next
// has it, and closes the one that it had.
func inherited(t *testing.T, l *daemon.SocketListener) net.Listener {
	t.Helper()
	file, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	next, err := net.FileListener(file)
	if err != nil {
		t.Fatal(err)
	}
	l.Keep(true)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return next
}

func reaches(t *testing.T, l net.Listener, path string) {
	t.Helper()
	c, err := client.DialSocket(t.Context(), path) // waits in the backlog
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	other, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	other.Close()
}

// A socket that is taken over is reached as before, at a path of any length; its
// file goes with whom it belongs to.
func TestAdopt(t *testing.T) {
	for name, path := range map[string]string{
		"short": filepath.Join(t.TempDir(), "s"), "long": filepath.Join(t.TempDir(), strings.Repeat("d", 120), "s"),
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			first, err := daemon.ListenSocket(path)
			if err != nil {
				t.Fatal(err)
			}
			reaches(t, first, path)
			second, err := daemon.AdoptSocket(inherited(t, first), path, true)
			if err != nil {
				t.Fatal(err)
			}
			reaches(t, second, path)
			third, err := daemon.AdoptSocket(inherited(t, second), path, false)
			if err != nil {
				t.Fatal(err)
			}
			reaches(t, third, path)
			third.Close()
			if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the file is still there: %v", err)
			}
		})
	}
}

func TestAdoptRefuses(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s")
	l, err := daemon.ListenSocket(path)
	if err != nil {
		t.Fatal(err)
	}
	own := inherited(t, l)
	defer own.Close()
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	other, err := daemon.ListenSocket(filepath.Join(dir, "other"))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for _, tt := range []struct {
		l    net.Listener
		path string
		want string
	}{
		{tcp, path, "listens on tcp 127.0.0.1:"}, {own, filepath.Join(dir, "gone"), "no such file"}, {own, text, "it is no socket"},
		{own, filepath.Join(dir, "other"), "the inherited one is that of " + path},
	} {
		if _, err := daemon.AdoptSocket(tt.l, tt.path, false); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", tt.path, err, tt.want)
		}
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := daemon.AdoptSocket(own, path, false); err == nil || !strings.Contains(err.Error(), "its mode is 0666, which lets others in; want 0600") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("a refusal removed the file: %v", err)
	}
}
