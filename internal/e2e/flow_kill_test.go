package e2e

// Workflows over deaths: what has ended is not done again, and what follows from
// it happens.

import (
	"fmt"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/job"
)

// paid is a script that says in a file of the bench that it has done its work,
// which must not be paid for twice, and answers. It waits for a file before, if
// one is named.
func (b *bench) paid(name, answer, gate string) string {
	wait := ""
	if gate != "" {
		wait = until(b.folder(gate)) + "\n"
	}
	return fmt.Sprintf("%secho %s >> %s\n%s", wait, name, b.folder("paid"), answer)
}

// TestWorkflowKilled: a workflow is killed again and again, with all that belongs
// to it, whenever a step of it has ended; each time the same command goes on. No
// step that had ended is run again, and each gets what the steps before it gave.
func TestWorkflowKilled(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	numbers := obj{"type": "array", "items": obj{"type": "integer"}}
	file := b.jobs(
		with(shell("list", nil, b.paid("list", "echo '[3, 4]'", ""), nil), obj{"output": numbers}),
		with(shell("base", nil, b.paid("base", "echo 10", ""), nil), obj{"output": obj{"type": "integer"}}),
		with(shell("each", nil, b.paid("each-${{ item }}", "echo $(( ${{ item }} * ${{ jobs.base.output }} ))", "gate"), nil),
			obj{"needs": []string{"list", "base"}, "for_each": obj{"items": "${{ jobs.list.output }}", "max": 5}}),
		with(shell("unwanted", nil, b.paid("unwanted", "true", ""), nil), obj{"needs": []string{"base"}, "if": "jobs.base.output > 10"}),
		with(shell("end", nil, b.paid("end", "echo ${{ toJSON(jobs.each.output) }}", "gate2"), nil), obj{"needs": []string{"each", "unwanted"}, "if": "always()"}),
	)

	ends := []struct {
		name job.Name
		open string // the gate to open first
	}{{"list", ""}, {"base", ""}, {"each@1", "gate"}, {"each@2", ""}, {"end", "gate2"}}
	var r *run
	over := map[string]int{} // how often what had ended at a kill had been paid for by then
	for i, step := range ends {
		r = b.start("run", file)
		r.awaitCore(1)
		if step.open != "" {
			b.write(b.folder(step.open), "")
		}
		if last := i == len(ends)-1; last {
			r.exit(0)
			break
		}
		b.eventually(fmt.Sprintf("%s has ended", step.name), func() bool { return b.isDone(step.name) })
		r.killAll()
		r.close()
		count := b.paidFor()
		for _, e := range b.list() {
			if e.State.Terminal() {
				over[scriptName(e.Spec.Name)] = count[scriptName(e.Spec.Name)]
			}
		}
	}
	count := b.paidFor()
	for name, n := range over {
		if count[name] != n {
			t.Errorf("%s was paid for %d times, %d of them after its end", name, count[name], count[name]-n)
		}
	}
	if len(over) < 5 || count["end"] != 1 {
		t.Errorf("%v had ended at a kill; the last was paid for %d times", over, count["end"])
	}
	if count["unwanted"] != 0 {
		t.Error("a job was run whose condition did not hold")
	}
	if o := b.last(b.show("end")); o == nil || strings.Join(strings.Fields(o.Answer), "") != `["30","40"]` {
		t.Errorf("the last job says %s", asJSON(t, o))
	}
	if j := b.show("unwanted"); j.Job.State != job.Cancelled || j.Job.Skipped == "" {
		t.Errorf("unwanted is %s, skipped %q", j.Job.State, j.Job.Skipped)
	}
	b.soundState()
}

// paidFor returns how often each of them was paid for.
func (b *bench) paidFor() map[string]int {
	count := map[string]int{}
	for _, name := range b.lines("paid") {
		count[name]++
	}
	return count
}

// scriptName is what a job of TestWorkflowKilled calls itself when it is paid for.
func scriptName(name job.Name) string {
	switch name {
	case "each@1":
		return "each-3"
	case "each@2":
		return "each-4"
	}
	return string(name)
}

// isDone reports whether the store says that a job has ended.
func (b *bench) isDone(name job.Name) bool {
	for _, e := range b.list() {
		if e.Spec.Name == name {
			return e.State.Terminal()
		}
	}
	return false
}
