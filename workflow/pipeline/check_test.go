package pipeline_test

import (
	"strings"
	"testing"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/workflow/pipeline"
)

func webSpecs() (specs []job.Spec) {
	for _, s := range webLine().Stages {
		specs = append(specs, job.Spec{Name: s.Job, Type: job.WorkerTask})
	}
	return specs
}

func TestCheck(t *testing.T) {
	tests := []struct {
		name string
		edit func(p *job.Pipeline, specs []job.Spec)
		want string // "" none, else all that one problem must say, divided by |
	}{
		{"the example", func(*job.Pipeline, []job.Spec) {}, ""},
		{"nobody publishes it", func(p *job.Pipeline, _ []job.Spec) { p.Stages[2].Subscribes[1] = "flow_maped" },
			`stage "load"|stages[2].subscribes[1]|no earlier stage publishes "flow_maped"|flow_mapped`},
		{"a later stage publishes it", func(p *job.Pipeline, _ []job.Spec) { p.Stages[1].Subscribes[0] = "load_result" },
			`stage "behavior"|stages[1].subscribes[0]|"load_result" (stage "load" does, which comes later)`},
		{"the stage itself publishes it", func(p *job.Pipeline, _ []job.Spec) { p.Stages[1].Subscribes[0] = "flow_mapped" },
			`stage "behavior"|"flow_mapped" (it publishes it itself)`},
		{"the first subscribes", func(p *job.Pipeline, _ []job.Spec) { p.Stages[0].Subscribes = []job.EventType{"page_discovered"} },
			`stage "recon"|stages[0].subscribes[0]|"page_discovered"|the first stage`},
		{"a stage with nothing to do", func(p *job.Pipeline, _ []job.Spec) { p.Stages[4].Subscribes = nil },
			`stage "synthesis"|stages[4].subscribes|is missing|anomaly_detected`},
		{"subscribed twice", func(p *job.Pipeline, _ []job.Spec) { p.Stages[2].Subscribes[1] = "test_generated" },
			`stages[2].subscribes[1]|"test_generated" stands there twice`},
		{"published twice", func(p *job.Pipeline, _ []job.Spec) {
			p.Stages[2].Publishes = append(p.Stages[2].Publishes, "load_result")
		},
			`stages[2].publishes[2]|"load_result" stands there twice`},
		{"the seed published", func(p *job.Pipeline, _ []job.Spec) { p.Stages[4].Publishes[0] = "seed" }, `stage "synthesis"|"seed" is what the first stage is given`},
		{"a type's name", func(p *job.Pipeline, _ []job.Spec) { p.Stages[4].Publishes[0] = "final report" }, `stages[4].publishes[0]|character ' '`},
		{"a duplicate stage", func(p *job.Pipeline, _ []job.Spec) { p.Stages[3].ID = "load" }, `stage "load"|stages[3].id|stages[2]`},
		{"an unknown job", func(p *job.Pipeline, _ []job.Spec) { p.Stages[3].Job = "observe" }, `stage "observer"|stages[3].job|no job "observe"`},
		{"a job of two stages", func(p *job.Pipeline, _ []job.Spec) { p.Stages[3].Job = "load" }, `stage "observer"|"load" is the job of stage "load"`},
		{"a stage's name", func(p *job.Pipeline, _ []job.Spec) { p.Stages[3].ID = "" }, `stages[3].id|is empty`},
		{"the pipeline's name", func(p *job.Pipeline, _ []job.Spec) { p.ID = "web/testing" }, `id|'/' is not allowed`},
		{"no stages", func(p *job.Pipeline, _ []job.Spec) { p.Stages = nil }, `stages|are missing`},
		{"a negative bound", func(p *job.Pipeline, _ []job.Spec) { p.Stages[2].Buffer = -1 }, `stages[2].buffer|-1 is negative`},
		{"a job that loops", func(_ *job.Pipeline, s []job.Spec) { s[2].Flow.Loop = &job.Loop{} }, `stages[2].job|"load" has for_each or loop`},
		{"a job for nobody", func(_ *job.Pipeline, s []job.Spec) { s[2].Type = job.External }, `stages[2].job|EXTERNAL`},
		{"a stream that waits for a person", func(p *job.Pipeline, s []job.Spec) {
			p.Stages[2].Streams, s[2].Flow.Oversight = true, &job.Oversight{}
		}, `stages[2].streams|"load" asks for oversight`},
		{"a stage that waits for another's end", func(_ *job.Pipeline, s []job.Spec) { s[2].Flow.Needs = []job.Name{"recon"} },
			`stage "load"|stages[2].job|"load" needs "recon", the job of stage "recon"`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p, specs := webLine(), webSpecs()
			test.edit(p, specs)
			problems := pipeline.Check(p, specs)
			if test.want == "" {
				if len(problems) > 0 {
					t.Fatalf("problems %v", problems)
				}
				return
			}
			if len(problems) != 1 {
				t.Fatalf("problems %v, want one", problems)
			}
			for part := range strings.SplitSeq(test.want, "|") {
				if text := problems[0].Error(); !strings.Contains(text, part) {
					t.Errorf("the problem %q does not say %q", text, part)
				}
			}
		})
	}
}

// TestCheckWaitsThroughOthers finds a wait that goes through a job of no stage.
func TestCheckWaitsThroughOthers(t *testing.T) {
	p, specs := webLine(), webSpecs()
	specs[3].Flow.Needs = []job.Name{"other"}
	specs = append(specs, job.Spec{Name: "other", Flow: job.Flow{Needs: []job.Name{"recon", "other"}}})
	if problems := pipeline.Check(p, specs); len(problems) != 1 || problems[0].Stage != "observer" {
		t.Errorf("problems %v", problems)
	}
	specs[5].Flow.Needs = nil
	if problems := pipeline.Check(p, specs); len(problems) != 0 {
		t.Errorf("problems %v", problems)
	}
}

func TestSlots(t *testing.T) {
	p := webLine()
	if n := pipeline.Slots(p); n != 1 {
		t.Errorf("%d slots, want 1", n)
	}
	p.Stages[1].Streams, p.Stages[3].Streams = true, true
	if n := pipeline.Slots(p); n != 3 {
		t.Errorf("%d slots, want 3", n)
	}
}

func TestReadAnswer(t *testing.T) {
	tests := []struct {
		text   string
		events int
		state  string
		bad    string
	}{
		{`{"events":[{"type":"a","data":{"x":1}},{"type":"b"}]}`, 2, "", ""},
		{`{}`, 0, "", ""},
		{` {"events":[],"state":null} ` + "\n", 0, "null", ""},
		{"Here it is:\n```json\n{\"events\":[{\"type\":\"a\"}],\"state\":{\"n\":1}}\n```\nDone.", 1, `{"n":1}`, ""},
		{"", 0, "", "no JSON object"},
		{"I found three pages.", 0, "", "I found three pages"},
		{`[{"type":"a"}]`, 0, "", "no JSON object"},
		{`{"events":{"type":"a"}}`, 0, "", "events"},
		{`{"events":[`, 0, "", "unexpected end"},
	}
	for _, test := range tests {
		a, err := pipeline.ReadAnswer(test.text)
		if test.bad != "" {
			if err == nil || !strings.Contains(err.Error(), test.bad) {
				t.Errorf("%q: error %v, want one that says %q", test.text, err, test.bad)
			}
		} else if err != nil || len(a.Events) != test.events || string(a.State) != test.state {
			t.Errorf("%q: %+v, %v", test.text, a, err)
		}
	}
}
