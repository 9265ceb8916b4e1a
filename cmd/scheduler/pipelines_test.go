package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/workflow/pipeline"
)

// TestPipelineLetters: dead letters follow the table as one block, and each names
// its class once, whoever gave the event up.
func TestPipelineLetters(t *testing.T) {
	letter := func(seq int64, message string) pipeline.DeadLetter {
		return pipeline.DeadLetter{Stage: "load", Event: pipeline.Event{Seq: seq, Type: "page"}, Class: job.Unknown, Message: message}
	}
	list := []scheduler.Pipeline{{
		ID: "web", Batch: "01a1fcce-6b90", Stages: []scheduler.PipelineStage{{Status: pipeline.Status{Cursor: pipeline.Cursor{Stage: "load"}, Dead: 2}}},
		Letters: []pipeline.DeadLetter{letter(4, "UNKNOWN: no page"), letter(5, "no answer")},
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
