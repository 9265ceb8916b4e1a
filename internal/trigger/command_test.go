package trigger

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/internal/proc"
	"github.com/agentsched/agentsched/job"
)

func chmod(path string, mode uint32) error { return syscall.Chmod(path, mode) }

func host(t *testing.T) *proc.Host {
	t.Helper()
	h, err := proc.NewHost(proc.Config{Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

func TestThrough(t *testing.T) {
	run := Through(host(t), "test/triggers", []string{"GREETING=hello", "PATH=" + os.Getenv("PATH")})
	dir := t.TempDir()
	write(t, filepath.Join(dir, "file"), "there", 0o600)
	var out strings.Builder
	if err := run(t.Context(), `echo "$GREETING"; cat file; yes | head -c 100000 >&2`, dir, &out); err != nil || out.String() != "hello\nthere" {
		t.Errorf("%q, %v", &out, err)
	}
	if err := run(t.Context(), "echo why >&2; exit 3", dir, io.Discard); err == nil || !strings.Contains(err.Error(), `exit code 3; it said: "why\n"`) {
		t.Errorf("error %v", err)
	}
	if err := run(t.Context(), "true", filepath.Join(dir, "none"), io.Discard); err == nil {
		t.Error("a folder that is not there: no error")
	}
}

// TestCommandIsKilled: at its limit nothing of the command is left, also what
// it started and what ignores signals.
func TestCommandIsKilled(t *testing.T) {
	alive := filepath.Join(t.TempDir(), "alive")
	if err := syscall.Mkfifo(alive, 0o600); err != nil {
		t.Skipf("no named pipes: %v", err)
	}
	r, err := os.OpenFile(alive, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	w, err := os.OpenFile(alive, os.O_WRONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	cfg := config(t, &queue{}, map[Name]Settings{"a": {
		Command: &Command{Run: `trap "" TERM INT HUP; exec 3> "$ALIVE"; sleep 600 & setsid sleep 600 & sleep 600`, Dir: t.TempDir(), Every: job.Duration(time.Hour), Timeout: job.Duration(time.Second)},
		Job:     "/j.yaml",
	}})
	run := Through(host(t), "test/triggers", []string{"ALIVE=" + alive, "PATH=" + os.Getenv("PATH")})
	ended := make(chan error, 1)
	cfg.Run = func(ctx context.Context, command, dir string, out io.Writer) error {
		err := run(ctx, command, dir, out)
		ended <- err
		return err
	}
	_, stop := started(t, cfg)
	defer stop()
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "time limit of 1s") {
		t.Errorf("error %v", err)
	}
	w.Close()
	if _, err := io.ReadAll(r); err != nil { // ends when the last process that holds it is gone
		t.Error(err)
	}
}

// TestCommandStops: the end of the runner is the end of its commands.
func TestCommandStops(t *testing.T) {
	cfg := config(t, &queue{}, map[Name]Settings{"a": {Command: &Command{Run: "echo; exec sleep 600", Dir: t.TempDir(), Every: job.Duration(time.Hour)}, Job: "/j.yaml"}})
	run := Through(host(t), "test/triggers", os.Environ())
	began := make(chan bool, 1)
	cfg.Run = func(ctx context.Context, command, dir string, out io.Writer) error {
		return run(ctx, command, dir, writer(func(p []byte) { began <- true }))
	}
	_, stop := started(t, cfg)
	<-began
	stop()
}

type writer func(p []byte)

func (w writer) Write(p []byte) (int, error) { w(p); return len(p), nil }

// TestWhen: which runs of a command fire.
func TestWhen(t *testing.T) {
	type run struct {
		out  string
		err  error
		fire bool
	}
	failed := errors.New("exit code 1")
	for when, runs := range map[When][]run{
		"":        {{"a", nil, false}, {"a", nil, false}, {"b", nil, true}, {"x", failed, false}, {"b", nil, false}, {"", nil, true}, {"b", nil, true}},
		OnOutput:  {{"a", nil, true}, {"a", nil, true}, {" \n", nil, false}, {"x", failed, false}, {"b", nil, true}},
		OnSuccess: {{"", nil, true}, {"", failed, false}, {"a", nil, true}},
	} {
		t.Run(string(when), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := &queue{}
				s := Settings{Command: &Command{Run: "c", Dir: "/d", Every: job.Duration(time.Minute), When: when}, Job: "/j.yaml"}
				cfg := config(t, q, map[Name]Settings{"a": s})
				n, ids := 0, map[string]bool{}
				cfg.Run = func(_ context.Context, command, dir string, out io.Writer) error {
					io.WriteString(out, runs[n].out)
					if command != "c" || dir != "/d" {
						t.Errorf("run %q in %q", command, dir)
					}
					return runs[n].err
				}
				for i, one := range runs {
					n = i
					// A restart between any two runs changes nothing.
					before := len(q.ids())
					r, stop := started(t, cfg)
					synctest.Wait()
					if fired := len(q.ids()) > before; fired != one.fire || fired && q.got[before].Event != one.out {
						t.Errorf("run %d, %q: fired %v, %+v", i, one.out, fired, q.got[before:])
					}
					if failed := r.Status()[0].LastError != ""; failed != (one.err != nil) {
						t.Errorf("run %d: last error %q", i, r.Status()[0].LastError)
					}
					stop()
				}
				for _, id := range q.ids() {
					if ids[id] {
						t.Errorf("firing %s twice", id)
					}
					ids[id] = true
				}
			})
		})
	}
}

// TestCommandSubmission: what could not be submitted fires again, as the same
// event; once a minute, from the end of one run to the next.
func TestCommandSubmission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ids []string
		q := &queue{answer: func(f Firing) error {
			ids = append(ids, f.ID)
			if len(ids) < 3 {
				return errors.New("no")
			}
			return nil
		}}
		cfg := config(t, q, map[Name]Settings{"a": {Command: &Command{Run: "c", Every: job.Duration(time.Minute)}, Job: "/j.yaml"}})
		runs := 0
		cfg.Run = func(_ context.Context, _, _ string, out io.Writer) error {
			runs++
			time.Sleep(time.Minute)
			io.WriteString(out, []string{"a", "b", "b", "b", "b"}[runs-1])
			return nil
		}
		_, stop := started(t, cfg)
		time.Sleep(9*time.Minute + 30*time.Second)
		synctest.Wait()
		stop()
		if runs != 5 || len(ids) != 3 || ids[0] != ids[2] || len(q.ids()) != 1 {
			t.Errorf("%d runs, submitted %q", runs, ids)
		}
	})
}

func TestOutputIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &queue{}
		cfg := config(t, q, map[Name]Settings{"a": {Command: &Command{Run: "c", Every: job.Duration(time.Minute), When: OnOutput}, Job: "/j.yaml"}})
		cfg.Run = func(_ context.Context, _, _ string, out io.Writer) error {
			for range 100 {
				io.WriteString(out, strings.Repeat("ä", 1000)) // 2 bytes each
			}
			return nil
		}
		_, stop := started(t, cfg)
		synctest.Wait()
		stop()
		if e := q.got[0].Event; len(e) > MaxEvent || len(e) < MaxEvent-4 || !strings.HasSuffix(e, "ä\n[the rest is left out]") {
			t.Errorf("%d bytes, the end %q", len(e), e[len(e)-40:])
		}
	})
}
