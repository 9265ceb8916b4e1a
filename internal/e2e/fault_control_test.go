package e2e

// Other processes look at a run and reach into it, through store and socket.

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/job"
)

func TestCancelFromOutside(t *testing.T) {
	for _, c := range []struct{ name, state string }{
		{"short path", "s"},
		// A socket's address has room for 108 bytes.
		{"long path", filepath.Join(strings.Repeat("long", 20), strings.Repeat("path", 20))},
	} {
		t.Run(c.name, func(t *testing.T) {
			if len(c.state) > 100 {
				linuxOnly(t)
			}
			t.Parallel()
			b := newBench(t)
			b.state = b.folder(c.state)
			b.config["concurrency"] = obj{"max": 1}
			file := b.jobs(
				withPriority(shell("done", nil, "echo fine", nil), 3),
				withPriority(shell("running", nil, "echo ready; sleep "+b.unique(), nil), 2),
				shell("waiting", nil, "true", nil),
				shell("last", nil, "true", nil))
			r := b.start("run", file)
			r.await("the job", onText("running", "ready"))

			socket := filepath.Join(b.state, "scheduler.sock")
			info, err := os.Lstat(socket)
			if err != nil || info.Mode() != os.ModeSocket|0o600 {
				b.fatalf("socket: %v, %v", info, err)
			}
			if info, err := os.Stat(b.state); err != nil || info.Mode().Perm() != 0o700 {
				b.fatalf("state directory: %v, %v", info, err)
			}
			// What a run says is stored a moment after it was printed.
			b.eventually("show says that it runs", func() bool {
				j := b.show("running")
				return j.Job.State == job.Dispatched && len(j.Attempts) == 1 && j.Attempts[0].State == job.Running
			})
			if out, _, code := b.command("ls"); code != 0 || !lineWith(out, "running", " running ") || !lineWith(out, "waiting", " pending ") || !lineWith(out, "done", " completed ") {
				b.fatalf("ls while it runs: exit code %d\n%s", code, out)
			}

			if out, errs, code := b.command("cancel", "waiting"); code != 0 || !strings.Contains(out, "waiting: cancelled") {
				b.fatalf("cancel of a waiting job: exit code %d\n%s%s", code, out, errs)
			}
			if _, errs, code := b.command("cancel", "done"); code != 1 || !strings.Contains(errs, "done is completed already") {
				b.fatalf("cancel of a finished job: exit code %d\n%s", code, errs)
			}
			if _, errs, code := b.command("cancel", "nobody"); code != 1 || !strings.Contains(errs, "nobody") {
				b.fatalf("cancel of no job: exit code %d\n%s", code, errs)
			}
			followed := b.follow("running")
			if out, errs, code := b.command("cancel", "running"); code != 0 || !strings.Contains(out, "running: ") {
				b.fatalf("cancel of a running job: exit code %d\n%s%s", code, out, errs)
			}
			if lines := <-followed; !strings.Contains(lines, "ready") {
				b.fatalf("logs -f ended without the job's line:\n%s", lines)
			}
			r.exit(1)

			j := b.show("running")
			if o := b.last(j); j.Job.State != job.Completed || j.Job.ExitKind != job.ExitCancelled || o.Class != job.CancelledClass || o.StopMillis <= 0 {
				b.fatalf("the cancelled job: %s", asJSON(t, j))
			}
			if j := b.show("waiting"); j.Job.State != job.Cancelled || len(j.Attempts) != 0 {
				b.fatalf("the job that was withdrawn: %s", asJSON(t, j))
			}
			b.completedOnce(b.show("last"))
			b.soundState()
		})
	}
}

func withPriority(j obj, priority int) obj {
	j["priority"] = priority
	return j
}

// lineWith reports whether a line begins with start and contains part.
func lineWith(text, start, part string) bool {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, start) && strings.Contains(line, part) {
			return true
		}
	}
	return false
}

// follow starts `logs -f` and, once that has printed a line, returns. What it
// has printed is sent when it has ended by itself, with exit code 0.
func (b *bench) follow(name string) <-chan string {
	b.t.Helper()
	cmd := exec.Command(schedulerProgram(), "--state", b.state, "logs", "-f", name)
	cmd.Env, cmd.Dir = b.env, b.dir
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	first, all := make(chan struct{}), make(chan string, 1)
	go func() {
		var text strings.Builder
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			text.WriteString(lines.Text() + "\n")
			if n == 0 {
				close(first)
			}
		}
		if err := cmd.Wait(); err != nil {
			b.t.Errorf("logs -f: %v", err)
		}
		all <- text.String()
	}()
	<-first
	return all
}
