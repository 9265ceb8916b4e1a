package egress

import (
	"context"
	"net/http"
	"net/http/httputil"
	"time"
)

// relay serves a plain request.
func (c *connection) relay(w http.ResponseWriter, r *http.Request) {
	if err := c.dial(); err != nil {
		c.fail(w, err)
		return
	}
	// A client that neither sends nor reads is no reason to go on.
	control := http.NewResponseController(w)
	stop := context.AfterFunc(c.ctx, func() {
		c.server.Close()
		control.SetReadDeadline(time.Now())
		control.SetWriteDeadline(time.Now().Add(answerTime))
	})
	defer stop()
	c.proxy.forward.ServeHTTP(w, r.WithContext(context.WithValue(c.ctx, contextKey{}, c)))
}

// rewrite makes the request to the host. The ReverseProxy has removed the headers that
// are of one hop, Proxy-Authorization among them, and net/http every Host header but
// the URL's host.
func rewrite(r *httputil.ProxyRequest) {
	t := fromContext(r.In.Context()).target
	r.Out.URL.Host = t.String()
	r.Out.Host = r.In.URL.Host
	// Upgrades, h2c's too, are not taken: a server may ignore one (RFC 9110, 7.8).
	r.Out.Header.Del("Upgrade")
	r.Out.Header.Del("Http2-Settings")
	r.Out.Header.Del("Connection")
}
