package access

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
)

// CallerHeader is the header in which a scheduler that passes a request on says who
// has asked it, a Caller in JSON. Only ByCaller reads it; a Guard removes it.
const CallerHeader = "Agentsched-Caller"

// maxCaller bounds the header, in bytes.
const maxCaller = 4 << 10

// Caller is who has asked another scheduler, as that one's guard has found.
type Caller struct {
	Name   string `json:"name"`
	Role   Role   `json:"role"`
	Door   Door   `json:"door"`
	Remote string `json:"remote"` // ADDRESS:PORT, or "uid N" at the socket
}

// Doors returns all doors.
func Doors() []Door { return []Door{Socket, TCP, Browser} }

// CallerOf returns who asks, as a Guard has found; false if nobody has said.
func CallerOf(ctx context.Context) (Caller, bool) {
	p, ok := From(ctx)
	c := Caller{Name: p.Name, Role: p.Role, Door: p.Door}
	if v, guarded := ctx.Value(visitKey{}).(*visit); guarded {
		c.Remote = v.refusal.Remote
	}
	return c, ok
}

// ParseCaller reads the header.
func ParseCaller(text string) (Caller, error) {
	var c Caller
	if len(text) > maxCaller {
		return c, fmt.Errorf("%s has %d bytes, want at most %d", CallerHeader, len(text), maxCaller)
	}
	dec := json.NewDecoder(bytes.NewReader([]byte(text)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&c); err != nil {
		return c, fmt.Errorf("%s is no caller in JSON: %w", CallerHeader, err)
	}
	if _, err := ParseRole(string(c.Role)); err != nil && c.Role != Visitor {
		return c, fmt.Errorf("%s: %w", CallerHeader, err)
	}
	if !slices.Contains(Doors(), c.Door) {
		return c, fmt.Errorf("%s: door %q is unknown, want one of %v", CallerHeader, c.Door, Doors())
	}
	if c.Name == "" {
		return c, errors.New(CallerHeader + ": name is empty, want who asks")
	}
	return c, nil
}

type passedKey struct{}

// Passed reports whether another scheduler has passed the request of ctx on.
func Passed(ctx context.Context) bool { return ctx.Value(passedKey{}) != nil }

// TakeCaller stands before everything else where other schedulers pass requests on,
// and these alone come: it takes the caller that they name. ByDoor, further in, has the
// guard of the caller's door treat the request as if it had come there.
func TakeCaller(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given := r.Header.Values(CallerHeader)
		if len(given) != 1 {
			refused(badCaller, http.StatusBadRequest, "%s is there %d times, want once: it says for whom a scheduler asks", CallerHeader, len(given)).write(w)
			return
		}
		caller, err := ParseCaller(given[0])
		if err != nil {
			refused(badCaller, http.StatusBadRequest, "%v", err).write(w)
			return
		}
		r = r.WithContext(context.WithValue(r.Context(), passedKey{}, caller))
		r.RemoteAddr = caller.Remote
		next.ServeHTTP(w, r)
	})
}

// passed has next answer a request that another scheduler's guard has let in.
func (g *Guard) passed(w http.ResponseWriter, r *http.Request, caller Caller, next http.Handler) {
	setHeaders(w.Header(), r)
	v := g.visit(r, caller.Door)
	c := &credential{principal: Principal{Name: caller.Name, Role: caller.Role, Door: caller.Door}}
	if refusal := g.limit(v, c, g.settings.Load()); refusal != nil {
		refusal.write(w)
		return
	}
	next.ServeHTTP(w, r.WithContext(context.WithValue(With(r.Context(), c.principal), visitKey{}, v)))
}
