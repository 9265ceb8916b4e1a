package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
)

// TestPipelineLetters: dead letters follow the table as one block, and each names
// its class once, whoever gave the event up.
func TestPipelineLetters(t *testing.T) {
	letter := func(seq int64, message string) api.PipelineLetter {
		return api.PipelineLetter{Stage: "load", Event: api.PipelineEvent{Seq: seq, Type: "page"}, Class: job.Unknown, Message: message}
	}
	list := []api.Pipeline{{
		ID: "web", Batch: "01a1fcce-6b90", Stages: []api.PipelineStage{{Stage: "load", Dead: 2}},
		Letters: []api.PipelineLetter{letter(4, "UNKNOWN: no page"), letter(5, "no answer")},
	}}
	var text bytes.Buffer
	if err := printPipelines(&text, list, time.Now()); err != nil {
		t.Fatal(err)
	}
	want := "\n\nweb: stage load could not handle event 4 (page): UNKNOWN: no page\nweb: stage load could not handle event 5 (page): UNKNOWN: no answer\n"
	if !strings.HasSuffix(text.String(), want) {
		t.Errorf("got\n%s\nwant at its end\n%s", &text, want)
	}
}
