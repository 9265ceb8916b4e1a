package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/agentsched/agentsched/internal/wire"
	"github.com/agentsched/agentsched/ipc"
)

// visit is the scheduler's end of a session with a node.
type visit struct {
	nodes *Nodes
	node  *remote
	link  *wire.Link
	ctl   *ipc.Peer
	peers map[int]*ipc.Peer // of the cores, by place
	wake  chan struct{}     // capacity 1: there is something to settle
	ended <-chan struct{}   // closed when the conversations have ended

	offers *rate.Limiter // of the node's inventories

	hello    sync.Once
	welcomed chan struct{} // closed when the node was taken: what it tells is listened to from then on
}

// newVisit begins the conversations over a link.
func newVisit(n *Nodes, link *wire.Link) *visit {
	s := &visit{nodes: n, node: n.remote(link.Node()), link: link, peers: map[int]*ipc.Peer{}, wake: make(chan struct{}, 1), welcomed: make(chan struct{}), offers: rate.NewLimiter(rate.Every(offersEvery), offersAtOnce)}
	link.SetPace(pace(n.cfg.Lease))
	c := newConversations(link, "node "+link.Node(), n.cfg.Log)
	s.ctl = c.open(0, guest{s})
	for place := 1; place < link.Channels(); place++ {
		s.peers[place] = c.open(place, asked{s, place})
	}
	s.ended = c.begin()
	return s
}

// settledAtOnce is how many runs one message settles.
const settledAtOnce = 200

// run tells the node what was stored, until the link ends.
func (s *visit) run(ctx context.Context) {
	defer func() { <-s.ended }()
	log := s.nodes.cfg.Log
	for {
		select {
		case <-s.link.Done():
			log.Warn().Err(s.link.Err()).Str("node", s.link.Node()).Msg("the session of the node has ended")
			s.nodes.changed()
			return
		case <-ctx.Done():
			<-s.link.Done()
			return
		case <-s.wake:
		}
		for {
			x, some := s.node.takeSettled(settledAtOnce)
			if !some {
				break
			}
			if err := s.ctl.Notify(ctx, notifySettled, x); err != nil {
				break // the next session says it anew
			}
		}
	}
}

// guest hears a node on channel 0.
type guest struct{ s *visit }

// HandleCall implements ipc.Handler.
func (g guest) HandleCall(ctx context.Context, method string, params json.RawMessage) (any, error) {
	switch method {
	case methodHello:
		return g.welcome(ctx, params)
	case methodArtifact:
		var p Piece
		if err := ipc.DecodeParams(params, &p); err != nil {
			return nil, err
		}
		select {
		case <-g.s.welcomed:
			return ipc.Empty{}, g.s.keep(&p)
		default:
		}
	}
	return nil, ipc.MethodNotFound(method)
}

// welcome answers hello, once.
func (g guest) welcome(ctx context.Context, params json.RawMessage) (any, error) {
	first := false
	g.s.hello.Do(func() { first = true })
	if !first {
		return nil, &ipc.Error{Code: ipc.CodeInvalidRequest, Message: "a second hello"}
	}
	var h Hello
	if err := ipc.DecodeParams(params, &h); err != nil {
		return nil, err
	}
	w, err := g.s.node.welcome(ctx, g.s, &h)
	if err != nil {
		g.s.nodes.cfg.Log.Error().Err(err).Str("node", g.s.link.Node()).Msg("the node is not taken")
		return nil, err
	}
	close(g.s.welcomed)
	g.s.nodes.cfg.Log.Info().Str("node", w.Name).Str("host", h.Inventory.Host).Str("version", h.Version).Int("runs", len(h.Runs)).Msg("a node works for this scheduler")
	g.s.nodes.changed()
	return w, nil
}

// HandleNotify implements ipc.Handler.
func (g guest) HandleNotify(ctx context.Context, method string, params json.RawMessage) {
	select {
	case <-g.s.welcomed:
	default:
		g.s.link.Close("it tells something before it was welcomed")
		return
	}
	switch method {
	case notifyNotes:
	case notifyOffer:
		g.offer(params)
		return
	default:
		return
	}
	var x Notes
	err := json.Unmarshal(g.s.nodes.redact(params), &x)
	if err == nil {
		err = g.s.notes(ctx, &x)
	}
	if err != nil && ctx.Err() == nil {
		g.s.nodes.cfg.Log.Error().Err(err).Str("node", g.s.link.Node()).Str("method", method).Msg("what a node tells cannot be taken")
		g.s.link.Close(err.Error())
	}
}

// A node may offer something else so often, and this many times at once: what waited for a link that was cut comes together.
const (
	offersEvery  = time.Second
	offersAtOnce = 20
)

// offer takes what the node offers now.
func (g guest) offer(params json.RawMessage) {
	s := g.s
	var v Inventory
	err := json.Unmarshal(s.nodes.redact(params), &v)
	if err == nil {
		err = v.check()
	}
	if err == nil && !s.offers.Allow() {
		err = errors.New("it offers something else too often")
	}
	if err != nil {
		s.nodes.cfg.Log.Error().Err(err).Str("node", s.link.Node()).Msg("what a node offers cannot be taken")
		s.link.Close(err.Error())
		return
	}
	if s.node.session() != s {
		return
	}
	s.node.offers(&v)
	s.nodes.cfg.Handler.CoresChanged()
	s.nodes.changed()
}

// notes takes what the node's cores have told. It may only be about what they have.
func (s *visit) notes(ctx context.Context, x *Notes) error {
	for i := range x.Notes {
		if err := s.note(ctx, &x.Notes[i]); err != nil {
			return err
		}
	}
	s.node.read(x.Number)
	return nil
}

func (s *visit) note(ctx context.Context, x *Note) error {
	switch x.Method {
	case noteUp:
		return decoded(x, func(up *CoreUp) error { return s.node.up(ctx, s, up) })
	case noteDown:
		return decoded(x, func(down *CoreDown) error { s.node.down(s, down); return nil })
	case noteIsolated:
		return decoded(x, func(i *CoreIsolated) error { return s.node.isolates(s, i) })
	case noteDraining:
		return decoded(x, func(d *CoreDraining) error { s.node.draining(s, d); return nil })
	}
	c := s.node.core(x.Place)
	if c == nil {
		return nil // of a core that was given up: what it had is lost, and settled
	}
	params := x.Params
	if x.Method == ipc.NotifyJobCompleted {
		var err error
		if params, err = s.kept(params); err != nil {
			return fmt.Errorf("%s: %w", x.Method, err)
		}
	}
	s.nodes.cfg.Handler.CoreNotify(c.Core, x.Method, params)
	return nil
}

// decoded reads the parameters of a note.
func decoded[P any](x *Note, take func(*P) error) error {
	var p P
	if err := json.Unmarshal(x.Params, &p); err != nil {
		return fmt.Errorf("%s: %w", x.Method, err)
	}
	return take(&p)
}

// asked hears the core in a place of a node.
type asked struct {
	s     *visit
	place int
}

// HandleNotify implements ipc.Handler: what cores tell comes by channel 0.
func (asked) HandleNotify(context.Context, string, json.RawMessage) {}

// HandleCall implements ipc.Handler.
func (a asked) HandleCall(ctx context.Context, method string, params json.RawMessage) (any, error) {
	select {
	case <-a.s.welcomed:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	c := a.s.node.core(a.place)
	if c == nil || c.Past() || a.s.node.session() != a.s {
		return nil, errors.New("the core is not known to be up")
	}
	return a.s.nodes.cfg.Handler.CoreCall(ctx, c.Core, method, a.s.nodes.redact(params))
}
