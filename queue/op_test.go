package queue_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// TestSentinels: the errors are told apart, through wrapping, and a refused
// move in the queue is the same error as one in the state tables.
func TestSentinels(t *testing.T) {
	all := []error{queue.ErrIllegalTransition, queue.ErrNotFound, queue.ErrFenced, queue.ErrDuplicate, queue.ErrDeadOwner, queue.ErrExists, queue.ErrNewerVersion, queue.ErrCorrupt}
	for i, a := range all {
		for k, b := range all {
			if got := errors.Is(fmt.Errorf("apply: %w", a), b); got != (i == k) {
				t.Errorf("%v is %v: %v", a, b, got)
			}
		}
	}
	if err := job.Completed.CheckMove(job.Queued); !errors.Is(err, queue.ErrIllegalTransition) {
		t.Errorf("the table's refusal is %v, want %v", err, queue.ErrIllegalTransition)
	}
}

// TestJSON: entries, as the API and the status command print them, say nothing
// about what is not there, and an event stands flat beside its cursor.
func TestJSON(t *testing.T) {
	text, err := json.Marshal(queue.Entry{ID: "x", State: job.Queued, CreatedAt: time.Unix(0, 0).UTC(), RunnableAt: time.Unix(0, 0).UTC()})
	if err != nil {
		t.Fatal(err)
	}
	for _, absent := range []string{"deadline", "lease_until", "fence", "spent", "session", "waiting", "dead_letter", "cancel_requested", "exit_kind", "held", "resolved", "skipped", "result", "approval", "rejections"} {
		if strings.Contains(string(text), `"`+absent+`"`) {
			t.Errorf("%s stands in %s", absent, text)
		}
	}
	text, err = json.Marshal(queue.StoredEvent{Cursor: 7, Event: job.Event{Job: "j", Attempt: 1, Seq: 2, Kind: job.EventText, Text: "hi"}})
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"cursor":7,"job":"j","attempt":1,"seq":2,"time":"0001-01-01T00:00:00Z","kind":"text","text":"hi"}`; string(text) != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
	var back queue.StoredEvent
	if err := json.Unmarshal(text, &back); err != nil || back.Cursor != 7 || back.Text != "hi" {
		t.Errorf("read back %+v, %v", back, err)
	}
}
