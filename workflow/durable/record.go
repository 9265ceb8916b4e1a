package durable

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// Space returns the space that holds the steps of a job: one record each, its id
// the key, a Stored its value.
func Space(id job.ID) string { return queue.JobSpace(id, "steps") }

// Stored is a step as it is kept.
type Stored struct {
	ID string `json:"id"`
	// Inputs names what the result was computed from: a hash, "sha256:…", or a
	// short text of the worker's own; "" if the step has none.
	Inputs string          `json:"inputs,omitempty"`
	Result json.RawMessage `json:"result"`
	// Attempt is that of the job which computed it; 0 outside of jobs.
	Attempt int       `json:"attempt,omitempty"`
	At      time.Time `json:"at"`
}

// value is what a record holds of a Stored; the rest is the record's own.
type value struct {
	Inputs  string          `json:"inputs,omitempty"`
	Result  json.RawMessage `json:"result"`
	Attempt int             `json:"attempt,omitempty"`
}

// read returns the step that a record holds.
func read(r queue.Record) (Stored, error) {
	var v value
	if err := json.Unmarshal(r.Value, &v); err != nil {
		return Stored{}, fmt.Errorf("read step %q of %s: %w", r.Key, r.Space, err)
	}
	return Stored{ID: r.Key, Inputs: v.Inputs, Result: v.Result, Attempt: v.Attempt, At: r.At}, nil
}

// matches returns a *CollisionError if the step is not one of these inputs.
func (s *Stored) matches(inputs string) error {
	if s.Inputs == inputs {
		return nil
	}
	return &CollisionError{ID: s.ID, Stored: s.Inputs, Asked: inputs}
}

// CollisionError says that two computations go by one id: what is stored under it
// was computed from other inputs.
type CollisionError struct {
	ID            string
	Stored, Asked string // names of the inputs
}

// Error names the id and both inputs.
func (e *CollisionError) Error() string {
	return fmt.Sprintf("step %q is stored for %s and was asked for with %s: an id names one computation, give the other one another id",
		e.ID, inputsText(e.Stored), inputsText(e.Asked))
}

func inputsText(inputs string) string {
	if inputs == "" {
		return "no inputs"
	}
	return "inputs " + inputs
}

// Hash returns the name of inputs, any value that encodes to JSON: "sha256:" and
// the hash of that JSON, in which the members of objects are sorted. Values that
// encode to the same JSON are the same inputs.
func Hash(inputs any) (string, error) {
	text, err := json.Marshal(inputs)
	if err != nil {
		return "", fmt.Errorf("encode the inputs: %w", err)
	}
	// Once more, since a json.RawMessage keeps the order of its members. Numbers
	// stay as they are written.
	var plain any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&plain); err != nil {
		return "", fmt.Errorf("encode the inputs: %w", err)
	}
	if text, err = json.Marshal(plain); err != nil {
		return "", fmt.Errorf("encode the inputs: %w", err)
	}
	return job.HashStepInputs(text), nil
}
