package workflow

import (
	"reflect"

	"github.com/expr-lang/expr/types"

	"github.com/agentsched/agentsched/job"
)

// scope returns what the expressions of a job may name: its needs.
func (c *checker) scope(s *job.Spec) *scope {
	jobs := types.Map{}
	sc := &scope{vars: types.Map{"jobs": jobs}, known: c.known, self: string(s.Name)}
	for _, need := range s.Flow.Needs {
		n := c.byName[need]
		if n == nil {
			continue
		}
		jobs[string(need)] = types.Map{
			"output": c.outputType(n), "patch": types.String, "files": types.Array(types.String), "state": types.String, "error": types.String,
			"error_class": types.String, "metrics": metricTypes(),
		}
		sc.needs = append(sc.needs, string(need))
	}
	return sc
}

// outputType returns the type of jobs.NAME.output.
func (c *checker) outputType(s *job.Spec) types.Type {
	if s.Flow.ForEach != nil {
		return types.Array(c.answerType(s))
	}
	return c.answerType(s)
}

// answerType returns the type of the answer that a job, or one part of it, gives.
func (c *checker) answerType(s *job.Spec) types.Type {
	switch p := c.profiles[s.Agent]; {
	case len(s.Output) > 0:
		return schemaType(s.Output)
	case p != nil && len(p.Output) > 0:
		return schemaType(p.Output)
	}
	return types.String
}

// untilType returns the type of `output` in loop.until: without a schema, an
// answer that is JSON is taken for JSON.
func (c *checker) untilType(s *job.Spec) types.Type {
	if t := c.answerType(s); t != types.String {
		return t
	}
	return types.Any
}

// elementType returns the type of the elements of a list.
func elementType(list types.Type) types.Type {
	n := list.Nature()
	if n.Kind != reflect.Slice {
		return types.Any
	}
	return found{n.Elem(nil)}
}
