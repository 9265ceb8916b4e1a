package terminal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
)

func TestPlain(t *testing.T) {
	var out bytes.Buffer
	v := NewPlain(&out, threeJobs, time.UTC)
	for _, u := range story() {
		v.Show(u)
	}
	v.Done()
	v.Done()
	v.Show(story()[0])
	golden(t, "plain.txt", out.String())
	harmless(t, out.String())
}

// A worker that prints without end, and a permit that is refused ten times a
// second, give a log that can be read.
func TestPlainIsQuiet(t *testing.T) {
	var out bytes.Buffer
	v := NewPlain(&out, threeJobs, time.UTC)
	v.Show(moved(0, threeJobs[0], 1, job.Pending, job.Dispatched, ""))
	for i := range 1000 {
		at := float64(i) / 100
		v.Show(happened(at, threeJobs[0], 1, job.Event{Kind: job.EventText, Text: fmt.Sprint("chunk ", i)}))
		v.Show(moved(at, threeJobs[1], 0, job.Pending, job.Queued, fmt.Sprintf("refused for the %d. time", i)))
	}
	if n := strings.Count(out.String(), "\n"); n > 1+10+1 {
		t.Errorf("%d lines for 10 s:\n%s", n, out.String())
	}
}

// A line comes soon, without an end and without another one.
func TestJSONIsShownSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		v := NewJSON(&out)
		for i, u := range story()[:3] {
			v.Show(u)
			<-time.After(2 * flushAfter)
			synctest.Wait()
			if n := strings.Count(out.String(), "\n"); n != i+1 {
				t.Errorf("%d lines after %d updates", n, i+1)
			}
		}
		v.Done()
	})
}

func TestJSON(t *testing.T) {
	var out bytes.Buffer
	v := NewJSON(&out)
	for _, u := range story() {
		v.Show(u)
	}
	v.Done()
	v.Show(story()[0])
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != len(story()) {
		t.Fatalf("%d lines for %d updates", len(lines), len(story()))
	}
	for i, want := range story() {
		var got api.Update
		if err := json.Unmarshal([]byte(lines[i]), &got); err != nil {
			t.Fatal(err)
		}
		if got.Kind != want.Kind || got.Job != want.Job || !got.Time.Equal(want.Time) {
			t.Errorf("line %d is %s", i, lines[i])
		}
	}
}
