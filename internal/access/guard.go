package access

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/proc"
)

// Settings are what can change while a Guard works.
type Settings struct {
	// Hosts are names that are accepted in Host besides loopback's and the address
	// that was connected to: NAME for any port, or NAME:PORT.
	Hosts []string
	// PerSecond requests, and Burst of them at once, are what a client may send: a
	// principal, or an address that says not who it is. PerSecond 0 is no limit.
	PerSecond float64
	Burst     int
}

// GuardConfig is what a Guard is made of.
type GuardConfig struct {
	Door     Door      // Socket or TCP
	Tokens   *Tokens   // nil: there are none
	Sessions *Sessions // nil: there are none
	Settings Settings
	// Key is what a request at the Socket door has to send; nil: nothing.
	Key *Key
	// Origin judges the process that asks at the Socket door, by many requests at
	// once; nil: none counts as a run's.
	Origin func(proc.Proc) Origin
	// OnRefused is told of refusals, by many requests at once. Of a client that is
	// refused again and again it is told 20 times, and then every 2 s. The context is
	// the request's.
	OnRefused func(context.Context, Refusal)
}

// Guard stands before all handlers of a door. It is safe for concurrent use.
type Guard struct {
	door       Door
	tokens     *Tokens
	sessions   *Sessions
	key        *Key
	origin     func(proc.Proc) Origin
	onRefused  func(context.Context, Refusal)
	protection *http.CrossOriginProtection
	users      users
	requests   *buckets
	refusals   *buckets
	settings   atomic.Pointer[Settings]
}

// NewGuard returns a guard. The error is about its settings or its door.
func NewGuard(c GuardConfig) (*Guard, error) {
	if c.Door != Socket && c.Door != TCP {
		return nil, fmt.Errorf("guard of door %q, want %s or %s", c.Door, Socket, TCP)
	}
	g := &Guard{
		door: c.Door, tokens: c.Tokens, sessions: c.Sessions, key: c.Key, origin: c.Origin, onRefused: c.OnRefused,
		protection: http.NewCrossOriginProtection(), requests: newBuckets(), refusals: newBuckets(),
	}
	return g, g.Set(c.Settings)
}

// Set replaces the settings, from the next request on. On an error, which names the
// field, the old ones stay.
func (g *Guard) Set(s Settings) error {
	hosts, err := checkHosts(s.Hosts)
	if err != nil {
		return err
	}
	if s.PerSecond < 0 || math.IsNaN(s.PerSecond) || math.IsInf(s.PerSecond, 0) {
		return fmt.Errorf("rate per second is %v, want a number of 0 (no limit) or more", s.PerSecond)
	}
	if s.PerSecond > 0 && s.Burst < 1 {
		return fmt.Errorf("burst is %d, want 1 or more", s.Burst)
	}
	s.Hosts = hosts
	g.settings.Store(&s)
	return nil
}

// How many refusals of a client are answered with their reason, and told.
const (
	refusalsBurst = 20
	refusalsEvery = 2 * time.Second
)

type visitKey struct{}

// visit is a request on its way through the guard.
type visit struct {
	guard   *Guard
	ctx     context.Context // of the request
	refusal Refusal         // without Name, Status and Why
	client  string          // the address or the user that it comes from
}

func (g *Guard) visit(r *http.Request, door Door) *visit {
	return &visit{guard: g, ctx: r.Context(), refusal: Refusal{Door: door, Remote: r.RemoteAddr, Method: r.Method, Path: r.URL.Path}, client: clientOf(r.RemoteAddr)}
}

// report tells of a refusal, one of those that are counted together under key. wait
// is how long there have to be no more of them until the next one is told; 0 if this
// one was.
func (v *visit) report(key, name string, status int, why string) (wait time.Duration) {
	wait, missed := v.guard.refusals.take(key, rate.Every(refusalsEvery), refusalsBurst)
	if wait == 0 && v.guard.onRefused != nil {
		r := v.refusal
		r.Name, r.Status, r.Why, r.Unreported = name, status, why, missed
		v.guard.onRefused(v.ctx, r)
	}
	return wait
}

// refuse tells of e, before anybody is known, and returns the answer: e, or that there
// were too many of this client.
func (v *visit) refuse(e *Refused) *Refused { return v.refuseFor(e, e.Error()) }

// refuseFor is refuse with a reason that is not for the client.
func (v *visit) refuseFor(e *Refused, why string) *Refused { return v.refuseAs(e, "", why) }

