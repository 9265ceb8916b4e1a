package agentcore

import (
	"context"
	"sync"
	"time"

	"github.com/agentsched/agentsched/internal/proc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/permit"
	"github.com/agentsched/agentsched/watchdog"
	"github.com/agentsched/agentsched/worker"
)

// newWatch returns what watches a run: for silence, and for going in circles.
func newWatch(s *settings) (*watchdog.Stall, *watchdog.Repetition) {
	return watchdog.NewStall(s.watchdog.Stall, time.Now()), watchdog.NewRepetition(s.watchdog.Repetition.Calls)
}

// look looks at an event on its way out: what it used is charged, and a run
// that crosses a limit or goes in circles is stopped. Called with e.mu held.
func (e *execution) look(ev *job.Event) {
	e.stall.Output(ev.Time)
	if ev.Kind == job.EventUsage && ev.Usage != nil && e.held.meter() == nil { // else the gateway has charged it
		if over := e.permit.Charge(*ev.Usage); over != nil {
			e.overspent(over)
		}
	}
	if f, found := e.rings.Observe(*ev); found {
		e.permit.Revoke(&worker.Stop{Class: f.Class, Message: f.Evidence, Hint: "read the run's log; clearer instructions may help"})
	}
}

// overspent stops the run, which has spent what it may.
func (e *execution) overspent(over *permit.Stop) {
	e.permit.Revoke(&worker.Stop{Class: job.Budget, Message: over.Message, Hint: "raise the limit if the work is worth it"})
}

// watchTree starts to look whether the run's processes still do anything, until
// the returned function is called.
func (e *execution) watchTree(tree *proc.Tree) (stop func()) {
	e.tellUnlimited(tree)
	unspare := e.spareTree(tree)
	after := e.settings.watchdog.Stall.After.Std()
	if after <= 0 || e.stream != nil { // one that streams is silent for as long as there are no events
		return unspare
	}
	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() {
		tick := time.NewTicker(max(after/8, time.Millisecond))
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case now := <-tick.C:
				if e.held.waits() || e.talk.waits() || e.lead.waits() {
					e.stall.Output(now)
				}
				if f, stalled := e.stall.Check(now, func() (time.Duration, error) { return cpuTime(tree) }); stalled {
					e.permit.Revoke(&worker.Stop{Class: f.Class, Message: f.Evidence, Hint: "raise stall_after in the configuration if the worker is often silent for so long"})
					return
				}
			}
		}
	})
	return func() {
		cancel()
		watching.Wait()
		unspare()
	}
}

// spareTree keeps the core's fuse from the tree of a run that may go on without a permit,
// until the returned function is called.
func (e *execution) spareTree(tree *proc.Tree) (end func()) {
	if e.submit.Spec.Limits.OnPartition != job.FinishOnPartition {
		return func() {}
	}
	return e.session.fuse.spare(e.tag, tree.Kin())
}

// cpuTime returns what the tree's processes have used: by their cgroup, else
// by their tag.
func cpuTime(tree *proc.Tree) (time.Duration, error) {
	if dir := tree.Cgroup(); dir != "" {
		return CPUOfCgroup(dir)
	}
	list, err := proc.Alive(tree.Run())
	if err != nil {
		return 0, err
	}
	pids := make([]int, len(list))
	for i, p := range list {
		pids[i] = p.Pid
	}
	return CPUOf(pids)
}
