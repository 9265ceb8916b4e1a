package watchdog

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/job"
)

// Request asks whether work may begin.
type Request struct {
	Kind   job.WorkerKind
	Tenant job.Tenant
	Class  job.Class // "" is Standard; for Interactive work a person waits
}

// Admission is the answer to a Request.
type Admission string

const (
	// Accept: go on.
	Accept Admission = "accept"
	// Reject: not while it is as it is; ask again after RetryAfter.
	Reject Admission = "reject"
	// Defer: soon; ask again after RetryAfter. The work keeps its place.
	Defer Admission = "defer"
	// Degrade: run it smaller, on a smaller model or the next worker of its
	// list, if there is one; with CIRCUIT_OPEN, only on another worker.
	Degrade Admission = "degrade"
)

// Decision is an answer with its reason.
type Decision struct {
	Action     Admission
	Reason     job.Reason    // "" with Accept
	RetryAfter time.Duration // 0 with Accept
	Message    string        // a sentence for the user, "" with Accept
	// Concurrency is how many runs may be under way at once, whatever Action
	// is; 0 means as configured.
	Concurrency int
}

// minRetry is the least RetryAfter: the time for which a permit may stay
// unused, within which the stage's picture hardly changes.
const minRetry = 5 * time.Second

// Admit decides about one request, from the stage that the last Step left.
// This is the only place where load decides about work:
//
//	             shed classes   other work   interactive, protected tenants
//	normal       accept         accept       accept
//	shed         reject         accept       accept
//	throttle     reject         degrade      accept
//	open_breaker reject         degrade      accept
//	escalate     reject         defer        degrade
//
// A kind whose breaker was opened is degraded to another for OpenFor; after
// that its breaker decides, by probes that must get through.
func (d *Defence) Admit(r Request) Decision {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := Decision{Action: Accept, Concurrency: d.concurrency()}
	if d.stage == Normal {
		return c
	}
	class := cmp.Or(r.Class, job.Standard)
	important := class == job.Interactive || slices.Contains(d.cfg.ProtectTenants, r.Tenant)
	reason := job.GlobalShed
	if d.queue {
		reason = job.QueueStall
	}
	opened, sick := d.opened[r.Kind]
	left := d.cfg.OpenFor.Std() - d.now.Sub(opened)
	switch {
	case !important && slices.Contains(d.cfg.ShedClasses, class):
		c.Action, c.Reason, c.RetryAfter = Reject, reason, d.retryAfter()
		c.Message = fmt.Sprintf("work of class %s is not started while the host is at stage %s", class, d.stage)
	case sick && left > 0:
		c.Action, c.Reason, c.RetryAfter = Degrade, job.CircuitOpen, left
		c.Message = fmt.Sprintf("worker %s fails too often; use another", r.Kind)
	case d.stage == Escalate && !important:
		c.Action, c.Reason, c.RetryAfter = Defer, reason, d.retryAfter()
		c.Message = "the host is still overloaded; only work that a person waits for is started"
	case d.stage == Escalate || d.stage >= Throttle && !important:
		c.Action, c.Reason, c.RetryAfter = Degrade, reason, d.retryAfter()
		c.Message = "the host is overloaded: fewer runs at once, and the next worker or model where the job names one"
	}
	return c
}

// retryAfter is when the stage can change at the earliest.
func (d *Defence) retryAfter() time.Duration {
	return max(d.cfg.Dwell.of(d.stage)-d.now.Sub(d.changed), minRetry)
}

// isolationRetry is when to ask again about what only an operator lifts.
const isolationRetry = time.Minute

// Refuse returns the answer to a request that i blocks at now.
func Refuse(i isolation.Isolation, now time.Time) Decision {
	d := Decision{Action: Reject, Reason: job.FatalMode, RetryAfter: isolationRetry, Message: fmt.Sprintf("%s is isolated: %s", i.Scope, i.Message)}
	if !i.Until.IsZero() {
		d.RetryAfter = max(i.Until.Sub(now), time.Second)
	}
	if _, _, ok := i.Scope.Worker(); ok {
		d.Reason = job.CircuitOpen
	} else if _, ok := i.Scope.Workspace(); ok {
		d.Reason = job.WorkspaceBusy
	}
	return d
}
