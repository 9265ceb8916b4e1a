package job

import (
	"encoding/json"
	"fmt"

	"github.com/agentsched/agentsched/internal/fields"
)

// Validate returns every rule that w breaks, as far as each team and each agent
// alone tells, with fields such as "teams[0].strategy". What they say about jobs
// and each other is for package workflow, pipelines for workflow/pipeline.
func (w *Workflow) Validate() []*FieldError {
	var errs []*FieldError
	add := func(list string, i int, found []*FieldError) {
		for _, e := range found {
			errs = append(errs, &FieldError{Field: fmt.Sprintf("%s[%d].%s", list, i, e.Field), Message: e.Message})
		}
	}
	for i := range w.Teams {
		add("teams", i, w.Teams[i].Validate())
	}
	for i := range w.Agents {
		add("agents", i, w.Agents[i].Validate())
	}
	for i := range w.Pipelines {
		if w.Pipelines[i].Replays != nil {
			errs = append(errs, &FieldError{Field: fmt.Sprintf("pipelines[%d].replays", i), Message: "is the scheduler's to set; leave it out, and replay a run with POST /v1/pipelines/{pipeline}/runs"})
		}
	}
	return errs
}

// Validate returns every rule that t alone breaks, with fields such as
// "members[1].restart".
func (t *Team) Validate() []*FieldError {
	errs := faults{fields.Check(t, nil)}
	if t.ID != "" {
		errs.name("id", t.ID)
	}
	seen := map[Member]bool{}
	for i, m := range t.Members {
		at := fmt.Sprintf("members[%d]", i)
		who := Member{Job: m.Job, Team: m.Team}
		switch {
		case (m.Job == "") == (m.Team == ""):
			errs.bad(at, "is neither one job nor one team, want {job: ID} or {team: ID}")
		case m.Job != "":
			errs.name(at+".job", m.Job)
		default:
			errs.name(at+".team", m.Team)
		}
		if seen[who] {
			errs.bad(at, "%q is a member already; name each once", m.Job+m.Team)
		}
		seen[who] = true
	}
	return errs.list
}

// Validate returns every rule that p alone breaks. Whether a worker is known and
// a schema compiles is checked by those who know about workers and schemas.
func (p *Profile) Validate() []*FieldError {
	errs := faults{fields.Check(p, nil)}
	if p.Name == "" {
		errs.name("name", "")
	}
	for _, s := range []struct {
		field  string
		schema json.RawMessage
	}{{"input", p.Input}, {"output", p.Output}} {
		if len(s.schema) > 0 && !json.Valid(s.schema) {
			errs.bad(s.field, "is not a JSON schema")
		}
	}
	for i, c := range append([]Choice{{Worker: p.Worker, Model: p.Model}}, p.Fallback...) {
		at := "worker"
		if i > 0 {
			at = fmt.Sprintf("fallback[%d]", i-1)
		}
		if c.Worker != "" {
			if err := ValidWorker(c.Worker); err != nil {
				errs.bad(at, "%v", err)
			}
		}
		if len(c.Model) > maxKey || !OneLine(c.Model) {
			errs.bad(at, "%q is not the name of a model, want one line of at most %d bytes", c.Model, maxKey)
		}
	}
	if p.Worker == "" && (p.Model != "" || len(p.Fallback) > 0) {
		errs.bad("worker", "is missing, want the worker that the model and the fallback belong to")
	}
	p.Oversight.validate("oversight", errs.bad)
	return errs.list
}

// faults collects what is wrong with one thing.
type faults struct {
	list []*FieldError
}

func (f *faults) bad(field, format string, args ...any) {
	f.list = append(f.list, &FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
}

// name wants an id as jobs have it.
func (f *faults) name(field string, name Name) {
	if err := ValidName(string(name)); err != nil {
		f.bad(field, "%v", err)
	}
}
