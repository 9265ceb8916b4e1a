package access

import (
	"context"
	"fmt"
	"slices"
)

// Role is what somebody may do. Each may do all that the ones before it may.
type Role string

// The roles, the least first.
const (
	Read    Role = "read"    // look at everything
	Submit  Role = "submit"  // submit jobs
	Operate Role = "operate" // decide, stop, change and grant
)

// Node is the role of a host that runs jobs. It may be that node and nothing else, and nobody
// else may: it is no more and no less than the roles of people.
const Node Role = "node"

// Visitor is the role of who has brought the code of a one-time link alone. It covers nothing: the code is what lets in.
const Visitor Role = "visitor"

// Public is what a route asks for that everybody may have. Nobody has it as a role.
const Public = "public"

// Roles returns the roles of people and programs, the least first.
func Roles() []Role { return []Role{Read, Submit, Operate} }

// ParseRole reads a role of people and programs.
func ParseRole(text string) (Role, error) {
	if r := Role(text); slices.Contains(Roles(), r) {
		return r, nil
	}
	return "", fmt.Errorf("role %q is unknown, want read, submit or operate", text)
}

// ParseTokenRole reads a role that a token may have.
func ParseTokenRole(text string) (Role, error) {
	if Role(text) == Node {
		return Node, nil
	}
	if r, err := ParseRole(text); err == nil {
		return r, nil
	}
	return "", fmt.Errorf("role %q is unknown, want read, submit, operate or node", text)
}

// Covers reports whether who has r may do what asks for need. A role that is
// unknown covers nothing, and nothing covers it.
func (r Role) Covers(need Role) bool {
	if r == Node {
		return need == Node
	}
	want := slices.Index(Roles(), need)
	return want >= 0 && slices.Index(Roles(), r) >= want
}

// Door is the way by which a request came.
type Door string

// The doors.
const (
	Socket  Door = "socket"  // the unix socket of the state directory
	TCP     Door = "tcp"     // a bearer token
	Browser Door = "browser" // a session, over TCP too
)

// Principal is who asks.
type Principal struct {
	// Name is that of the user for the socket, of the token for TCP, and of who
	// asked for the link for a browser.
	Name string
	Role Role
	Door Door
}

type principalKey struct{}

// With returns a context that carries p.
func With(ctx context.Context, p Principal) context.Context {
	return context.WithValue(ctx, principalKey{}, p)
}

// From returns who asks, and false if nobody has said.
func From(ctx context.Context) (Principal, bool) {
	p, ok := ctx.Value(principalKey{}).(Principal)
	return p, ok
}
