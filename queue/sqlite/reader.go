package sqlite

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// readers are connections beside the writer's, each opened when those that there are
// all read.
type readers struct {
	path, mode string
	pragmas    []string
	slots      chan struct{} // as many as may read at once; more wait
	// await returns when what was read may be told, nil: at once. See copy.go.
	await func(context.Context) error

	mu     sync.Mutex
	idle   []*db // the latest used last
	closed bool
}

func newReaders(path, mode string, most int, pragmas ...string) *readers {
	return &readers{path: path, mode: mode, pragmas: append(readPragmas(), pragmas...), slots: make(chan struct{}, most)}
}

// do executes run, which must not write, on what the store holds at one moment: that
// of its first statement.
func (r *readers) do(ctx context.Context, run func(*db) error) error {
	err := r.look(ctx, run)
	if r.await != nil { // that there is nothing is an answer, too
		if refused := r.await(ctx); refused != nil {
			return refused
		}
	}
	return err
}

// look is do without what comes before its answer is told.
func (r *readers) look(ctx context.Context, run func(*db) error) error {
	if ctx.Err() != nil {
		return contextError(ctx)
	}
	select {
	case r.slots <- struct{}{}:
	case <-ctx.Done():
		return contextError(ctx)
	}
	defer func() { <-r.slots }()
	d, err := r.take()
	if err != nil {
		return err
	}
	release := d.conn.interruptAt(ctx)
	if err = d.control("BEGIN"); err == nil {
		err = run(d)
	}
	release()
	if err != nil && ctx.Err() != nil {
		err = contextError(ctx)
	}
	return errors.Join(err, r.put(d))
}

func (r *readers) take() (*db, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, errClosed
	}
	if last := len(r.idle) - 1; last >= 0 {
		d := r.idle[last]
		r.idle = r.idle[:last]
		return d, nil
	}
	return openDB(r.path, r.mode, r.pragmas)
}

// maxIdle is how many connections are kept that nobody uses: each has two files open and
// pages in memory. More are closed after a burst of reads.
const maxIdle = 4

// put ends the transaction and keeps the connection for the next read.
func (r *readers) put(d *db) error {
	if d.conn.inTransaction() {
		if err := d.control("ROLLBACK"); err != nil {
			return errors.Join(err, d.close())
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || len(r.idle) >= maxIdle {
		return d.close()
	}
	r.idle = append(r.idle, d)
	return nil
}

// close closes the connections that do not read, and the others when they have. It may
// be called twice.
func (r *readers) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	var errs []error
	for _, d := range r.idle {
		errs = append(errs, d.close())
	}
	r.idle = nil
	return errors.Join(errs...)
}

// read returns what do finds in the store as it is at one moment; its error says that
// it was what that failed.
func read[T any](ctx context.Context, s *Store, what string, do func(*db) (T, error)) (found T, err error) {
	err = s.reads.do(ctx, func(d *db) (err error) {
		found, err = do(d)
		return err
	})
	if err != nil {
		var none T
		return none, fmt.Errorf("%s: %w", what, err)
	}
	return found, nil
}
