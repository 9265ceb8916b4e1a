package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/agentsched/agentsched/internal/wire"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
)

// session is a conversation with a scheduler, as long as a link lasts.
type session struct {
	n     *Node
	link  *wire.Link
	ctl   *ipc.Peer         // channel 0
	peers map[int]*ipc.Peer // of the cores, by place
	name  string            // the node's, as the scheduler says
	told  chan struct{}     // closed when the cores know what counts for nothing any more
	ended chan struct{}
}

// meet begins a session on a new link. It does not wait.
func (n *Node) meet(link *wire.Link) {
	s := &session{n: n, link: link, peers: map[int]*ipc.Peer{}, told: make(chan struct{}), ended: make(chan struct{})}
	c := newConversations(link, "scheduler", n.cfg.Log)
	s.ctl = c.open(0, control{s})
	for place := 1; place <= n.cfg.Cores; place++ {
		s.peers[place] = c.open(place, relay{s, place})
	}
	over := c.begin()
	go func() {
		defer close(s.ended)
		err := s.talk()
		if err != nil && link.Err() == nil {
			n.cfg.Log.Error().Err(err).Msg("the conversation with the scheduler has ended")
			n.changed(false, err.Error())
		}
		n.leave(s)
		link.Close("the node begins anew")
		<-over
	}()
}

// welcomeTime is how long a scheduler may take to look at the runs of a node.
const welcomeTime = 2 * time.Minute

// talk says hello, and then tells what is in the spool, until the link ends.
func (s *session) talk() error {
	n := s.n
	ctx, cancel := linkContext(s.link)
	defer cancel()
	hello := n.hello(ctx)
	var w Welcome
	asking, enough := context.WithTimeout(ctx, welcomeTime)
	defer enough()
	if err := s.ctl.Call(asking, methodHello, hello, &w); err != nil {
		return fmt.Errorf("the scheduler does not take this node: %w", err)
	}
	if len(w.Verdicts) != len(hello.Runs) || w.Lease <= 0 {
		return fmt.Errorf("the scheduler answered %d runs of %d with a lease of %s", len(w.Verdicts), len(hello.Runs), w.Lease)
	}
	n.lease.Store(int64(w.Lease))
	s.link.SetPace(pace(time.Duration(w.Lease)))
	s.name = w.Name
	var known []RunSettled
	var voids sync.WaitGroup
	for i, h := range hello.Runs {
		if v := w.Verdicts[i]; v.Counts {
			known = append(known, RunSettled{Job: h.Job, Attempt: h.Attempt, Events: v.Events})
		} else {
			known = append(known, RunSettled{Job: h.Job, Attempt: h.Attempt, Over: true})
			voids.Go(func() { n.void(h) })
		}
	}
	go func() { // a core that hangs keeps nobody else waiting
		voids.Wait()
		close(s.told)
	}()
	n.settle(&Settled{Runs: known})
	n.enter(s)
	n.use(w.Settings)
	n.cfg.Log.Info().Str("node", w.Name).Str("scheduler", string(w.Instance)).Str("version", w.Version).Int("runs", len(known)).Msg("the scheduler has taken this node")
	n.changed(true, "works for the scheduler as node "+w.Name)
	var beside sync.WaitGroup
	beside.Go(func() { s.offer(ctx, &hello.Inventory) })
	defer beside.Wait()
	defer cancel()
	return s.deliver(ctx)
}

// How often a node looks at what it offers: now and then, and soon after a run has ended.
const (
	offerEvery   = 15 * time.Second
	offerAtLeast = time.Second
)

// offer tells the scheduler when the node offers something else than before, until the link ends.
func (s *session) offer(ctx context.Context, told *Inventory) {
	tick := time.NewTicker(offerEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-s.n.ended:
		case <-ctx.Done():
			return
		}
		v := s.n.cfg.Inventory(ctx)
		if ctx.Err() != nil {
			return
		}
		if !reflect.DeepEqual(&v, told) {
			s.n.cfg.Log.Info().Int("mirrors", len(v.Mirrors)).Msg("the node offers something else than before")
			if err := s.ctl.Notify(ctx, notifyOffer, v); err != nil {
				return // the next session says it
			}
			told = &v
		}
		pause := time.NewTimer(offerAtLeast)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return
		}
	}
}

