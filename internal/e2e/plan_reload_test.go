package e2e

// SIGHUP: a running scheduler takes over a configuration that is right, and
// nothing of one that is not.

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/agentsched/agentsched/internal/testrun"
)

// plain is `scheduler run --plain` on the bench's configuration.
type plain struct {
	b   *bench
	cmd *exec.Cmd
	out lockedBuffer // both streams
}

func (b *bench) startPlain(file string) *plain {
	b.t.Helper()
	b.write(b.configFile(), asJSON(b.t, b.config))
	p := &plain{b: b, cmd: exec.Command(schedulerProgram(), "--state", b.state, "--config", b.configFile(), "run", file, "--plain")}
	p.cmd.Env, p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = b.env, b.dir, &p.out, &p.out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // without a terminal: SIGHUP is no hangup
	if err := p.cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
		}
	})
	return p
}

// reload has the configuration read again, and waits for a line that says all
// of the words.
func (p *plain) reload(config obj, words ...string) {
	p.b.t.Helper()
	before := len(p.out.String())
	p.b.write(p.b.configFile(), asJSON(p.b.t, config))
	if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		p.b.t.Fatal(err)
	}
	p.b.eventually(fmt.Sprintf("a word of %q after SIGHUP", words), func() bool {
		said := p.out.String()[before:]
		for _, w := range words {
			if !strings.Contains(said, w) {
				return false
			}
		}
		return true
	})
}

func (p *plain) exit(code int) {
	p.b.t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- p.cmd.Wait() }()
	select {
	case <-ended:
	case <-testrun.After(p.b.t):
		_ = p.cmd.Process.Kill()
		<-ended
		p.b.fatalf("the scheduler did not end:\n%s", p.out.String())
	}
	if got := p.cmd.ProcessState.ExitCode(); got != code {
		p.b.fatalf("exit code %d, want %d:\n%s", got, code, p.out.String())
	}
}

func TestReload(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.config["concurrency"] = obj{"max": 1}
	if err := os.Mkdir(b.folder("here"), 0o700); err != nil {
		t.Fatal(err)
	}
	// Each says that it is here, and counts who is.
	script := fmt.Sprintf("mine=$(mktemp -d %[1]s/XXXXXX); %[2]s; ls %[1]s | wc -l >> %[3]s; rmdir $mine", b.folder("here"), until(b.folder("go")), b.folder("counts"))
	var jobs []obj
	for i := range 6 {
		jobs = append(jobs, shell(fmt.Sprintf("job-%d", i), nil, script, nil))
	}
	here := func(n int) {
		t.Helper()
		b.eventually(fmt.Sprintf("%d jobs run", n), func() bool { return len(b.entries("here")) == n })
	}
	p := b.startPlain(b.jobs(jobs...))
	here(1)
	config := func(changes obj) obj {
		c := obj{}
		for k, v := range b.config {
			c[k] = v
		}
		return with(c, changes)
	}
	p.reload(config(obj{"concurrency": obj{"max": -3}}), "concurrency.max", "stays in force")
	p.reload(config(obj{"watchdog": obj{"defence": obj{"thresholds": obj{"queue_depth": obj{"shed": obj{"enter": 10, "leave": 5}, "throttle": obj{"enter": 4, "leave": 2}}}}}}),
		"watchdog.defence.thresholds.queue_depth.shed", "stays in force")
	p.reload(config(obj{"concurrency": obj{"max": 9, "per_worker": obj{"nobody": 1}}}), "concurrency.per_worker.nobody", "stays in force")
	b.write(b.configFile(), "") // as an editor leaves it for a moment
	if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	b.eventually("an empty file is refused", func() bool { return strings.Contains(p.out.String(), "is empty") })
	p.reload(config(obj{"concurrency": obj{"max": 3}, "cores": obj{"count": 2}}), "reloaded", "concurrency.max", "next start", "cores.count")
	here(3)
	p.reload(config(obj{"concurrency": obj{"max": 5}, "unknown": 1}), "unknown", "stays in force")
	b.waits("job-5", 0, "") // there are still three
	here(3)
	b.write(b.folder("go"), "")
	p.exit(0)
	b.soundState()
	if most := highest(t, b.folder("counts")); most != 3 {
		t.Errorf("%d jobs ran at once, want 3 and no more", most)
	}
	for i := range 6 {
		if j := b.show(fmt.Sprintf("job-%d", i)); len(j.Attempts) != 1 {
			t.Errorf("a reload cut a job short: %s", asJSON(t, j))
		}
	}
}
