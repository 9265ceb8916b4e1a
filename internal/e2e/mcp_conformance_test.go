package e2e

import (
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"syscall"
	"testing"

	"github.com/agentsched/agentsched/internal/testrun"
)

// TestMCPConformance: the scenarios of the official suite that call nothing by name pass at a scheduler. The suite sends
// no token, so a proxy does. internal/mcp runs all of them at the same handler.
func TestMCPConformance(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.listenTCP()
	operator := b.token("olga", "operate")
	r := b.serve()
	base, link := b.link()
	var own string
	proxy := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(p *httputil.ProxyRequest) {
		p.SetURL(&url.URL{Scheme: "http", Host: link.Host})
		p.Out.Host = p.In.Host
		if p.In.Host == own { // as if it had asked the scheduler itself
			p.Out.Host = link.Host
		}
		if p.In.Header.Get("Origin") == "http://"+own {
			p.Out.Header.Set("Origin", base)
		}
		p.Out.Header.Set("Authorization", "Bearer "+operator)
	}}
	s := httptest.NewServer(proxy)
	defer s.Close()
	own = strings.TrimPrefix(s.URL, "http://")
	for _, scenario := range []string{"server-initialize", "logging-set-level", "ping", "tools-list", "server-sse-multiple-streams", "dns-rebinding-protection"} {
		t.Run(scenario, func(t *testing.T) { testrun.Conformance(t, "../../.cache", s.URL+"/mcp", scenario) })
	}
	s.CloseClientConnections()
	r.signal(syscall.SIGTERM)
	r.exit(0)
}
