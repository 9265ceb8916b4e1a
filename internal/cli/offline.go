package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/audit"
	"github.com/agentsched/agentsched/internal/config"
	"github.com/agentsched/agentsched/internal/eval"
	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/internal/redact"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/internal/server"
	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/queue/sqlite"
)

// offline answers requests about a state directory on which no scheduler runs, to
// this process alone, over pipes, with the handlers of a scheduler's API. To read it
// takes no lock and changes nothing. To change something it takes the directory's
// lock, and starts nothing.
type offline struct {
	at  *target
	dir *statedir.Dir

	begin  sync.Once // for what follows
	pipes  *pipes
	server *http.Server
	ended  chan struct{} // closed when the server has ended

	opening sync.Mutex // guards what follows
	cfg     config.Config
	reading http.Handler
	store   *sqlite.Store // to read
	// Why a request that rests on it is refused.
	storeErr, isolationsErr, configErr error
	writing                            http.Handler
	owned                              *owned // to change; nil until something is changed
	audit                              *audit.Log

	// failed is why the latest request was refused, with its exit code.
	failed atomic.Pointer[error]
}

// changesOffline are the requests that change something without a scheduler.
var changesOffline = []string{
	"POST /v1/jobs/cancel", "POST /v1/jobs/{job}/cancel", "POST /v1/jobs/{job}/retry", "POST /v1/jobs/{job}/answer", "POST /v1/jobs/{job}/evaluations",
	"POST /v1/dead-letters/requeue", "POST /v1/dead-letters/drop", "POST /v1/pipelines/{pipeline}/replay", "POST /v1/pipelines/{pipeline}/runs", "POST /v1/resume", "PUT /v1/grants", "POST /v1/jobs/{job}/grants", "POST /v1/run-grants/revoke", "POST /v1/jobs/{job}/messages", "POST /v1/jobs/{job}/questions/{number}/answer", "POST /v1/credits", "POST /v1/credits/drop",
}

// dial returns a connection to the server, which it starts at first.
func (o *offline) dial(ctx context.Context) (net.Conn, error) {
	o.begin.Do(o.serve)
	return o.pipes.dial(ctx)
}

func (o *offline) serve() {
	routes := http.NewServeMux()
	routes.Handle("GET /", o.by(o.toRead))
	for _, pattern := range changesOffline {
		routes.Handle(pattern, o.by(o.toChange))
	}
	routes.Handle("/", o.by(func(*http.Request) (http.Handler, error) {
		if err := o.dir.Held(); err != nil {
			return nil, usage(err) // by a scheduler that does not listen yet
		}
		return nil, client.ErrNotRunning
	}))
	o.pipes, o.server, o.ended = newPipes(), &http.Server{Handler: routes}, make(chan struct{})
	o.server.SetKeepAlivesEnabled(false) // so that the next request finds a scheduler that was started meanwhile
	go func() {
		defer close(o.ended)
		o.server.Serve(o.pipes) //nolint:errcheck // it ends with Close
	}()
}

