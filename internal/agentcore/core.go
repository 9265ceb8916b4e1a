package agentcore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oklog/run"
	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/breaker"
	"github.com/agentsched/agentsched/internal/proc"
	"github.com/agentsched/agentsched/internal/redact"
	"github.com/agentsched/agentsched/internal/sandbox"
	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/internal/workspace"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/permit"
	"github.com/agentsched/agentsched/worker"
)

// Config is what a core is made of.
type Config struct {
	In       io.ReadCloser  // from the scheduler
	Out      io.WriteCloser // to the scheduler
	Log      zerolog.Logger
	Version  string
	Adapters map[string]worker.Adapter
	Environ  []string // of this process: what workers' environments are built from
	// Lookup finds a variable of this process, for the adapters; os.LookupEnv.
	Lookup func(string) (string, bool)
	// Self is the path of this program, which can be go's cache (GoCacheMain); "" for one that cannot: caches of new tenants
	// then begin empty.
	Self string
	// Fuse is a path by which this process' program can be started as its fuse (FuseMain). It must not be another version
	// of it. "" is for one that cannot: nothing but the scheduler ends its runs if it stands still.
	Fuse string
	Tag  string // of this process (job.RunTagVariable)
	// NoCgroup leaves cgroups alone, to test the other nets.
	NoCgroup bool
	Probes   Probes
	// RealPath resolves the symbolic links of a workspace's path; nil means
	// filepath.EvalSymlinks. It may take its time.
	RealPath func(string) (string, error)
}

// ErrVersion is returned by Run if scheduler and core speak different
// protocols; the program then exits 2.
var ErrVersion = errors.New("scheduler and core speak different protocol versions")

// errShutdown is the cause with which everything ends after a shutdown request.
var errShutdown = errors.New("shutdown was requested")

// Core is one agentcore. Make it with New, run it once with Run.
type Core struct {
	cfg  Config
	peer *ipc.Peer
	gate *permit.Gate
	// circuits are the breakers that the gate asks.
	circuits *breaker.Set
	folders  *workspace.Resolver // of workspaces
	// guard is asked by the gate besides; monitor feeds it.
	guard   *guard
	monitor *monitor
	// shared is what the gate asks for limits that cores have in common.
	shared *shared
	// gateways serve runs their models.
	gateways *gateways
	// secrets takes what the environment holds of them out of all that is told or kept.
	secrets atomic.Pointer[redact.Redactor]

	// life is the parent of every permit's context. It ends when Run does.
	life context.Context

	// asked is closed when the scheduler asked for the end, or speaks another
	// protocol; endCause is set before.
	asked    chan struct{}
	askOnce  sync.Once
	endCause error

	// hurry is done when running stops shall skip their gentle stages.
	hurry    context.Context
	hurryNow context.CancelFunc

	fetching keyed // the repositories whose parcels are being taken

	runs sync.WaitGroup // one for each run, until its completion is queued

	reconfigured chan struct{} // capacity 1: the validity of permits may have changed

	heeding sync.Mutex // from asking the fuse until what follows is done

	configuring sync.Mutex // one configure at a time; guards restored
	restored    bool       // the circuits of an earlier core were taken over

	mu       sync.Mutex            // guards what follows
	session  *session              // set by hello
	settings *settings             // set by configure
	live     map[string]*execution // by tag
	ending   bool                  // no run starts any more
}

// session is what hello sets up.
type session struct {
	instance   job.InstanceID
	dir        *statedir.Dir
	host       *proc.Host
	workspaces *workspace.Manager
	temps      *statedir.Temps
	can        sandbox.Host // what this host can do to hold runs
	audit      sandbox.AuditLog
	fuse       *fuse // nil: there is none
	started    time.Time
}

// New makes a core that speaks on cfg.In and cfg.Out.
func New(cfg Config) *Core {
	c := &Core{
		cfg:          cfg,
		gate:         permit.NewGate(permit.Limits{MaxConcurrent: 1, TTL: ipc.DefaultPermitTTL}),
		circuits:     breaker.NewSet(breaker.DefaultConfig(), cfg.Log),
		asked:        make(chan struct{}),
		reconfigured: make(chan struct{}, 1),
		live:         map[string]*execution{},
		folders:      workspace.NewResolver(cfg.RealPath, nil),
		gateways:     newGateways(),
	}
	c.secrets.Store(redact.New(redact.FromEnviron(cfg.Environ)...))
	c.shared = newShared(c)
	c.hurry, c.hurryNow = context.WithCancel(context.Background())
	probes := cfg.Probes.withDefaults()
	c.guard = newGuard(c.gate, probes.Clock, c.escalate, cfg.Log)
	c.monitor = newMonitor(c, probes)
	c.gate.SetCircuits(circuits{c.circuits})
	c.gate.SetDefence(c.guard)
	c.peer = ipc.NewPeer(cfg.In, cfg.Out, ipc.Config{Name: "scheduler", Log: cfg.Log, Handler: c})
	return c
}

