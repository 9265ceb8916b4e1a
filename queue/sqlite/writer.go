package sqlite

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/rs/zerolog"
	sqlite3 "modernc.org/sqlite/lib"
)

// maxGroup bounds how many callers share a commit, and thereby how long the
// first of them waits for the others' statements.
const maxGroup = 512

// writer owns the one connection that writes. Its goroutine takes requests
// as they come and commits them in groups:
//
//	callers ──► requests ──► BEGIN · a · b · SAVEPOINT · c · RELEASE · … · COMMIT ──► answers
//
// A request that may fail after it has changed something calls tx.protect
// first and has a savepoint to go back to; the others, most of them, do
// without, since a savepoint copies each page that is touched and would cost
// as much as the rest of the work. A failure that neither covers fails the group.
//
// requests is unbuffered: whoever was not yet taken can still give up, whoever
// was taken is answered after the commit.
type writer struct {
	tx       *tx
	leases   leases
	log      zerolog.Logger
	requests chan *request
	quit     chan struct{} // closed by stop
	done     chan struct{} // closed by run when it returns
	closeErr error         // of the connection; read it after done
	stopOnce sync.Once
	commits  atomic.Int64

	// Of a copy that leads, see copy.go; else nil.
	truth  Truth
	number atomic.Int64 // of the newest commit, from before it can be read
}

// request is one caller's work. It is executed at most once.
type request struct {
	run    func(*tx) error
	answer chan error // buffered by one: the writer never waits for a caller
}

// newWriter returns the writer of a connection, which it closes in the end, also if there
// is an error. The epoch is raised unless it is given.
func newWriter(d *db, log zerolog.Logger, truth Truth, epoch int64) (*writer, error) {
	w := &writer{
		tx:       newTx(d),
		log:      log,
		truth:    truth,
		requests: make(chan *request),
		leases:   leases{sooner: make(chan struct{}, 1)},
		quit:     make(chan struct{}),
		done:     make(chan struct{}),
	}
	w.tx.changes.begin()
	if err := w.takeOver(epoch); err != nil {
		return nil, errors.Join(err, w.close())
	}
	d.conn.watch(w.tx.touch)
	go w.run()
	return w, nil
}

// takeOver makes the writer the only one.
func (w *writer) takeOver(epoch int64) error {
	if w.truth == nil {
		return w.tx.takeOver(epoch)
	}
	tables, err := w.tx.tables()
	if err != nil {
		return err
	}
	if err := w.tx.conn.record(tables); err != nil {
		return err
	}
	if err := w.tx.takeOver(epoch); err != nil {
		return err
	}
	patch, err := w.tx.conn.recording.take()
	if err != nil {
		return err
	}
	known := make(chan error, 1)
	w.truth.Ship(Commit{Number: w.number.Add(1), Patch: patch, Done: func(err error) { known <- err }})
	return <-known
}

// do executes run inside a transaction and returns once it is on disk. The
// context counts until the writer took the request, a moment before its
// execution; from there on the answer is waited for, so that a nil error or
// another one is always the truth about the file.
func (w *writer) do(ctx context.Context, run func(*tx) error) error {
	r := &request{run: run, answer: make(chan error, 1)}
	if ctx.Err() != nil {
		return contextError(ctx)
	}
	select {
	case w.requests <- r:
		return <-r.answer
	case <-ctx.Done():
		return contextError(ctx)
	case <-w.quit:
		return errClosed
	}
}

// stop ends the writer after the group under way and closes its connection. It
// may be called twice.
func (w *writer) stop() error {
	w.stopOnce.Do(func() { close(w.quit) })
	<-w.done
	return w.closeErr
}

func (w *writer) run() {
	defer close(w.done)
	for {
		select {
		case r := <-w.requests:
			w.group(r)
		case <-w.quit:
			w.closeErr = w.close()
			return
		}
	}
}

func (w *writer) close() error { return w.tx.close() }

