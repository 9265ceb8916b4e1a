package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/internal/trigger"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// sourceOfFiring is where the batch of a firing comes from.
func sourceOfFiring(id string) string { return submittedPrefix + "trigger " + id }

// outcomeOfFiring returns what has become of the jobs of a firing.
func (e *engine) outcomeOfFiring(ctx context.Context, firing string) (trigger.Outcome, bool, error) {
	batches, err := e.state.store.Batches(ctx, sourceOfFiring(firing))
	if err != nil || len(batches) == 0 {
		return trigger.Outcome{}, false, err
	}
	entries, _, err := e.state.store.List(ctx, queue.Filter{Batch: batches[0].ID, Limit: 1 << 30})
	if err != nil || len(entries) == 0 {
		return trigger.Outcome{}, false, err
	}
	return outcomeOf(firing, entries), true, nil
}

// outcomeOf returns what the jobs of a firing amount to. Parts count with what they
// are parts of, and a job that its team restarted by what it came to at last.
func outcomeOf(firing string, entries []queue.Entry) trigger.Outcome {
	last := map[string]*queue.Entry{}
	var names []string                                                // in the order of submission
	o := trigger.Outcome{Firing: firing, Ended: entries[0].CreatedAt} // the least that it can be
	for i := range entries {
		e := &entries[i]
		if !e.State.Terminal() {
			return trigger.Outcome{Firing: firing}
		}
		if e.CompletedAt != nil && e.CompletedAt.After(o.Ended) {
			o.Ended = *e.CompletedAt
		}
		if e.Spec.Flow.Node != "" {
			continue
		}
		name, _, _ := strings.Cut(string(e.Spec.Name), "+")
		if old := last[name]; old == nil {
			names = append(names, name)
		} else if old.Spec.Flow.Restart > e.Spec.Flow.Restart {
			continue
		}
		last[name] = e
	}
	for _, name := range names {
		e := last[name]
		if e.State == job.Expired || e.State == job.Completed && e.ExitKind == job.ExitFailed {
			st := scheduler.StatusOf(e, o.Ended)
			o.Failed, o.Why = true, fmt.Sprintf("job %s: %s", e.Spec.Name, firstLine(st.Line()))
			break
		}
	}
	return o
}

// isolateTrigger isolates a trigger whose jobs keep failing, and tells who is to be told.
func (e *engine) isolateTrigger(i trigger.Isolation) {
	e.sched.Isolations.Isolate(isolation.Escalation{
		Scope: isolation.TriggerScope(string(i.Trigger)), Cause: isolation.CauseTrigger, Action: isolation.HoldTrigger, Time: utcNow(), Until: i.Until.UTC(), Message: i.Message,
	})
}

// triggerIsolated says why a trigger must not fire; "" if it may.
func (e *engine) triggerIsolated(t trigger.Name) string {
	scope := isolation.TriggerScope(string(t))
	i, isolated := e.sched.Isolations.Isolated(scope)
	if !isolated {
		return ""
	}
	until := ""
	if !i.Until.IsZero() {
		until = "until " + i.Until.Local().Format(time.DateTime) + " or "
	}
	return fmt.Sprintf("isolated %suntil `scheduler resume %s`: %s", until, scope, firstLine(i.Message))
}

// endsOfFirings has the triggers look when jobs of theirs have ended.
type endsOfFirings struct{ e *engine }

// Observe implements scheduler.Observer.
func (o endsOfFirings) Observe(m scheduler.Moment) {
	if m.Kind != scheduler.MomentEnded || o.e.triggers == nil {
		return
	}
	if t := m.Entry.Spec.Trigger; t == job.ByCron || t == job.ByEvent {
		o.e.triggers.Judge()
	}
}
