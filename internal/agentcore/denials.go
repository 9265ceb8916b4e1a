package agentcore

import (
	"fmt"
	"sync"

	"github.com/agentsched/agentsched/internal/sandbox"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// Bounds of what is told of the things that a run was refused.
const (
	maxDenials = 50 // different ones that are told of a run
	maxAudited = 25 // of them, those that only the audit log tells of: honest programs try many files
	maxHostile = 5  // of kinds that no honest program tries, before the run is stopped
)

// denials tells what a run was refused, each thing once, and stops a run that tries what no honest program does.
type denials struct {
	emit func(job.Event)
	stop func(*worker.Stop)

	mu      sync.Mutex // guards what follows
	seen    map[string]bool
	files   int // of the audit log
	total   int
	hostile int
}

func newDenials(emit func(job.Event), stop func(*worker.Stop)) *denials {
	return &denials{emit: emit, stop: stop, seen: map[string]bool{}}
}

// sandbox tells of a call that the sandbox has refused.
func (d *denials) sandbox(x sandbox.Denial) { d.add(x.String(), x.Hostile) }

// audited tells of what the kernel's audit log has, such as the refusal of a file. Honest programs try them, so none stops the run.
func (d *denials) audited(x sandbox.Denial) {
	d.mu.Lock()
	d.files++
	n := d.files
	d.mu.Unlock()
	switch {
	case n <= maxAudited:
		d.add(x.String(), false)
	case n == maxAudited+1:
		d.add(fmt.Sprintf("more than %d different files; the rest is not told", maxAudited), false)
	default:
		d.refused(1)
	}
}

// add tells what the run was refused. hostile says that no honest program tries it.
func (d *denials) add(what string, hostile bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.total++
	if !d.seen[what] && len(d.seen) <= maxDenials {
		d.seen[what] = true
		text := "refused by the sandbox: " + what
		if len(d.seen) > maxDenials {
			text = fmt.Sprintf("refused by the sandbox: more than %d different things; the rest is not told", maxDenials)
		}
		d.emit(job.Event{Kind: job.EventWarning, Text: text})
	}
	if !hostile {
		return
	}
	if d.hostile++; d.hostile == maxHostile {
		d.stop(&worker.Stop{Class: job.SandboxClass, Now: true,
			Message: fmt.Sprintf("the run was stopped: %d times it tried what no honest program does, the last time %s", maxHostile, what),
			Hint:    "read what it was told to do and what it read: its model may have been talked into this; see the warnings in its log"})
	}
}

// refused counts what is told of in another way.
func (d *denials) refused(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.total += n
}

// count returns how often the run was refused something.
func (d *denials) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.total
}
