package e2e

// Limits hold, whatever the workers do.

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/job"
)

// TestTimeout: a tree that ignores SIGINT and SIGTERM is ended in stages.
func TestTimeout(t *testing.T) {
	linuxOnly(t)
	t.Parallel()
	b := newBench(t)
	script := `
trap '' INT TERM
sh -c 'trap "" INT TERM; sleep ` + b.unique() + `' &
setsid sh -c 'trap "" INT TERM; sleep ` + b.unique() + `' &
while :; do sleep 0.02; done`
	b.start("run", b.jobs(shell("endless", nil, script, obj{"timeout": "3s", "max_attempts": 1}))).exit(1)
	b.soundState()
	j := b.show("endless")
	// The bench's stages: 500 ms after SIGINT, 500 ms after SIGTERM.
	if o := b.last(j); o.Class != job.Timeout || o.StopMillis < 1000 || !strings.Contains(o.Message, "timeout") {
		t.Fatalf("%s", asJSON(t, j))
	}
	if j.Job.ExitKind != job.ExitFailed || j.Job.DeadLetter == "" {
		t.Errorf("%s", asJSON(t, j))
	}
}

// agent sets up the worker "agent".
func (b *bench) agent(body string) { b.kind("agent", body) }

// kind sets up a worker that speaks the worker protocol: a shell script whose
// body runs once the task is read.
func (b *bench) kind(name, body string) {
	b.t.Helper()
	path := b.folder("worker-" + name)
	if err := os.WriteFile(path, []byte("#!/bin/sh\nread -r task\n"+body+"\n"), 0o700); err != nil {
		b.t.Fatal(err)
	}
	b.config["workers"].(obj)[name] = obj{"adapter": "exec", "command": []string{path}}
}

// endless is a worker that prints a line again and again until it is stopped.
func endless(line string) string {
	return "while :; do echo '" + line + "'; sleep 0.1; done"
}

func TestLimits(t *testing.T) {
	for _, c := range []struct {
		name, agent, says string
		limits            obj
		within            func(job.Usage) bool
	}{
		{"steps", endless(`{"type":"step","step":"again"}`), "max_steps", obj{"max_steps": 3},
			func(u job.Usage) bool { return u.Steps >= 4 && u.Steps < 50 }},
		{"tokens", endless(`{"type":"usage","input_tokens":100,"output_tokens":50}`), "max_tokens", obj{"max_tokens": 1000},
			func(u job.Usage) bool { return u.Tokens() > 1000 && u.Tokens() < 10_000 }},
		{"cost", endless(`{"type":"usage","input_tokens":1,"cost_usd":0.25}`), "cost", obj{"max_cost_usd": 1},
			func(u job.Usage) bool { return u.CostUSD > 1 && u.CostUSD < 10 }},
		{"cost by price list", endless(`{"type":"usage","input_tokens":10000,"output_tokens":10000}`), "cost", obj{"max_cost_usd": 1},
			func(u job.Usage) bool { return u.CostUSD > 1 && u.CostUSD < 10 }},
		{"command time", `echo '{"type":"command","phase":"start","id":"1","command":"make everything"}'; exec sleep %s`, "max_command_time", obj{"max_command_time": "200ms"},
			func(job.Usage) bool { return true }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			if strings.Contains(c.agent, "%s") {
				c.agent = fmt.Sprintf(c.agent, b.unique())
			}
			b.agent(c.agent)
			b.config["prices"].(obj)["m"] = obj{"input": 1, "output": 4}
			b.start("run", b.jobs(obj{"id": "greedy", "worker": "agent", "model": "m", "instructions": "Take it all.", "limits": c.limits})).exit(1)
			b.soundState()
			j := b.show("greedy")
			if o := b.last(j); o.Class != job.Budget || !strings.Contains(o.Message, c.says) || o.StopMillis <= 0 {
				t.Errorf("%s", asJSON(t, j))
			}
			// What was used is what the job is charged, and a spent budget is not tried again.
			if !c.within(j.Job.Spent) || len(j.Attempts) != 1 || j.Job.DeadLetter == "" {
				t.Errorf("spent %+v in %d attempts, dead letter %q", j.Job.Spent, len(j.Attempts), j.Job.DeadLetter)
			}
		})
	}
}

