package supervisor

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/internal/testrun"
	"github.com/agentsched/agentsched/ipc"
)

// hangAfter is for tests in which a core hangs: on a busy host, one that does not
// answers earlier.
func hangAfter(c *Config) { c.HangAfter = 2 * time.Second }

// crash makes the only core crash, in whatever way, and returns its end.
func crash(t *testing.T, change func(*Config), how func(*bench, *Core)) (r event, down error) {
	t.Helper()
	b := newBench(t, fakeMode{}, change)
	b.start()
	c := b.up(1)[0]
	b.startWorker(c, "job", "echo $$; "+staying, 1)
	how(b, c)
	r, down = b.await("crash", 1), b.await("down", 1).cause
	b.up(1)
	if r.crash.Core != 1 || r.crash.PID != c.PID() || r.crash.Version != "fake" || r.crash.ID == "" || r.crash.Uptime <= 0 ||
		time.Since(r.crash.Time) > time.Hour || len(r.crash.Runs) != 1 || r.crash.Cause != down.Error() {
		t.Errorf("report %+v", r.crash)
	}
	return r, down
}

func TestReportOfAPanic(t *testing.T) {
	r, down := crash(t, nil, func(b *bench, c *Core) {
		go c.Call(context.Background(), fakePanic, nil, nil)
	})
	if !strings.Contains(down.Error(), "exit code 2; its last words: panic: the gate is gone") {
		t.Errorf("down because of %v", down)
	}
	if d := r.crash.Dump; !strings.HasPrefix(d, "panic: the gate is gone\n") || !strings.Contains(d, "supervisor.panicHere(") {
		t.Errorf("dump %q", d)
	}
	if r.crash.Exit != "exit code 2" || r.crash.LastWords != "panic: the gate is gone" || r.crash.Stderr != `{"level":"info","message":"about to panic"}`+"\n" {
		t.Errorf("report %+v", r.crash)
	}
}

func TestReportOfAHang(t *testing.T) {
	wantDump := func(t *testing.T, dump, inIt string) {
		t.Helper()
		// The first goroutine is there from its head to the empty line after it.
		rest, ok := strings.CutPrefix(dump, "SIGQUIT: quit\n")
		_, first, _ := strings.Cut(rest, "\ngoroutine ")
		if _, next, found := strings.Cut(first, "\n\n"); !ok || !found || !strings.Contains(next, "goroutine ") {
			t.Errorf("dump %.300q", dump)
		}
		if !strings.Contains(dump, inIt) {
			t.Errorf("no %s in the dump", inIt)
		}
	}
	t.Run("of its threads", func(t *testing.T) {
		r, down := crash(t, hangAfter, func(b *bench, c *Core) { b.call(c, fakeHang, nil, nil) })
		if !errors.Is(down, ErrHung) || !strings.Contains(down.Error(), "no heartbeat for 2s") {
			t.Errorf("down because of %v", down)
		}
		wantDump(t, r.crash.Dump, "supervisor.hangHere(")
	})
	t.Run("of the process", func(t *testing.T) {
		r, down := crash(t, hangAfter, func(b *bench, c *Core) {
			testrun.Freeze(t, c.PID())
		})
		if !errors.Is(down, ErrHung) {
			t.Errorf("down because of %v", down)
		}
		wantDump(t, r.crash.Dump, "supervisor.fakeMain(")
	})
	t.Run("of its tongue", func(t *testing.T) {
		r, down := crash(t, nil, func(b *bench, c *Core) { go c.Call(context.Background(), fakeFlood, nil, nil) })
		if !errors.Is(down, ipc.ErrGarbage) {
			t.Errorf("down because of %v", down)
		}
		wantDump(t, r.crash.Dump, "supervisor.fakeMain(")
	})
}
