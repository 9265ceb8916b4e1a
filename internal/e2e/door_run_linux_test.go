package e2e

import (
	"debug/buildinfo"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/audit"
	"github.com/agentsched/agentsched/internal/proc"
	"github.com/agentsched/agentsched/internal/testrun"
	"github.com/agentsched/agentsched/job"
)

// knocks is a script that asks at the socket in every way that a run has, with the
// key, which it can read, and writes a line for each: its name and the status of the
// answer or, of the command line, its exit code. It waits for each, since a run's
// end would end what it has left.
const knocks = `state=$1 scheduler=$2 out=$3 core=$4
mkfifo answers
exec 3<> answers
cat > ask.sh <<'E'
curl -s -o /dev/null -w "$1 %{http_code}\\n" --unix-socket "$2/scheduler.sock" -H @"$2/key" http://scheduler/v1/me > answers
E
cat > make.sh <<'E'
"$4" --state "$2" token create "$1" --role operate >> "$3.printed" 2>&1
echo "$1 $?" > answers
E
sh ask.sh plain "$state" "$out"
env -i PATH="$PATH" sh ask.sh untagged "$state" "$out"
(env -i PATH="$PATH" setsid sh ask.sh daemon "$state" "$out" &)
(setsid sh -c '(env -i PATH="$PATH" sh ask.sh orphan "$1" "$2" &)' sh "$state" "$out" &)
sh make.sh token "$state" "$out" "$scheduler"
env -i PATH="$PATH" sh make.sh untagged-token "$state" "$out" "$scheduler"
"$scheduler" --state "$state" cancel tomorrow >> "$out.printed" 2>&1
echo "cancel $?" > answers
for pid in $core $(cat "$state/lock"); do
	for file in environ mem fd/0; do (: < "/proc/$pid/$file") 2> /dev/null && cat "/proc/$pid/$file" 2> /dev/null | head -c 1 | grep -q . && echo "$file of $pid"; done
done > "$out.seen"
grep Cap /proc/self/status > "$out.capabilities"
for i in 1 2 3 4 5 6 7; do read -r line <&3; echo "$line" >> "$out"; done
`

// TestDoorRefusesRuns: an agent that has the scheduler's user, and so its key, is
// refused at the socket whatever it does to its session, its parents and its
// environment, and the audit log says that it was a run. A person and an escalation's
// command are let in.
func TestDoorRefusesRuns(t *testing.T) {
	t.Parallel()
	for name, user := range map[string]int{"as it is": 0, "as an ordinary user": 1234} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			if user != 0 {
				b.hand(user)
			}
			b.refusesRuns()
		})
	}
}

func (b *bench) refusesRuns() {
	t := b.t
	b.unheld() // else it does not get as far
	out, told := filepath.Join(b.dir, "out"), filepath.Join(b.dir, "told")
	b.config["escalation"] = obj{"command": []string{"/bin/sh", "-c", schedulerProgram() + " --state " + b.state + " pause worker:codex > " + told + ".printed 2>&1; echo $? >> " + told}}
	b.write(filepath.Join(b.dir, "knocks.sh"), knocks)
	r := b.serve()
	b.submit(b.jobs(
		shell("agent", b.workspace(), strings.Join([]string{"sh", filepath.Join(b.dir, "knocks.sh"), b.state, schedulerProgram(), out, "$PPID"}, " "), obj{"max_attempts": 1}),
		with(shell("asks", nil, "true", nil), obj{"oversight": obj{"mode": "supervised"}}), tomorrow(),
	))
	r.end("agent", job.RunCompleted)
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	printed, _ := os.ReadFile(out + ".printed")
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	slices.Sort(lines)
	if want := []string{"cancel 2", "daemon 403", "orphan 403", "plain 403", "token 2", "untagged 403", "untagged-token 2"}; !slices.Equal(lines, want) {
		b.fatalf("the run was answered %q, want %q; the commands have printed:\n%s", lines, want, printed)
	}
	if !strings.Contains(string(printed), "an agent's run may not") {
		t.Errorf("the commands have printed:\n%s", printed)
	}
	if seen, err := os.ReadFile(out + ".seen"); err != nil || len(seen) > 0 {
		t.Errorf("the run has looked into the scheduler or its core: %q, %v", seen, err)
	}
	capabilities, err := os.ReadFile(out + ".capabilities")
	if err != nil || len(capabilities) == 0 {
		t.Errorf("no capabilities: %v", err)
	}
	for line := range strings.Lines(string(capabilities)) {
		name, value, _ := strings.Cut(line, ":")
		set, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
		const reaching = 1<<unix.CAP_SYS_PTRACE | 1<<unix.CAP_SYS_ADMIN | 1<<unix.CAP_KILL | 1<<unix.CAP_DAC_READ_SEARCH
		if err != nil || set&reaching != 0 && (name != "CapBnd" || b.owner() == "root") {
			t.Errorf("the run has capabilities of other processes: %s", line)
		}
	}
	b.eventually("the hook has asked", func() bool { text, _ := os.ReadFile(told); return len(text) > 0 })
	if text, _ := os.ReadFile(told); string(text) != "0\n" {
		said, _ := os.ReadFile(told + ".printed")
		t.Errorf("the hook's command ended with %q: %s", text, said)
	}

	// By this the command line of the version before, which sends no key, is known.
	if info, err := buildinfo.ReadFile(schedulerProgram()); err != nil || info.Path != "github.com/agentsched/agentsched/cmd/scheduler" {
		t.Errorf("the program does not tell what it is: %v, %v", info, err)
	}
	person := b.socketDoor()
	if a := person.ask(http.MethodGet, "/v1/me", ""); a.status != http.StatusOK || !strings.Contains(a.body, `"operate"`) {
		t.Errorf("a person is answered %d %s", a.status, a.body)
	}
	person.key = ""
	if a := person.ask(http.MethodGet, "/v1/me", ""); a.status != http.StatusUnauthorized || a.problem(t, "without a key") != "key_required" {
		t.Errorf("without the key a person is answered %d %s", a.status, a.body)
	}
	if a := person.ask(http.MethodGet, "/metrics", ""); a.status != http.StatusOK {
		t.Errorf("without the key, metrics are answered %d", a.status)
	}
	if said, errs, code := b.command("token", "ls"); code != 0 || said != "no tokens\n" {
		t.Errorf("token ls: %d %s%s", code, said, errs)
	}
	if said, errs, code := b.command("cancel", "tomorrow"); code != 0 {
		t.Errorf("a person cannot cancel: %s%s", said, errs)
	}
	r.stop()
	refused := map[string]int{}
	for _, r := range b.records() {
		if r.Action == audit.ActionRefused && strings.Contains(string(r.Detail), "process ") {
			refused[fmt.Sprint(r.Who, strings.Contains(string(r.Detail), "descends from a core"))]++
		}
	}
	if want := (api.AuditWho{Name: "a run", Role: "agent", Door: "socket"}); len(refused) != 1 || refused[fmt.Sprint(want, true)] < 5 {
		t.Errorf("of the refusals the audit log says %v", refused)
	}
}

