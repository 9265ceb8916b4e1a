package agentcore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/netutil"

	"github.com/agentsched/agentsched/internal/runmcp"
)

// endpoint is what the core serves one run, on an address of the run's loopback: the way to the network, the models, the
// repositories of its git, the tools by which it uses the scheduler. Whoever asks shows the run's key, which each of the handlers looks at itself: in a loopback that
// is the host's, everybody could ask.
type endpoint struct {
	server  *http.Server
	serving sync.WaitGroup

	proxy  http.Handler // CONNECT, and requests with a whole URL
	git    http.Handler // below /git/; nil serves none
	tools  http.Handler // at runmcp.Path; nil serves none
	models http.Handler // all else; nil serves none
}

// Bounds of what a run can make its endpoint hold.
const (
	maxConnections = 512
	maxHeaderBytes = 64 << 10
	headerTime     = 30 * time.Second
	idleTime       = 2 * time.Minute
)

// listenLoopback opens an endpoint's listener on the host's loopback.
func listenLoopback() (net.Listener, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the run: %w", err)
	}
	return l, nil
}

// newEndpoint returns one that serves nobody yet. Requests have ctx.
func newEndpoint(ctx context.Context) *endpoint {
	p := &endpoint{}
	p.server = &http.Server{
		Handler: p, ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeaderBytes,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    log.New(io.Discard, "", 0), // a run can cause as many lines as it likes
	}
	return p
}

// serve serves at l until close, which closes l.
func (p *endpoint) serve(l net.Listener) {
	p.serving.Go(func() { _ = p.server.Serve(netutil.LimitListener(l, maxConnections)) })
}

// close ends the listeners and every connection that no handler has taken over.
func (p *endpoint) close() error {
	err := p.server.Close()
	p.serving.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// ServeHTTP gives each request to whom it is for.
func (p *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	to := p.models
	switch {
	case r.Method == http.MethodConnect || r.URL.IsAbs():
		to = p.proxy
	case strings.HasPrefix(r.URL.Path, "/git/"):
		to = p.git
	case r.URL.Path == runmcp.Path:
		to = p.tools
	}
	if to == nil {
		http.Error(w, "this run is not served "+r.URL.Path, http.StatusNotFound)
		return
	}
	to.ServeHTTP(w, r)
}