// deliver tells what is in the spool, from the first record that is not settled on.
func (s *session) deliver(ctx context.Context) error {
	r := s.n.spool.Since(s.n.ledger.unsettled())
	defer r.Close()
	for {
		rec, err := r.Next(ctx)
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, wire.ErrSpoolClosed) {
				return nil
			}
			return err
		}
		notes := Notes{Number: rec.Number}
		if err := json.Unmarshal(rec.Payload, &notes.Notes); err != nil {
			return fmt.Errorf("record %d of the spool: %w", rec.Number, err)
		}
		notes.Notes = s.needed(rec.Number, notes.Notes)
		if err := s.sendBefore(ctx, notes.Notes); err != nil {
			return err
		}
		if err := s.ctl.Notify(ctx, notifyNotes, notes); err != nil {
			return err
		}
	}
}

// needed returns the notes that have still to be told. What an earlier process has written is of no core.
func (s *session) needed(number uint64, notes []Note) (list []Note) {
	for i := range notes {
		x := &notes[i]
		about := notedOf(x)
		if number <= s.n.past {
			if x.Place, x.Life = 0, 0; about == (noted{}) {
				continue
			}
		}
		if s.n.ledger.needed(about) {
			list = append(list, *x)
		}
	}
	return list
}

// enter makes a session the one that there is.
func (n *Node) enter(s *session) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.session == nil {
		close(n.welcome)
	}
	n.session = s
}

// leave ends a session.
func (n *Node) leave(s *session) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.session == s {
		n.heard = max(n.heard, n.cfg.Clock()-s.link.Unconfirmed())
		n.session, n.welcome = nil, make(chan struct{})
	}
}

