package audit

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the records in testdata")

// TestGoldenRecords: a log of every kind of record is, byte for byte, what was
// recorded: the lines are read by other programs, and their hashes cover them.
func TestGoldenRecords(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	dir := filepath.Join(t.TempDir(), "audit")
	l := open(t, dir, Options{Now: func() time.Time { return at }})
	d := Request{Who: api.AuditWho{Name: "ann", Role: "operate", Door: "unix"}, Method: "POST", Route: "POST /v1/jobs/{job}/cancel", Target: "/v1/jobs/j1/cancel", Job: "j1", Status: 200, Took: 3 * time.Millisecond, Body: "{}", From: "127.0.0.1:1"}
	must(t, l.RecordRequest(t.Context(), d))
	d.Status, d.Why = 403, "the role read may not"
	l.RecordRefused(d, 2)
	exit, usage := 1, job.Usage{InputTokens: 10, OutputTokens: 5, CostUSD: 0.5, CostKnown: true}
	e := queue.Entry{ID: "j1", Batch: "b1", State: job.Completed, ExitKind: job.ExitFailed, DeadLetter: "3 attempts were made", Attempts: 1, Spent: usage, Spec: job.Spec{
		Name: "docs", Tenant: "website", Worker: "codex", Agent: "reviewer", Trigger: "cron", Context: job.Context{CorrelationID: "c", UserID: "u", SessionID: "s"}}}
	choice := job.Choice{Worker: "codex", Model: "small"}
	o := NewObserver(l)
	for _, m := range []scheduler.Moment{
		{Kind: scheduler.MomentCoreUp, Core: 1}, {Kind: scheduler.MomentSubmitted, Entry: &e},
		{Kind: scheduler.MomentEvents, Entry: &e, Attempt: 1, Choice: choice, Events: []job.Event{
			{Job: "j1", Attempt: 1, Seq: 2, Time: at, Kind: job.EventCommand, Command: "make", ExitCode: &exit, Millis: 5, Step: "verify"},
			{Job: "j1", Attempt: 1, Seq: 3, Time: at, Kind: job.EventFile, Path: "a.go", Change: "modified"},
		}},
		{Kind: scheduler.MomentAttemptEnded, Entry: &e, Attempt: 1, Choice: choice, Outcome: &job.Outcome{
			State: job.RunFailed, Class: job.Crash, Message: "it died", ExitCode: 3, Usage: usage, Files: []job.FileChange{{Path: "a.go", Change: "modified"}}, DiffStat: "1 file changed", PatchHash: "ab", Denied: []string{"Bash(rm)"},
		}},
		{Kind: scheduler.MomentAnswered, Entry: &e, Attempt: 1, Text: "reject"}, {Kind: scheduler.MomentEnded, Entry: &e, Attempt: 1}, {Kind: scheduler.MomentCoreDown, Core: 1, Text: "it was replaced"},
	} {
		m.At = at
		o.Observe(m)
	}
	must(t, l.Close())
	numbers, err := files(dir)
	must(t, err)
	got, err := os.ReadFile(filepath.Join(dir, fileName(numbers[0])))
	must(t, err)
	const file = "testdata/records.jsonl"
	if *rewrite {
		must(t, os.MkdirAll("testdata", 0o755))
		must(t, os.WriteFile(file, got, 0o644))
	}
	want, err := os.ReadFile(file)
	must(t, err)
	if string(got) != string(want) {
		t.Errorf("%s differs, -rewrite writes it; got:\n%s", file, got)
	}
}