// refuseAs is refuseFor of somebody who goes by a name.
func (v *visit) refuseAs(e *Refused, name, why string) *Refused {
	if wait := v.report(strings.TrimSpace(v.client+" "+name), name, e.problem.Status, why); wait > 0 {
		return refused(rateLimited, http.StatusTooManyRequests, "too many requests of yours were refused; try again in %s s", seconds(wait)).with("Retry-After", seconds(wait))
	}
	return e
}

// Handler returns next behind the guard. A request that is not refused comes to it
// with its Principal, if it said one; next asks Authorize whether that is enough.
// The request's context ends when what let it in is no longer valid.
func (g *Guard) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Del(CallerHeader) // whoever comes by a door cannot name another
		v := g.visit(r, g.door)
		setHeaders(w.Header(), r)
		c, refusal := g.examine(v, r)
		if refusal != nil {
			refusal.write(w)
			return
		}
		ctx := context.WithValue(r.Context(), visitKey{}, v)
		if c != nil {
			v.refusal.Door = c.principal.Door
			var stop func()
			ctx, stop = c.watch(With(ctx, c.principal))
			defer stop()
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// ByDoor returns next behind the guard of the door that a connection came by, for
// one server on both; what another scheduler passes on (TakeCaller) has come by the
// door of its caller. tcp is nil where nobody listens for TCP.
func ByDoor(socket, tcp *Guard, next http.Handler) http.Handler {
	inside := socket.Handler(next)
	outside := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		refused(forbidden, http.StatusForbidden, "this scheduler is reached by its unix socket alone").write(w)
	}))
	if tcp != nil {
		outside = tcp.Handler(next)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if caller, passed := r.Context().Value(passedKey{}).(Caller); passed {
			g := socket
			if caller.Door != Socket && tcp != nil {
				g = tcp
			}
			g.passed(w, r, caller, next)
		} else if _, unix := r.Context().Value(http.LocalAddrContextKey).(*net.UnixAddr); unix {
			inside.ServeHTTP(w, r)
		} else {
			outside.ServeHTTP(w, r)
		}
	})
}

// credential is what let a request in.
type credential struct {
	principal Principal
	valid     func() bool // still; nil: always
}

// examine returns what lets the request in, nil for a request that says not who
// asks, or why it is refused.
func (g *Guard) examine(v *visit, r *http.Request) (*credential, *Refused) {
	settings := g.settings.Load()
	var c *credential
	if g.door == Socket {
		var e *Refused
		if c, e = g.atSocket(v, r); e != nil {
			return nil, e
		}
	}
	if !ownHost(r, g.door, settings.Hosts) {
		return nil, v.refuse(refused(wrongHost, http.StatusMisdirectedRequest, "Host is %q, which is no name of this scheduler; if it is one, add it to api.hosts in the configuration", r.Host))
	}
	if err := sameSite(g.protection, r); err != nil {
		return nil, v.refuse(refused(crossSite, http.StatusForbidden, "%v", err))
	}
	if g.door != Socket {
		var e *Refused
		if c, e = g.authenticate(v, r); e != nil {
			return nil, e
		}
	}
	return c, g.limit(v, c, settings)
}

// keyless are the paths that need no key at the socket: what watches a scheduler
// asks for them.
var keyless = []string{"/healthz", "/readyz", "/metrics"}

// atSocket returns what lets the process at the other end of the socket in: its
// user, that it is no run's, and the key.
func (g *Guard) atSocket(v *visit, r *http.Request) (*credential, *Refused) {
	var caller *caller
	caller, v.client = callerFrom(r.Context())
	v.refusal.Remote = v.client
	who, e := g.users.admit(caller.peer)
	if e != nil {
		return nil, v.refuse(e)
	}
	from := caller.from(g.origin)
	if from.Run != "" {
		v.refusal.Role = agentRole
		e := refused(runMayNotAsk, http.StatusForbidden, "an agent's run may not ask its scheduler for anything: what is to be done belongs into the job; docs/security.md tells how runs are told from people")
		process := fmt.Sprintf("process %d (%q): %s", caller.process.Pid, caller.process.Comm, from.Run)
		return nil, v.refuseAs(e, agentName, process)
	}
	if g.key == nil {
		return &credential{principal: who}, nil
	}
	sent := r.Header.Values(client.KeyHeader)
	switch {
	case len(sent) == 1 && g.key.opens(sent[0]):
		if caller.elsewhere { // which may be a run's container
			who.Name, who.Role = "key of "+who.Name, Submit
		}
	case len(sent) == 0 && from.Before != nil && from.Before():
	case slices.Contains(keyless, r.URL.Path) && (r.Method == http.MethodGet || r.Method == http.MethodHead):
		who.Role = Read
	default:
		return nil, v.refuse(refused(keyRequired, http.StatusUnauthorized, "the socket needs the key that is in the file %s: send it with `curl -H @%s`, or update the program that asks; docs/security.md tells more", g.key.path, g.key.path).with("WWW-Authenticate", client.KeyHeader))
	}
	return &credential{principal: who}, nil
}

