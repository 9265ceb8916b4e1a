package workflow

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// environment returns what the expressions of a job are evaluated in, its needs
// having ended.
func (a *Batch) environment(j *Job) *environment {
	jobs := map[string]any{}
	s := status{success: true}
	for _, need := range j.Spec.Flow.Needs {
		i, ok := a.heir[need]
		if !ok {
			continue
		}
		n := &a.jobs[i]
		jobs[string(need)] = a.view(n)
		s.success = s.success && n.succeeded()
	}
	s.failure = a.behind(j, a.failures, stateFailed, stateExpired)
	s.cancelled = a.behind(j, a.cancels, stateCancelled)
	return &environment{vars: map[string]any{"jobs": jobs}, status: s, batch: a, budget: newBudget()}
}

// behind reports whether a need of the job, all of which have ended, ended in one
// of these states, or was skipped because one of its own needs did, and so on.
// known holds the answers for skipped jobs.
func (a *Batch) behind(j *Job, known map[int]bool, states ...string) bool {
	for _, need := range j.Spec.Flow.Needs {
		i, ok := a.heir[need]
		if !ok {
			continue
		}
		n := &a.jobs[i]
		state := n.state()
		if slices.Contains(states, state) {
			return true
		}
		if state != stateSkipped {
			continue
		}
		hit, asked := known[i]
		if !asked {
			known[i] = false // for jobs that need one another
			hit = a.behind(n, known, states...)
			known[i] = hit
		}
		if hit {
			return true
		}
	}
	return false
}

// view returns what an expression sees of a job that has ended.
func (a *Batch) view(j *Job) map[string]any {
	message := j.Message
	if j.Skipped != "" {
		message = j.Skipped
	}
	v := map[string]any{"output": decode(j.Output), "patch": j.Patch, "state": j.state(), "error": message, "error_class": string(j.Class), "metrics": a.metrics(j)}
	files := []any{}
	for _, f := range a.files(j) {
		files = append(files, f)
	}
	v["files"] = files
	return v
}

// files returns what a job has changed, or all parts of a node, each once.
func (a *Batch) files(j *Job) []string {
	if !j.isNode() {
		return j.Files
	}
	var all []string
	seen := map[string]bool{}
	for _, n := range a.parts(j.Spec.Name) {
		for _, f := range a.jobs[n].Files {
			if !seen[f] {
				seen[f] = true
				all = append(all, f)
			}
		}
	}
	return all
}

// with returns the environment with more variables, for a part or a turn of the
// job.
func (e *environment) with(more map[string]any) *environment {
	vars := maps.Clone(e.vars)
	maps.Copy(vars, more)
	return &environment{vars, e.status, e.batch, e.budget.more()}
}

// decode reads a JSON value; whole numbers become int.
func decode(raw json.RawMessage) any {
	if len(raw) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var value any
	if err := d.Decode(&value); err != nil {
		return string(raw)
	}
	return numbers(value)
}

func numbers(value any) any {
	switch v := value.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return int(n)
		}
		f, _ := v.Float64()
		return f
	case []any:
		for i := range v {
			v[i] = numbers(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = numbers(v[k])
		}
	}
	return value
}

// encode writes a value as JSON on one line.
func encode(value any) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil {
		return nil, fmt.Errorf("write as JSON: %w", err)
	}
	return bytes.TrimSpace(b.Bytes()), nil
}
