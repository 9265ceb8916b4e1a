package daemon

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A real manager's socket gets what sd_notify(3) wants to hear.
func TestNotifySocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "30000000")
	t.Setenv("WATCHDOG_PID", "")
	n, err := NewNotifier(nil, logger(t))
	if err != nil || n.Watchdog != 30*time.Second {
		t.Fatalf("got %+v, %v", n, err)
	}
	heard := func() []string {
		buf := make([]byte, 4096)
		size, err := manager.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Split(string(buf[:size]), "\n")
	}
	for _, tt := range []struct {
		say  func()
		want []string
	}{
		{func() { n.Ready("2 jobs\nwait") }, []string{"READY=1", "STATUS=2 jobs wait"}},
		{func() { n.Status("3 jobs") }, []string{"STATUS=3 jobs"}},
		{func() { n.Waiting("no database") }, []string{"EXTEND_TIMEOUT_USEC=120000000", "WATCHDOG=1", "STATUS=no database"}},
		{func() { n.Reloading() }, []string{"RELOADING=1", "MONOTONIC_USEC"}},
		{func() { n.Replacing("v2 takes over") }, []string{"RELOADING=1", "MONOTONIC_USEC", "WATCHDOG=1", "STATUS=v2 takes over"}},
		{func() { n.Stopping("bye") }, []string{"STOPPING=1", "STATUS=bye"}},
	} {
		tt.say()
		got := heard()
		for i, line := range got {
			if usec, ok := strings.CutPrefix(line, "MONOTONIC_USEC="); ok {
				if at, err := strconv.ParseInt(usec, 10, 64); err != nil || at <= 0 {
					t.Errorf("%q", line)
				}
				got[i] = "MONOTONIC_USEC"
			}
		}
		want := tt.want
		if runtime.GOOS != "linux" { // no systemd there
			want = slices.DeleteFunc(slices.Clone(want), func(line string) bool { return line == "MONOTONIC_USEC" && !slices.Contains(got, line) })
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	ended, reason := make(chan error), errors.New("told to stop")
	go func() { ended <- n.Run(ctx) }()
	if got := heard(); !slices.Equal(got, []string{"WATCHDOG=1"}) {
		t.Errorf("got %q", got)
	}
	cancel(reason)
	if err := <-ended; !errors.Is(err, reason) {
		t.Errorf("got %v", err)
	}
}

func TestNobodyListens(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	t.Setenv("WATCHDOG_USEC", "")
	n, err := NewNotifier(nil, logger(t))
	if err != nil || n.Watchdog != 0 {
		t.Fatalf("got %+v, %v", n, err)
	}
	n.Ready("")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := n.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "gone"))
	n.Ready("") // is logged, and harms nothing
	t.Setenv("WATCHDOG_USEC", "soon")
	if _, err := NewNotifier(nil, logger(t)); err == nil {
		t.Error("WATCHDOG_USEC=soon was taken")
	}
	t.Setenv("WATCHDOG_USEC", "1000000")
	t.Setenv("WATCHDOG_PID", "1")
	if n, err := NewNotifier(nil, logger(t)); err != nil || n.Watchdog != 0 {
		t.Errorf("another process's watchdog: got %+v, %v", n, err)
	}
}

// While the program is well, there is a sign of life at the start and each half of
// the time; while it is not, or does not answer, there is none.
func TestWatchdog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var mu sync.Mutex // guards said
		var said []string
		var sick, hang atomic.Bool
		n := &Notifier{
			Send: func(lines string) error {
				mu.Lock()
				defer mu.Unlock()
				said = append(said, time.Since(start).String()+" "+lines)
				return nil
			},
			Watchdog: 20 * time.Second,
			Health: func(ctx context.Context) error {
				if hang.Load() {
					<-ctx.Done()
					return context.Cause(ctx)
				}
				if sick.Load() {
					return errors.New("the queue is gone")
				}
				return nil
			},
			Log: logger(t),
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- n.Run(ctx) }()
		step := func(d time.Duration, want ...string) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(said, want) {
				t.Errorf("after %s: got %q, want %q", time.Since(start), said, want)
			}
			said = nil
		}
		step(25*time.Second, "0s WATCHDOG=1", "10s WATCHDOG=1", "20s WATCHDOG=1")
		sick.Store(true)
		step(20*time.Second, "30s STATUS=not well: the queue is gone")
		sick.Store(false)
		step(10*time.Second, "50s WATCHDOG=1\nSTATUS=well again")
		hang.Store(true)
		step(20*time.Second, "1m10s STATUS=not well: no answer within 10s")
		hang.Store(false)
		step(10*time.Second, "1m20s WATCHDOG=1\nSTATUS=well again") // the check that hung ends, and the next one is well
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}
