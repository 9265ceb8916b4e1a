package agentcore_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agentsched/agentsched/internal/agentcore"
	"github.com/agentsched/agentsched/internal/proc"
	"github.com/agentsched/agentsched/internal/testrun"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
)

// process is a client of a core that is a process of its own.
type process struct {
	*client
	cmd    *exec.Cmd
	frozen bool
}

// startProcess starts a core as a process with the variables added to its environment.
func startProcess(t *testing.T, env ...string) *process {
	t.Helper()
	toCore, fromClient, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	toClient, fromCore, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{client: newClient(t, toClient, fromClient), cmd: exec.Command("/proc/self/exe")}
	p.cmd.Env = append(append(os.Environ(), coreVariable+"=1", "AGENTSCHED_LOG=disabled", job.RunTagVariable+"="+string(p.instance)+"/core/0"), env...)
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = toCore, fromCore, os.Stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	toCore.Close()
	fromCore.Close()
	go func() { p.core <- p.cmd.Wait() }()
	go func() { p.stopped <- p.peer.Run(context.Background()) }()
	t.Cleanup(func() {
		if p.frozen {
			p.thaw()
		}
		if t.Failed() {
			_ = p.cmd.Process.Signal(syscall.SIGTERM)
		}
	})
	p.hello()
	return p
}

func (p *process) freeze() {
	p.t.Helper()
	testrun.Freeze(p.t, p.cmd.Process.Pid)
	p.frozen = true
}

func (p *process) thaw() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		p.t.Fatal(err)
	}
	p.frozen = false
}

// valid says how long permits are valid from now on, and how long a stop takes.
func (p *process) valid(validity, stage time.Duration) ipc.Lease {
	p.t.Helper()
	stages := ipc.Stages{Interrupt: job.Duration(stage), Terminate: job.Duration(stage), Kill: job.Duration(stage)}
	p.configure(func(s *ipc.Configure) { s.PermitValidity, s.Stop = job.Duration(validity), stages })
	if !testrun.Until(p.t, func() bool { return p.fuse() != 0 }) {
		p.t.Fatal("the core has no fuse")
	}
	return ipc.Lease{Validity: validity, Stop: stages.Longest()}
}

// marked lists the processes that have a word among their arguments.
func marked(t *testing.T, word string) (list []int) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range all {
		var pid int
		if _, err := fmt.Sscanf(dir, "/proc/%d", &pid); err != nil {
			continue
		}
		if p, err := proc.Find(pid); err == nil && strings.Contains(strings.Join(proc.Args(p.Pid), " "), word) {
			list = append(list, pid)
		}
	}
	return list
}

// hostile is a run that ignores signals, has processes that left its session, its parents and its environment, and says
// "up" when all are there. Each has word among its arguments.
func hostile(word string) string {
	deaf := `trap "" INT TERM HUP QUIT; `
	loop := "while :; do sleep 300; done # " + word
	return deaf + fmt.Sprintf(`
sh -c '%[1]s %[2]s' &
setsid sh -c '%[1]s %[2]s' &
(setsid sh -c '%[1]s %[2]s' & exit) &
(env -i PATH="$PATH" setsid sh -c '%[1]s env -i PATH="$PATH" setsid sh -c "%[2]s" & exit' &)
until test $(grep -al %[3]s /proc/[0-9]*/cmdline 2>/dev/null | wc -l) -ge 5; do sleep 0.02; done
echo up
%[2]s`, deaf, loop, word)
}

// fuse returns the pid of the core's fuse, 0 if there is none.
func (p *process) fuse() int {
	p.t.Helper()
	below, err := proc.Below(p.cmd.Process.Pid)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, q := range below {
		if args := proc.Args(q.Pid); len(args) == 2 && args[1] == agentcore.FuseCommand {
			return q.Pid
		}
	}
	return 0
}

func (p *process) heartbeat() {
	p.t.Helper()
	p.must(ipc.MethodHeartbeat, ipc.Heartbeat{Seq: 1, Sent: job.Duration(proc.Uptime()), Renew: true}, nil)
}

