package access

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"

	"github.com/agentsched/agentsched/api"
)

// Refusal is a request that was refused, for the audit log.
type Refusal struct {
	Door   Door
	Remote string // ADDRESS:PORT, or "uid N" at the socket
	Name   string // of the principal; "" if there was none
	Role   string // of the principal, or "agent" of a run; "" if that is not known
	Method string
	Path   string // without the query, in which a code may stand
	Status int
	Why    string
	// Unreported is how many refusals of the same client went before this one and
	// were not told, since there were too many.
	Unreported int
}

// What an agent's run goes by, whichever it is.
const (
	agentName = "a run"
	agentRole = "agent"
)

// Refused is a request that is not allowed.
type Refused struct {
	problem api.Problem
	header  http.Header
}

// Error returns the problem's detail.
func (e *Refused) Error() string { return e.problem.Detail }

// Problem returns the body of the answer.
func (e *Refused) Problem() api.Problem { return e.problem }

// Header returns what the answer's header has to say besides, e.g.
// WWW-Authenticate. It is nil if that is nothing.
func (e *Refused) Header() http.Header { return e.header }

// write answers with the problem.
func (e *Refused) write(w http.ResponseWriter) {
	maps.Copy(w.Header(), e.header)
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(e.problem.Status)
	json.NewEncoder(w).Encode(e.problem) //nolint:errcheck // nobody is there to be told
}

func refused(kind string, status int, format string, args ...any) *Refused {
	return &Refused{problem: problem(kind, status, fmt.Sprintf(format, args...))}
}

func (e *Refused) with(name, value string) *Refused {
	if e.header == nil {
		e.header = http.Header{}
	}
	e.header.Set(name, value)
	return e
}

const challenge = `Bearer realm="agentsched"`

// Authorize returns nil if the principal of ctx may do what asks for role: read,
// submit, operate, or public, which everybody may. The error is a *Refused: 401
// without a principal, 403 if its role is too low. The request itself is not looked
// at: the Guard has put all that counts into ctx.
func Authorize(ctx context.Context, _ *http.Request, role string) error {
	if role == Public {
		return nil
	}
	p, ok := From(ctx)
	if ok && p.Role.Covers(Role(role)) {
		return nil
	}
	var e *Refused
	if !ok {
		e = refused(unauthenticated, http.StatusUnauthorized, "this needs role %s and the request says not who asks: send \"Authorization: Bearer TOKEN\" with a token of `scheduler token create NAME --role %s`, or log in with the link of `scheduler ui`", role, role).with("WWW-Authenticate", challenge)
	} else {
		e = refused(forbidden, http.StatusForbidden, "this needs role %s, and %s has role %s", role, p.Name, p.Role)
	}
	if v, ok := ctx.Value(visitKey{}).(*visit); ok {
		v.report("role "+p.Name+" "+v.client, p.Name, e.problem.Status, e.problem.Detail)
	}
	return e
}

// Me answers GET /v1/me.
func Me(w http.ResponseWriter, r *http.Request) {
	if err := Authorize(r.Context(), r, string(Read)); err != nil {
		err.(*Refused).write(w)
		return
	}
	p, _ := From(r.Context())
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(api.Me{Name: p.Name, Role: string(p.Role), Door: string(p.Door)}) //nolint:errcheck // nobody is there to be told
}
