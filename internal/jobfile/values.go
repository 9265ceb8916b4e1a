package jobfile

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/agentsched/agentsched/internal/fields"
	"github.com/agentsched/agentsched/internal/strictyaml"
	"github.com/agentsched/agentsched/job"
)

// jobType is the `type` of a job; what is not for job files is refused here, unknown
// ones by job.Spec.Validate.
type jobType job.Type

// FieldTag lists the types that a file may name.
func (jobType) FieldTag() reflect.StructTag { return fields.Enum(job.Types()...) }

// DecodeNode reads a type.
func (t *jobType) DecodeNode(n *strictyaml.Node) {
	s, ok := n.Text()
	if !ok {
		return
	}
	if job.Type(s) == job.External {
		n.Failf("%s is for programs that enqueue and claim on the socket, want WORKER_TASK, TOOL, LLM, PLUGIN_EVENT or MAINTENANCE", s)
	}
	*t = jobType(s)
}

// payload is a value of any form, which nobody interprets.
type payload struct{ json json.RawMessage }

// DecodeNode reads any value but none.
func (p *payload) DecodeNode(n *strictyaml.Node) {
	if n.IsNull() {
		n.Failf("has no value; give one or leave it out")
		return
	}
	p.json = n.JSON()
}

// choice is "worker" or "worker:model". A model may hold colons itself.
type choice job.Choice

// DecodeNode reads a choice.
func (c *choice) DecodeNode(n *strictyaml.Node) {
	s, ok := n.Text()
	if !ok {
		return
	}
	worker, model, colon := strings.Cut(s, ":")
	if worker == "" || colon && model == "" {
		n.Failf("%q names no worker, want \"worker\" or \"worker:model\"", s)
		return
	}
	*c = choice{Worker: job.WorkerKind(worker), Model: model}
}

// instructions are a text, or the path of a file that holds it.
type instructions struct {
	text string
	file string
}

// DecodeNode reads instructions; the file is read later.
func (i *instructions) DecodeNode(n *strictyaml.Node) {
	if !n.IsMapping() {
		if n.IsText() && n.IsBlank() {
			return // job.Spec.Validate says what is wanted
		}
		if n.IsList() {
			n.Failf("found a list, want a text or {file: path}")
		}
		i.text, _ = n.Text()
		return
	}
	var from struct {
		File string `yaml:"file"`
	}
	n.Decode(&from)
	if i.file = from.File; i.file == "" && !n.HasEntry("file") {
		n.Failf("have neither a text nor a file, want a text or {file: path}")
	}
}

// output is what the answer must be: text, or JSON that a schema describes.
type output struct {
	given  bool // "text" leaves no schema, too
	schema json.RawMessage
}

// DecodeNode reads an output and checks its schema.
func (o *output) DecodeNode(n *strictyaml.Node) {
	o.given = true
	if n.IsMapping() {
		o.schema = n.JSON()
		checkSchema(n, o.schema)
		return
	}
	if n.IsNull() {
		n.Text() // refuses it
		return
	}
	if !n.IsText() || n.IsBlank() {
		n.Failf("found %s, want text, or a JSON schema as a mapping", n.Found())
		return
	}
	if s, _ := n.Text(); s != "text" {
		n.Failf("%q is not an output, want text, or a JSON schema as a mapping", s)
	}
}

// timeOrDuration is a time, or a duration from now.
type timeOrDuration struct {
	text string
}

// DecodeNode reads it; what it means depends on the present.
func (m *timeOrDuration) DecodeNode(n *strictyaml.Node) {
	if !n.IsText() && !n.IsNull() {
		n.Failf("found %s, want %s", n.Found(), aTime)
	}
	m.text, _ = n.Text()
}

const aTime = "a time such as 2030-01-31T18:00:00Z or a duration from now such as 2h"

// resolve returns the time that m means, in UTC; nil if m was not given.
func (m timeOrDuration) resolve(now time.Time) (*time.Time, error) {
	if m.text == "" {
		return nil, nil
	}
	at, err := time.Parse(time.RFC3339, m.text)
	if err != nil {
		var d job.Duration
		if d.UnmarshalText([]byte(m.text)) != nil {
			return nil, fmt.Errorf("%q is not understood, want %s", m.text, aTime)
		}
		at = now.Add(d.Std())
	}
	at = at.UTC()
	return &at, nil
}
