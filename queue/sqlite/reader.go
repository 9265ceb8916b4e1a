package sqlite

import (
	"errors"
	"sync"
)

// reader is a connection beside the writer's for what is read often: unlike those of
// Store.reads it keeps its statements prepared. It is opened at its first use.
type reader struct {
	mu     sync.Mutex // held by who reads
	tx     *tx
	closed bool
}

// snapshot executes do, which must not write, on what the store holds at one moment:
// that of do's first statement.
func (s *Store) snapshot(do func(*tx) error) error {
	r := &s.reader
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return errClosed
	}
	if r.tx == nil {
		mode := "rw"
		if s.writer == nil {
			mode = "ro"
		}
		// Its cache, 8 MiB, holds the inner pages of the indexes over a million jobs.
		conn, err := connect(dsn(s.path, mode, nil), append(readPragmas(), "cache_size(-8192)"))
		if err != nil {
			return explain(err)
		}
		r.tx = newTx(conn)
	}
	err := r.tx.control("BEGIN")
	if err == nil {
		err = do(r.tx)
		err = errors.Join(err, r.tx.control("ROLLBACK"))
	}
	return err
}

// close closes the connection. It may be called twice.
func (r *reader) close() (err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed = true; r.tx != nil {
		err, r.tx = r.tx.close(), nil
	}
	return err
}