// lingers is a program of a run that leaves its session and clears its environment, and
// asks at the socket when it is told to: the scheduler and the core are dead by then.
const lingers = `state=$1 out=$2
(env -i PATH="$PATH" setsid sh -c '
	echo "$$" > "$2.pid"
	until test -e "$2.ask"; do sleep 0.05; done
	prlimit --pid "$(cat "$1/lock")" --locks=1:1
	curl -s -o /dev/null -w "%{http_code}" --unix-socket "$1/scheduler.sock" -H @"$1/key" http://scheduler/v1/me > "$2.new"
	mv "$2.new" "$2"' sh "$state" "$out" &)
sleep 300
`

// TestDoorRefusesWhatOutlivesAll: nothing ties a run's process to the run when its
// scheduler and its core were killed at one moment, as the run itself may do, but what a
// core has marked. The next scheduler refuses it all the same, also when it has made the
// scheduler look marked, too.
func TestDoorRefusesWhatOutlivesAll(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.unheld()                                      // else it neither outlives the two nor finds the socket
	b.hand(1234)                                    // root's runs are known by their cgroups
	b.env = append(b.env, "AGENTSCHED_NO_CGROUP=1") // as are an ordinary user's, where it was given some
	out := filepath.Join(b.dir, "out")
	b.write(filepath.Join(b.dir, "lingers.sh"), lingers)
	r := b.serve()
	b.submit(b.jobs(shell("agent", b.workspace(), strings.Join([]string{"sh", filepath.Join(b.dir, "lingers.sh"), b.state, out}, " "), obj{"max_attempts": 1})))
	var text []byte
	b.eventually("the run's process has left it", func() bool { text, _ = os.ReadFile(out + ".pid"); return len(text) > 0 })
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	left, err := proc.Find(pid)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if now, err := proc.Find(pid); err == nil && now.Start == left.Start {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}()
	r.killAll()
	next := b.serve()
	b.write(out+".ask", "")
	b.eventually("it was answered", func() bool { text, err = os.ReadFile(out); return err == nil })
	if string(text) != "403" {
		t.Errorf("what the run has left is answered %s, want 403", text)
	}
	if a := b.socketDoor().ask(http.MethodGet, "/v1/me", ""); a.status != http.StatusOK {
		t.Errorf("a person is answered %d %s", a.status, a.body)
	}
	next.stop()
}

// TestLeftoverCoreOfAnOrdinaryUser: the core of a scheduler that was killed, which
// hangs and whose environment nobody but root may read, is ended by the next one.
func TestLeftoverCoreOfAnOrdinaryUser(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.hand(1234)
	r := b.serve()
	pid := r.core()
	core, err := proc.Find(pid)
	if err != nil {
		t.Fatal(err)
	}
	testrun.Freeze(t, pid)
	r.kill()
	if now, err := proc.Find(pid); err != nil || now != core {
		t.Fatalf("the core that hangs is gone: %v, %v", now, err)
	}
	next := b.serve()
	if next.core() == pid {
		t.Error("the next scheduler has the core before")
	}
	b.eventually("the core is ended", func() bool { now, err := proc.Find(pid); return err != nil || now != core })
	next.stop()
}