// TestRetryBudget: no further attempt once the retries' time or money is spent.
func TestRetryBudget(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.agent(`echo '{"type":"usage","input_tokens":1,"cost_usd":0.4}'; echo '{"type":"result","status":"failed","message":"not today"}'`)
	b.start("run", b.jobs(
		shell("time", nil, "sleep 1; false", obj{"max_attempts": 50, "retry_budget": obj{"time": "5s"}}),
		obj{"id": "cost", "worker": "agent", "instructions": "Try.", "limits": obj{"max_attempts": 50, "retry_budget": obj{"cost_usd": 1}}},
		// Money that is spent on attempts counts towards the job's whole as well.
		obj{"id": "whole", "worker": "agent", "instructions": "Try.", "limits": obj{"max_attempts": 50, "max_cost_usd": 1}},
	)).exit(1)
	// What is left of the time when a run is stopped at its end, some
	// milliseconds, makes for another attempt or two.
	for name, most := range map[string]int{"time": 7, "cost": 3, "whole": 3} {
		j := b.show(name)
		if n := len(j.Attempts); n < 2 || n > most {
			t.Errorf("%s: %d attempts, want 2 to %d", name, n, most)
		}
		// Refused before an attempt, or stopped in one: it depends on who was faster.
		why := strings.ToLower(j.Job.DeadLetter)
		if j.Job.State != job.Completed || j.Job.ExitKind != job.ExitFailed || !strings.Contains(why, "budget") && !strings.Contains(why, "cost") {
			t.Errorf("%s: %s", name, asJSON(t, j.Job))
		}
	}
	b.soundState()
}

// TestConcurrency has the workers themselves count how many they are.
func TestConcurrency(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.config["concurrency"] = obj{"max": 5, "per_worker": obj{"shell": 2}}
	b.config["workers"].(obj)["other"] = obj{"adapter": "shell", "max_concurrent": 1}
	count := func(kind string) string {
		dir := b.folder("here", kind)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf(`
mine=$(mktemp -d %[1]s/XXXXXX)
i=0
while [ $i -lt 8 ]; do i=$((i+1)); ls %[1]s | wc -l >> %[1]s.counts; sleep 0.02; done
rmdir $mine`, dir)
	}
	var jobs []obj
	for i := range 8 {
		jobs = append(jobs, shell(fmt.Sprintf("shell-%d", i), nil, count("shell"), nil))
	}
	for i := range 4 {
		other := shell(fmt.Sprintf("other-%d", i), nil, count("other"), nil)
		other["worker"] = "other"
		jobs = append(jobs, other)
	}
	b.start("run", b.jobs(jobs...)).exit(0)
	for kind, want := range map[string]int{"shell": 2, "other": 1} {
		if most := highest(t, b.folder("here", kind+".counts")); most != want {
			t.Errorf("%d of worker %s were there at once, want %d and no more", most, kind, want)
		}
	}
	b.soundState()
}

// highest returns the highest of the numbers in a file, one a line.
func highest(t *testing.T, path string) int {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	most := 0
	for field := range strings.FieldsSeq(string(data)) {
		n, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		most = max(most, n)
	}
	return most
}

// TestDirectFolders: jobs that work in a folder itself, or in one above or
// below it, never do so at the same time; a copy of it is not made meanwhile.
func TestDirectFolders(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.config["concurrency"] = obj{"max": 6}
	_, parent := b.direct("parent")
	_, child := b.direct("parent/child")
	if err := os.Symlink(b.folder("parent"), b.folder("link")); err != nil {
		t.Fatal(err)
	}
	link := obj{"path": b.folder("link"), "isolation": "direct"}
	// mkdir of one name succeeds for one at a time.
	script := fmt.Sprintf(`
mkdir %[1]s || { echo $AGENTSCHED_RUN >> %[2]s; exit 1; }
sleep 0.15
rmdir %[1]s`, b.folder("busy"), b.folder("overlaps"))
	copied := fmt.Sprintf("test ! -e %s && sleep 0.01 || true", b.folder("never"))
	b.start("run", b.jobs(
		shell("one", parent, script, obj{"max_attempts": 1}),
		shell("two", parent, script, obj{"max_attempts": 1}),
		shell("below", child, script, obj{"max_attempts": 1}),
		shell("linked", link, script, obj{"max_attempts": 1}),
		shell("below-too", child, script, obj{"max_attempts": 1}),
		shell("copy", obj{"path": b.folder("parent"), "isolation": "copy"}, copied, obj{"max_attempts": 1}),
	)).exit(0)
	if data, err := os.ReadFile(b.folder("overlaps")); err == nil {
		t.Errorf("worked in one folder at the same time: %s", data)
	}
	for _, name := range []string{"one", "two", "below", "linked", "below-too", "copy"} {
		b.completedOnce(b.show(name))
	}
	b.soundState()
}