// TestFuseIsReplaced: one that was killed, or does not listen, gets a successor that knows all that it knew.
func TestFuseIsReplaced(t *testing.T) {
	t.Parallel()
	p := startProcess(t)
	p.configure(nil)
	if pid := p.fuse(); pid != 0 {
		t.Errorf("the core has fuse %d although permits do not lapse", pid)
	}
	p.valid(time.Hour, time.Second)
	first := p.fuse()
	replaced := func(how string, sig syscall.Signal) {
		t.Helper()
		was := p.fuse()
		if was == 0 {
			t.Fatal("the core has no fuse")
		}
		if err := syscall.Kill(was, sig); err != nil {
			t.Fatal(err)
		}
		if !testrun.Until(t, func() bool {
			for range 100 { // the pipe takes some hundred words
				p.heartbeat()
			}
			is := p.fuse()
			return is != 0 && is != was
		}) {
			t.Fatalf("%s: the fuse was not replaced", how)
		}
	}
	replaced("killed", syscall.SIGKILL)
	replaced("deaf", syscall.SIGSTOP)
	word := strings.ReplaceAll(string(p.instance), "-", "")
	p.valid(time.Hour, 50*time.Millisecond)
	p.run("a", spec(hostile(word), nil))
	p.await(saying("up"))
	p.valid(time.Second, 50*time.Millisecond)
	replaced("killed while it is needed", syscall.SIGKILL)
	p.freeze()
	if !testrun.Until(t, func() bool { return len(marked(t, "# "+word)) == 0 }) {
		t.Fatalf("alive while the core is frozen: %v", marked(t, "# "+word))
	}
	p.thaw()
	p.outcome()
	last := p.fuse()
	p.end()
	for _, pid := range []int{first, last} {
		if _, err := proc.Find(pid); err == nil {
			t.Errorf("fuse %d is left", pid)
		}
	}
}

// TestHostFrozen: a host that is frozen as a whole stops nothing. How long a run goes on after the thaw, at most, if the
// scheduler does not come back: half the validity, and what a core that goes on, or one that does not, takes to end it.
func TestHostFrozen(t *testing.T) {
	for name, alone := range map[string]bool{"the core goes on": false, "the core stands still": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			group := newFreezer(t)
			p := startProcess(t, "AGENTSCHED_NO_CGROUP=1")
			group.add(p.cmd.Process.Pid)
			word := strings.ReplaceAll(string(p.instance), "-", "")
			const stage = 50 * time.Millisecond
			p.valid(time.Hour, stage)
			p.run("a", spec(hostile(word), nil))
			p.await(saying("up"))
			lease := p.valid(2*time.Second, stage) // far more than the host takes to be frozen
			group.freeze(true)
			answered := make(chan error, 1)
			stale := ipc.Heartbeat{Seq: 1, Sent: job.Duration(proc.Uptime()), Renew: true}
			go func() { answered <- p.call(ipc.MethodHeartbeat, stale, nil) }() // it waits in the core's input, and renews nothing then
			<-time.After(lease.Claim())
			if len(marked(t, "# "+word)) == 0 {
				t.Fatal("the run has ended while its host was frozen: there is nothing to show")
			}
			if alone {
				// It stands still already, and so is not seen to stop: it does when it is thawed, before it does anything else.
				if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
					t.Fatal(err)
				}
				p.frozen = true
			}
			thawed := proc.Uptime()
			group.freeze(false)
			if !testrun.Until(t, func() bool { return len(marked(t, "# "+word)) == 0 }) {
				t.Fatalf("alive after the thaw: %v", marked(t, "# "+word))
			}
			window, least, said := proc.Uptime()-thawed, lease.Validity/2, "the scheduler did not renew it"
			if alone {
				least, said = least+lease.Fuse()-lease.Validity, "its fuse has ended the run"
				p.thaw()
			}
			t.Logf("dead %s after the thaw", window)
			if window < least {
				t.Errorf("dead %s after the thaw: a scheduler that stood still as well has %s to renew", window, least)
			}
			if o := p.outcome(); o.State != job.RunCancelled || !strings.Contains(o.Message, said) {
				t.Errorf("the run of a host that was frozen: %+v", o)
			}
			if err := <-answered; err != nil {
				t.Error(err)
			}
			p.end()
		})
	}
}

// freezer is a cgroup of the second version.
type freezer struct {
	t   *testing.T
	dir string
}

// newFreezer makes a cgroup for the test, or skips it.
func newFreezer(t *testing.T) *freezer {
	t.Helper()
	mounts, err := os.ReadFile("/proc/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		f := strings.Fields(line)
		if len(f) < 3 || f[2] != "cgroup2" {
			continue
		}
		if dir, err := os.MkdirTemp(f[1], "agentcore-test-"); err == nil {
			t.Cleanup(func() {
				if err := os.WriteFile(filepath.Join(dir, "cgroup.freeze"), []byte("0"), 0); err != nil {
					t.Error(err)
				}
				if !testrun.Until(t, func() bool { return os.Remove(dir) == nil }) {
					t.Errorf("cgroup %s is left", dir)
				}
			})
			return &freezer{t, dir}
		}
	}
	t.Skip("no cgroup v2 that may be written")
	return nil
}

func (f *freezer) write(file, text string) {
	f.t.Helper()
	if err := os.WriteFile(filepath.Join(f.dir, file), []byte(text), 0); err != nil {
		f.t.Fatal(err)
	}
}

func (f *freezer) add(pid int) { f.write("cgroup.procs", fmt.Sprint(pid)) }

// freeze returns when all is frozen, or not any more.
func (f *freezer) freeze(on bool) {
	f.t.Helper()
	want := map[bool]string{true: "1", false: "0"}[on]
	f.write("cgroup.freeze", want)
	if !testrun.Until(f.t, func() bool {
		events, err := os.ReadFile(filepath.Join(f.dir, "cgroup.events"))
		return err == nil && strings.Contains(string(events), "frozen "+want)
	}) {
		f.t.Fatal("the cgroup is not frozen, or still is")
	}
}

