package jobfile

import (
	"encoding/json"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/agentsched/agentsched/internal/strictyaml"
	"github.com/agentsched/agentsched/job"
)

// ids are the ids of jobs: a list, or a single one.
type ids struct {
	names []job.Name
}

// DecodeNode reads either form. Whether the ids are right is job.Spec.Validate's
// to say.
func (i *ids) DecodeNode(n *strictyaml.Node) {
	switch {
	case n.IsList():
		n.Decode(&i.names)
		if len(i.names) == 0 {
			n.Failf("is empty, want at least one id of a job, or leave it out")
		}
	case n.IsMapping():
		n.Failf("found a mapping, want a list of ids of jobs")
	default:
		if one, ok := n.Text(); ok {
			i.names = []job.Name{job.Name(one)}
		}
	}
}

// items are a list, or an expression that gives one.
type items struct {
	json json.RawMessage
}

// DecodeNode reads either form.
func (i *items) DecodeNode(n *strictyaml.Node) {
	switch {
	case n.IsList():
		i.json = n.JSON()
		if string(i.json) == "[]" {
			n.Failf("is empty, want at least one item")
		}
	case n.IsText():
		if _, ok := n.Text(); ok {
			i.json = n.JSON()
		}
	case n.IsNull():
		n.Text() // refuses it
	default:
		n.Failf("found %s, want a list or an expression such as ${{ jobs.find.output }}", n.Found())
	}
}

// input is what a job is given; the node tells where its parts stand.
type input struct {
	node *strictyaml.Node
	json json.RawMessage
}

// DecodeNode reads a mapping or a list of anything, or an expression.
func (i *input) DecodeNode(n *strictyaml.Node) {
	switch {
	case n.IsNull(), n.IsText() && n.IsBlank():
		n.Failf("has no value; give one or leave it out")
	case n.IsMapping(), n.IsList(), n.IsText():
		i.node, i.json = n, n.JSON()
	default:
		n.Failf("found %s, want a mapping (name: value), a list, or an expression such as ${{ jobs.find.output }}", n.Found())
	}
}

// hasExpressions reports whether what the job is given is known only when it starts.
func (i *input) hasExpressions() bool { return strings.Contains(string(i.json), "${{") }

// schema is a JSON schema.
type schema struct {
	json     json.RawMessage
	compiled *jsonschema.Schema
}

// DecodeNode reads a schema and checks it.
func (s *schema) DecodeNode(n *strictyaml.Node) {
	switch {
	case n.IsMapping():
		s.json = n.JSON()
		s.compiled = checkSchema(n, s.json)
	case n.IsNull():
		n.Text() // refuses it
	default:
		n.Failf("found %s, want a JSON schema as a mapping", n.Found())
	}
}
