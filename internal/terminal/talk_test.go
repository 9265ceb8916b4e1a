package terminal

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
)

// conversation shows something of everything, with texts that would like to act upon the terminal.
func conversation(t *Transcript) (lines []TalkLine) {
	at := func(s int) time.Time { return topNoon.Add(time.Duration(s) * time.Second) }
	add := func(more []TalkLine) { lines = append(lines, more...) }
	event := func(s int, e job.Event) {
		e.Job, e.Time, e.Attempt = "01a1fcce-0009", at(s), max(e.Attempt, 1)
		add(t.Event(&api.Event{Cursor: int64(s), Event: e}, false))
	}
	numbered := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "\tline  %d \x1b[31mred\x1b[m\u202e\r\n", i+1)
		}
		return b.String()
	}
	failed, fine := 1, 0
	e := jobOf(9, "fix-login", "website", "codex", job.Dispatched)
	e.Spec.Instructions = "Fix the login.\n\n\x1b]0;owned\x07" + numbered(20)
	add(t.Begin(&e, false))
	event(1, job.Event{Kind: job.EventState, State: job.Running})
	event(2, job.Event{Kind: job.EventText, Text: "I look at the parser, which is a long way down and cannot be said in a line that is short enough for any terminal that people have.\n  - first\n  - second"})
	event(3, job.Event{Kind: job.EventCommand, Command: "go test ./...", CallID: "1"})
	event(4, job.Event{Kind: job.EventCommand, Command: "go test ./...", CallID: "1", ExitCode: &failed, Millis: 2100, Text: numbered(9)})
	event(5, job.Event{Kind: job.EventCommand, Command: "cat <<X\n1\n2\n3\n4\n5\nX", CallID: "2", ExitCode: &fine, Text: strings.Repeat("wide漢字", 200)})
	event(6, job.Event{Kind: job.EventTool, Tool: "grep", Text: "1 match"})
	event(7, job.Event{Kind: job.EventFile, Path: "login.go", Change: "modified", Text: "-a\n+b\n"})
	event(8, job.Event{Kind: job.EventUsage, Usage: &job.Usage{InputTokens: 1}})
	event(9, job.Event{Kind: job.EventText, Parent: "2", Text: "from below, where a subagent says more than there is room for in a line of a terminal that is as narrow as this", Truncated: 12})
	event(9, job.Event{Kind: job.EventCommand, Parent: "2", Command: "go vet ./...", CallID: "3"})
	event(9, job.Event{Kind: job.EventCommand, Parent: "2", Command: "go vet ./...", CallID: "3", ExitCode: &failed, Text: numbered(9)})
	q := api.Question{Number: 1, Job: e.ID, Text: "may I?", Command: "make deploy", Path: "x", Diff: "-a\n+b\n", Decisions: []string{api.Allow}, State: api.QuestionOpen, Waits: true, AskedAt: at(10)}
	add(t.Question(&q, false))
	event(11, job.Event{Kind: job.EventAnswer, Text: "nobody answered within 1s"})
	q.Waits = false
	add(t.Answered(at(12), &q, false))
	q.State, q.Answer = api.QuestionAnswered, &api.QuestionAnswer{Decision: api.Allow, Scope: api.GrantTenant, Text: "go on", By: "ann\x1b[2J", At: at(13)}
	add(t.Answered(at(13), &q, false))
	words := api.Question{Number: 2, Job: e.ID, Text: "which?", Schema: json.RawMessage(`{"enum":["a","b"]}`), State: api.QuestionWithdrawn, AskedAt: at(14)}
	add(append(t.Question(&words, false), t.Answered(at(15), &words, false)...))
	m := api.Message{Number: 1, Job: e.ID, From: "ben", Text: "Leave\nthe docs", State: api.MessageQueued, Reason: "it is busy", At: at(16)}
	add(t.Message(&m, false))
	m.State, m.Reason = api.MessageFolded, ""
	add(t.Moved(at(17), &m))
	event(18, job.Event{Kind: job.EventWarning, Text: "odd"})
	event(19, job.Event{Kind: job.EventText, Text: "done", Attempt: 2})
	ended := at(20)
	e.State, e.Status, e.CompletedAt = job.Completed, &job.Status{State: job.RunCompleted}, &ended
	add(t.Stand(at(21), &api.JobDetail{Job: e, Attempts: []job.Attempt{{Number: 2, Outcome: &job.Outcome{Answer: "done", DiffStat: "1 file changed", EndedAt: ended}}}}))
	add(t.Note(at(22), "(it was given to the agent)"))
	add(t.Trouble(at(23), "job fix-login has ended\x1b[2J"))
	return lines
}

func TestTranscript(t *testing.T) {
	for _, w := range []int{0, 100, 40} {
		var b strings.Builder
		for _, l := range conversation(&Transcript{}) {
			b.WriteString(strings.Join(l.lay(w, false, time.UTC), "\n") + "\n")
		}
		golden(t, fmt.Sprintf("talk/%d.txt", w), b.String())
	}
}

