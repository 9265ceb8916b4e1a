package workflow

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/agentsched/agentsched/job"
)

// validInput says why what a job is given is not what its agent takes. The reader
// of the job file has looked at inputs without expressions; this is for what was
// not known then.
func (b *Batch) validInput(s *job.Spec, input json.RawMessage) error {
	schema := b.inputSchema(s)
	if len(schema) == 0 {
		return nil
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		return fmt.Errorf("read the input schema of agent %s: %w", s.Agent, err)
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	const url = "agent:///input"
	if err := c.AddResource(url, document); err != nil {
		return fmt.Errorf("read the input schema of agent %s: %w", s.Agent, err)
	}
	compiled, err := c.Compile(url)
	if err != nil {
		return fmt.Errorf("read the input schema of agent %s: %w", s.Agent, err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(input))
	if err != nil {
		return fmt.Errorf("is not JSON: %w", err)
	}
	var invalid *jsonschema.ValidationError
	if err := compiled.Validate(value); !errors.As(err, &invalid) {
		return err
	}
	for len(invalid.Causes) > 0 {
		invalid = invalid.Causes[0]
	}
	why := invalid.ErrorKind.LocalizedString(message.NewPrinter(language.English))
	if at := strings.Join(invalid.InstanceLocation, "."); at != "" {
		why = at + ": " + why
	}
	return fmt.Errorf("is not what agent %s takes: %s", s.Agent, why)
}

// inputSchema returns the schema of the job's agent, or nil. A stage of a pipeline
// is given events.
func (b *Batch) inputSchema(s *job.Spec) json.RawMessage {
	if b == nil || b.Workflow == nil || s.Agent == "" {
		return nil
	}
	for _, p := range b.Workflow.Pipelines {
		for _, stage := range p.Stages {
			if stage.Job == s.Name {
				return nil
			}
		}
	}
	for i := range b.Workflow.Agents {
		if p := &b.Workflow.Agents[i]; p.Name == s.Agent {
			return p.Input
		}
	}
	return nil
}

// noLoader refuses references to other documents.
type noLoader struct{}

// Load implements jsonschema.URLLoader.
func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("%s is another document, which is not read", url)
}
