package node

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"crypto/tls"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/internal/supervisor"
	"github.com/agentsched/agentsched/internal/wire"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
)

// Path is where a scheduler takes nodes.
const Path = "/v1/node"

// Config of a Node.
type Config struct {
	Servers []*url.URL             // of schedulers that share a queue; see wire.ParseAddresses
	Token   func() (string, error) // of the node; it is its name
	TLS     *tls.Config            // nil: the system's roots
	// DialContext makes the connections; see wire.DialConfig.
	DialContext func(ctx context.Context, network, addr string) (net.Conn, error)
	Spool       string // a folder of its own
	// SpoolSize bounds what is kept for the scheduler, in bytes; 0: 256 MiB. When it is full, the cores wait.
	SpoolSize int64
	Cores     int
	// Attempt returns the folder of what an attempt left.
	Attempt  func(id job.ID, attempt int) string
	Instance job.InstanceID // of the node's state directory: it begins the tag of every run
	Version  string
	Log      zerolog.Logger
	Clock    func() time.Duration // see wire.Limits.Clock
	// Inventory returns what the node offers. It is asked when a session begins, every 15 s, and when a run has ended. The session
	// waits for the first answer.
	Inventory func(context.Context) Inventory
	// Adapt makes the scheduler's settings those of this host's cores: what belongs to the host, such
	// as its programs, folders and keys, is its own.
	Adapt func(ipc.Configure) ipc.Configure
	// Supervise returns who keeps the cores alive, given who hears of them.
	Supervise func(supervisor.Handler) Supervisor
	// Changed hears whether the scheduler is there; nil: nobody does.
	Changed func(connected bool, text string)
}

// Supervisor keeps the cores alive: a *supervisor.Supervisor, whose methods these are.
type Supervisor interface {
	Run(ctx context.Context) error
	Hurry()
	Reconfigure(ctx context.Context) error
	Restart(ctx context.Context, index int, drain bool) error
	Resume(index int) bool
}

// Node is a host that works for a scheduler. Make it with New, run it once.
type Node struct {
	cfg     Config
	process string
	sup     Supervisor
	spool   *wire.Spool
	past    uint64 // the last record of the spool that an earlier process has written
	ledger  *ledger
	outbox  chan outNote
	ended   chan struct{} // capacity 1: a run has ended
	started chan struct{} // closed when the first settings have come: the cores may start
	start   sync.Once
	lease   atomic.Int64 // Welcome.Lease
	ending  atomic.Bool
	submits sync.WaitGroup          // under way; Add with mu held, while their core is up
	fail    context.CancelCauseFunc // ends Run with an error

	mu       sync.Mutex // guards what follows
	settings ipc.Configure
	session  *session      // that was welcomed; nil: none
	welcome  chan struct{} // closed when there is one
	heard    time.Duration // by Config.Clock: see silence
	cores    map[int]*core
	lives    map[int]int
	isolated map[int]isolatedCore // by place
}

// isolatedCore is a place where no core is started before the time.
type isolatedCore struct {
	until time.Time // with its monotonic reading
	cause string
}

// core is a core of this host that is up.
type core struct {
	*supervisor.Core
	life     int
	draining bool
}

// outNote is a note on its way to the spool.
type outNote struct {
	note  Note
	noted noted
}

// maxOutbox is how many notes may wait for the disk, beyond which the cores do.
const maxOutbox = 1024

// New returns a node, whose spool it opens; nothing is dialed or started before Run.
func New(cfg Config) (*Node, error) {
	n := &Node{
		cfg: cfg, process: rand.Text(), ledger: newLedger(), outbox: make(chan outNote, maxOutbox), ended: make(chan struct{}, 1), started: make(chan struct{}),
		cores: map[int]*core{}, lives: map[int]int{}, isolated: map[int]isolatedCore{}, welcome: make(chan struct{}),
	}
	var err error
	// A record is a frame when it is sent: what goes around it has to fit in, too.
	if n.spool, err = wire.OpenSpool(cfg.Spool, wire.SpoolConfig{MaxBytes: cfg.SpoolSize, MaxRecord: maxRecord}); err != nil {
		return nil, err
	}
	n.sup = cfg.Supervise((*cores)(n))
	return n, nil
}

// Hurry makes the end of Run, under way or to come, skip the gentle stages.
func (n *Node) Hurry() { n.sup.Hurry() }

// Run works for the scheduler until ctx ends; then it ends the cores, tells of that as far as
// somebody listens, and returns the cause.
func (n *Node) Run(ctx context.Context) error {
	defer n.spool.Close() //nolint:errcheck // what counts was synced
	ctx, n.fail = context.WithCancelCause(ctx)
	defer n.fail(nil)
	if err := n.recall(ctx); err != nil {
		return err
	}
	dialing, hangUp := context.WithCancel(context.WithoutCancel(ctx))
	defer hangUp()
	dialer, err := wire.NewDialer(wire.DialConfig{
		Limits:    wire.Limits{Clock: n.cfg.Clock},
		Addresses: n.cfg.Servers, Path: Path, Channels: 1 + n.cfg.Cores, Token: n.cfg.Token, TLS: n.cfg.TLS, DialContext: n.cfg.DialContext, Event: n.event,
		FirstRetry: firstRetry, LastRetry: lastRetry,
	})
	if err != nil {
		return err
	}
	var parts, writing sync.WaitGroup
	writing.Go(n.write)
	parts.Go(func() { dialer.Run(dialing) }) //nolint:errcheck // it is told to end
	err = n.work(ctx)
	n.submits.Wait() // the cores are gone
	close(n.outbox)
	writing.Wait()
	n.farewell()
	hangUp()
	parts.Wait()
	n.mu.Lock()
	s := n.session
	n.mu.Unlock()
	if s != nil {
		<-s.ended
	}
	return err
}

