package pipeline_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/workflow/pipeline"
)

// streamWeb runs the five stages as workers that stream, each anew when it has
// died, and returns the log. A worker dies, before it says anything more, where
// die says so; events counts those that the stage was given.
func streamWeb(t *testing.T, stages *webStages, die func(id job.Name, events int) bool) *pipeline.Log {
	p := webLine()
	for i := range p.Stages {
		p.Stages[i].Streams = true
		p.Stages[i].MaxParallel = 0 // in order: each keeps a state
		p.Stages[i].Buffer = 5
	}
	log := openLog(t, newMemory(), p, 0)
	check(t, log.Seed(t.Context(), []byte(webSeeds), start))
	var all sync.WaitGroup
	for i := range p.Stages {
		id, events := p.Stages[i].ID, 0
		all.Go(func() {
			for {
				err := feed(t.Context(), &pipeline.Feed{Log: log, Stage: id}, func(w *peer) {
					stages.stream(w, p.ID, id, func() bool { events++; return die(id, events) })
				})
				if died := new(pipeline.DiedError); err == nil {
					return
				} else if !errors.As(err, &died) {
					t.Errorf("stage %s: %v", id, err)
					return
				}
			}
		})
	}
	all.Wait()
	return log
}

// stream is a worker that asks the stage's program for each event.
func (w *webStages) stream(p *peer, line, id job.Name, dies func() bool) {
	in := pipeline.Input{Pipeline: line, Stage: id}
	for l, ok := p.read(); ok; l, ok = p.read() {
		switch l.Type {
		case "open":
			in.State = l.State
			continue
		case "event":
			in.Events = []pipeline.Event{{Seq: l.Seq, Type: l.Event, Data: l.Data}}
			if dies() {
				return
			}
		case "end":
			in.Events, in.End = []pipeline.Event{}, true
		}
		text, _ := w.do(in)
		a, err := pipeline.ReadAnswer(text)
		check(w.t, err)
		for _, o := range a.Events {
			p.publish(l.Seq, o.Type, string(o.Data))
		}
		p.ack(l.Seq, string(a.State))
		if in.End {
			return
		}
		if a.State != nil {
			in.State = a.State
		}
	}
}

// TestWebTestingStreamed kills the worker of each stage in turn, at each of its
// events.
func TestWebTestingStreamed(t *testing.T) {
	stages := newWebStages(t)
	report := func(die func(job.Name, int) bool) (died bool) {
		log := streamWeb(t, stages, func(id job.Name, events int) bool {
			if die(id, events) {
				died = true
				return true
			}
			return false
		})
		var reports []string
		for _, e := range readLog(t, log, webLine()) {
			if e.Type == "final_report" {
				reports = append(reports, string(e.Data))
			}
		}
		if len(reports) != 1 || reports[0] != webReport {
			t.Fatalf("reports %s", reports)
		}
		return died
	}
	report(func(job.Name, int) bool { return false })
	for _, s := range webLine().Stages {
		at := 1
		for report(func(id job.Name, events int) bool { return id == s.ID && events == at }) {
			at++
		}
		if at < 4 {
			t.Errorf("stage %s was killed at %d events only", s.ID, at-1)
		}
	}
}

// TestDocumentedLines holds the page's transcript against the Go form.
func TestDocumentedLines(t *testing.T) {
	page, err := os.ReadFile("../../docs/pipelines.md")
	check(t, err)
	_, rest, _ := strings.Cut(string(page), "```transcript\n")
	transcript, _, ok := strings.Cut(rest, "```\n")
	if !ok {
		t.Fatal("the page has no transcript")
	}
	forms := map[string]func() any{
		"> open": func() any { return &pipeline.OpenLine{} }, "> event": func() any { return &pipeline.EventLine{} },
		"> end": func() any { return &pipeline.EndLine{} }, "< publish": func() any { return &pipeline.PublishLine{} },
		"< ack": func() any { return &pipeline.AckLine{} },
	}
	for text := range strings.Lines(transcript) {
		var head struct{ Type string }
		check(t, json.Unmarshal([]byte(text[2:]), &head))
		form := forms[text[:2]+head.Type]
		if head.Type == "result" {
			continue // of the worker protocol
		}
		if form == nil {
			t.Fatalf("no such line: %s", text)
		}
		line := form()
		d := json.NewDecoder(strings.NewReader(text[2:]))
		d.DisallowUnknownFields()
		check(t, d.Decode(line))
		back, err := json.Marshal(line)
		check(t, err)
		if !bytes.Equal(back, []byte(strings.TrimSpace(text[2:]))) {
			t.Errorf("the page has\n%s, we write\n%s", text[2:], back)
		}
	}
}
