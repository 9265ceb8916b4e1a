package workflow

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/agentsched/agentsched/internal/jsoncheck"
	"github.com/agentsched/agentsched/job"
)

// validInput says why what a job is given is not what its agent takes. The reader
// of the job file has looked at inputs without expressions; this is for what was
// not known then.
func (b *Batch) validInput(s *job.Spec, input json.RawMessage) error {
	text := b.inputSchema(s)
	if len(text) == 0 {
		return nil
	}
	mistakes, err := jsoncheck.Check(text, input)
	switch {
	case errors.Is(err, jsoncheck.ErrNotJSON):
		return fmt.Errorf("is %w", err)
	case err != nil:
		return fmt.Errorf("the input schema of agent %s: %w", s.Agent, err)
	case len(mistakes) == 0:
		return nil
	}
	why := mistakes[0].Why
	if at := strings.Join(mistakes[0].At, "."); at != "" {
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