// Backoff of dialing: a leader that changes is found soon, and a thousand nodes do not come at once.
const (
	firstRetry = 500 * time.Millisecond
	lastRetry  = 5 * time.Second
)

// work keeps the cores from the first settings on until ctx ends.
func (n *Node) work(ctx context.Context) error {
	select {
	case <-n.started:
		defer context.AfterFunc(ctx, func() { n.ending.Store(true) })()
		return n.sup.Run(ctx)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// recall reads what an earlier process has left in the spool: nothing of its runs lives.
func (n *Node) recall(ctx context.Context) error {
	n.past = n.spool.Last()
	r := n.spool.Since(n.spool.Acked())
	defer r.Close()
	for at := n.spool.Acked(); at < n.past; {
		rec, err := r.Next(ctx)
		if err != nil {
			return err
		}
		at = rec.Number
		var notes []Note
		if err := json.Unmarshal(rec.Payload, &notes); err != nil {
			return fmt.Errorf("record %d of the spool %s: %w", rec.Number, n.cfg.Spool, err)
		}
		var list []noted
		for i := range notes {
			list = append(list, notedOf(&notes[i]))
		}
		n.ledger.expect(list)
		n.ledger.add(rec.Number, list) // no scheduler has settled it yet
	}
	if n.past == n.spool.Acked() {
		return nil
	}
	down, err := json.Marshal(CoreDown{Cause: "the node was started again"})
	if err != nil {
		return err
	}
	return n.append([]Note{{Method: noteDown, Params: down}}, []noted{{}})
}

// event hears of the link.
func (n *Node) event(e wire.Event) {
	switch e.Kind {
	case wire.Renewed:
		n.cfg.Log.Info().Str("server", e.Address).Msg("connected; the scheduler is asked what to do")
		n.meet(e.Link)
	case wire.Resumed:
		n.cfg.Log.Info().Str("server", e.Address).Msg("connected again")
		n.changed(true, "connected to "+e.Address)
	case wire.Cut:
		n.cfg.Log.Warn().Err(e.Err).Dur("retry_ms", e.Retry).Msg("the connection is cut")
		n.changed(false, "cut off: "+e.Err.Error())
	case wire.Failed:
		n.cfg.Log.Warn().Err(e.Err).Dur("retry_ms", e.Retry).Msg("no scheduler is reached")
		n.changed(false, "no scheduler is reached: "+e.Err.Error())
	}
}

func (n *Node) changed(connected bool, text string) {
	if n.cfg.Changed != nil {
		n.cfg.Changed(connected, text)
	}
}

// farewellTime is how long a node that ends waits for the scheduler to store its last words.
const farewellTime = 5 * time.Second

// farewell waits until everything is told, if somebody listens.
func (n *Node) farewell() {
	ctx, cancel := context.WithTimeout(context.Background(), farewellTime)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for n.spool.Acked() < n.spool.Last() {
		n.mu.Lock()
		there := n.session != nil
		n.mu.Unlock()
		if !there {
			break
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			n.cfg.Log.Warn().Msg("the scheduler has not stored everything: the rest is told at the next start")
			return
		}
	}
}

// leased reports whether the lease holds.
func (n *Node) leased() bool { return n.silence() < time.Duration(n.lease.Load()) }

// silence returns how long ago the newest heartbeat was sent that a scheduler has answered.
func (n *Node) silence() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	at := n.cfg.Clock()
	if n.session != nil {
		n.heard = max(n.heard, at-n.session.link.Unconfirmed())
	}
	return at - n.heard
}

// errNoScheduler is what a core is answered that asks for something while the scheduler is away.
var errNoScheduler = errors.New("the scheduler is not reached; ask again")

// hello says what the node has.
func (n *Node) hello(ctx context.Context) Hello {
	h := Hello{MinProtocol: MinProtocol, MaxProtocol: MaxProtocol, Version: n.cfg.Version, Process: n.process, Inventory: n.cfg.Inventory(ctx), Runs: n.ledger.held()}
	n.mu.Lock()
	defer n.mu.Unlock()
	for place, c := range n.cores {
		h.Cores = append(h.Cores, CoreUp{Place: place, Life: c.life, PID: c.PID(), Info: c.Info})
	}
	for place, i := range n.isolated {
		if left := time.Until(i.until); left > 0 {
			h.Isolated = append(h.Isolated, CoreIsolated{Place: place, For: job.Duration(left), Cause: i.cause})
		}
	}
	return h
}

// use takes the settings of the scheduler for cores that start.
func (n *Node) use(c ipc.Configure) {
	n.mu.Lock()
	n.settings = n.cfg.Adapt(c)
	n.mu.Unlock()
	n.start.Do(func() { close(n.started) })
}

// core returns the core in a place.
func (n *Node) core(place int) *core {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cores[place]
}

// void stops a run that counts for nothing any more.
func (n *Node) void(h Held) {
	ctx, cancel := context.WithTimeout(context.Background(), timeOfCall)
	defer cancel()
	c := n.core(h.Place)
	if c == nil {
		return
	}
	n.cfg.Log.Warn().Str("job", string(h.Job)).Int("attempt", h.Attempt).Msg("the run counts for nothing any more: it is stopped")
	err := c.Call(ctx, ipc.MethodCancelJob, ipc.CancelJob{Job: h.Job, Attempt: h.Attempt, Class: job.CancelledClass, Reason: "its claim has ended", Lost: true}, nil)
	if err != nil {
		n.cfg.Log.Debug().Err(err).Str("job", string(h.Job)).Msg("stop a run that counts for nothing")
	}
}
