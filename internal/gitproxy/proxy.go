package gitproxy

import (
	"cmp"
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// Config says what a Proxy lets its run do.
type Config struct {
	Allow []Repo
	// Key is what the run shows as a bearer token; "" means that the endpoint has
	// checked the run already.
	Key string
	// Credentials returns what a host wants to see for a repository; "", "" is
	// nothing. path is as the run wrote it, without a leading slash. An answer is
	// kept until the host refuses it. The text of an error does not reach the run.
	Credentials func(ctx context.Context, host, path string) (user, pass string, err error)
	// Transport reaches the hosts; nil is http.DefaultTransport.
	Transport http.RoundTripper
	// Record is called at the end of each request, by several goroutines at once;
	// nil records nothing.
	Record func(Access)
	Limits Limits
}

// Limits bound what a run can make the proxy do. Zero values stand for the
// defaults.
type Limits struct {
	Fetch    int64         // bytes that a run may send in order to fetch, each time: 64 MiB
	Push     int64         // bytes of a push: 2 GiB
	Response int64         // bytes of a host's answer: 8 GiB
	Time     time.Duration // of a request, from its first to its last byte: an hour
	Requests int           // at once: 32
}

// Access is one request of a run, for its record.
type Access struct {
	Host, Path string // "" if the request named no repository
	Write      bool
	Allowed    bool
	Status     int   // that the run got
	Sent       int64 // bytes of the run to the host
	Received   int64 // bytes of the host to the run
	Took       time.Duration
	// Err is why the request was refused or failed. It holds no credential, unless
	// an error of Config.Credentials does.
	Err error
}

// Proxy passes on requests of the git of one run. Its zero value is of no use;
// make it with New.
type Proxy struct {
	config Config
	busy   chan struct{}

	mu    sync.Mutex // guards what follows
	known map[string]credential
}

// New returns a Proxy. The error names an entry of Allow that cannot be meant.
func New(c Config) (*Proxy, error) {
	for _, r := range c.Allow {
		if err := r.check(); err != nil {
			return nil, err
		}
	}
	c.Allow = slices.Clone(c.Allow)
	l := &c.Limits
	l.Fetch, l.Push, l.Response = cmp.Or(l.Fetch, 64<<20), cmp.Or(l.Push, 2<<30), cmp.Or(l.Response, 8<<30)
	l.Time, l.Requests = cmp.Or(l.Time, time.Hour), cmp.Or(l.Requests, 32)
	if c.Transport == nil {
		c.Transport = http.DefaultTransport
	}
	return &Proxy{config: c, busy: make(chan struct{}, l.Requests), known: map[string]credential{}}, nil
}

// refusal is an answer that the run's user reads: git shows it after "remote:".
type refusal struct {
	status int
	text   string
}

func (e *refusal) Error() string { return e.text }

func refuse(status int, format string, args ...any) error {
	return &refusal{status, fmt.Sprintf(format, args...)}
}

// ServeHTTP answers a request below Prefix.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	ctx, stop := context.WithTimeout(r.Context(), p.config.Limits.Time)
	defer stop()
	control := http.NewResponseController(w)
	if end := began.Add(p.config.Limits.Time); control.SetReadDeadline(end) == nil && control.SetWriteDeadline(end) == nil {
		defer control.SetWriteDeadline(time.Time{}) // the connection may serve other requests
	}
	x := &exchange{proxy: p, w: &counter{ResponseWriter: w, control: control}, r: r}
	err := x.serve(ctx)
	begun := x.w.status != 0
	if err != nil && !begun {
		no := &refusal{http.StatusBadGateway, fmt.Sprintf("the git host %s could not be asked; the scheduler's log says why", x.host)}
		errors.As(err, &no)
		x.answer(no)
	}
	if p.config.Record != nil {
		p.config.Record(Access{
			Host: x.host, Path: x.path, Write: x.write(), Allowed: x.allowed, Status: x.w.status,
			Sent: x.sent.Load(), Received: x.w.bytes, Took: time.Since(began), Err: err,
		})
	}
	if err != nil && begun {
		panic(http.ErrAbortHandler) // the run must not take a part for the whole
	}
}