// TestFuse: a core that is frozen, and cannot stop a run whose permit lapses, loses the run all the same. The attempt is
// lost and does not count; a run that may go on without a permit does.
func TestFuse(t *testing.T) {
	for _, level := range []job.SandboxLevel{job.SandboxNone, job.SandboxStandard, job.SandboxStrict} {
		for _, cgroups := range []string{"cgroups", "no cgroups"} {
			if !testrun.Soaking() && (level == job.SandboxStrict) != (cgroups == "cgroups") {
				continue
			}
			t.Run(string(level)+"/"+cgroups, func(t *testing.T) {
				t.Parallel()
				var env []string
				if cgroups == "no cgroups" {
					env = append(env, "AGENTSCHED_NO_CGROUP=1")
				}
				p := startProcess(t, env...)
				word := strings.ReplaceAll(t.Name(), "/", "-") + strings.ReplaceAll(string(p.instance), "-", "")
				word = strings.ReplaceAll(word, " ", "-")
				once := func(s *job.Spec) { s.Limits.MaxAttempts, s.Sandbox.Level = 1, level }
				const stage = 50 * time.Millisecond
				p.valid(time.Hour, stage)
				p.run("hostile", spec(hostile(word), once))
				p.await(saying("up"))
				p.run("patient", spec("echo begun; sh -c 'kill -STOP $$ # patient-"+word+"'; echo finished", func(s *job.Spec) {
					once(s)
					s.Limits.OnPartition = job.FinishOnPartition
				}))
				p.await(saying("begun"))

				asked := proc.Uptime()
				lease := p.valid(3*time.Second, stage) // far more than the core takes to be frozen
				p.freeze()
				if !testrun.Until(t, func() bool { return len(marked(t, "# "+word)) == 0 }) {
					t.Fatalf("alive while the core is frozen: %v", marked(t, "# "+word))
				}
				took := proc.Uptime() - asked
				t.Logf("dead %s after the renewal, the lease says %s", took, lease.Fuse())
				if took < lease.Fuse() {
					t.Errorf("the run was ended %s after the renewal, want no less than %s", took, lease.Fuse())
				}
				if state := stateOf(t, p.cmd.Process.Pid); state != "T" {
					t.Fatalf("the core is in state %q, want T", state)
				}
				p.thaw()
				n := <-p.completed
				if o := n.Outcome; n.Job != "hostile" || o.State != job.RunCancelled || o.Class != job.CancelledClass || !strings.Contains(o.Message, "its fuse has ended the run") {
					t.Fatalf("the run of a core that stood still: %+v", n)
				}
				p.valid(time.Hour, stage)
				p.permit("hostile", 2, spec("true", once)) // its only attempt was not counted
				for _, pid := range marked(t, "# patient-"+word) {
					_ = syscall.Kill(pid, syscall.SIGCONT)
				}
				if n := <-p.completed; n.Job != "patient" || !n.Outcome.Succeeded() || n.Outcome.Answer != "begun\nfinished" {
					t.Fatalf("the run that may go on without a permit: %+v", n)
				}
				p.end()
			})
		}
	}
}

// TestFinishOnPartition: a core that hears of no scheduler ends a run, by itself unless the host is too busy for that, and lets
// one go on that may, also when the time of the fuse has come.
func TestFinishOnPartition(t *testing.T) {
	t.Parallel()
	p := startProcess(t)
	word := strings.ReplaceAll(string(p.instance), "-", "")
	const stage = 50 * time.Millisecond
	p.valid(time.Hour, stage)
	p.run("hostile", spec(hostile(word), nil))
	p.await(saying("up"))
	p.run("patient", spec("echo begun; sh -c 'kill -STOP $$ # patient-"+word+"'; echo finished", func(s *job.Spec) {
		s.Limits.OnPartition = job.FinishOnPartition
	}))
	p.await(saying("begun"))
	lease := p.valid(300*time.Millisecond, stage)
	over := time.After(lease.Claim())
	if n := <-p.completed; n.Job != "hostile" || n.Outcome.State != job.RunCancelled || !strings.Contains(n.Outcome.Message, "the permit lapsed") {
		t.Fatalf("the run of a scheduler that is not heard of: %+v", n)
	}
	if left := marked(t, "# "+word); len(left) > 0 {
		t.Errorf("alive when the run has ended: %v", left)
	}
	<-over
	for _, pid := range marked(t, "# patient-"+word) {
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}
	if n := <-p.completed; n.Job != "patient" || !n.Outcome.Succeeded() || n.Outcome.Answer != "begun\nfinished" {
		t.Fatalf("the run that may go on without a permit: %+v", n)
	}
	p.end()
}

func stateOf(t *testing.T, pid int) string {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return rest[:1]
}