// What is run, or would be changed, is shown with what a terminal would not show: the program that has it may see that.
func TestTranscriptHidesNoCode(t *testing.T) {
	const hides, shows = "echo \x1b]0;; rm -rf / ;\x07\u009b8m\u202edone", "echo ^[]0;; rm -rf / ;^G<U+009B>8m<U+202E>done"
	tr := &Transcript{}
	q := api.Question{Number: 1, Text: "may I run " + hides + "?", Command: hides, Decisions: []string{api.Allow}, Diff: "+" + hides}
	zero := 0
	for name, lines := range map[string][]TalkLine{
		"question": tr.Question(&q, false), "diff of a question": tr.Question(&q, true)[1:], "patch": tr.Text(time.Time{}, "", "+a\n+"+hides+"\r\n"),
		"what is asked": {{Text: Asked(&q)}},
		"command":       tr.Event(&api.Event{Event: job.Event{Kind: job.EventCommand, Command: hides, ExitCode: &zero}}, true),
		"change":        tr.Event(&api.Event{Event: job.Event{Kind: job.EventFile, Path: "x", Change: "modified", Text: "+" + hides}}, true),
	} {
		if !slices.ContainsFunc(lines, func(l TalkLine) bool { return strings.Contains(l.Text, shows) }) {
			t.Errorf("%s: %+v, want %q", name, lines, shows)
		}
	}
}

// Whatever is said, and however wide the terminal is: rows fit, nothing of it acts, and nothing is lost.
func TestTranscriptFits(t *testing.T) {
	for w := 10; w < 140; w += 13 {
		for _, l := range conversation(&Transcript{}) {
			var kept strings.Builder
			for _, row := range l.lay(w, false, time.UTC) {
				if Width(row) > w {
					t.Fatalf("%d cells in %q, want %d", Width(row), row, w)
				}
				if i := strings.IndexFunc(row, hidden); i >= 0 {
					t.Fatalf("control character in %q", row)
				}
				kept.WriteString(row)
			}
			none := strings.NewReplacer(" ", "", "…", "")
			if w >= 36 && !strings.HasSuffix(none.Replace(kept.String()), none.Replace(l.Text)) {
				t.Fatalf("at %d, %q was laid as %q", w, l.Text, kept.String())
			}
		}
	}
}

// What is folded is found under its number, until it is too long ago.
func TestFolded(t *testing.T) {
	var text Transcript
	if _, why := text.Folded(0); why == "" {
		t.Error("something is folded before anything was said")
	}
	lines := conversation(&text)
	var shown strings.Builder
	if err := WriteTalk(&shown, lines); err != nil {
		t.Fatal(err)
	}
	for n := range len(text.folded) {
		if !strings.Contains(shown.String(), fmt.Sprintf("/more %d\n", n+1)) {
			t.Errorf("nothing says that %d is folded: %s", n+1, shown.String())
		}
	}
	if f, why := text.Folded(1); why != "" || f != (Folded{Job: "01a1fcce-0009"}) {
		t.Errorf("the first is %+v (%s), want what was to do", f, why)
	}
	if f, why := text.Folded(2); why != "" || f.Cursor != 4 {
		t.Errorf("the second is %+v (%s), want event 4", f, why)
	}
	last, _ := text.Folded(len(text.folded))
	if f, why := text.Folded(0); why != "" || f != last {
		t.Errorf("the last is %+v (%s), want %+v", f, why, last)
	}
	for range maxFolded {
		text.fold(Folded{Message: 1})
	}
	if _, why := text.Folded(1); !strings.Contains(why, "too long ago") {
		t.Errorf("the first is still there (%s)", why)
	}
	if len(text.folded) != maxFolded {
		t.Errorf("%d are remembered", len(text.folded))
	}
	if _, why := text.Folded(text.gone + maxFolded + 1); why == "" {
		t.Error("there is one after the last")
	}
}

// All of what was folded is shown when it is asked for, and folds nothing again.
func TestUnfolded(t *testing.T) {
	var text Transcript
	long := strings.Repeat("a line\n", 100) + strings.Repeat("x", 3*maxRaw)
	for name, lines := range map[string][]TalkLine{
		"event":    text.Event(&api.Event{Cursor: 1, Event: job.Event{Kind: job.EventText, Text: long}}, true),
		"message":  text.Message(&api.Message{Number: 1, Text: long}, true),
		"question": text.Question(&api.Question{Number: 1, Text: "?", Diff: long}, true),
		"answer":   text.Answer(&api.JobDetail{Attempts: []job.Attempt{{Outcome: &job.Outcome{Answer: long}}}}, true),
	} {
		var all strings.Builder
		if err := WriteTalk(&all, lines); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(all.String(), "a line\n"); n != 100 || !strings.Contains(all.String(), strings.Repeat("x", 3*maxRaw)) {
			t.Errorf("%s: %d lines of 100 are shown, in %d bytes", name, n, all.Len())
		}
	}
	if len(text.folded) != 0 {
		t.Errorf("%d things were folded", len(text.folded))
	}
}
