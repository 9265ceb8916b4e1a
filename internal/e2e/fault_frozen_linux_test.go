package e2e

// A scheduler that stands still loses its runs, and nothing else.

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/agentcore"
	"github.com/agentsched/agentsched/internal/proc"
	"github.com/agentsched/agentsched/job"
)

// shortValidity has permits lapse soon.
func (b *bench) shortValidity() {
	b.config["heartbeat"] = obj{"interval": "100ms", "hang_after": "5s", "permit_validity": "10s"}
}

// TestFrozenScheduler: while the scheduler is stopped, nothing of its run is left,
// the core lives and waits. When it goes on, the job does, with its session; the
// attempt that was cut short is recorded once and does not count. A job that may
// finish without a scheduler does, in one attempt.
func TestFrozenScheduler(t *testing.T) {
	const hangLimit = 10 * time.Second // of the wire between scheduler and core
	for name, tt := range map[string]struct {
		does  string        // the worker, while the scheduler is frozen
		lasts time.Duration // how long that goes on when nothing is left of the run
	}{
		"silent": {"sleep 300", 0},
		// More than the pipe and the queue of the core hold, and for longer than it would
		// wait for a reader if permits did not lapse.
		"flooding": {"while test ! -e %s; do sleep 0.05; done; while :; do echo '" + `{"type":"text","text":"` + strings.Repeat("x", 400) + `"}` + "'; done", hangLimit},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.shortValidity()
			b.config["concurrency"] = obj{"max": 2}
			frozen, over := b.folder("frozen"), b.folder("over")
			b.kind("keeper", `
case "$task" in *'"session":"s-1"'*) echo '{"type":"result","status":"completed","answer":"went on"}'; exit;; esac
echo '{"type":"session","session":"s-1"}'
setsid sleep `+b.unique()+` &
sleep `+b.unique()+` &
echo '{"type":"text","text":"ready"}'
`+strings.Replace(tt.does, "%s", frozen, 1))
			r := b.start("run", b.jobs(
				obj{"id": "long", "worker": "keeper", "instructions": "Take long.", "limits": obj{"max_attempts": 1}},
				shell("finishes", nil, "echo begun; while test ! -e "+over+"; do sleep 0.05; done; echo finished", obj{"max_attempts": 1, "on_partition": "finish"}),
				shell("next", nil, "true", obj{"max_attempts": 1})))
			r.await("the worker", onText("long", "ready"))
			r.await("the worker that may finish", onText("finishes", "begun"))
			b.awaitSleeps()
			core, finishes := r.core(), string(b.show("finishes").Job.ID)

			r.signal(syscall.SIGSTOP)
			b.write(frozen, "")
			b.eventually("nothing of the run is left while the scheduler is frozen", func() bool {
				runs, err := proc.Alive(b.instance())
				if err != nil {
					b.fatalf("look for processes: %v", err)
				}
				for _, p := range runs {
					if p.Pid != core && p.Pid != r.cmd.Process.Pid && !isFuse(p.Pid) && !goesOn(b, finishes, p) {
						return false
					}
				}
				return len(sleeping(b.stray)) == 0
			})
			<-time.After(tt.lasts)
			b.write(over, "")
			if state := stateOf(r.cmd.Process.Pid); state != "T" {
				b.fatalf("the scheduler is in state %q, want T: it must be frozen still", state)
			}
			r.signal(syscall.SIGCONT)
			r.exit(0)

			j := b.show("long")
			b.completedOnce(j)
			if len(j.Attempts) != 2 || j.Job.Counted != 1 || !j.Attempts[0].Lost || j.Attempts[0].State != job.RunCancelled ||
				!strings.Contains(j.Attempts[0].Outcome.Message, "the permit lapsed") {
				b.fatalf("the job whose permit lapsed: %s", asJSON(t, j))
			}
			if o := b.last(j); o.Answer != "went on" {
				b.fatalf("the second attempt did not resume the session: %s", asJSON(t, j))
			}
			if j := b.show("finishes"); len(j.Attempts) != 1 || b.last(j).Answer != "begun\nfinished" {
				b.fatalf("the job that may finish: %s", asJSON(t, j))
			} else {
				b.completedOnce(j)
			}
			if next := b.show("next"); len(next.Attempts) != 1 {
				b.fatalf("the job that waited: %s", asJSON(t, next))
			} else {
				b.completedOnce(next)
			}
			if ups := r.seen(func(u *api.Update) bool { return u.CorePID != 0 }); ups != 1 || r.core() != core {
				b.fatalf("%d cores came up, want the one that waited", ups)
			}
			b.soundState()
		})
	}
}

// goesOn says whether a process is of a run of the job.
func goesOn(b *bench, id string, p proc.Proc) bool {
	of, err := proc.Alive(b.instance() + "/" + id)
	if err != nil {
		b.fatalf("look for processes: %v", err)
	}
	return slices.ContainsFunc(of, func(q proc.Proc) bool { return q.Pid == p.Pid })
}

// isFuse says whether a process is a core's fuse, which lives as long as the core.
func isFuse(pid int) bool {
	args := proc.Args(pid)
	return len(args) == 2 && args[1] == agentcore.FuseCommand
}

// stateOf returns the letter of a process's state, as in proc(5).
func stateOf(pid int) string {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if _, rest, ok := strings.Cut(string(stat), ") "); ok {
		return rest[:1]
	}
	return ""
}

// TestPermitsOutliveAnUpgrade: a drain that takes longer than permits are valid
// without a heartbeat costs no run, and a run that takes longer than that to stop
// is cut short by the upgrade and by nothing else.
func TestPermitsOutliveAnUpgrade(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.shortValidity()
	b.config["stop"] = obj{"interrupt": "30s", "terminate": "30s", "kill": "10s"}
	r := b.serve()
	one := b.client()
	started := b.startedAt(one)
	upgraded := func() {
		t.Helper()
		b.eventually("the server is replaced", func() bool {
			st, err := one.Status(t.Context())
			return err == nil && st.Started.After(started)
		})
		started = b.startedAt(one)
	}

	b.submit(b.jobsOf("tests", "drained.yaml", shell("drained", nil, "echo begun; sleep 12", obj{"max_attempts": 1})))
	r.await("drained runs", onText("drained", "begun"))
	if out, errs, code := b.command("upgrade", "--drain"); code != 0 {
		b.fatalf("upgrade --drain: exit code %d\n%s%s", code, out, errs)
	}
	upgraded()
	if j := b.show("drained"); len(j.Attempts) != 1 {
		b.fatalf("the job that was waited for: %s", asJSON(t, j))
	} else {
		b.completedOnce(j)
	}

	_, workspace := b.direct("slow")
	b.submit(b.jobsOf("tests", "slow.yaml", shell("slow", workspace, `
test -e second && exit
touch second
trap 'sleep 12; exit 0' INT
echo begun
while :; do sleep 0.05; done`, obj{"max_attempts": 1})))
	r.await("slow runs", onText("slow", "begun"))
	if out, errs, code := b.command("upgrade", "--checkpoint"); code != 0 {
		b.fatalf("upgrade --checkpoint: exit code %d\n%s%s", code, out, errs)
	}
	upgraded()
	r.end("slow", job.RunCompleted)
	j := b.show("slow")
	b.completedOnce(j)
	if len(j.Attempts) != 2 || !j.Attempts[0].Lost || strings.Contains(j.Attempts[0].Outcome.Message, "lapsed") {
		b.fatalf("the job that was slow to stop: %s", asJSON(t, j))
	}
	r.signal(syscall.SIGTERM)
	r.exit(0)
	b.soundState()
}