// group executes first and whoever else is waiting, and commits them together.
func (w *writer) group(first *request) {
	if err := w.tx.beginWrite(); err != nil {
		first.answer <- err
		return
	}
	if err := w.tx.look(); err != nil {
		w.fail([]*request{first}, err)
		return
	}
	w.tx.accounts.grants.checked = false
	w.tx.touched = touched{rows: w.tx.touched.rows[:0]}
	// All wait for the commit, also those that were refused: what they were refused
	// for may be what another of the group has written, which is true only then.
	var members []*request
	var answers []error // to each of them, once the others' work is durable
	for r := first; r != nil; r = w.waiting(len(members)) {
		own, fatal := w.execute(r)
		members, answers = append(members, r), append(answers, own)
		if fatal != nil {
			w.fail(members, fatal)
			return
		}
	}
	err := w.tx.accounts.writeCharges()
	if err == nil {
		err = w.tx.noteChanges()
	}
	w.tx.accounts.publish()
	var patch []byte
	if err == nil && w.truth != nil {
		if patch, err = w.tx.conn.recording.take(); err == nil {
			w.number.Add(1)
		}
	}
	if err == nil {
		if err = w.tx.control("COMMIT"); err != nil && w.truth != nil {
			w.truth.Ship(Commit{Number: w.number.Load(), Done: func(error) {}}) // it was counted
		}
	}
	if err != nil {
		w.fail(members, err)
		return
	}
	w.tx.changes.committed()
	w.commits.Add(1)
	answer := func(err error) {
		for i, r := range members {
			r.answer <- cmp.Or(err, answers[i])
		}
	}
	if w.truth == nil {
		answer(nil)
		return
	}
	w.truth.Ship(Commit{Number: w.number.Load(), Patch: patch, Done: answer})
}

// waiting returns a request that waits now, or nil. What is committed while the truth is
// busy would wait there: so the group is open for others until then.
func (w *writer) waiting(members int) *request {
	if members >= maxGroup {
		return nil
	}
	select {
	case r := <-w.requests:
		return r
	default:
	}
	if w.truth == nil {
		return nil
	}
	busy := w.truth.Busy()
	if busy == nil {
		return nil
	}
	select {
	case r := <-w.requests:
		return r
	case <-busy:
	case <-w.quit:
	}
	return nil
}

// execute runs r. own is r's own failure, after which the transaction stands
// as it did before r. fatal means that the transaction cannot go on: changes
// without a savepoint, or an error at which SQLite may have ended the whole
// transaction by itself (full disk, failed read or write, damage), so that
// anything more would be committed statement by statement.
func (w *writer) execute(r *request) (own, fatal error) {
	w.tx.changed, w.tx.protected = false, false
	before := w.tx.touched
	own = r.run(w.tx)
	defer func() { w.tx.accounts.end(own == nil && fatal == nil) }()
	switch code := primaryCode(own); {
	case code != 0 && code != sqlite3.SQLITE_CONSTRAINT:
		return nil, own
	case own != nil && w.tx.protected:
		if err := w.tx.control("ROLLBACK TO caller"); err != nil {
			return nil, errors.Join(own, err)
		}
		w.tx.conn.recording.undo(w.tx.before)
	case own != nil && w.tx.changed:
		return nil, own
	}
	if own != nil {
		w.tx.batches.forget()
		w.tx.touched = before
	}
	if w.tx.protected {
		if err := w.tx.control("RELEASE caller"); err != nil {
			return nil, errors.Join(own, err)
		}
	}
	return own, nil
}

// fail rolls the whole group back and answers each member with err.
func (w *writer) fail(members []*request, err error) {
	w.tx.accounts.forget()
	w.tx.batches.forget()
	w.tx.changes.failed()
	w.tx.conn.recording.forget()
	// The transaction may be gone already, which is what is wanted.
	if rollback := w.tx.control("ROLLBACK"); rollback != nil {
		w.log.Debug().Err(rollback).Msg("roll back")
	}
	w.log.Error().Err(err).Int("writes", len(members)).Msg("the store could not write; nothing of this group is stored")
	for _, r := range members {
		r.answer <- err
	}
}
