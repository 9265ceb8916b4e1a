package browser

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/queue/sqlite"
)

// payload is what an attacker might have a page do, each part in another way: any of
// them that becomes markup or code sets window.__xss. Whoever reads it sees the word
// payload.
const payload = `payload <img src=x onerror="window.__xss=1"></script><script>window.__xss=2</script>"><svg onload="window.__xss=3">` +
	`' onmouseover='window.__xss=4' autofocus onfocus='window.__xss=5 <a href="javascript:window.__xss=6">link</a> javascript:window.__xss=7` +
	" {{constructor.constructor('window.__xss=8')()}} ${window.__xss=9} <%= 1 %> <!-- --> ]]> &lt;b&gt; \x1b[31mred\x1b[0m\x1b]0;title\x07" +
	" \u202egnp.exe\u202c \u2066\u200b\ufeff end"

// TestHostile: whatever text a job, its worker or its files carry is text on each
// page. What the API refuses is put into the store behind their back.
func TestHostile(t *testing.T) {
	have := needTools(t)
	d := newDaemon(t, have.node)
	ids := plant(t, d)
	d.config["concurrency"].(obj)["max"] = 4
	if err := d.start(); err != nil {
		t.Fatal(err)
	}
	b := openBrowser(t, have)
	for _, name := range []string{"hostileSubmit", "hostilePages"} {
		t.Run(name, func(t *testing.T) { b.play(t, d, name, obj{"payload": payload, "planted": ids}) })
	}
}

// plant stores a job that has failed, whose every field holds the payload, or its
// last words with it, and one that waits for a person.
func plant(t *testing.T, d *daemon) []string {
	t.Helper()
	s, err := sqlite.Open(t.Context(), filepath.Join(d.state, "queue.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	now := time.Now().UTC().Add(-time.Minute).Truncate(time.Millisecond)
	word := strings.Repeat("W", 100_000)
	failed := queue.Entry{ID: job.NewID(), CreatedAt: now, RunnableAt: now, Spec: job.Spec{
		Name: payload, Tenant: payload, Type: job.WorkerTask, Worker: payload, Model: payload,
		Fallback: []job.Choice{{Worker: payload, Model: payload}}, Workspace: job.Workspace{Path: payload, Isolation: job.Copy},
		Instructions: payload + word, SystemPrompt: payload, AllowCommands: []string{payload}, Env: []string{payload},
		Verify: payload, Agent: payload, Trigger: payload, Domain: payload, Trace: payload, Turn: payload,
	}}
	batch := queue.Batch{ID: job.NewBatchID(), Source: payload, CreatedAt: now}
	if err := s.Enqueue(t.Context(), batch, []queue.Entry{failed}); err != nil {
		t.Fatal(err)
	}
	c, err := s.Claim(t.Context(), queue.ClaimSpec{Holder: payload, Max: 1, Now: now, Lease: time.Hour})
	if err != nil || len(c.Entries) != 1 {
		t.Fatal(c, err)
	}
	e, one := c.Entries[0], 1
	var events []job.Event
	for n, ev := range []job.Event{
		{Kind: "text", Text: payload}, {Kind: "text", Text: payload + word}, {Kind: "log", Text: payload}, {Kind: "warning", Text: payload}, {Kind: payload, Text: payload},
		{Kind: "command", CallID: payload, Command: payload}, {Kind: "command", CallID: payload, Command: payload, Text: payload, ExitCode: &one, Millis: 3},
		{Kind: "tool", CallID: "t", Tool: payload, Text: payload}, {Kind: "file", Path: payload, Change: payload}, {Kind: "session", Session: payload},
		{Kind: "step", Step: payload, Text: payload, Inputs: payload, Kept: job.KeptRefused}, {Kind: "state", State: payload, Text: payload},
	} {
		ev.Job, ev.Attempt, ev.Seq, ev.Time, ev.Trace = e.ID, 1, int64(n+1), now, payload
		events = append(events, ev)
	}
	// The artifact is a real file: its text is what the page shows as a patch.
	dir, err := statedir.Open(d.state)
	if err != nil {
		t.Fatal(err)
	}
	at := dir.Attempt(e.ID, 1)
	if err := os.MkdirAll(at, 0o700); err != nil {
		t.Fatal(err)
	}
	patch := "diff --git \"a/" + quoted(payload) + "\" \"b/" + quoted(payload) + "\"\n--- \"a/" + quoted(payload) + "\"\n+++ \"b/" + quoted(payload) +
		"\"\n@@ -1,2 +1,2 @@ " + payload + "\n " + payload + "\n-" + payload + "\n+" + payload + word + "\n"
	if err := os.WriteFile(filepath.Join(at, "changes.patch"), []byte(patch), 0o600); err != nil {
		t.Fatal(err)
	}
	outcome := job.Outcome{
		State: job.RunFailed, Class: payload, Message: payload, Hint: payload, Answer: payload + word, Session: payload, Signal: payload,
		Commands: []job.CommandRun{{Command: payload}}, Files: []job.FileChange{{Path: payload, Change: payload}}, DiffStat: payload,
		Artifacts: []job.Artifact{{Name: "patch", Path: filepath.Join(at, "changes.patch"), Bytes: int64(len(patch))}, {Name: payload, Path: payload}},
		Denied:    []string{payload}, LeftBehind: []string{payload}, Report: map[string]float64{payload: 0.5}, StartedAt: now, EndedAt: now.Add(time.Second),
	}
	if err := s.Apply(t.Context(),
		queue.Begin{ID: e.ID, Fence: e.Fence, Attempt: job.Attempt{Number: 1, Choice: job.Choice{Worker: payload, Model: payload}, State: job.Pending, Started: now}},
		queue.Move{ID: e.ID, Fence: e.Fence, Attempt: 1, To: job.Running, Session: payload},
		queue.Append{Events: events},
		queue.Finish{ID: e.ID, Fence: e.Fence, Attempt: 1, Now: now.Add(time.Second), Outcome: outcome, Exit: job.ExitFailed, DeadLetter: payload},
	); err != nil {
		t.Fatal(err)
	}
	return []string{string(e.ID)}
}

// quoted returns a name as git has it within quotes.
func quoted(name string) string {
	text, _ := json.Marshal(name) // a string is always JSON
	return strings.ReplaceAll(strings.Trim(string(text), `"`), `\u00`, `\0`)
}