// authentic reports whether a request is the run's.
func (p *Proxy) authentic(r *http.Request) bool {
	key, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return p.config.Key == "" || ok && subtle.ConstantTimeCompare([]byte(key), []byte(p.config.Key)) == 1
}

// check returns why a request is refused.
func (p *Proxy) check(q request) error {
	known := false
	for _, r := range p.config.Allow {
		if r.matches(q.host, q.path) {
			if r.Write || !q.write() {
				return nil
			}
			known = true
		}
	}
	if known {
		return refuse(http.StatusForbidden, "this job may read %s of %s and not push to it; grant it to write", q.path, q.host)
	}
	return refuse(http.StatusForbidden, "this job may not use the git repository %s of %s; grant it to the job", q.path, q.host)
}

// maxKnown bounds the credentials that are kept: of a pattern a run may ask for
// any number of repositories.
const maxKnown = 256

// credential returns that of a repository, and whether it was asked for before.
func (p *Proxy) credential(ctx context.Context, q request) (c credential, kept bool, err error) {
	if p.config.Credentials == nil {
		return c, false, nil
	}
	name := q.host + "/" + q.path
	p.mu.Lock()
	c, kept = p.known[name]
	p.mu.Unlock()
	if kept {
		return c, true, nil
	}
	if c.user, c.pass, err = p.config.Credentials(ctx, q.host, q.path); err != nil {
		return c, false, fmt.Errorf("find the credential for %s of %s: %w", q.path, q.host, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.known) >= maxKnown {
		clear(p.known)
	}
	p.known[name] = c
	return c, false, nil
}

// forget drops a credential that the host has refused.
func (p *Proxy) forget(q request, c credential) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if name := q.host + "/" + q.path; p.known[name] == c {
		delete(p.known, name)
	}
}

var (
	protocolPattern = regexp.MustCompile(`^[a-z0-9=.:-]{1,100}$`)
	agentPattern    = regexp.MustCompile(`^git/[A-Za-z0-9._ ()-]{1,60}$`)
)

// outgoing returns the request to the host, with the headers that the protocol
// needs.
func outgoing(ctx context.Context, q request, in *http.Request, body io.Reader, c credential) (*http.Request, error) {
	out, err := http.NewRequestWithContext(ctx, in.Method, q.url().String(), body)
	if err != nil {
		return nil, err
	}
	out.Header.Set("User-Agent", "git/2.0")
	if agent := in.Header.Get("User-Agent"); agentPattern.MatchString(agent) {
		out.Header.Set("User-Agent", agent)
	}
	if version := in.Header.Get("Git-Protocol"); protocolPattern.MatchString(version) {
		out.Header.Set("Git-Protocol", version)
	}
	if body != nil {
		out.ContentLength = in.ContentLength
		out.Header.Set("Content-Type", "application/x-"+q.service+"-request")
		if in.Header.Get("Content-Encoding") == "gzip" {
			out.Header.Set("Content-Encoding", "gzip")
		}
		out.Header.Set("Accept", "application/x-"+q.service+"-result")
	}
	out.Header.Set("Accept-Encoding", "identity") // else a credential in it could not be seen
	if !c.empty() {
		out.SetBasicAuth(c.user, c.pass)
	}
	return out, nil
}

// redirected returns where a redirect of info/refs leads at the proxy.
func redirected(q request, location string) (request, error) {
	u, err := url.Parse(location)
	if err != nil {
		return request{}, errors.New("its address cannot be read")
	}
	u = q.url().ResolveReference(u)
	if u.Scheme != "https" || u.User != nil {
		return request{}, errors.New("it does not lead to https")
	}
	to, err := parse(http.MethodGet, strings.ToLower(u.Host), strings.TrimPrefix(u.EscapedPath(), "/"), u.RawQuery)
	if err == nil && (!to.advertise || to.service != q.service) {
		err = errors.New("it leads to another service")
	}
	return to, err
}
