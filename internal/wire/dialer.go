package wire

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/coder/websocket"
)

// EventKind is what an Event tells.
type EventKind int

const (
	// Renewed: there is a new session, the first or one in place of another, whose link has ended. What the application at
	// the other end has not acknowledged in its own words has to be said anew.
	Renewed EventKind = iota
	// Resumed: the session goes on with a new connection. Nothing was lost, and nothing has to be done.
	Resumed
	// Cut: the session has lost its connection, or has ended.
	Cut
	// Failed: no address could be reached, or none took the node. It is tried again.
	Failed
)

func (k EventKind) String() string {
	return [...]string{"renewed", "resumed", "cut", "failed"}[k]
}

// Event is something that happened to a Dialer's session.
type Event struct {
	Kind    EventKind
	Link    *Link         // the session; nil in Failed
	Address string        // of the scheduler; empty in Failed
	Err     error         // why, in Cut and Failed
	Retry   time.Duration // after which it is tried again, in Cut and Failed
}

// DialConfig is how a Dialer behaves. A zero value stands for the default, which stands after the semicolon.
type DialConfig struct {
	Limits
	// Addresses are those of the schedulers; see ParseAddresses.
	Addresses []*url.URL
	// Path is added to an address.
	Path string
	// Channels is how many channels a link has: 1 and one for each agentcore.
	Channels int
	// Token returns the bearer token; it is called for each request. nil means none.
	Token func() (string, error)
	// TLS is used for https; nil means the system's roots.
	TLS *tls.Config
	// DialContext makes the connections; nil means TCP, by way of the proxy that the environment names.
	DialContext func(ctx context.Context, network, addr string) (net.Conn, error)
	// Event hears what happens, in order and from the goroutine of Run, which waits for it. nil means nobody.
	Event func(Event)
	// FirstRetry and LastRetry are the bounds of the backoff: before the first try again there is a random wait of up to
	// FirstRetry, twice as long each time, up to LastRetry; 2 s and 30 s.
	FirstRetry, LastRetry time.Duration
}

// ParseAddresses reads a list like "https://a.example:7777,https://b.example:7777".
func ParseAddresses(list string) ([]*url.URL, error) {
	var all []*url.URL
	for i, text := range strings.Split(list, ",") {
		u, err := parseAddress(strings.TrimSpace(text))
		if err != nil {
			return nil, fmt.Errorf("address %d: %w", i+1, err)
		}
		all = append(all, u)
	}
	return all, nil
}

func parseAddress(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("%.200q must be like https://host:port", text)
	}
	return u, nil
}

// Dialer is the end of a link at a node. It keeps one session at a time.
type Dialer struct {
	cfg    DialConfig
	client *http.Client
	first  *url.URL // the address that worked last; nil before
	link   *Link
}

// NewDialer makes a dialer; Run dials. The error says which setting is not right.
func NewDialer(cfg DialConfig) (*Dialer, error) {
	var err error
	if cfg.Limits, err = cfg.orDefaults(); err != nil {
		return nil, err
	}
	cfg.FirstRetry, cfg.LastRetry = cmp.Or(cfg.FirstRetry, 2*time.Second), cmp.Or(cfg.LastRetry, 30*time.Second)
	switch {
	case len(cfg.Addresses) == 0:
		return nil, errors.New("dial: there is no address; name at least one")
	case cfg.Channels < 1 || cfg.Channels > MaxChannels:
		return nil, fmt.Errorf("dial: channels is %d; it must be 1 to %d", cfg.Channels, MaxChannels)
	case cfg.FirstRetry < 0 || cfg.LastRetry < cfg.FirstRetry:
		return nil, fmt.Errorf("dial: the first retry is %v and the last %v; they must grow", cfg.FirstRetry, cfg.LastRetry)
	}
	if cfg.Event == nil {
		cfg.Event = func(Event) {}
	}
	transport := &http.Transport{TLSClientConfig: cfg.TLS.Clone(), DialContext: cfg.DialContext, DisableKeepAlives: true,
		TLSHandshakeTimeout: cfg.Handshake, MaxResponseHeaderBytes: 64 << 10, TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}} // HTTP/1.1 alone has WebSockets here
	if cfg.DialContext == nil {
		transport.Proxy = http.ProxyFromEnvironment
		transport.DialContext = (&net.Dialer{}).DialContext
	}
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return &Dialer{cfg: cfg, client: client}, nil
}

// Run dials, and dials anew, until ctx ends. Then it ends the session, at the other end as well, and returns the cause of ctx.
func (d *Dialer) Run(ctx context.Context) error {
	defer d.client.CloseIdleConnections()
	wait := d.backoff()
	for ctx.Err() == nil {
		c, event, err := d.connect(ctx)
		if ctx.Err() != nil && err != nil {
			break
		}
		if err == nil {
			d.cfg.Event(event)
			began := time.Now()
			if err = d.stay(ctx, c); ctx.Err() != nil {
				break
			}
			if time.Since(began) >= 2*d.cfg.Heartbeat { // it was a good one
				wait.Reset()
			}
		}
		event.Kind, event.Err, event.Retry = Cut, err, wait.NextBackOff()
		if c == nil {
			event.Kind = Failed
		}
		d.cfg.Event(event)
		select {
		case <-time.After(event.Retry):
		case <-ctx.Done():
		}
	}
	if d.link != nil {
		d.link.Close("the node leaves")
		d.link.wait()
	}
	return context.Cause(ctx)
}

