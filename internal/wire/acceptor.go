package wire

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// Protocol is the WebSocket subprotocol that both ends must speak.
const Protocol = "agentsched-wire-1"

// Headers of the handshake, in the request and in its answer.
const (
	// HeaderSession is the id of the session: absent or unknown in a request for a new one, and what the answer goes on with.
	HeaderSession = "Agentsched-Session"
	// HeaderReceived is the number up to which the sender of the header has received everything; 0 in a new session.
	HeaderReceived = "Agentsched-Received"
	// HeaderChannels is how many channels the node has, 1 to MaxChannels; in the request.
	HeaderChannels = "Agentsched-Channels"
	// HeaderLeader is the address of the scheduler that leads, in the refusal of another one.
	HeaderLeader = "Agentsched-Leader"
)

// AcceptConfig is how an Acceptor behaves. A zero value stands for the default, which stands after the semicolon.
type AcceptConfig struct {
	Limits
	// Keep is for how long a session without a connection is kept; 5 min.
	Keep time.Duration
	// MaxSessions is how many nodes may have one; 4096.
	MaxSessions int
	// MaxChannels is how many channels a node may have, each of which may hold Window bytes here; 64.
	MaxChannels int
}

// Acceptor is the end of the links at a scheduler. It keeps their sessions, one for each node, and ends them with Close.
type Acceptor struct {
	cfg AcceptConfig

	mu     sync.Mutex
	links  map[string]*Link // by node
	closed bool
	wg     sync.WaitGroup // links, until their goroutines have ended
}

// NewAcceptor makes an acceptor without sessions. The error says which setting is out of its bounds.
func NewAcceptor(cfg AcceptConfig) (*Acceptor, error) {
	var err error
	if cfg.Limits, err = cfg.orDefaults(); err != nil {
		return nil, err
	}
	if cfg.Keep == 0 {
		cfg.Keep = 5 * time.Minute
	}
	if cfg.MaxSessions == 0 {
		cfg.MaxSessions = 4096
	}
	if cfg.MaxChannels == 0 {
		cfg.MaxChannels = 64
	}
	if cfg.Keep < 0 || cfg.MaxSessions < 0 || cfg.MaxChannels < 0 || cfg.MaxChannels > MaxChannels {
		return nil, fmt.Errorf("accept: keep %v and max sessions %d must not be negative, and max channels %d at most %d", cfg.Keep, cfg.MaxSessions, cfg.MaxChannels, MaxChannels)
	}
	return &Acceptor{cfg: cfg, links: map[string]*Link{}}, nil
}

// Accept answers the request of a node, whose name the caller has made sure of. resumed says whether the link is one that an
// earlier call has returned. Otherwise it is new, and an earlier one of the node has ended with ErrRenewed: two processes
// with the name of one node replace each other. When the error is not nil, the request was answered with it.
func (a *Acceptor) Accept(w http.ResponseWriter, r *http.Request, node string) (link *Link, resumed bool, err error) {
	refuse := func(status int, err error) (*Link, bool, error) {
		http.Error(w, err.Error(), status)
		return nil, false, fmt.Errorf("accept node %s: %w", node, err)
	}
	channels, err := strconv.Atoi(r.Header.Get(HeaderChannels))
	if err != nil || channels < 1 || channels > a.cfg.MaxChannels {
		return refuse(http.StatusBadRequest, wrong(HeaderChannels, "it is %.40q; it must be a number of 1 to %d", r.Header.Get(HeaderChannels), a.cfg.MaxChannels))
	}
	received, err := parseReceived(r.Header)
	if err != nil {
		return refuse(http.StatusBadRequest, err)
	}
	if !speaks(r.Header) {
		return refuse(http.StatusUpgradeRequired, wrong("Sec-WebSocket-Protocol", "it is %.80q; it must be %s", r.Header.Values("Sec-WebSocket-Protocol"), Protocol))
	}
	link, told, resumed := a.find(node, r.Header.Get(HeaderSession), channels, received)
	if !resumed {
		if link, err = a.add(node, channels); err != nil {
			return refuse(http.StatusServiceUnavailable, err)
		}
		received = 0
	}
	w.Header().Set(HeaderSession, link.id)
	w.Header().Set(HeaderReceived, strconv.FormatUint(told, 10))
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{Protocol}})
	if err == nil {
		_, err = link.attach(ws, received, told)
	}
	if err != nil {
		if !resumed { // nobody has heard of it
			link.end(fmt.Errorf("%w: %w", ErrGone, err), "")
		}
		return nil, false, fmt.Errorf("accept node %s: %w", node, err)
	}
	return link, resumed, nil
}

func parseReceived(h http.Header) (uint64, error) {
	n, err := strconv.ParseUint(h.Get(HeaderReceived), 10, 63)
	if err != nil {
		return 0, wrong(HeaderReceived, "it is %.40q; it must be a number of 0 to 2^63-1", h.Get(HeaderReceived))
	}
	return n, nil
}

// find is the node's session, if it is the one that it asks for and can go on.
func (a *Acceptor) find(node, session string, channels int, received uint64) (link *Link, told uint64, known bool) {
	a.mu.Lock()
	link = a.links[node]
	a.mu.Unlock()
	if link == nil || session == "" || link.id != session {
		return nil, 0, false
	}
	link.mu.Lock()
	defer link.mu.Unlock()
	err := link.plausible(received)
	if err == nil && channels != len(link.channels) {
		err = wrong(HeaderChannels, "it is %d; the session has %d", channels, len(link.channels))
	}
	if err != nil {
		link.endLocked(fmt.Errorf("%w: %w", ErrRenewed, err), "")
	}
	return link, link.received, link.ctx.Err() == nil
}

// add makes a session of the node in place of the one that it had.
func (a *Acceptor) add(node string, channels int) (*Link, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	old := a.links[node]
	switch {
	case a.closed:
		return nil, errors.New("the scheduler takes no nodes any more")
	case old == nil && len(a.links) >= a.cfg.MaxSessions:
		return nil, fmt.Errorf("there are sessions of %d nodes, which is the most", len(a.links))
	}
	if old != nil {
		old.end(fmt.Errorf("%w of node %s", ErrRenewed, node), ErrRenewed.Error())
	}
	link := newLink(rand.Text(), node, channels, a.cfg.Limits)
	link.keepFor = a.cfg.Keep
	a.links[node] = link
	a.wg.Add(1)
	context.AfterFunc(link.ctx, func() {
		defer a.wg.Done()
		a.mu.Lock()
		if a.links[node] == link {
			delete(a.links, node)
		}
		a.mu.Unlock()
		link.wait()
	})
	return link, nil
}

// Links are the links that have not ended.
func (a *Acceptor) Links() []*Link {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := make([]*Link, 0, len(a.links))
	for _, l := range a.links {
		all = append(all, l)
	}
	return all
}

// Close ends all links, with the reason for the other ends, and waits until their connections are closed. A scheduler that
// shall be asked no more answers requests with HeaderLeader itself: Accept refuses them.
func (a *Acceptor) Close(reason string) {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	for _, l := range a.Links() {
		l.Close(reason)
	}
	a.wg.Wait()
}

// speaks says whether a request offers the protocol.
func speaks(h http.Header) bool {
	for _, list := range h.Values("Sec-WebSocket-Protocol") {
		for name := range strings.SplitSeq(list, ",") {
			if strings.TrimSpace(name) == Protocol {
				return true
			}
		}
	}
	return false
}
