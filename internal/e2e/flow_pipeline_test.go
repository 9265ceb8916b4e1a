package e2e

// Streaming pipelines: the five stages of examples/web-testing.

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/scriptmodel"
	"github.com/agentsched/agentsched/internal/testrun"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/workflow/pipeline"
)

// streamed returns the events of a pipeline, which must be numbered without gaps.
func (b *bench) streamed(name string) []pipeline.Event {
	b.t.Helper()
	out, errs, code := b.command("pipelines", "events", name, "--json")
	if code != 0 {
		b.fatalf("pipelines events: exit code %d\n%s", code, errs)
	}
	var events []pipeline.Event
	for line := range bytes.Lines([]byte(out)) {
		var e pipeline.Event
		if err := json.Unmarshal(line, &e); err != nil {
			b.t.Fatal(err)
		}
		if e.Seq != int64(len(events)+1) {
			b.fatalf("event %d comes after %d", e.Seq, len(events))
		}
		events = append(events, e)
	}
	return events
}

// finalReport returns what the last stage has published, once.
func (b *bench) finalReport() string {
	b.t.Helper()
	var reports []string
	for _, e := range b.streamed("web-testing") {
		if e.Type == "final_report" {
			reports = append(reports, string(e.Data))
		}
	}
	if len(reports) != 1 {
		b.fatalf("%d final reports: %v", len(reports), reports)
	}
	return reports[0]
}

// TestWebTesting: all of it is killed when each of the five stages has a worker,
// one after the other; the report is that of a run in which nobody died, and in
// which the first stage could not end before the third had begun.
func TestWebTesting(t *testing.T) {
	t.Parallel()
	quiet := newBench(t)
	began := quiet.folder("load-began")
	r := quiet.start("run", quiet.example("web-testing", "pipeline.yaml", func(doc obj) {
		for _, j := range doc["jobs"].([]any) {
			j := j.(obj)
			switch script := j["instructions"].(string); j["id"] {
			case "recon": // the last of its three events has to wait for the third stage
				j["instructions"] = `if grep -q account "$AGENTSCHED_INPUT"; then ` + until(began) + "; fi\n" + script
			case "load":
				j["instructions"] = "touch " + began + "\n" + script
			}
		}
	}))
	r.exit(0)
	want := quiet.finalReport()
	if !strings.Contains(want, `"failed":4`) {
		t.Errorf("the report is %s", want)
	}

	b := newBench(t)
	gate := func(stage string) string { return b.folder("gate-" + stage) }
	file := b.example("web-testing", "pipeline.yaml", func(doc obj) {
		for _, j := range doc["jobs"].([]any) { // none ends its work before it was killed
			j := j.(obj)
			j["instructions"] = until(gate(j["id"].(string))) + "\n" + j["instructions"].(string)
		}
	})
	for _, stage := range []string{"recon", "behavior", "load", "observer", "synthesis"} {
		r := b.start("run", file)
		r.await("a worker of stage "+stage, func(u *api.Update) bool {
			return strings.HasPrefix(string(u.Name), stage+"@") && u.Signal == api.AgentStarted
		})
		r.killAll()
		r.close()
		b.write(gate(stage), "")
	}
	r = b.start("run", file)
	r.exit(0)
	if got := b.finalReport(); got != want {
		t.Errorf("after deaths of all stages the report is\n%s\nand else\n%s", got, want)
	}
	if out, errs, code := b.command("pipelines", "ls", "web-testing"); code != 0 || strings.Count(out, " ended ") != 5 {
		t.Errorf("pipelines ls: exit code %d\n%s%s", code, out, errs)
	}
	b.soundState()
}

