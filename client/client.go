package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/agentsched/agentsched/api"
)

// ErrNotRunning: no scheduler listens there.
var ErrNotRunning = errors.New("no scheduler is running on this state directory")

// Client speaks to a running scheduler. It may be used by many goroutines at once.
// The errors of its methods are ErrNotRunning, a *Problem, or tell of the
// connection. Of several schedulers none may lead for a while: what reads, what has an
// Idempotency-Key, and what no leader was given is sent again then, for 20 s at most.
type Client struct {
	http  *http.Client
	base  string // of all URLs, without a slash at its end
	token string
	key   func() string // of a socket; else nil
}

// Options say where a scheduler listens: give Socket or URL.
type Options struct {
	Socket string // path of the socket of a state directory
	// Key is what is sent to the socket: the content of the file KeyFile of the state
	// directory. "" means that it lies beside the socket.
	Key string
	// Else connects to what answers while no scheduler listens at Socket, for each
	// connection anew; nil: nothing does.
	Else  func(context.Context) (net.Conn, error)
	URL   string // e.g. "https://build.example.com:7433"
	Token string // of `scheduler token create`, with URL
	// CAFile is a file of PEM certificates that the server's is signed by; "" means
	// those of the system.
	CAFile string
}

// KeyHeader is the header in which a request at a socket sends the key, and KeyFile
// the name of the file in the state directory that holds it, as that header's line.
const (
	KeyHeader = "Agentsched-Key"
	KeyFile   = "key"
)

// ParseKey reads the content of a KeyFile, or a key alone.
func ParseKey(text string) (key string, ok bool) {
	text = strings.TrimSpace(text)
	if name, value, found := strings.Cut(text, ":"); found {
		if !strings.EqualFold(name, KeyHeader) {
			return "", false
		}
		text = strings.TrimSpace(value)
	}
	return text, text != "" && !strings.ContainsAny(text, " \t\r\n")
}

// maxKey bounds what is read of a KeyFile, in bytes.
const maxKey = 1 << 10

// keyIn returns the key in the file at path, which is read each time: a scheduler
// may have made a new one. Where there is none it is "none", which a scheduler that
// needs one answers with what is missing.
func keyIn(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return "none"
	}
	defer f.Close()
	text, _ := io.ReadAll(io.LimitReader(f, maxKey))
	if key, ok := ParseKey(string(text)); ok {
		return key
	}
	return "none"
}

// New returns a client for the scheduler whose socket is at path, and beside which
// the key lies.
func New(path string) *Client { return atSocket(path, nil) }

// atSocket is New with Options.Else.
func atSocket(path string, instead func(context.Context) (net.Conn, error)) *Client {
	file := filepath.Join(filepath.Dir(path), KeyFile)
	return &Client{base: "http://scheduler", key: func() string { return keyIn(file) }, http: &http.Client{CheckRedirect: stay, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			conn, err := DialSocket(ctx, path)
			if err != nil && instead != nil && errors.Is(unreachable(err), ErrNotRunning) {
				return instead(ctx)
			}
			return conn, err
		},
	}}}
}

// Over returns a client whose requests are sent by t, which knows the scheduler: a handler of the same process, say.
func Over(t http.RoundTripper) *Client {
	return &Client{base: "http://scheduler", http: &http.Client{CheckRedirect: stay, Transport: t}}
}

