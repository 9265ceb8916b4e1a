//go:build linux

package faults

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/agentsched/agentsched/internal/testrun"
	"github.com/agentsched/agentsched/job"
)

// check looks at what a scenario has left: a copy of its queue is checked as that of one host is.
func (f *fleet) check(ctx context.Context) (wrong []string) {
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	for _, m := range append(f.schedulers, f.nodes...) {
		if !testrun.Within(f.tb, leftWithin, func() bool { return len(m.net.processes()) == 0 }) {
			say("%s has processes: %v", m.name, m.net.processes())
		}
	}
	if len(wrong) == 0 {
		f.census.settle() // when a run has ended counts
	}
	if n := f.log.acknowledged(); n != len(f.plan.Jobs) {
		say("%d jobs of %d are acknowledged", n, len(f.plan.Jobs))
	}
	m := f.schedulers[0]
	f.state = m.state()
	for _, m := range f.schedulers {
		f.idle = append(f.idle, m.instance())
	}
	if _, err := m.cli("store", "copy", f.store, "sqlite:"); err != nil {
		say("copy the queue: %v", err)
		return wrong
	}
	wrong = append(wrong, f.checkClaims()...)
	return append(wrong, f.scene.check(ctx)...)
}

// runOnFleet returns the tag of an attempt, which begins with the instance of the node that it was on.
func (f *fleet) runOnFleet(id job.ID, attempt int) string {
	f.census.mu.Lock()
	defer f.census.mu.Unlock()
	end := fmt.Sprintf("/%s/%d", id, attempt)
	for run := range f.census.jobs {
		if strings.HasSuffix(run, end) {
			return run
		}
	}
	return "nowhere" + end
}

// tell adds a line to the scenario's story.
func (f *fleet) tell(format string, args ...any) {
	f.told = append(f.told, fmt.Sprintf("%s %s", time.Now().Format("15:04:05.000"), fmt.Sprintf(format, args...)))
}

// story is all that can help to understand a failure.
func (f *fleet) story() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%sstruck:\n%s\n", f.fleetPlan, strings.Join(f.told, "\n"))
	const size = 6 << 10
	for _, m := range append(f.schedulers, f.nodes...) {
		log, _ := os.ReadFile(filepath.Join(m.state(), "scheduler.log"))
		fmt.Fprintf(&b, "%s, %s; its log ends:\n", m.name, m.instance())
		for line := range strings.Lines(string(log[max(0, len(log)-size):])) {
			fmt.Fprintf(&b, "  %.400s\n", strings.TrimSuffix(line, "\n"))
		}
	}
	if os.Getenv("AGENTSCHED_KEEP") != "" {
		fmt.Fprintf(&b, "kept: %s\n", f.dir)
	}
	return b.String()
}