// TestWebTestingByAgents: the same stages on the agents' CLIs; the scheduler is
// killed half-way. An event that a stage may not publish goes to its dead letters.
func TestWebTestingByAgents(t *testing.T) {
	testrun.Long(t, "the security audit is played by the real agents as well")
	t.Parallel()
	b := newBench(t)
	b.use("codex", "claude", "opencode")
	stages := []struct{ id, kind, says string }{
		{"recon", "codex", `{"events":[{"type":"page_discovered","data":{"page":"index.html"}},{"type":"sitemap_built","data":{"pages":1}}]}`},
		{"behavior", "claude", `{"events":[{"type":"test_generated","data":{"test":"opens"}}]}`},
		{"load", "opencode", `{"events":[{"type":"load_result","data":{"ok":true}}]}`},
		{"observer", "claude", `{"events":[{"type":"observation_complete","data":{"tests":1}}]}`},
		{"synthesis", "codex", `{"events":[{"type":"final_report","data":{"verdict":"good"}}]}`},
	}
	byID := map[string]obj{}
	for _, s := range stages {
		b.play("m-"+s.id, scriptmodel.Play(scriptmodel.Say(s.says)))
		byID[s.id] = obj{"worker": s.kind, "model": "m-" + s.id}
	}
	file := b.example("web-testing", "pipeline.yaml", func(doc obj) {
		for _, j := range doc["jobs"].([]any) {
			j := j.(obj)
			delete(j, "workspace")
			with(j, byID[j["id"].(string)])
			j["instructions"] = "Handle the events of the input."
			if j["id"] == "recon" {
				j["input"] = []any{obj{"start": "index.html"}}
			}
		}
		for _, s := range doc["pipelines"].([]any)[0].(obj)["stages"].([]any) {
			s.(obj)["batch"] = 64
		}
	})
	r := b.start("run", file)
	r.await("a worker of the third stage", func(u *api.Update) bool {
		return strings.HasPrefix(string(u.Name), "load@") && u.Signal == api.AgentStarted
	})
	r.killAll()
	r.close()
	r = b.start("run", file)
	r.exit(0)
	types := map[job.EventType]int{}
	for _, e := range b.streamed("web-testing") {
		types[e.Type]++
	}
	for _, want := range []job.EventType{"page_discovered", "sitemap_built", "test_generated", "load_result", "observation_complete", "final_report"} {
		if types[want] == 0 {
			t.Errorf("nobody has published %s: %v", want, types)
		}
	}
	b.soundState()
}

// TestUnauthorizedPublish: a stage that publishes what it has not declared is told
// so with each attempt; then its event lies with the dead letters, and the rest
// streams on.
func TestUnauthorizedPublish(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	script := `if grep -q '"bad"' "$AGENTSCHED_INPUT"; then type=other; echo "${AGENTSCHED_FEEDBACK:-}" >> ` + b.folder("feedback") + `; else type=number; fi
printf '{"events":[{"type":"%s","data":1}]}' $type`
	path := b.folder("line.yaml")
	b.write(path, asJSON(t, obj{
		"jobs": []obj{
			with(shell("source", nil, script, obj{"max_attempts": 2}), obj{"input": []string{"good", "bad"}}),
			shell("sink", nil, `printf '{"events":[]}'`, nil),
		},
		"pipelines": []obj{{"id": "line", "stages": []obj{{"job": "source", "publishes": []string{"number"}}, {"job": "sink", "subscribes": []string{"number"}}}}},
	}))
	r := b.start("run", path)
	r.exit(1) // the event that was given up
	out, errs, code := b.command("pipelines", "ls", "line")
	if want := `unauthorized_publish: stage "source" may not publish "other"; it may publish only number`; code != 0 || !strings.Contains(out, want) {
		t.Errorf("pipelines ls: exit code %d\n%s%s", code, out, errs)
	}
	if said := strings.Join(b.lines("feedback"), " "); !strings.Contains(said, "/events/0/type") {
		t.Errorf("the second attempt was told %q", said)
	}
	published := 0
	for _, e := range b.streamed("line") {
		if e.Stage != "" {
			published++
		}
	}
	if published != 1 {
		t.Errorf("%d events were published, want the good one's", published)
	}
	b.soundState()
}
