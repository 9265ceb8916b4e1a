package gateway

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/agentsched/agentsched/internal/gateway/credential"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/permit"
)

// Gateway gives runs their model endpoints. Its methods may be called from several goroutines.
type Gateway struct {
	config    Config
	providers []*provider
	transport http.RoundTripper
	own       *http.Transport // nil if the transport is the caller's
	buffers   sync.Pool       // of *[]byte, for relay

	tasks sync.WaitGroup // refreshes of logins

	mu       sync.Mutex // guards what follows
	closed   bool
	sessions map[*Session]bool
}

// provider is a Provider with what is known of it.
type provider struct {
	Provider
	base *url.URL
	keys []*key
}

// ErrClosed is the error of what is asked of a gateway after Close.
var ErrClosed = errors.New("the gateway is closed")

// New returns a gateway, or all mistakes of the configuration. It starts nothing.
func New(c Config) (*Gateway, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("configure the gateway: %w", err)
	}
	if c.MaxBody <= 0 {
		c.MaxBody = DefaultMaxBody
	}
	g := &Gateway{config: c, transport: c.Transport, sessions: map[*Session]bool{}}
	g.buffers.New = func() any { b := make([]byte, relayBuffer); return &b }
	if g.transport == nil {
		g.own = transport()
		g.transport = g.own
	}
	for _, configured := range c.Providers {
		base, err := baseURL(configured.BaseURL)
		if err != nil {
			return nil, err
		}
		p := &provider{Provider: configured, base: base}
		for i, k := range configured.Keys {
			if k.Login != nil && k.Login.Kind == credential.CodexLogin {
				p.NoOutputLimit = true // ChatGPT's endpoint knows no max_output_tokens
			}
			p.keys = append(p.keys, newKey(g, k, fmt.Sprintf("%s/%d", configured.Name, i+1)))
		}
		if len(p.keys) == 0 {
			p.keys = []*key{newKey(g, credential.Key{}, configured.Name)} // it puts nothing in
		}
		g.providers = append(g.providers, p)
	}
	return g, nil
}

// transport is made for streams of many runs to few hosts: HTTP/2 where there is, else a connection each that is kept. It
// neither decompresses nor, as any Transport, follows redirects.
func transport() *http.Transport {
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true,
		MaxIdleConnsPerHost:    64,
		IdleConnTimeout:        90 * time.Second,
		TLSHandshakeTimeout:    10 * time.Second,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: 256 << 10,
		WriteBufferSize:        64 << 10, // requests are large
		ReadBufferSize:         relayBuffer,
	}
}

// RunConfig is what a run may do.
type RunConfig struct {
	// Permit is what the run was granted, in use: each request reserves its worst case in it and is charged to it.
	Permit *permit.Permit
	// RatedAs stands before the name of a model, as in anthropic/claude-opus, where its requests are counted in rates; empty:
	// nothing does.
	RatedAs string
	// Models are patterns of the models that the run may use, in which * stands for any text; empty: any. CLIs ask small
	// models for titles and summaries besides the chosen one: a refusal looks to them like a model that the key has no
	// access to (404), and their run goes on without the title.
	Models []string
	// Providers are the names of those that it may use, in the order of preference; empty: all.
	Providers []string
	// HostedTools allows what the provider itself does for a request beyond the model: searching the web, running code,
	// fetching a URL, going on with a conversation that it has stored. Charges for these beyond tokens are not seen.
	HostedTools bool

	// What follows is told from the goroutines of requests, one call at a time. A function must not wait for the session,
	// such as by Close. Each may be nil.
	Charge   func(Charge)
	Exceeded func(*permit.Stop) // a request was refused for lack of budget: the run is to be stopped
	Denied   func(what string)  // the run tried what it may not; each thing is told once, maxDenials at most
	Limited  func(Limited)      // the provider refuses all keys for now
}

// Charge is what a request has used since the Charge before it.
type Charge struct {
	Provider, Model string
	// Usage has the tokens and, if there is a price, the cost. Tokens that turn out fewer than were charged are not given
	// back.
	Usage job.Usage
	// Estimated says that the provider did not say how much it was: a stream was cut, or the answer held no usage.
	Estimated bool
	Last      bool // nothing more comes of this request
}

// Limited says that a provider takes no request for a model before a time.
type Limited struct {
	Provider, Model string
	Until           time.Time
	// Account says that all of the account is used up, such as a subscription's five hours or prepaid credit: not only a
	// rate of requests.
	Account bool
	Message string // the provider's own, without secrets; at most 500 bytes
}

// Open returns the session of a run. Close must be called when the run has ended.
func (g *Gateway) Open(c RunConfig) (*Session, error) {
	var providers []*provider
	for _, name := range c.Providers {
		i := slices.IndexFunc(g.providers, func(p *provider) bool { return p.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("open a session at the gateway: provider %q is not configured", name)
		}
		providers = append(providers, g.providers[i])
	}
	if len(c.Providers) == 0 {
		providers = g.providers
	}
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails: see crypto/rand
	s := newSession(g, c, providers, "run-"+base64.RawURLEncoding.EncodeToString(secret))
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, fmt.Errorf("open a session at the gateway: %w", ErrClosed)
	}
	g.sessions[s] = true
	return s, nil
}

// Close closes all sessions and waits for their requests. It may be called twice.
func (g *Gateway) Close() {
	g.mu.Lock()
	g.closed = true
	var open []*Session
	for s := range g.sessions {
		open = append(open, s)
	}
	g.mu.Unlock()
	for _, s := range open {
		s.Close()
	}
	g.tasks.Wait()
	if g.own != nil {
		g.own.CloseIdleConnections()
	}
}

func (g *Gateway) forget(s *Session) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.sessions, s)
}