// await waits for a session.
func (n *Node) await(ctx context.Context) (*session, error) {
	for {
		n.mu.Lock()
		s, welcome := n.session, n.welcome
		n.mu.Unlock()
		if s != nil {
			return s, nil
		}
		select {
		case <-welcome:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// welcomed returns the session that there is.
func (n *Node) welcomed() *session {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.session
}

// settle takes what the scheduler has dealt with.
func (n *Node) settle(x *Settled) { n.acknowledge(n.ledger.settle(x)) }

// acknowledge drops what is settled from the spool; 0: nothing new.
func (n *Node) acknowledge(upTo uint64) {
	if upTo == 0 {
		return
	}
	if err := n.spool.Ack(upTo); err != nil && !errors.Is(err, wire.ErrSpoolClosed) {
		n.cfg.Log.Error().Err(err).Msg("what the scheduler has stored stays in the spool")
	}
}

// metrics tells how a core fares, if that can be told at once.
func (s *session) metrics(c *core, params json.RawMessage) {
	note := Notes{Notes: []Note{{Place: c.Index(), Life: c.life, Method: ipc.NotifyMetrics, Params: params}}}
	if err := s.ctl.NotifyDroppable(notifyNotes, "metrics", note); err != nil {
		s.n.cfg.Log.Debug().Err(err).Msg("metrics of a core are not told")
	}
}

// control is the node's end of channel 0.
type control struct{ s *session }

// HandleCall implements ipc.Handler.
func (c control) HandleCall(ctx context.Context, method string, params json.RawMessage) (any, error) {
	if method != methodRestart {
		return nil, ipc.MethodNotFound(method)
	}
	var r Restart
	if err := ipc.DecodeParams(params, &r); err != nil {
		return nil, err
	}
	return ipc.Empty{}, c.s.n.sup.Restart(ctx, r.Place, r.Drain)
}

// HandleNotify implements ipc.Handler.
func (c control) HandleNotify(_ context.Context, method string, params json.RawMessage) {
	var x Settled
	if method != notifySettled {
		return
	}
	if err := json.Unmarshal(params, &x); err != nil {
		c.s.n.cfg.Log.Error().Err(err).Msg("a message of the scheduler's that cannot be read")
		return
	}
	c.s.n.settle(&x)
	if x.Resume {
		c.s.n.sup.Resume(0)
	}
}

// relay is the node's end of a core's channel: what the scheduler asks is asked of the core.
type relay struct {
	s     *session
	place int
}

// HandleNotify implements ipc.Handler.
func (relay) HandleNotify(context.Context, string, json.RawMessage) {}

// HandleCall implements ipc.Handler.
func (r relay) HandleCall(ctx context.Context, method string, params json.RawMessage) (any, error) {
	n := r.s.n
	c := n.core(r.place)
	gone := &ipc.Error{Code: ipc.CodeCoreGone, Message: fmt.Sprintf("core %d of the node is not up", r.place)}
	if c == nil {
		return nil, gone
	}
	switch method {
	case ipc.MethodConfigure:
		var settings ipc.Configure
		if err := ipc.DecodeParams(params, &settings); err != nil {
			return nil, err
		}
		n.use(settings)
		return ipc.Empty{}, answerOf(n.sup.Reconfigure(ctx), gone)
	case ipc.MethodHello, ipc.MethodHeartbeat, ipc.MethodShutdown:
		return nil, ipc.MethodNotFound(method) // the supervisor's
	case ipc.MethodSubmitJob:
		return r.submit(ctx, c, params, gone)
	case ipc.MethodRequestPermit: // a core that does not know yet that an attempt is lost refuses the next one
		select {
		case <-r.s.told:
		case <-ctx.Done():
			return nil, gone
		}
	}
	var result json.RawMessage
	if err := c.Call(ctx, method, params, &result); err != nil {
		return nil, answerOf(err, gone)
	}
	return result, nil
}

// submit hands a run to a core, and notes that it has it. The core's answer is waited for also when the link has ended:
// until then nobody knows whether it has the run, and the next scheduler is told that it has.
func (r relay) submit(ctx context.Context, c *core, params json.RawMessage, gone *ipc.Error) (any, error) {
	var x struct {
		Job     job.ID `json:"job"`
		Attempt int    `json:"attempt"`
	}
	if err := ipc.DecodeParams(params, &x); err != nil {
		return nil, err
	}
	n, name := r.s.n, run{x.Job, x.Attempt}
	if !n.begins(name, r.place, c) {
		return nil, gone
	}
	answered := make(chan error, 1)
	go func() {
		defer n.submits.Done()
		answered <- n.submit(name, c, params)
	}()
	select {
	case err := <-answered:
		return ipc.Empty{}, answerOf(err, gone)
	case <-ctx.Done():
		return nil, gone
	}
}

// begins notes that a core is given a run, before it can end, unless the core is down: what it had is known by then.
func (n *Node) begins(name run, place int, c *core) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cores[place] != c {
		return false
	}
	n.submits.Add(1)
	n.ledger.begin(name, place, c.life)
	return true
}

// submit gives a core a run. Any error but an answer of the core means that it is about to be down.
func (n *Node) submit(name run, c *core, params json.RawMessage) error {
	err := c.Call(context.Background(), ipc.MethodSubmitJob, params, nil)
	refusal, ok := errors.AsType[*ipc.Error](err)
	if ok && n.ledger.refused(name) {
		// A scheduler waits for its end.
		n.cfg.Log.Warn().Err(refusal).Str("job", string(name.job)).Int("attempt", name.attempt).Msg("the core has not taken a run that a scheduler was told of since")
		now := time.Now().UTC().Round(0)
		n.note(c, ipc.NotifyJobCompleted, ipc.JobCompleted{Job: name.job, Attempt: name.attempt, Outcome: job.Outcome{
			State: job.RunCancelled, Class: job.CancelledClass, Message: "its core did not take it: " + clip(refusal.Message), ExitCode: -1, StartedAt: now, EndedAt: now,
		}})
	}
	return err
}

// answerOf returns the answer of a core, or that it has given none.
func answerOf(err error, gone *ipc.Error) error {
	var own *ipc.Error
	if err == nil || errors.As(err, &own) {
		return err
	}
	return gone
}