// Dial returns a client for the scheduler that listens where the options say. It
// does not connect yet. A token is not sent in clear text beyond this machine.
func Dial(o Options) (*Client, error) {
	if (o.Socket == "") == (o.URL == "") {
		return nil, fmt.Errorf("socket is %q and URL is %q, want one of them", o.Socket, o.URL)
	}
	if o.Socket != "" {
		c := atSocket(o.Socket, o.Else)
		if o.Key != "" {
			key, ok := ParseKey(o.Key)
			if !ok {
				return nil, fmt.Errorf("key is not one, want the content of the file %s in the state directory", KeyFile)
			}
			c.key = func() string { return key }
		}
		return c, nil
	}
	u, err := url.Parse(o.URL)
	if err != nil {
		return nil, fmt.Errorf("URL: %w", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
		return nil, fmt.Errorf("URL is %q, want one such as https://build.example.com:7433", u.Redacted())
	}
	if err := CheckURL(u); err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy = nil // a proxy would buffer streams, and see what passes
	if o.CAFile != "" {
		pem, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read certificates: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no certificate, want PEM", o.CAFile)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	return &Client{base: u.Scheme + "://" + u.Host, token: o.Token, http: &http.Client{CheckRedirect: stay, Transport: transport}}, nil
}

// CheckURL returns an error where a token would travel in clear text beyond this machine.
func CheckURL(u *url.URL) error {
	if u.Scheme == "http" && !isLoopback(u.Hostname()) {
		return fmt.Errorf("URL is %q, want https beyond this machine: a token must not travel in clear text", u)
	}
	return nil
}

// stay keeps a client from following a redirect, which no route of a scheduler
// makes: the token would go along.
func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Close ends idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// request is what is asked for.
type request struct {
	method, path string
	query        url.Values
	header       map[string]string
	body         any       // sent as JSON, unless it is nil
	raw          io.Reader // sent as it is, in place of body
	size         int64     // of raw, in bytes
}

// get asks for what is at path.
func (c *Client) get(ctx context.Context, path string, query url.Values, result any) error {
	return c.do(ctx, request{method: http.MethodGet, path: path, query: query}, result)
}

// post sends a body.
func (c *Client) post(ctx context.Context, path string, body, result any, options ...SubmitOption) error {
	r := request{method: http.MethodPost, path: path, body: body}
	if len(options) > 0 {
		r.header = map[string]string{}
	}
	for _, o := range options {
		o(&r)
	}
	return c.do(ctx, r, result)
}

// do sends a request and decodes its answer into result, unless that is nil.
func (c *Client) do(ctx context.Context, r request, result any) error {
	resp, err := c.send(ctx, r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("read the scheduler's answer: %w", err)
	}
	if result == nil || len(answer) == 0 {
		return nil
	}
	if err := json.Unmarshal(answer, result); err != nil {
		return fmt.Errorf("read the scheduler's answer: %w", err)
	}
	return nil
}

// send sends a request and returns its answer, which is a good one. The error is
// ErrNotRunning, a *Problem, or tells of the connection. While no scheduler leads that
// could answer, it is sent again where that does nothing twice, for againTime at most.
func (c *Client) send(ctx context.Context, r request) (*http.Response, error) {
	for begun := time.Now(); ; {
		resp, err := c.once(ctx, r)
		if err != nil || resp.StatusCode/100 == 2 {
			return resp, err
		}
		p := problemOf(resp)
		resp.Body.Close()
		wait := retryAfter(resp.Header)
		if !r.again(p, resp.Header) || time.Since(begun)+wait > againTime {
			return nil, p
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, fmt.Errorf("ask the scheduler, which answered that %w: %w", p, context.Cause(ctx))
		}
	}
}

// againTime is how long a request is sent again that nobody has taken: another scheduler
// leads some 10 s after the one before has died.
const againTime = 20 * time.Second

// TakenHeader is "no" in an answer to a request that was given to no leader.
const TakenHeader = "Agentsched-Taken"

// again reports whether the request can be sent again after that answer, and do no more
// than once what it asks for.
func (r *request) again(p *api.Problem, h http.Header) bool {
	if r.raw != nil { // it was read
		return false
	}
	switch p.Name() {
	case "no_leader":
		return r.method == http.MethodGet || r.header[idempotencyKey] != "" || h.Get(TakenHeader) == "no"
	case "no_database":
		return r.method == http.MethodGet
	case "outcome_unknown":
		return r.header[idempotencyKey] != ""
	}
	return false
}

const idempotencyKey = "Idempotency-Key"

// retryAfter returns how long an answer asks to wait; 1 s if it does not say.
func retryAfter(h http.Header) time.Duration {
	seconds, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil || seconds < 0 {
		return time.Second
	}
	return max(time.Duration(seconds)*time.Second, 50*time.Millisecond)
}

// once sends a request and returns its answer, good or not.
func (c *Client) once(ctx context.Context, r request) (*http.Response, error) {
	content := r.raw
	if r.body != nil {
		text, err := json.Marshal(r.body)
		if err != nil {
			return nil, fmt.Errorf("write the request: %w", err)
		}
		content = bytes.NewReader(text)
	}
	target := c.base + r.path
	if len(r.query) > 0 {
		target += "?" + r.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, r.method, target, content)
	if err != nil {
		return nil, err
	}
	switch {
	case r.raw != nil:
		req.ContentLength = r.size
		req.Header.Set("Content-Type", "application/octet-stream")
	case r.body != nil:
		req.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	if c.key != nil {
		req.Header.Set(KeyHeader, c.key())
	}
	for name, value := range r.header {
		req.Header.Set(name, value)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, unreachable(err)
	}
	return resp, nil
}

// unreachable says why there is no answer.
func unreachable(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return ErrNotRunning
	}
	return fmt.Errorf("ask the scheduler: %w", err)
}

// maxProblem bounds what is read of an answer that is no good one, in bytes.
const maxProblem = 1 << 20

func problemOf(resp *http.Response) *api.Problem {
	var p api.Problem
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxProblem))
	if err != nil || json.Unmarshal(answer, &p) != nil || p.Detail == "" {
		p = api.Problem{Title: http.StatusText(resp.StatusCode), Detail: fmt.Sprintf("the scheduler answered %s", resp.Status)}
	}
	p.Status = resp.StatusCode
	return &p
}

// jobPath is the path of a route of the job that ref names.
func jobPath(ref, rest string) string { return "/v1/jobs/" + url.PathEscape(ref) + rest }

// query gathers the parameters that are given.
type query url.Values

func (q query) add(name, value string) query {
	if value != "" {
		url.Values(q).Add(name, value)
	}
	return q
}

func (q query) number(name string, n int64) query {
	if n != 0 {
		url.Values(q).Add(name, fmt.Sprint(n))
	}
	return q
}

func (q query) flag(name string, on bool) query {
	if on {
		url.Values(q).Add(name, "true")
	}
	return q
}

func (q query) time(name string, t time.Time) query {
	if !t.IsZero() {
		url.Values(q).Add(name, t.UTC().Format(time.RFC3339Nano))
	}
	return q
}
