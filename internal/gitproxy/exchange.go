package gitproxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
)

// exchange is one request and its answer.
type exchange struct {
	request
	proxy   *Proxy
	w       *counter
	r       *http.Request
	allowed bool
	sent    atomic.Int64
}

func (x *exchange) serve(ctx context.Context) error {
	if !x.proxy.authentic(x.r) {
		return refuse(http.StatusForbidden, "the key of the run is missing or wrong")
	}
	if isLFS(x.r.URL) {
		return refuse(http.StatusNotImplemented, "Git LFS is not passed on to git hosts; set GIT_LFS_SKIP_SMUDGE=1 to go without its files")
	}
	host, rest := split(x.r.URL)
	q, err := parse(x.r.Method, host, rest, x.r.URL.RawQuery)
	if err != nil {
		return &refusal{http.StatusForbidden, err.Error()}
	}
	x.request = q
	if err := x.proxy.check(q); err != nil {
		return err
	}
	x.allowed = true
	select {
	case x.proxy.busy <- struct{}{}:
		defer func() { <-x.proxy.busy }()
	default:
		return refuse(http.StatusTooManyRequests, "this run has %d git requests under way, the most that it may have", cap(x.proxy.busy))
	}
	return x.forward(ctx)
}

// forward asks the host and passes its answer on.
func (x *exchange) forward(ctx context.Context) error {
	var body io.Reader
	limits := x.proxy.config.Limits
	if !x.advertise {
		most := limits.Fetch
		if x.write() {
			most = limits.Push
		}
		if x.r.ContentLength > most {
			return refuse(http.StatusRequestEntityTooLarge, "the request has %d bytes; %d may be sent", x.r.ContentLength, most)
		}
		body = &sending{Reader: http.MaxBytesReader(nil, x.r.Body, most), n: &x.sent}
	}
	for {
		c, kept, err := x.proxy.credential(ctx, x.request)
		if err != nil {
			return err
		}
		out, err := outgoing(ctx, x.request, x.r, body, c)
		if err != nil {
			return err
		}
		resp, err := x.proxy.config.Transport.RoundTrip(out)
		if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
			return refuse(http.StatusRequestEntityTooLarge, "more than %d bytes may not be sent", tooLarge.Limit)
		}
		if err != nil {
			return fmt.Errorf("ask %s: %w", x.host, errors.New(c.redact(err.Error())))
		}
		if resp.StatusCode == http.StatusUnauthorized {
			x.proxy.forget(x.request, c)
			if kept && x.advertise { // it may have expired
				resp.Body.Close()
				continue
			}
		}
		err = x.pass(resp, c)
		resp.Body.Close()
		return err
	}
}

// pass writes the answer of the host to the run.
func (x *exchange) pass(resp *http.Response, c credential) error {
	switch code := resp.StatusCode; {
	case code == http.StatusUnauthorized && c.empty():
		return refuse(http.StatusForbidden, "%s wants a credential for %s, and the scheduler has none; store one with git's own credential helper, outside of the run", x.host, x.path)
	case code == http.StatusUnauthorized:
		// As it is, it would make git look for a credential inside the run.
		return refuse(http.StatusForbidden, "%s refused the scheduler's credential for %s: %s", x.host, x.path, reason(resp, c))
	case code >= 300 && code < 400:
		return x.redirect(resp, c)
	case code != http.StatusOK:
		if code < 400 || code > 599 {
			code = http.StatusBadGateway
		}
		return refuse(code, "%s: %s", x.host, reason(resp, c))
	}
	kind := "application/x-" + x.service + "-result"
	if x.advertise {
		kind = "application/x-" + x.service + "-advertisement"
	}
	if got := resp.Header.Get("Content-Type"); got != kind {
		return refuse(http.StatusBadGateway, "%s does not speak git's smart HTTP protocol for %s", x.host, x.path)
	}
	if resp.Header.Get("Content-Encoding") != "" {
		return refuse(http.StatusBadGateway, "%s answers in an encoding that was not asked for", x.host)
	}
	x.w.Header().Set("Content-Type", kind)
	x.w.Header().Set("Cache-Control", "no-cache")
	x.w.WriteHeader(http.StatusOK)
	secrets, _ := c.secrets()
	masked := &mask{w: x.w, secrets: secrets}
	most := x.proxy.config.Limits.Response
	n, err := io.Copy(masked, io.LimitReader(resp.Body, most))
	if err != nil {
		return fmt.Errorf("pass on what %s sends: %w", x.host, errors.New(c.redact(err.Error())))
	}
	if n == most {
		if more, _ := resp.Body.Read(make([]byte, 1)); more > 0 {
			return fmt.Errorf("%s sends more than %d bytes", x.host, most)
		}
	}
	return masked.flush()
}

// redirect leads git to where the host says, at the proxy.
func (x *exchange) redirect(resp *http.Response, c credential) error {
	location := resp.Header.Get("Location")
	if !x.advertise {
		return refuse(http.StatusBadGateway, "%s redirects a request that cannot be redirected", x.host)
	}
	to, err := redirected(x.request, location)
	if err == nil && c.redact(location) != location {
		err = errors.New("its address holds the credential")
	}
	if err != nil {
		return refuse(http.StatusBadGateway, "%s redirects %s, and that is not followed: %s", x.host, x.path, c.redact(err.Error()))
	}
	if err := x.proxy.check(to); err != nil {
		return refuse(http.StatusForbidden, "%s redirects %s: %v", x.host, x.path, err)
	}
	x.w.Header().Set("Location", to.local())
	x.w.WriteHeader(http.StatusFound)
	return nil
}

// reason returns what a host says about its failure: its status and, of a plain
// text, the beginning.
func reason(resp *http.Response, c credential) string {
	status := fmt.Sprint(resp.StatusCode, " ", http.StatusText(resp.StatusCode))
	if kind, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";"); kind != "text/plain" || resp.Header.Get("Content-Encoding") != "" {
		return status
	}
	const most = 4 << 10
	b, _ := io.ReadAll(io.LimitReader(resp.Body, most+1)) // what came is enough
	if len(b) > most {
		return status // a secret could stand at the end, cut off
	}
	text := strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' || r == 0x7f {
			return -1
		}
		return r
	}, strings.ToValidUTF8(c.redact(string(b)), ""))
	if text = strings.TrimSpace(text); text == "" {
		return status
	}
	return status + ": " + text
}

// answer writes a refusal. Git shows a plain text to its user, and git-lfs the
// message of an object.
func (x *exchange) answer(no *refusal) {
	if isLFS(x.r.URL) {
		x.w.Header().Set("Content-Type", "application/vnd.git-lfs+json")
		x.w.WriteHeader(no.status)
		_ = json.NewEncoder(x.w).Encode(map[string]string{"message": no.text})
		return
	}
	x.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	x.w.WriteHeader(no.status)
	_, _ = io.WriteString(x.w, no.text+"\n")
}

// sending counts what is read of a request.
type sending struct {
	io.Reader
	n *atomic.Int64
}

func (s *sending) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	s.n.Add(int64(n))
	return n, err
}

// counter counts an answer, and hands it out at once: git shows progress.
type counter struct {
	http.ResponseWriter
	control *http.ResponseController
	status  int
	bytes   int64
}

func (c *counter) WriteHeader(status int) {
	c.status = status
	c.ResponseWriter.WriteHeader(status)
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.ResponseWriter.Write(p)
	c.bytes += int64(n)
	if err == nil {
		_ = c.control.Flush()
	}
	return n, err
}
