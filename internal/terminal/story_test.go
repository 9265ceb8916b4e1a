package terminal

import (
	"fmt"
	"strings"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
)

// noon is when the stories of these tests begin.
var noon = time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time { return noon.Add(time.Duration(seconds * float64(time.Second))) }

var threeJobs = []Job{{"1", "fix-login", "codex"}, {"2", "add-tests", "claude"}, {"3", "日本語-docs", "opencode"}}

// hostile is what a worker may print to deceive or to break the screen.
const hostile = "\x1b[2J\x1b]0;owned\x07\x1b[31mred\x1b[0m\r\n\u202egnp.exe\u202c\u200d tail\x00\x08\u009b31m 日本語 👩\u200d💻 e\u0301\u0301\u0301\u0301\u0301"

func moved(seconds float64, j Job, attempt int, s job.RunState, e job.EntryState, text string) api.Update {
	return api.Update{Kind: api.UpdateJob, Time: at(seconds), Job: j.ID, Name: j.Name, Worker: j.Worker, Attempt: attempt, State: s, Entry: e, Text: text}
}

func happened(seconds float64, j Job, attempt int, e job.Event) api.Update {
	e.Job, e.Attempt, e.Time = j.ID, attempt, at(seconds)
	return api.Update{
		Kind: api.UpdateEvent, Time: at(seconds), Job: j.ID, Name: j.Name, Worker: j.Worker, Attempt: attempt, Entry: job.Dispatched, State: job.Running,
		Event: &e, Usage: &job.Usage{InputTokens: int64(seconds * 1000), OutputTokens: 234, CostUSD: seconds / 100, CostKnown: j.Worker != "opencode"},
	}
}

func code(n int) *int { return &n }

// story is a run of threeJobs in which about everything happens.
func story() []api.Update {
	a, b, c := threeJobs[0], threeJobs[1], threeJobs[2]
	end := moved(40, a, 1, job.RunCompleted, job.Completed, "")
	end.ExitKind, end.Usage = job.ExitSucceeded, &job.Usage{InputTokens: 40_000, OutputTokens: 1234, CostUSD: 0.1234, CostKnown: true}
	return []api.Update{
		{Kind: api.UpdateCore, Time: at(0), Text: "agentcore is up (pid 42)"},
		moved(0.1, a, 1, job.Pending, job.Dispatched, ""),
		happened(0.2, a, 1, job.Event{Kind: job.EventState, State: job.Running}),
		moved(0.3, c, 0, job.Pending, job.Queued, "no free slot"),
		moved(0.5, c, 0, job.Pending, job.Queued, "no free slot for opencode"),
		moved(1, b, 1, job.Pending, job.Dispatched, ""),
		happened(2, a, 1, job.Event{Kind: job.EventText, Text: "I will look at the login form.\nThen I fix it."}),
		happened(2.5, a, 1, job.Event{Kind: job.EventText, Text: "too soon to be printed"}),
		happened(3, a, 1, job.Event{Kind: job.EventCommand, Command: "go test ./...", CallID: "x"}),
		happened(5.5, a, 1, job.Event{Kind: job.EventCommand, Command: "go test ./...", CallID: "x", ExitCode: code(1), Millis: 2500}),
		happened(6, a, 1, job.Event{Kind: job.EventFile, Path: "login/form.go", Change: "modified"}),
		happened(7, b, 1, job.Event{Kind: job.EventRetry, Text: "overloaded (status 529): retry 1 of 3"}),
		happened(8, b, 1, job.Event{Kind: job.EventError, Text: "API error 529"}),
		happened(8.5, b, 1, job.Event{Kind: job.EventLog, Text: "some line of stderr"}),
		moved(9, b, 1, job.Pending, job.Queued, "SERVER; next attempt after 4s"),
		moved(13, b, 2, job.Pending, job.Dispatched, ""),
		happened(14, b, 2, job.Event{Kind: job.EventTool, Tool: "Read", Text: "main.go"}),
		moved(15, c, 1, job.Pending, job.Dispatched, ""),
		happened(16, c, 1, job.Event{Kind: job.EventText, Text: hostile}),
		{Kind: api.UpdateGap, Time: at(17), Missed: 12},
		{Kind: api.UpdateEscalation, Time: at(18), Text: "host: memory is nearly full\x1b[2J", Escalation: &api.Escalation{}},
		happened(20, b, 2, job.Event{Kind: job.EventCommand, Command: "printf '" + hostile + strings.Repeat(" long", 100) + "'", ExitCode: code(0)}),
		happened(30, a, 1, job.Event{Kind: job.EventWarning, Text: "an output line was skipped"}),
		end,
		{Kind: api.UpdateEscalation, Time: at(41), Escalation: &api.Escalation{},
			Text: "global: process 4711 cannot be killed" + strings.Repeat(" at all", 40) + "; isolated until `scheduler resume global`"},
		moved(42, c, 1, job.Pending, job.Queued, "FATAL_MODE: a process cannot be killed"),
		{Kind: api.UpdateEscalation, Time: at(43), Text: "global is in use again: an operator resumed it"},
		{Kind: api.UpdateCore, Time: at(44), Text: "agentcore 2 (pid 43) takes no new jobs and is replaced when its last one has ended: it uses 2.0 GiB of memory"},
		moved(45, c, 2, job.Pending, job.Dispatched, "on the smaller opencode/haiku: the core sheds load"),
		moved(50, b, 2, job.RunFailed, job.Completed, "SERVER: the provider failed twice\nwith a second line"),
		happened(51, b, 2, job.Event{Kind: job.EventText, Text: "late words"}),
		moved(60, c, 1, job.RunCancelled, job.Completed, ""),
	}
}

func manyJobs(n int) []Job {
	var jobs []Job
	for i := range n {
		jobs = append(jobs, Job{job.ID(fmt.Sprint(i)), job.Name(fmt.Sprintf("job-%03d", i)), "codex"})
	}
	return jobs
}

// busy returns updates after which of n jobs the first 200 are over, of them
// each tenth failed, and the next 8 run.
func busy(jobs []Job) []api.Update {
	var us []api.Update
	for i, j := range jobs[:208] {
		t := float64(i) / 10
		us = append(us, moved(t, j, 1, job.Pending, job.Dispatched, ""),
			happened(t+0.05, j, 1, job.Event{Kind: job.EventCommand, Command: fmt.Sprintf("make step-%d", i)}))
		switch {
		case i >= 200:
		case i%10 == 0:
			us = append(us, moved(t+1, j, 1, job.RunFailed, job.Completed, "CRASH: exit code 1"))
		default:
			us = append(us, moved(t+1, j, 1, job.RunCompleted, job.Completed, ""))
		}
	}
	return us
}
