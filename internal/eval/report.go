package eval

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/agentsched/agentsched/job"
)

// MaxReport bounds a report, in bytes.
const MaxReport = 1 << 20

// Report is what somebody or something says of a piece of work.
type Report struct {
	Vector
	Comment string `json:"comment,omitempty"`
}

// ReadReport reads a report as a person writes it: a JSON object of dimensions
// and, if wanted, a comment. Anything else in it is refused by name.
func ReadReport(data []byte) (Report, error) {
	var r Report
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&r); err != nil {
		return Report{}, explain(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Report{}, errors.New("there is more after the JSON object of the report")
	}
	return r, r.check()
}

// fromReport reads a job.Outcome's Report.
func fromReport(said map[string]float64) (v Vector, err error) {
	for _, d := range Dimensions() {
		if x, any := said[string(d)]; any {
			v = v.With(d, x)
		}
	}
	return v, v.Validate()
}

// FindReport reads a report as a model writes it: as ReadReport,
// but other fields are passed over, and so is a fence of Markdown around it.
func FindReport(data []byte) (Report, error) {
	text := strings.TrimSpace(string(data))
	if quoted := ""; strings.HasPrefix(text, `"`) && json.Unmarshal([]byte(text), &quoted) == nil {
		text = strings.TrimSpace(quoted) // an answer that is a text, as JSON
	}
	if rest, fenced := strings.CutPrefix(text, "```"); fenced {
		rest = strings.TrimPrefix(rest, "json")
		text = strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "```"))
	}
	var r Report
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return Report{}, explain(err)
	}
	return r, r.check()
}

func (r *Report) check() error {
	if r.Empty() {
		return fmt.Errorf("names no dimension, want at least one of %s", list())
	}
	return r.Validate()
}

func explain(err error) error {
	if typed, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && typed.Field != "" {
		name := typed.Field[strings.LastIndexByte(typed.Field, '.')+1:]
		return &job.FieldError{Field: name, Message: "is a " + typed.Value + ", want a number from 0 to 1"}
	}
	if typed, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf(`is no report in JSON, want e.g. {"quality": 0.9}: it is a JSON %s`, typed.Value)
	}
	if name, unknown := strings.CutPrefix(err.Error(), "json: unknown field "); unknown {
		return &job.FieldError{Field: strings.Trim(name, `"`), Message: "is unknown, want some of " + list() + " and comment"}
	}
	return fmt.Errorf(`is no report in JSON, want e.g. {"quality": 0.9}: %w`, err)
}

func list() string {
	var names []string
	for _, d := range Dimensions() {
		names = append(names, string(d))
	}
	return strings.Join(names, ", ")
}
