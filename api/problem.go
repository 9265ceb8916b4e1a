package api

import "strings"

// ProblemType begins the type of every Problem; a name follows, such as
// "not_found". docs/api.md lists the names, which never change their meaning.
const ProblemType = "urn:agentsched:problem:"

// Problem is the body of every answer that is not 2xx (RFC 9457).
type Problem struct {
	// Type is urn:agentsched:problem: and a name. Programs branch on it.
	Type string `json:"type"`
	// Title is the same for all problems of a type.
	Title string `json:"title"`
	// Status is the answer's HTTP status.
	Status int `json:"status"`
	// Detail says what is wrong here, for a person.
	Detail string `json:"detail"`
	// Errors say what is wrong with parts of a request, each by itself.
	Errors []FieldProblem `json:"errors,omitempty"`
}

// FieldProblem is what is wrong with one part of a request.
type FieldProblem struct {
	// Location is where: body.jobs[0].limits.timeout, query.limit,
	// header.Idempotency-Key, or body where no more is known.
	Location string `json:"location"`
	// Message says what is wrong, for a person.
	Message string `json:"message"`
	// Value is what stands there. Absent if it is long.
	Value any `json:"value,omitempty"`
}

// Error returns the detail.
func (p *Problem) Error() string { return p.Detail }

// Name returns the type without its beginning, e.g. "not_found"; "" of an answer
// that names none, as a proxy's.
func (p *Problem) Name() string {
	name, _ := strings.CutPrefix(p.Type, ProblemType)
	return name
}