// backoff has full jitter: each wait is between nothing and twice its interval, so that nodes that were cut off together
// do not come back together.
func (d *Dialer) backoff() *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(backoff.WithInitialInterval(d.cfg.FirstRetry/2), backoff.WithMaxInterval(d.cfg.LastRetry/2),
		backoff.WithMultiplier(2), backoff.WithRandomizationFactor(1), backoff.WithMaxElapsedTime(0))
}

// stay waits for the end of a connection, and returns why.
func (d *Dialer) stay(ctx context.Context, c *conn) error {
	select {
	case <-c.gone:
		return c.err()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// connect tries the addresses in turn.
func (d *Dialer) connect(ctx context.Context) (*conn, Event, error) {
	addresses := d.cfg.Addresses
	if d.first != nil {
		others := slices.DeleteFunc(slices.Clone(addresses), func(u *url.URL) bool { return *u == *d.first })
		addresses = append([]*url.URL{d.first}, others...)
	}
	var errs []error
	for _, u := range addresses {
		c, event, leader, err := d.try(ctx, u)
		if leader != nil {
			u = leader
			c, event, _, err = d.try(ctx, u) // once: where that one sends us is for the next round
		}
		if err == nil {
			d.first = u
			return c, event, nil
		}
		if errs = append(errs, err); ctx.Err() != nil {
			break
		}
	}
	d.first = nil
	return nil, Event{}, errors.Join(errs...)
}

// try dials one address. leader is where it sends us, if it does.
func (d *Dialer) try(ctx context.Context, u *url.URL) (c *conn, event Event, leader *url.URL, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("dial %s: %w", u, err)
		}
	}()
	ctx, cancel := context.WithTimeoutCause(ctx, d.cfg.Handshake, fmt.Errorf("no answer within %v", d.cfg.Handshake))
	defer cancel()
	asked := d.cfg.Clock()
	header := http.Header{HeaderChannels: {strconv.Itoa(d.cfg.Channels)}, HeaderReceived: {"0"}}
	var told uint64
	if d.link != nil && d.link.Err() == nil {
		told = d.link.Status().Received
		header.Set(HeaderSession, d.link.id)
		header.Set(HeaderReceived, strconv.FormatUint(told, 10))
	}
	if d.cfg.Token != nil {
		token, err := d.cfg.Token()
		if err != nil {
			return nil, event, nil, fmt.Errorf("read the token: %w", err)
		}
		header.Set("Authorization", "Bearer "+token)
	}
	ws, answer, err := websocket.Dial(ctx, u.JoinPath(d.cfg.Path).String(), &websocket.DialOptions{HTTPClient: d.client, HTTPHeader: header, Subprotocols: []string{Protocol}})
	if err != nil {
		leader, err := refusal(u, answer, err)
		if ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
		return nil, event, leader, err
	}
	received, err := parseReceived(answer.Header)
	session := answer.Header.Get(HeaderSession)
	if err == nil && (session == "" || len(session) > 100) {
		err = wrong(HeaderSession, "it is %.40q; it must be an id", session)
	}
	if err == nil && ws.Subprotocol() != Protocol {
		err = wrong("Sec-WebSocket-Protocol", "it is %.80q; it must be %s", ws.Subprotocol(), Protocol)
	}
	if err != nil {
		ws.CloseNow() //nolint:errcheck // nothing was said on it
		return nil, event, nil, err
	}
	event = Event{Kind: Resumed, Address: u.String()}
	if d.link == nil || d.link.id != session {
		if d.link != nil {
			d.link.end(fmt.Errorf("%w: the session is not known at %s", ErrRenewed, u), "")
		}
		d.link = newLink(session, "", d.cfg.Channels, d.cfg.Limits)
		d.link.origin = asked // for Unconfirmed
		event.Kind, told = Renewed, 0
	}
	if c, err = d.link.attach(ws, received, told); err != nil {
		d.link.end(fmt.Errorf("%w: %w", ErrRenewed, err), "") // it cannot go on: the next one is new
		return nil, event, nil, err
	}
	event.Link = d.link
	return c, event, nil, nil
}

// refusal is what an address has answered that did not take us.
func refusal(u *url.URL, answer *http.Response, err error) (leader *url.URL, _ error) {
	if answer == nil {
		return nil, err
	}
	to := answer.Header.Get(HeaderLeader)
	if answer.StatusCode == http.StatusSwitchingProtocols {
		return nil, err
	}
	if to == "" || answer.StatusCode != http.StatusServiceUnavailable && answer.StatusCode/100 != 3 {
		return nil, fmt.Errorf("the answer is %s%s", answer.Status, body(answer))
	}
	leader, err = parseAddress(to)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", HeaderLeader, err)
	case u.Scheme == "https" && leader.Scheme != "https":
		return nil, fmt.Errorf("%s: %s is not https, which the token needs", HeaderLeader, leader)
	case *leader == *u:
		return nil, fmt.Errorf("%s: %s names itself", HeaderLeader, leader)
	}
	return leader, fmt.Errorf("%s leads", leader)
}

// body is the beginning of what was answered, for an error.
func body(answer *http.Response) string {
	if answer.Body == nil {
		return ""
	}
	b := make([]byte, 200)
	n, _ := answer.Body.Read(b) //nolint:errcheck // the library has read it into memory
	if text := strings.TrimSpace(string(b[:n])); text != "" {
		return fmt.Sprintf(": %.200q", text)
	}
	return ""
}
