package cli

import (
	"testing"
	"time"

	"github.com/agentsched/agentsched/internal/trigger"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// TestOutcomeOf: what the jobs of a firing amount to.
func TestOutcomeOf(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ended := func(name job.Name, exit job.ExitKind, after time.Duration) queue.Entry {
		end := at.Add(after)
		e := queue.Entry{Spec: job.Spec{Name: name}, State: job.Completed, ExitKind: exit, CompletedAt: &end}
		if exit == job.ExitFailed {
			e.DeadLetter = "it broke\nbadly"
		}
		return e
	}
	part, restarted := ended("list@1", job.ExitFailed, 0), ended("a+1", job.ExitSucceeded, 3)
	part.Spec.Flow.Node, restarted.Spec.Flow.Restart = "list", 1
	skipped := queue.Entry{Spec: job.Spec{Name: "skipped"}, State: job.Cancelled, Skipped: "its condition did not hold"}
	for name, c := range map[string]struct {
		entries []queue.Entry
		want    trigger.Outcome
	}{
		"well":               {[]queue.Entry{ended("a", job.ExitSucceeded, 1), ended("b", job.ExitCancelled, 2), skipped}, trigger.Outcome{Ended: at.Add(2)}},
		"not ended":          {[]queue.Entry{ended("a", job.ExitFailed, 1), {State: job.Queued}}, trigger.Outcome{}},
		"failed":             {[]queue.Entry{ended("a", job.ExitSucceeded, 5), ended("b", job.ExitFailed, 2)}, trigger.Outcome{Ended: at.Add(5), Failed: true, Why: "job b: it broke"}},
		"its node goes on":   {[]queue.Entry{ended("list", job.ExitSucceeded, 1), part}, trigger.Outcome{Ended: at.Add(1)}},
		"restarted, is well": {[]queue.Entry{ended("a", job.ExitFailed, 1), restarted}, trigger.Outcome{Ended: at.Add(3)}},
		"expired":            {[]queue.Entry{{Spec: job.Spec{Name: "late"}, State: job.Expired, CompletedAt: &at}}, trigger.Outcome{Ended: at, Failed: true, Why: "job late: expired: not started before its deadline"}},
	} {
		c.want.Firing = "f"
		if got := outcomeOf("f", c.entries); got != c.want {
			t.Errorf("%s:\ngot  %+v\nwant %+v", name, got, c.want)
		}
	}
}
