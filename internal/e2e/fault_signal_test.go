package e2e

// The ways in which a user ends a run early.

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/agentsched/agentsched/internal/testrun"
	"github.com/agentsched/agentsched/job"
)

// politeScript waits for SIGINT, notes it in a file and ends; on its second
// attempt it is done at once. The loop is there since a shell runs its trap
// only between two commands.
const politeScript = `
test -e told && exit
trap 'touch told; exit 0' INT
echo ready
while :; do sleep 0.02; done`

func TestInterruptOnce(t *testing.T) {
	interrupts := map[string]func(*run){
		"interrupt":  func(r *run) { r.signal(syscall.SIGINT) },
		"terminated": func(r *run) { r.signal(syscall.SIGTERM) },
		"hangup":     (*run).hangUp, // of its terminal; SIGHUP alone is another request, see TestReload
	}
	for name, interrupt := range interrupts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			if name == "hangup" {
				b.onTerminal()
			}
			dir, workspace := b.direct("polite")
			b.config["concurrency"] = obj{"max": 1}
			b.config["stop"] = obj{"interrupt": "30s", "terminate": "30s", "kill": "10s"} // SIGINT must do
			// One attempt only: one that was cut short must not count.
			file := b.jobs(shell("polite", workspace, politeScript, obj{"max_attempts": 1}), shell("next", nil, "true", nil))
			r := b.start("run", file)
			r.await("the job", onText("polite", "ready"))
			interrupt(r)
			r.exit(130)
			b.soundState()
			if _, err := os.Stat(dir + "/told"); err != nil {
				t.Fatalf("the job was not told by SIGINT: %v", err)
			}
			j := b.show("polite")
			if j.Job.State != job.Queued || j.Job.Counted != 0 || len(j.Attempts) != 1 || !j.Attempts[0].Lost {
				t.Fatalf("after the interruption: %s", asJSON(t, j))
			}
			if j := b.show("next"); j.Job.State != job.Queued || len(j.Attempts) != 0 {
				t.Fatalf("a job that waited: %s", asJSON(t, j))
			}

			b.terminal = nil
			b.start("run", file).exit(0)
			b.completedOnce(b.show("polite"))
			b.completedOnce(b.show("next"))
			if _, total := b.unfinished(); total != 2 {
				t.Fatalf("%d jobs, want the 2 of before", total)
			}
			b.soundState()
		})
	}
}

// TestInterruptTwice: the second signal ends at once what ignores the first.
func TestInterruptTwice(t *testing.T) {
	linuxOnly(t)
	t.Parallel()
	b := newBench(t)
	b.config["stop"] = obj{"interrupt": "5m", "terminate": "5m", "kill": "10s"}
	_, workspace := b.direct("stubborn")
	file := b.jobs(shell("stubborn", workspace, `
test -e second && exit
touch second
trap '' INT TERM
sh -c 'trap "" INT TERM; sleep `+b.unique()+`' &
echo ready
while :; do sleep 0.02; done`, nil))
	r := b.start("run", file)
	r.await("the job", onText("stubborn", "ready"))
	b.awaitSleeps()
	// Two different signals: the kernel merges two of one kind.
	r.signal(syscall.SIGINT)
	r.signal(syscall.SIGTERM)
	r.exit(130) // the gentle stages would take ten minutes
	b.soundState()
	b.start("run", file).exit(0)
	b.completedOnce(b.show("stubborn"))
	b.soundState()
}

// TestInterruptSilentCore: a core that does not come up cannot hold off Ctrl-C.
func TestInterruptSilentCore(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	file := b.jobs(shell("job", nil, "true", nil))
	r := b.start("run", "--core", b.fake("never says anything", true), file)
	b.eventually("the core's process is there", func() bool { return len(b.aliveProcs()) > 0 })
	r.signal(syscall.SIGINT)
	r.exit(130)
	b.soundState()
	b.start("run", file).exit(0)
	b.completedOnce(b.show("job"))
}

// TestOutputGone: whoever reads the output goes away, as with a pager that is
// left. The jobs go on to their end, and nothing is left behind.
func TestOutputGone(t *testing.T) {
	for _, format := range []string{"--json", "--plain"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.write(b.configFile(), asJSON(t, b.config))
			_, workspace := b.direct("talker")
			file := b.jobs(shell("talker", workspace, `
sleep `+b.unique()+` &
while test ! -e enough; do echo talking; sleep 0.02; done`, nil), shell("next", nil, "true", nil))
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(schedulerProgram(), "--state", b.state, "--config", b.configFile(), "run", file, format)
			cmd.Env, cmd.Dir, cmd.Stdout = b.env, b.dir, w
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			w.Close()
			var seen strings.Builder
			buf := make([]byte, 4096)
			for !strings.Contains(seen.String(), "talking") {
				n, err := r.Read(buf)
				if err != nil {
					b.fatalf("read the output: %v\n%s", err, seen.String())
				}
				seen.Write(buf[:n])
			}
			r.Close()
			b.write(b.folder("talker", "enough"), "")
			select {
			case <-ended: // with whatever code: nobody was there to read the summary
			case <-testrun.After(t):
				_ = cmd.Process.Kill()
				<-ended
				b.fatalf("the scheduler did not end")
			}
			b.soundState()
			for _, name := range []string{"talker", "next"} {
				b.completedOnce(b.show(name))
				if j := b.show(name); len(j.Attempts) != 1 {
					t.Errorf("%s had %d attempts", name, len(j.Attempts))
				}
			}
		})
	}
}
