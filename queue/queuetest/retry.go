package queuetest

import (
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

func retry(e *env) {
	id := e.enqueueOne("a")
	c := e.claimOne(epoch)
	n := e.begin(c, epoch)
	ended, again := epoch.Add(3*time.Second), epoch.Add(10*time.Second)
	outcome := job.Outcome{State: job.RunFailed, Class: job.RateLimit, Message: "429", RetryAt: &again, Session: "s-1",
		StartedAt: epoch.Add(time.Second), EndedAt: ended, ExitCode: 1,
		Commands: []job.CommandRun{{Command: "ls", ExitCode: -1}}, Files: []job.FileChange{{Path: "a.go", Change: "added"}}}
	e.apply(queue.Finish{ID: id, Fence: c.Fence, Attempt: n, Outcome: outcome, Now: ended, Retry: queue.Retry{
		RunnableAt: again, Choice: 1, Session: "s-1", SessionWorker: "codex", SessionNode: "a", Feedback: "try harder", Waiting: "until the limit resets"}})
	got := e.wantState(id, job.Queued)
	if !got.RunnableAt.Equal(again) || got.Choice != 1 || got.Session != "s-1" || got.SessionWorker != "codex" || got.SessionNode != "a" ||
		got.Feedback != "try harder" || got.Waiting != "until the limit resets" || got.Holder != "" || got.LeaseUntil != nil ||
		got.CompletedAt != nil || got.ExitKind != "" || got.Attempts != 1 || got.Counted != 1 {
		e.Errorf("entry that waits for its retry: %s", show(got))
	}
	wantSame(e, "failed attempt", e.attempts(id), []job.Attempt{{Job: id, Number: 1, Fence: c.Fence, Choice: job.Choice{Worker: "codex"},
		State: job.RunFailed, Session: "s-1", Outcome: &outcome, Started: epoch, Ended: &ended}})
	if early := e.claim(1, ended); len(early.Entries) != 0 || !early.NextAt.Equal(again) {
		e.Errorf("claimed %s before its time", show(early))
	}
	c = e.claimOne(again)
	n = e.begin(c, again)
	e.apply(queue.Finish{ID: id, Fence: c.Fence, Attempt: n, Outcome: job.Outcome{State: job.RunFailed, Class: job.Auth}, Now: again,
		Exit: job.ExitFailed, DeadLetter: "the key is wrong"})
	if got := e.wantState(id, job.Completed); got.ExitKind != job.ExitFailed || got.DeadLetter != "the key is wrong" || got.Attempts != 2 {
		e.Errorf("dead letter: %s", show(got))
	}
	if got := e.attempts(id); len(got) != 2 || got[1].Number != 2 || got[1].Choice.Worker != "claude" {
		e.Errorf("attempts: %s", show(got))
	}
}

func lostAttempts(e *env) {
	id := e.enqueueOne("a")
	for round := range 3 {
		c := e.claimOne(epoch)
		n := e.begin(c, epoch)
		e.apply(queue.Finish{ID: id, Fence: c.Fence, Attempt: n, Lost: round != 1, Now: epoch,
			Outcome: job.Outcome{State: job.RunFailed, Class: job.Crash}, Retry: queue.Retry{RunnableAt: epoch}})
	}
	if got := e.get(id); got.Attempts != 3 || got.Counted != 1 {
		e.Errorf("attempts %d, counted %d; want 3 and 1", got.Attempts, got.Counted)
	}
	for i, a := range e.attempts(id) {
		if want := i != 1; a.Lost != want || a.Counts() == want {
			e.Errorf("attempt %d: lost %v, want %v", a.Number, a.Lost, want)
		}
	}
}

// refusedForGood finishes an entry whose permit was refused: no attempt, no usage.
func refusedForGood(e *env) {
	id := e.enqueueOne("a")
	c := e.claimOne(epoch)
	e.apply(queue.Finish{ID: id, Fence: c.Fence, Now: epoch, Exit: job.ExitFailed, DeadLetter: "its attempts are spent", Lost: true,
		Outcome: job.Outcome{State: job.RunFailed, Class: job.Budget, Usage: job.Usage{InputTokens: 5}, StartedAt: epoch, EndedAt: epoch.Add(time.Hour)}})
	got := e.wantState(id, job.Completed)
	if got.DeadLetter != "its attempts are spent" || got.Attempts != 0 || got.Counted != 0 || got.Spent.Tokens() != 0 || got.SpentTime != 0 {
		e.Errorf("entry %s", show(got))
	}
	if list := e.attempts(id); len(list) != 0 {
		e.Errorf("attempts %s, want none", show(list))
	}
}

func usageSums(e *env) {
	id := e.enqueueOne("a")
	usages := []job.Usage{
		{InputTokens: 100, CachedTokens: 20, OutputTokens: 5, CostUSD: 0.5, CostKnown: true, Steps: 2, Commands: 1, CommandMillis: 7},
		{},
		{InputTokens: 1, CacheWriteTokens: 2, OutputTokens: 3, ReasoningTokens: 4, CostUSD: 0.25, CostKnown: true},
		{InputTokens: 7},
	}
	times := []struct{ started, ended, now, took time.Duration }{
		{1, 3, 4, 2}, // the outcome's own times, seconds
		{0, 0, 5, 5}, // none: from the attempt's start to now
		{2, 0, 6, 4}, // no end
		{9, 8, 9, 0}, // a clock that was set back
	}
	at := func(n time.Duration) time.Time {
		if n == 0 {
			return time.Time{}
		}
		return epoch.Add(n * time.Second)
	}
	var sum job.Usage
	var spent time.Duration
	for i, u := range usages {
		c := e.claimOne(epoch)
		n := e.begin(c, epoch)
		e.apply(queue.Finish{ID: id, Fence: c.Fence, Attempt: n, Now: at(times[i].now), Retry: queue.Retry{RunnableAt: epoch},
			Outcome: job.Outcome{State: job.RunFailed, Usage: u, StartedAt: at(times[i].started), EndedAt: at(times[i].ended)}})
		sum, spent = sum.Add(u), spent+times[i].took*time.Second
		got := e.get(id)
		wantSame(e, "usage", got.Spent, sum)
		if got.SpentTime.Std() != spent {
			e.Errorf("after attempt %d %v are spent, want %v", n, got.SpentTime, spent)
		}
	}
	if sum.CostKnown || sum.InputTokens != 108 {
		e.Fatalf("the test's own sum is %s", show(sum))
	}
}
