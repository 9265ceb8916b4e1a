package cli

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/access"
	"github.com/agentsched/agentsched/internal/config"
	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/internal/server"
	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/queue/sqlite"
)

// offline answers requests about a state directory on which no scheduler runs, to
// this process alone, over pipes. It only reads: it takes no lock, and starts and
// changes nothing.
type offline struct {
	m   *Main
	dir *statedir.Dir

	open   sync.Once // opens what follows
	store  *sqlite.Store
	pipes  *pipes
	server *http.Server
	ended  chan struct{} // closed when the server has ended
	cfg    config.Config // for the workers alone
	// What a request that rests on it is refused with.
	storeErr, isolationsErr error

	// failed is why the latest request was refused, with its exit code.
	failed atomic.Pointer[error]
}

// dial returns a connection to the server, which it starts at first.
func (o *offline) dial(ctx context.Context) (net.Conn, error) {
	o.open.Do(func() { o.serve(ctx) })
	return o.pipes.dial(ctx)
}

func (o *offline) serve(ctx context.Context) {
	var store queue.Store
	if _, o.store, o.storeErr = o.m.look(context.WithoutCancel(ctx)); o.storeErr == nil {
		store = o.store
	}
	var book *isolation.Book
	book, o.isolationsErr = scheduler.LoadIsolations(o.dir.Isolations())
	api := server.New(server.Options{
		Store: store, Sched: scheduler.Idle(store, book), Log: zerolog.Nop(), Version: o.m.version, Artifacts: o.dir.Attempt,
		// Those of the configuration, and which programs there are.
		Workers:   func(context.Context) []api.Worker { return o.m.configuredWorkers(&o.cfg, book.List(utcNow())) },
		Authorize: o.authorize,
	})
	o.pipes, o.server, o.ended = newPipes(), &http.Server{Handler: api.Handler()}, make(chan struct{})
	o.server.SetKeepAlivesEnabled(false) // so that the next request finds a scheduler that was started meanwhile
	go func() {
		defer close(o.ended)
		o.server.Serve(o.pipes) //nolint:errcheck // it ends with Close
	}()
}

// authorize lets requests read that find what they rest on.
func (o *offline) authorize(_ context.Context, r *http.Request, role string) error {
	err := o.storeErr
	switch {
	case role != string(access.Read):
		err = client.ErrNotRunning
	case r.URL.Path == "/v1/status":
		err = failure(o.isolationsErr)
	case r.URL.Path == "/v1/credits":
		var cfg config.Config
		if cfg, err = o.m.loadConfig(); err == nil {
			o.store.SetPrices(prices(&cfg))
		}
	case r.URL.Path == "/v1/workers":
		if err = failure(o.isolationsErr); err == nil {
			o.cfg, err = o.m.loadConfig()
		}
	}
	if err != nil {
		o.failed.Store(&err)
	}
	return err
}

// why returns why a request was refused; err if the refusal was another's.
func (o *offline) why(err error) error {
	if failed := o.failed.Swap(nil); failed != nil {
		return *failed
	}
	return err
}

// Close ends the server.
func (o *offline) Close() error {
	if o.server == nil {
		return nil
	}
	err := o.server.Close()
	<-o.ended
	if o.store != nil {
		err = errors.Join(err, o.store.Close())
	}
	return err
}

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
