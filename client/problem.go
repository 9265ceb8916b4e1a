package client

import "strings"

// ProblemType begins the type of every Problem; a name follows, such as
// "not_found". docs/api.md lists the names, which never change their meaning.
const ProblemType = "urn:agentsched:problem:"

// Problem is the body of every answer that is not 2xx (RFC 9457).
type Problem struct {
	Type   string `json:"type"`  // ProblemType and a name; programs branch on it
	Title  string `json:"title"` // the same for all problems of a type
	Status int    `json:"status"`
	Detail string `json:"detail"` // what is wrong here, for a person
	// Errors are what is wrong with parts of a request, each by itself.
	Errors []FieldProblem `json:"errors,omitempty"`
}

// FieldProblem is what is wrong with one part of a request.
type FieldProblem struct {
	// Location is where: "body.jobs[0].limits.timeout", "query.limit",
	// "header.Idempotency-Key", or "body" where no more is known.
	Location string `json:"location"`
	Message  string `json:"message"`
	Value    any    `json:"value,omitempty"` // what stands there; absent if it is long
}

// Error returns the detail.
func (p *Problem) Error() string { return p.Detail }

// Name returns the type without its beginning, e.g. "not_found"; "" of an answer
// that names none, as a proxy's.
func (p *Problem) Name() string {
	name, _ := strings.CutPrefix(p.Type, ProblemType)
	return name
}