// authenticate reads the bearer token or else the session's cookie. A token that is
// not valid is refused; a session that is over is none.
func (g *Guard) authenticate(v *visit, r *http.Request) (*credential, *Refused) {
	if headers := r.Header.Values("Authorization"); len(headers) > 0 {
		token, ok := bearer(headers)
		if !ok {
			return nil, v.refuse(refused(unauthenticated, http.StatusUnauthorized, "Authorization has not the form \"Bearer TOKEN\"").with("WWW-Authenticate", challenge+`, error="invalid_request"`))
		}
		return g.byToken(r.Context(), v, token)
	}
	if g.sessions == nil {
		return nil, nil
	}
	for _, secret := range sessionSecrets(r) {
		p, err := g.sessions.check(r.Context(), secret, true)
		switch {
		case err == nil:
			return &credential{p, func() bool {
				_, err := g.sessions.check(r.Context(), secret, false)
				return !errors.Is(err, errSession)
			}}, nil
		case !errors.Is(err, errSession):
			e := refused(unavailable, http.StatusServiceUnavailable, "sessions cannot be checked now; the audit log on the scheduler's host says why")
			return nil, v.refuseFor(e, err.Error())
		}
	}
	return nil, nil
}

// bearer reads the Authorization header (RFC 6750, section 2.1).
func bearer(headers []string) (token string, ok bool) {
	if len(headers) != 1 {
		return "", false
	}
	scheme, token, ok := strings.Cut(headers[0], " ")
	token = strings.Trim(token, " ")
	return token, ok && token != "" && strings.EqualFold(scheme, "Bearer")
}

func (g *Guard) byToken(ctx context.Context, v *visit, token string) (*credential, *Refused) {
	err := fmt.Errorf("%w: there are none here", ErrToken)
	var p Principal
	if g.tokens != nil {
		p, err = g.tokens.Check(ctx, token)
	}
	switch {
	case err == nil:
		return &credential{p, func() bool { _, err := g.tokens.Check(ctx, token); return !errors.Is(err, ErrToken) }}, nil
	case errors.Is(err, ErrToken):
		return nil, v.refuse(refused(unauthenticated, http.StatusUnauthorized, "%v; `scheduler token create` makes another", err).with("WWW-Authenticate", challenge+`, error="invalid_token"`))
	}
	// Where the file lies is not for everybody.
	e := refused(unavailable, http.StatusServiceUnavailable, "tokens cannot be checked now; `scheduler token ls` on the scheduler's host says why")
	return nil, v.refuseFor(e, err.Error())
}

// limit takes the request from what its client may send.
func (g *Guard) limit(v *visit, c *credential, s *Settings) *Refused {
	if s.PerSecond == 0 {
		return nil
	}
	key, name := v.client, ""
	if c != nil {
		name = c.principal.Name
		key = string(c.principal.Door) + ":" + name
	}
	wait, missed := g.requests.take(key, rate.Limit(s.PerSecond), s.Burst)
	if wait == 0 {
		return nil
	}
	e := refused(rateLimited, http.StatusTooManyRequests, "more than %v requests per second (%d at once); try again in %s s", s.PerSecond, s.Burst, seconds(wait)).with("Retry-After", seconds(wait))
	if missed == 1 { // the first since one got through
		v.report("rate "+key, name, e.problem.Status, e.Error())
	}
	return e
}

// setHeaders says what browsers are to keep to. What a page may load (CSP) is its
// handler's to say.
func setHeaders(h http.Header, r *http.Request) {
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	if strings.HasPrefix(r.URL.Path, "/v1/") || r.URL.Path == "/metrics" {
		h.Set("Cache-Control", "no-store")
	}
}
