package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/node"
	"github.com/agentsched/agentsched/internal/parcel"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// problem is an error that is answered as it is.
type problem struct {
	api.Problem
	header http.Header
}

// problemType is the content type of a problem (RFC 9457).
const problemType = "application/problem+json"

func newProblem(name string, status int, format string, args ...any) *problem {
	return &problem{Problem: api.Problem{Type: api.ProblemType + name, Title: title(name), Status: status, Detail: fmt.Sprintf(format, args...)}}
}

// title is the name in words: "not_found" is "Not found".
func title(name string) string {
	return strings.ToUpper(name[:1]) + strings.ReplaceAll(name[1:], "_", " ")
}

// about says what part of the request a problem is about.
func (p *problem) about(location, message string, value any) *problem {
	p.Errors = append(p.Errors, api.FieldProblem{Location: location, Message: message, Value: short(value)})
	return p
}

// short drops a value that is long: the sender knows it, and it may be a prompt.
func short(value any) any {
	if text, ok := value.(string); ok && len(text) > 100 {
		return nil
	}
	return value
}

// invalid is a request that cannot be meant as it is. It gathers all that is wrong.
type invalid struct{ fields []api.FieldProblem }

// badField returns an invalid request of one mistake.
func badField(location, format string, args ...any) *invalid {
	return new(invalid).add(location, format, args...)
}

func (e *invalid) add(location, format string, args ...any) *invalid {
	e.fields = append(e.fields, api.FieldProblem{Location: location, Message: fmt.Sprintf(format, args...)})
	return e
}

// or returns e if anything is wrong.
func (e *invalid) or() error {
	if len(e.fields) == 0 {
		return nil
	}
	return e
}

// Error has a line for each mistake. It names the field, but not a part of the path:
// the message does, and who sent the request may never have seen the path.
func (e *invalid) Error() string {
	lines := make([]string, len(e.fields))
	for i, f := range e.fields {
		lines[i] = f.Message
		if field, ok := strings.CutPrefix(f.Location, "body."); ok {
			lines[i] = field + ": " + f.Message
		} else if f.Location != "" && !strings.HasPrefix(f.Location, "path.") {
			lines[i] = f.Location + ": " + f.Message
		}
	}
	return strings.Join(lines, "\n")
}

// addDetail adds what huma found about a parameter.
func (e *invalid) addDetail(d *huma.ErrorDetail) {
	text := d.Message
	if value, ok := short(d.Value).(string); ok && value != "" {
		text = fmt.Sprintf("is %q: %s", value, text)
	}
	e.fields = append(e.fields, api.FieldProblem{Location: d.Location, Message: text, Value: short(d.Value)})
}

func (e *invalid) problem() *problem {
	p := newProblem("bad_request", http.StatusBadRequest, "%s", e.Error())
	p.Errors = e.fields
	return p
}

// errNoSuch is wrapped where this server has not what a route rests on.
var errNoSuch = errors.New("not here")

// sentinel is what an error of ours is answered with.
type sentinel struct {
	err    error
	name   string
	status int
}

// sentinels are in the order in which they are looked for.
func sentinels() []sentinel {
	return []sentinel{
		{errNoSuch, "not_available", http.StatusNotFound},
		{queue.ErrNotFound, "not_found", http.StatusNotFound},
		{node.ErrUnknown, "no_node", http.StatusNotFound},
		{parcel.ErrUnknown, "no_parcel", http.StatusNotFound},
		{parcel.ErrInvalid, "bad_parcel", http.StatusUnprocessableEntity},
		{parcel.ErrLarge, "too_large", http.StatusRequestEntityTooLarge},
		{parcel.ErrFull, "parcels_full", http.StatusInsufficientStorage},
		{scheduler.ErrNotIsolated, "not_isolated", http.StatusConflict},
		{scheduler.ErrNoComment, "bad_request", http.StatusBadRequest},
		{scheduler.ErrProfile, "profile_changed", http.StatusConflict},
		{scheduler.ErrEnding, "ending", http.StatusServiceUnavailable},
		{scheduler.ErrNoServer, "no_server", http.StatusConflict},
		{scheduler.ErrNoRun, "no_run", http.StatusNotFound},
		{scheduler.ErrRunChanged, "run_changed", http.StatusConflict},
		{queue.ErrTooManyJobs, "too_many_jobs", http.StatusRequestEntityTooLarge},
		{queue.ErrQueueFull, "queue_full", http.StatusTooManyRequests},
		{queue.ErrDeadOwner, "dead_owner", http.StatusConflict},
		{queue.ErrDuplicate, "duplicate", http.StatusConflict},
		{queue.ErrExists, "exists", http.StatusConflict},
		{queue.ErrFenced, "fenced", http.StatusConflict},
		{queue.ErrDeposed, "no_leader", http.StatusServiceUnavailable},
		{statedir.ErrChanged, "no_leader", http.StatusServiceUnavailable}, // another one leads, and has written a document of the leader's
		{queue.ErrUnavailable, "no_database", http.StatusServiceUnavailable},
		{job.ErrIllegalTransition, "illegal_transition", http.StatusConflict},
		{context.Canceled, "interrupted", http.StatusServiceUnavailable},
		{context.DeadlineExceeded, "interrupted", http.StatusServiceUnavailable},
	}
}

// problemOf returns what an error is answered with. An unexpected one is
// logged, since it is a fault of this program.
func (r *router) problemOf(err error, path string) *problem {
	var own *problem
	var bad *invalid
	switch {
	case errors.As(err, &own):
		return own
	case errors.As(err, &bad):
		return bad.problem()
	}
	var carried interface {
		error
		Problem() api.Problem
	}
	if errors.As(err, &carried) {
		p := &problem{Problem: carried.Problem()}
		if h, ok := carried.(interface{ Header() http.Header }); ok {
			p.header = h.Header()
		}
		return p
	}
	var duplicate *queue.DuplicateError
	if errors.As(err, &duplicate) {
		err = duplicate // it says all
	}
	var dead *queue.DeadOwnerError
	if errors.As(err, &dead) {
		err = dead
	}
	for _, known := range sentinels() {
		if !errors.Is(err, known.err) {
			continue
		}
		p := newProblem(known.name, known.status, "%s", err.Error())
		switch known.status {
		case http.StatusServiceUnavailable:
			p.header = http.Header{"Retry-After": {"5"}}
		case http.StatusTooManyRequests:
			p.header = http.Header{"Retry-After": {"60"}}
		}
		return p
	}
	r.log.Error().Err(err).Str("path", path).Msg("request failed")
	return newProblem("internal", http.StatusInternalServerError, "%s", err.Error())
}

// refuse answers a request, of which nothing was answered yet, with an error.
func (r *router) refuse(w http.ResponseWriter, req *http.Request, err error) {
	p := r.problemOf(err, req.URL.Path)
	maps.Copy(w.Header(), p.header)
	w.Header().Set("Content-Type", problemType)
	w.WriteHeader(p.Status)
	if err := json.NewEncoder(w).Encode(p); err != nil {
		r.log.Debug().Err(err).Str("path", req.URL.Path).Msg("answer not sent")
	}
}
