package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/workflow/durable"
)

// TestReplay tells the story of a workflow of three jobs: the first was completed,
// the second was at its second step when the scheduler was killed, and went on
// from there, with one id taken twice; the third waits.
func TestReplay(t *testing.T) {
	ctx := t.Context()
	m := newTestMain(t, nil)
	o, err := m.local.own(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	store := o.store
	start := time.Now().UTC().Truncate(time.Second).Add(-time.Hour)
	at := func(minutes int) time.Time { return start.Add(time.Duration(minutes) * time.Minute) }
	apply := func(ops ...queue.Op) {
		t.Helper()
		if err := store.Apply(ctx, ops...); err != nil {
			t.Fatal(err)
		}
	}
	b := queue.Batch{ID: job.NewBatchID(), CreatedAt: start}
	var entries []queue.Entry
	for _, name := range []job.Name{"plan", "write", "check"} {
		entries = append(entries, queue.Entry{ID: job.NewID(), CreatedAt: start, RunnableAt: start, Spec: job.Spec{Name: name, Worker: "mine", Flow: job.Flow{Joined: true}}})
	}
	entries[2].Held = job.HeldForNeeds
	if err := store.Enqueue(ctx, b, entries); err != nil {
		t.Fatal(err)
	}
	claim := func(minute int) queue.Entry {
		t.Helper()
		c, err := store.Claim(ctx, queue.ClaimSpec{Holder: "test", Max: 1, Now: at(minute), Lease: time.Hour})
		if err != nil || len(c.Entries) != 1 {
			t.Fatalf("claimed %+v, %v", c, err)
		}
		e := c.Entries[0]
		n := e.Attempts + 1
		apply(queue.Begin{ID: e.ID, Fence: e.Fence, Attempt: job.Attempt{Job: e.ID, Number: n, State: job.Pending, Started: at(minute)}},
			queue.Move{ID: e.ID, Fence: e.Fence, Attempt: n, To: job.Running})
		return e
	}
	finish := func(e queue.Entry, minute int) {
		t.Helper()
		apply(queue.Finish{ID: e.ID, Fence: e.Fence, Attempt: e.Attempts + 1, Now: at(minute), Exit: job.ExitSucceeded, Outcome: job.Outcome{State: job.RunCompleted}})
	}
	keep := func(id string, inputs string, attempt, minute int) {
		t.Helper()
		_, _, err := durable.Keep(ctx, store, durable.Space(entries[1].ID), durable.Stored{ID: id, Inputs: inputs, Result: json.RawMessage(`1`), Attempt: attempt, At: at(minute)})
		if err != nil {
			t.Fatal(err)
		}
	}
	seq := int64(0)
	say := func(attempt int, id string, kept job.Kept, text string) {
		t.Helper()
		seq++
		apply(queue.Append{Events: []job.Event{{Job: entries[1].ID, Attempt: attempt, Seq: seq, Time: start, Kind: job.EventStep, Step: id, Kept: kept, Text: text}}})
	}

	finish(claim(1), 2)
	claim(3)
	keep("zoom", "", 1, 4)
	say(1, "zoom", job.KeptFresh, "")
	keep("aim", "sha256:0123456789abcdef0123456789abcdef", 1, 5) // its event was lost with the scheduler
	apply(queue.Reclaim{Now: at(6), Holders: []string{"test"}, Message: "killed"})
	second := claim(7)
	for _, id := range []string{"aim", "zoom"} {
		say(2, id, job.KeptBefore, "")
	}
	keep("shoot", "film", 2, 8)
	say(2, "shoot", job.KeptFresh, "")
	say(2, "aim", job.KeptRefused, "stored for\nothers")
	say(2, strings.Repeat("x", 501), job.KeptRefused, "too long")
	say(2, "turn", "", "") // no durable one
	finish(second, 9)

	story := func(ref string) (s api.ReplayReport, _ string) {
		t.Helper()
		var text bytes.Buffer
		err := m.at.do(func(p *peer) (err error) {
			if s, err = p.ReplayOf(ctx, ref); err != nil {
				return err
			}
			return printReplay(&text, s)
		})
		if err != nil {
			t.Fatal(err)
		}
		return s, text.String()
	}
	s, text := story("write")
	got, _ := json.Marshal(s.Steps)
	stamp := func(minute int) string { return at(minute).Format(time.RFC3339) }
	want := `[{"id":"zoom","stored_at":"` + stamp(4) + `","attempt":1,"uses":[{"attempt":1,"kept":"fresh"},{"attempt":2,"kept":"store"}]},` +
		`{"id":"aim","inputs":"sha256:0123456789abcdef0123456789abcdef","stored_at":"` + stamp(5) + `","attempt":1,"uses":[{"attempt":1,"kept":"fresh"},{"attempt":2,"kept":"store"},{"attempt":2,"kept":"refused","why":"stored for\nothers"}]},` +
		`{"id":"shoot","inputs":"film","stored_at":"` + stamp(8) + `","attempt":2,"uses":[{"attempt":2,"kept":"fresh"}]},` +
		`{"id":"` + strings.Repeat("x", 501) + `","uses":[{"attempt":2,"kept":"refused","why":"too long"}]}]`
	if string(got) != want {
		t.Errorf("steps\n%s\nwant\n%s", got, want)
	}
	column := func(id string) string { return fmt.Sprintf("%-51s", id) } // as wide as the widest id is cut to
	for _, line := range []string{
		"job write (" + string(entries[1].ID) + "): completed, attempts: 2",
		column("zoom") + "-                          " + at(4).Local().Format(time.DateTime) + "  1        1 fresh, 2 from store",
		column("aim") + "sha256:0123456789abcdef0…  " + at(5).Local().Format(time.DateTime) + "  1        1 fresh, 2 from store, 2 refused  ",
		"\n\nstep aim in attempt 2: stored for\nstep " + strings.Repeat("x", 48) + "… in attempt 2: too long\n\n",
		"\n" + strings.Repeat("x", 48) + "…  -  ",
		"workflow " + string(b.ID) + ", interrupted: once",
		"plan   completed  -       " + at(2).Local().Format(time.DateTime) + "  1         from store",
		"write  completed  -       " + at(9).Local().Format(time.DateTime) + "  2         fresh",
		"check  pending    -       -                    0         -",
	} {
		if !strings.Contains(text, line) {
			t.Errorf("no line %q in\n%s", line, text)
		}
	}
	if s, text := story(string(b.ID)[:30]); s.Job != nil || len(s.Workflow.Jobs) != 3 || !strings.Contains(text, "from store") {
		t.Errorf("of the batch: %s", text)
	}
	if _, text := story("plan"); !strings.Contains(text, "no durable steps") {
		t.Errorf("of a job without steps: %s", text)
	}
	if code, said := sayIn(t, m, "replay", "nonsense"); code != exitFailed || !strings.Contains(said, `job "nonsense"`) {
		t.Errorf("of nothing: %d, %s", code, said)
	}
}
