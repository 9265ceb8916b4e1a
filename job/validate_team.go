package job

import (
	"encoding/json"
	"fmt"
	"slices"
)

// Validate returns every rule that w breaks, as far as each team and each agent
// alone tells, with fields such as "teams[0].strategy". What they say about jobs
// and each other is for package workflow, pipelines for workflow/pipeline.
func (w *Workflow) Validate() []*FieldError {
	var errs []*FieldError
	add := func(list string, i int, found []*FieldError) {
		for _, e := range found {
			errs = append(errs, &FieldError{fmt.Sprintf("%s[%d].%s", list, i, e.Field), e.Message})
		}
	}
	for i := range w.Teams {
		add("teams", i, w.Teams[i].Validate())
	}
	for i := range w.Agents {
		add("agents", i, w.Agents[i].Validate())
	}
	return errs
}

// Validate returns every rule that t alone breaks, with fields such as
// "members[1].restart".
func (t *Team) Validate() []*FieldError {
	errs := faults{}
	errs.name("id", t.ID)
	if !slices.Contains(Strategies(), t.Strategy) {
		errs.bad("strategy", "%q is unknown, want one of %s", t.Strategy, joined(Strategies()))
	}
	if t.MaxRestarts < 0 {
		errs.bad("max_restarts", "is %d, want 0 or more", t.MaxRestarts)
	}
	if t.MaxSeconds < 1 {
		errs.bad("max_seconds", "is %d, want 1 or more", t.MaxSeconds)
	}
	if len(t.Members) == 0 {
		errs.bad("members", "are missing, want at least one job or team")
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
		if !slices.Contains(RestartTypes(), m.Restart) {
			errs.bad(at+".restart", "%q is unknown, want one of %s", m.Restart, joined(RestartTypes()))
		}
		if m.Shutdown < 0 {
			errs.bad(at+".shutdown", "%s is negative, want a duration of zero or more", m.Shutdown)
		}
	}
	return errs.list
}

// Validate returns every rule that p alone breaks. Whether a worker is known and
// a schema compiles is checked by those who know about workers and schemas.
func (p *Profile) Validate() []*FieldError {
	errs := faults{}
	if !wordName.MatchString(string(p.Name)) {
		errs.bad("name", "%q is not a name, want 1 to 128 of a-z A-Z 0-9 and, not first, - _ . : / @, such as reviewer", p.Name)
	}
	for i, c := range p.Capabilities {
		if !slices.Contains(Capabilities(), c) {
			errs.bad(fmt.Sprintf("capabilities[%d]", i), "%q is unknown, want one of %s", c, joined(Capabilities()))
		}
	}
	for i, d := range p.Domains {
		if !wordName.MatchString(d) {
			errs.bad(fmt.Sprintf("domains[%d]", i), "%q is not a name, want 1 to 128 of a-z A-Z 0-9 and, not first, - _ . : / @, such as legal", d)
		}
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
	p.Oversight.Validate("oversight", errs.bad)
	domainName("evaluation_domain", p.EvaluationDomain, errs.bad)
	return errs.list
}

// faults collects what is wrong with one thing.
type faults struct {
	list []*FieldError
}

func (f *faults) bad(field, format string, args ...any) {
	f.list = append(f.list, &FieldError{field, fmt.Sprintf(format, args...)})
}

// name wants an id as jobs have it.
func (f *faults) name(field string, name Name) {
	if err := ValidName(string(name)); err != nil {
		f.bad(field, "%v", err)
	}
}
