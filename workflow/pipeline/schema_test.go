package pipeline_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/workflow/pipeline"
)

func TestAnswerSchema(t *testing.T) {
	tests := []struct {
		publishes []job.EventType
		answer    string
		ok        bool
	}{
		{[]job.EventType{"a", "b"}, `{"events":[{"type":"a","data":{"x":1}},{"type":"b"}],"state":[1]}`, true},
		{[]job.EventType{"a"}, `{"events":[]}`, true},
		{[]job.EventType{"a"}, `{"events":[{"type":"c"}]}`, false},
		{[]job.EventType{"a"}, `{"events":[{"data":1}]}`, false},
		{[]job.EventType{"a"}, `{"type":"a"}`, false},
		{nil, `{"events":[],"state":7}`, true},
		{nil, `{"events":[{"type":"a"}]}`, false},
	}
	for _, test := range tests {
		text := pipeline.AnswerSchema(&job.Stage{Publishes: test.publishes})
		doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(text)))
		check(t, err)
		c := jsonschema.NewCompiler()
		check(t, c.AddResource("answer.json", doc))
		schema, err := c.Compile("answer.json")
		check(t, err)
		answer, err := jsonschema.UnmarshalJSON(strings.NewReader(test.answer))
		check(t, err)
		if err := schema.Validate(answer); (err == nil) != test.ok {
			t.Errorf("publishes %v, answer %s: %v", test.publishes, test.answer, err)
		}
	}
}

// TestPartIsAJobOfItsOwn looks at what a part takes over from its stage's job.
func TestPartIsAJobOfItsOwn(t *testing.T) {
	r := newLine(t, 1, job.Stage{}, nil)
	m := r.world.(*memory)
	deadline := start.AddDate(0, 0, 1)
	n := &m.jobs[0]
	n.Deadline, n.Spec.Key, n.Spec.OnDuplicate = &deadline, "one", job.Reject
	n.Spec.Flow.Needs, n.Spec.Flow.Oversight = []job.Name{"before"}, &job.Oversight{Mode: job.Supervised}
	n.Resolved = &job.Resolved{Instructions: "look at 7", Verify: "true", Hash: "h"}
	log := openLog(t, m, r.line, 0)
	log.Schema = func(_ *job.Spec, s *job.Stage) json.RawMessage { return pipeline.AnswerSchema(s) }
	_, err := log.Advance(context.Background(), m, start)
	check(t, err)
	e, some, err := m.claim(0)
	check(t, err)
	if !some || e.Spec.Name != job.PartName("source", 1) || e.Batch != r.batch || e.Deadline != &deadline || e.Held != "" {
		t.Fatalf("part %+v", e)
	}
	if s := e.Spec; s.Key != "" || s.OnDuplicate != "" || s.Worker != "shell" || s.Instructions != "work" || !strings.Contains(string(s.Output), "number") {
		t.Errorf("its specification %+v", s)
	}
	if f := e.Spec.Flow; f.Node != "source" || f.Part != 1 || !f.Joined || len(f.Needs) > 0 || len(f.Input) > 0 || f.Oversight == nil {
		t.Errorf("its flow %+v", f)
	}
	if got := e.Resolved; got.Instructions != "look at 7" || got.Verify != "true" || input(t, e).Stage != "source" {
		t.Errorf("resolved %+v", got)
	}
}