// by has requests answered by what open returns.
func (o *offline) by(open func(*http.Request) (http.Handler, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.RemoteAddr = "" // it is this process
		o.opening.Lock()
		h, err := open(r)
		o.opening.Unlock()
		if err != nil {
			o.failed.Store(&err)
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// toRead returns what answers a request that reads.
func (o *offline) toRead(r *http.Request) (http.Handler, error) {
	if err := o.at.local.inDatabase(o.dir); err != nil {
		return nil, err
	}
	if o.reading == nil {
		var store queue.Store
		if _, o.store, o.storeErr = o.at.local.look(context.WithoutCancel(r.Context())); o.storeErr == nil {
			store = o.store
		}
		o.reading = o.answers(context.WithoutCancel(r.Context()), store, o.dir.Documents())
		if o.store != nil {
			o.store.SetPrices(prices(&o.cfg))
		}
	}
	return o.reading, o.lacks(r, o.storeErr)
}

// lacks returns why a request cannot be answered.
func (o *offline) lacks(r *http.Request, storeErr error) error {
	switch path := r.URL.Path; {
	case path == "/v1/fleet":
		return nil // it says that none runs
	case strings.HasPrefix(path, "/v1/nodes"):
		return client.ErrNotRunning
	case path == "/v1/status" || path == "/v1/resume":
		return failure(o.isolationsErr)
	case path == "/v1/workers":
		return errors.Join(failure(o.isolationsErr), o.configErr)
	case path == "/v1/reputations/similar" || path == "/v1/credits" || r.Pattern == "POST /v1/jobs/{job}/evaluations":
		return errors.Join(storeErr, o.configErr)
	}
	return storeErr
}

// toChange returns what answers a request that changes something, which is recorded in
// the audit log.
func (o *offline) toChange(r *http.Request) (http.Handler, error) {
	if o.writing == nil {
		owned, err := o.at.local.own(context.WithoutCancel(r.Context()))
		if err != nil {
			return nil, err
		}
		o.owned, o.writing = owned, o.answers(context.WithoutCancel(r.Context()), owned.store, owned.docs)
		setLimits(owned.store, &o.cfg)
		if o.configErr == nil && o.cfg.Audit.Enabled {
			o.record(o.cfg.Audit)
		}
	}
	return o.writing, o.lacks(r, nil)
}

// record has what is changed recorded. It is done all the same: an error is only told.
func (o *offline) record(cfg config.Audit) {
	told := func(err error) {
		fmt.Fprintf(o.at.con.stderr, "scheduler: the change was made, but is not in the audit log: %v\n", err)
	}
	log, err := audit.Open(o.dir.Audit(), audit.Options{MaxSize: int64(cfg.MaxSize), Keep: cfg.Keep + 1, Wait: holdTime, Redact: redact.New(redact.FromEnviron(o.at.con.environ)...)})
	if err != nil {
		told(err)
		return
	}
	who := owner()
	o.audit, o.writing = log, log.Handler(o.writing, func(context.Context) (name, role, door string) { return who.Name, who.Role, who.Door }, told)
}

// answers returns the handlers of a scheduler that does not run.
func (o *offline) answers(ctx context.Context, store queue.Store, docs statedir.Documents) http.Handler {
	var book *isolation.Book
	var keep *statedir.SoleWriter
	book, keep, o.isolationsErr = scheduler.LoadIsolations(ctx, docs)
	o.cfg, o.configErr = o.at.prog.loadConfig()
	return server.New(server.Options{
		Store: store, Sched: scheduler.Idle(store, book, keep), Log: zerolog.Nop(), Version: o.at.prog.version, Artifacts: o.dir.Attempt,
		Workers:   func(context.Context) []api.Worker { return o.at.prog.configuredWorkers(&o.cfg, book.List(utcNow())) },
		Evaluator: eval.New(eval.Config{Store: store, Settings: o.cfg.Evaluation}), Domains: func() []string { return domains(&o.cfg) },
	}).Handler()
}

// why returns why a request was refused; err if the refusal was another's.
func (o *offline) why(err error) error {
	if failed := o.failed.Swap(nil); failed != nil {
		return *failed
	}
	return err
}

// changed reports whether something was changed without a scheduler.
func (o *offline) changed() bool {
	o.opening.Lock()
	defer o.opening.Unlock()
	return o.owned != nil
}

// Close ends the server.
func (o *offline) Close() error {
	if o.server == nil {
		return nil
	}
	// An answer is read before what was done is recorded.
	ctx, cancel := context.WithTimeout(context.Background(), recordTime)
	defer cancel()
	err := o.server.Shutdown(ctx)
	o.server.Close()
	<-o.ended
	if o.audit != nil {
		err = errors.Join(err, o.audit.Close())
	}
	if o.owned != nil {
		err = errors.Join(err, o.owned.Close())
	}
	if o.store != nil {
		err = errors.Join(err, o.store.Close())
	}
	return err
}

// recordTime is how long the last record of what was changed may take.
const recordTime = 10 * time.Second

// pipes is a listener whose connections begin in this process.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) dial(ctx context.Context) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case p.conns <- far:
		return near, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Accept implements net.Listener.
func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// Addr implements net.Listener.
func (p *pipes) Addr() net.Addr { return pipeAddr{} }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "pipe" }