// Run serves until the scheduler asks for the end, is gone, or ctx ends. In
// each case it first stops every run and waits until the last process is gone.
// It returns nil after a shutdown that was asked for.
//
//	peer     ── reads and writes the wire until its end ─┐ the first of them to
//	circuits ── tells what the breakers do, until then   │ return ends the others
//	monitor  ── looks at the host each second, until then│
//	permits  ── lapse if they are not renewed, until then│
//	end      ── waits for a reason to end, then:         ┘
//	        refuse permits → stop the runs → wait for them →
//	        close our side of the wire → wait for the peer → close the host
func (c *Core) Run(ctx context.Context) error {
	life, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	defer c.hurryNow()
	c.life = life

	var g run.Group
	peerDone := make(chan struct{})
	var ended error // the wire's end; set when peerDone is closed
	g.Add(func() error {
		defer close(peerDone)
		ended = c.peer.Run(life)
		return ended
	}, func(error) {})
	// What ends with the wire may be seen to end before it, and says the same of why.
	for _, beside := range []func(<-chan struct{}){c.tellCircuits, c.monitor.run, c.lapsePermits} {
		g.Add(func() error {
			beside(peerDone)
			return ended
		}, func(error) {})
	}
	interrupted := make(chan error, 1)
	g.Add(func() error {
		cause := c.waitForEnd(ctx, interrupted)
		c.end(cause)
		c.peer.CloseSend()
		select {
		case <-peerDone:
		case <-time.After(byeTime):
			cancel(cause)
		}
		return cause
	}, func(err error) { interrupted <- err })
	err := g.Run()
	select {
	case <-c.asked:
		err = c.endCause // the wire's end only follows from it
	default:
	}
	c.gateways.close()
	cancel(nil)
	c.shared.telling.Wait()
	closeErr := c.closeHost()
	if errors.Is(err, errShutdown) || errors.Is(err, ipc.ErrClosed) {
		err = nil
	}
	return errors.Join(err, closeErr)
}

// byeTime is how long the scheduler may take to read the last answers and to
// close its side.
const byeTime = 5 * time.Second

// waitForEnd returns why the core ends.
func (c *Core) waitForEnd(ctx context.Context, interrupted <-chan error) error {
	select {
	case <-c.asked:
		return c.endCause
	case err := <-interrupted:
		return err
	case <-c.peer.ReadDone():
		select {
		case <-c.asked:
			return c.endCause
		default:
			return ipc.ErrEOF
		}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// end stops every run and waits until the last process of each is gone and its
// completion is queued.
func (c *Core) end(cause error) {
	why := fmt.Sprintf("the core ends: %v", cause)
	c.stopRuns(&worker.Stop{Class: job.CancelledClass, Message: why, Lost: true})
	c.gate.Close(&permit.Rejection{Reason: job.FatalMode, RetryAfter: time.Second, Message: why})
	c.gate.RevokeUnused(cause, nil)
	c.runs.Wait()
}

// stopRuns cancels every run with the stop and lets no further one start.
func (c *Core) stopRuns(stop *worker.Stop) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ending = true
	c.peer.SetPatient(false)
	for _, e := range c.live {
		e.stop(stop)
	}
}

// askForEnd makes Run end with cause; the first call counts.
func (c *Core) askForEnd(cause error) {
	c.askOnce.Do(func() {
		c.endCause = cause
		close(c.asked)
	})
}

// open sets up what belongs to a state directory.
func (c *Core) open(h ipc.Hello) (*session, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session != nil {
		return nil, &ipc.Error{Code: ipc.CodeInvalidRequest, Message: "hello was sent already"}
	}
	cgroup := "agentsched-" + string(h.Instance)
	if c.cfg.NoCgroup {
		cgroup = ""
	}
	can := sandbox.Probe(context.Background()) // before there is a Host, which would reap what this starts
	host, err := proc.NewHost(proc.Config{Tag: job.RunTagVariable, Cgroup: cgroup, Log: c.cfg.Log, Confine: true})
	if err != nil {
		return nil, fmt.Errorf("prepare to own processes: %w", err)
	}
	dir := statedir.At(h.StateDir, h.Instance)
	c.session = &session{
		instance: h.Instance,
		dir:      dir,
		host:     host,
		can:      can,
		temps:    dir.Temps(os.Getpid()),
		started:  time.Now(),
		fuse:     newFuse(c.cfg.Fuse, host, job.FuseTag(cmp.Or(c.cfg.Tag, fmt.Sprintf("%s/core/%d", h.Instance, os.Getpid()))), c.cfg.Log),
		workspaces: workspace.New(workspace.Config{
			Root:    dir.Work(),
			Locks:   dir.Locks(),
			Folders: dir.Folders(),
			Exclude: []string{h.StateDir},
			Run:     host.Run,
			Log:     c.cfg.Log,
		}),
	}
	return c.session, nil
}

func (c *Core) closeHost() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session == nil {
		return nil
	}
	c.session.fuse.close()
	return errors.Join(c.session.host.Close(), c.session.audit.Close(), c.session.temps.Close())
}
