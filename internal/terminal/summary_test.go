package terminal

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/agentsched/agentsched/job"
)

func TestSummary(t *testing.T) {
	rows := []Row{
		{Name: "fix-login", Worker: "codex", State: job.RunCompleted, Attempts: 1, Time: 83 * time.Second, Files: 3,
			Usage: job.Usage{InputTokens: 41_000, OutputTokens: 1_234, CostUSD: 0.0123, CostKnown: true},
			Patch: "/state/jobs/1/1/patch", Logs: "/state/jobs/1/1", Hint: "not shown, it went well"},
		{Name: "add-tests", Worker: "claude", State: job.RunFailed, Attempts: 3, Time: 2*time.Hour + 5*time.Minute, Class: job.VerifyFailed,
			Message: "go test ./... exited 1 after the agent had said that all tests pass, which they did not in three attempts, the last of which changed nothing more",
			Usage:   job.Usage{InputTokens: 2_000_000, OutputTokens: 99_999, CostUSD: 12.5, CostKnown: true},
			Hint:    "look at the log, then run it again with another worker: scheduler run --worker codex", Logs: "/state/jobs/2/3"},
		{Name: "日本語-docs", Worker: "opencode", State: job.RunFailed, Attempts: 1, Time: 4200 * time.Millisecond, Class: job.Crash, Message: hostile,
			Usage: job.Usage{InputTokens: 900}, Patch: "/state/\x1b[2J/patch"},
		{Name: "lint", Worker: "shell", State: job.RunCancelled, Attempts: 1, Time: time.Second, Message: "cancelled by the user"},
		{Name: "later", Worker: "codex", State: job.Pending, Message: "interrupted; goes on at the next run"},
		{Name: "scan", Worker: "codex", State: job.RunCompleted, Attempts: 1, Time: time.Second, Answer: "Nothing was found.\nNot the last word.", Logs: "/state/jobs/5/1"},
		{Name: "report", Worker: "claude", State: job.RunCompleted, Attempts: 1, Time: time.Second, Final: true, Files: 1,
			Answer: "\n# Verdict: fail\n\n  4 high, \x1b[2J2 low\n" + strings.Repeat("A finding that has many words to say about itself, and a few more.\n", 9)},
	}
	var all strings.Builder
	for _, w := range []int{0, 80, 40} {
		var out, coloured bytes.Buffer
		opts := SummaryOptions{Width: w, Elapsed: 125 * time.Minute}
		if err := Summary(&out, rows, opts); err != nil {
			t.Fatal(err)
		}
		opts.Colour = true
		if err := Summary(&coloured, rows, opts); err != nil {
			t.Fatal(err)
		}
		if ansi.Strip(coloured.String()) != out.String() {
			t.Errorf("with colour, the text is another:\n%s", coloured.String())
		}
		harmless(t, out.String())
		table, _, _ := strings.Cut(out.String(), "\n\n")
		for _, l := range strings.Split(table, "\n") {
			if w > 0 && Width(l) > w {
				t.Errorf("line of %d cells, want at most %d: %q", Width(l), w, l)
			}
		}
		all.WriteString(out.String() + "=====\n")
	}
	var out bytes.Buffer
	if err := Summary(&out, rows, SummaryOptions{Paths: true}); err != nil {
		t.Fatal(err)
	}
	harmless(t, out.String())
	golden(t, "summary.txt", all.String()+out.String())
}

func TestFormats(t *testing.T) {
	times := map[time.Duration]string{
		-time.Second: "0.0s", 0: "0.0s", 9990 * time.Millisecond: "9.9s", 10 * time.Second: "10s",
		59900 * time.Millisecond: "59s", 60 * time.Second: "1m00s", 3599 * time.Second: "59m59s", 99*time.Hour + 59*time.Minute: "99h59m",
	}
	for d, want := range times {
		if got := timeText(d); got != want {
			t.Errorf("timeText(%v) = %q, want %q", d, got, want)
		}
	}
	counts := map[int64]string{0: "0", 999: "999", 1000: "1.0k", 12_345: "12.3k", 999_949: "999.9k", 999_950: "1.0M", 1_234_567: "1.2M", 5_000_000_000: "5.0G"}
	for n, want := range counts {
		if got := Count(n); got != want {
			t.Errorf("Count(%d) = %q, want %q", n, got, want)
		}
	}
	costs := map[string]job.Usage{
		"$0.0123":  {InputTokens: 1, CostUSD: 0.01234, CostKnown: true},
		"?":        {InputTokens: 1},
		">$1.0000": {InputTokens: 1, CostUSD: 1},
		"-":        {},
	}
	for want, u := range costs {
		if got := Cost(u); got != want {
			t.Errorf("Cost(%+v) = %q, want %q", u, got, want)
		}
	}
}
