package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

// connection is one request's, from its refusal or its dialling to its end.
type connection struct {
	proxy   *Proxy
	request *http.Request
	target  target
	record  Record

	ctx        context.Context // its cause is why the connection was ended
	cancel     context.CancelCauseFunc
	release    func()
	counted    bool // among the proxy's open ones
	unrecorded bool

	server   net.Conn // metered: to the host, or to the upstream proxy
	upstream *url.URL // the proxy that a plain request is sent to; nil: the host itself
	idle     *time.Timer
	up, down atomic.Int64
}

type contextKey struct{}

func fromContext(ctx context.Context) *connection {
	return ctx.Value(contextKey{}).(*connection)
}

// requestTarget reads where a request wants to go.
func requestTarget(r *http.Request) (target, error) {
	if r.Method == http.MethodConnect {
		host, text, err := net.SplitHostPort(r.Host)
		if err != nil {
			return target{}, fmt.Errorf("CONNECT %.100q, want HOST:PORT", r.Host)
		}
		port, err := parsePort(text)
		if err != nil {
			return target{}, fmt.Errorf("CONNECT %.100q: %w", r.Host, err)
		}
		if r.ContentLength != 0 || len(r.TransferEncoding) > 0 {
			return target{}, errors.New("CONNECT with a body; send its bytes through the tunnel")
		}
		return newTarget(host, port)
	}
	switch {
	case r.URL.Scheme == "https":
		return target{}, errors.New("https goes through CONNECT; set HTTPS_PROXY to this proxy's URL")
	case r.URL.Scheme != "http" || r.URL.Host == "":
		return target{}, fmt.Errorf("request for %.100q, want CONNECT HOST:PORT or an http URL", r.URL.Redacted())
	case strings.EqualFold(r.Header.Get("Upgrade"), "websocket"):
		return target{}, errors.New("a plain request cannot be upgraded here; use CONNECT, or wss instead of ws")
	}
	text, port := r.URL.Port(), uint16(80)
	if text != "" || strings.HasSuffix(r.URL.Host, ":") {
		var err error
		if port, err = parsePort(text); err != nil {
			return target{}, err
		}
	}
	return newTarget(r.URL.Hostname(), port)
}

// start lets the connection be metered from now on.
func (c *connection) start(server net.Conn) {
	c.idle = time.AfterFunc(c.proxy.config.Idle, func() { c.cancel(errIdle) })
	c.server = &metered{server, c}
	c.record.Allowed = true
}

// end closes what is open, and records the connection.
func (c *connection) end() {
	if c.idle != nil {
		c.idle.Stop()
	}
	if c.server != nil {
		c.server.Close()
	}
	if cause := context.Cause(c.ctx); c.record.Reason == "" && c.server != nil && isBound(cause) {
		c.record.Reason = cause.Error()
	}
	c.release()
	c.record.Up, c.record.Down = c.up.Load(), c.down.Load()
	c.record.Duration = time.Since(c.record.Start)
	if c.counted { // whoever hears of the record can have the connection's place
		c.proxy.mu.Lock()
		c.proxy.open--
		c.proxy.mu.Unlock()
		defer c.proxy.wg.Done()
	}
	if !c.unrecorded {
		c.proxy.records.add(c.record)
	}
}

// isBound says whether a cause is one of the proxy's own bounds or its end.
func isBound(cause error) bool {
	for _, bound := range []error{errClosed, errIdle, errLifetime, errBytes} {
		if errors.Is(cause, bound) {
			return true
		}
	}
	return false
}

// metered is the connection to a host. It counts bytes and puts the idle end off.
type metered struct {
	net.Conn
	c *connection
}

func (m *metered) Read(b []byte) (int, error) {
	n, err := m.Conn.Read(b)
	return n, m.c.count(&m.c.down, n, err)
}

func (m *metered) Write(b []byte) (int, error) {
	n, err := m.Conn.Write(b)
	return n, m.c.count(&m.c.up, n, err)
}

// count adds n bytes. It returns err, or that there are too many.
func (c *connection) count(direction *atomic.Int64, n int, err error) error {
	if n == 0 {
		return err
	}
	direction.Add(int64(n))
	if c.up.Load()+c.down.Load() > c.proxy.config.MaxBytes {
		c.cancel(errBytes)
		return errBytes
	}
	c.idle.Reset(c.proxy.config.Idle)
	return err
}

// refusal is why there is no connection, as its client is told.
type refusal struct {
	status int
	why    string
	allow  string // the entry of the job's list that would allow it; "" if none would
}

func (e *refusal) Error() string { return e.why }

// because returns why there is no connection, and notes it.
func (c *connection) because(err error) *refusal {
	var r *refusal
	if !errors.As(err, &r) {
		if cause := context.Cause(c.ctx); isBound(cause) {
			err = cause
		}
		if errors.Is(err, context.Canceled) {
			err = errGone
		}
		r = &refusal{status: http.StatusBadGateway, why: err.Error()}
		if timeout := net.Error(nil); errors.Is(err, errIdle) || errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout() {
			r.status = http.StatusGatewayTimeout
		}
	}
	c.record.Reason, c.record.Allow = r.why, r.allow
	return r
}

// fail answers a request that has no answer yet, and notes why.
func (c *connection) fail(w http.ResponseWriter, err error) {
	r := c.because(err)
	text := r.why
	if c.target.name != "" {
		text = c.target.String() + ": " + text
	}
	if r.allow != "" {
		text += fmt.Sprintf("\nTo allow it, write in the job file: network: [%s]", r.allow)
	}
	text += "\n"
	if c.record.Protocol == Connect && r.status != http.StatusProxyAuthRequired {
		// Clients show a tunnel's refusal by its status line alone.
		if client, _, err := http.NewResponseController(w).Hijack(); err == nil {
			client.SetDeadline(time.Now().Add(answerTime))
			line, _, _ := strings.Cut(text, "\n")
			if r.allow != "" {
				line += "; network: [" + r.allow + "] would allow it"
			}
			fmt.Fprintf(client, "HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
				r.status, strings.Map(printable, line), len(text), text)
			client.Close()
			return
		}
	}
	h := w.Header()
	if r.status == http.StatusProxyAuthRequired {
		h.Set("Proxy-Authenticate", `Basic realm="run"`)
	}
	h.Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(r.status)
	fmt.Fprint(w, text)
}

// answerTime is how long a client may take to read a refusal.
const answerTime = 5 * time.Second

// printable keeps a status line to one line of ASCII.
func printable(r rune) rune {
	if r < ' ' || r > '~' {
		return '?'
	}
	return r
}
