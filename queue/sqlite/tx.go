package sqlite

import (
	"errors"
	"fmt"
	"time"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/agentsched/agentsched/queue"
)

// tx is what a request works with: the writer's connection inside its transaction.
type tx struct {
	*db
	version   int64    // of the file, which changes when another connection writes
	epoch     int64    // of this writer, see takeOver
	changed   bool     // the request under way has changed something
	protected bool     // and has a savepoint, see protect
	before    recorded // by then
	touched   touched
	changes   changes
	accounts  accounts
	batches   batches
	credits   credits
	room      room
}

func newTx(d *db) *tx {
	t := &tx{db: d}
	t.accounts.tx, t.batches.tx, t.credits.tx, t.room.tx = t, t, t, t
	return t
}

// takeOver raises the epoch in the file, which deposes the writer before; to epoch, if
// that is not 0.
func (t *tx) takeOver(epoch int64) error {
	if err := t.beginBetween(); err != nil {
		return err
	}
	err := t.exec(`UPDATE fence SET epoch = CASE ? WHEN 0 THEN epoch + 1 ELSE ? END`, epoch, epoch)
	if err == nil {
		_, err = t.row(`SELECT epoch FROM fence`, nil, &t.epoch)
	}
	if err == nil {
		err = t.look()
	}
	if err != nil {
		return errors.Join(err, t.control("ROLLBACK"))
	}
	return t.control("COMMIT")
}

// beginBetween is beginWrite beside a writer that never pauses. Such a one leaves its lock for
// microseconds between two commits, and SQLite, which soon asks every 100 ms only, may not meet
// them for a long time.
func (t *tx) beginBetween() error {
	if err := t.conn.exec("PRAGMA " + waitFor(0)); err != nil {
		return err
	}
	var err error
	for begun := time.Now(); ; time.Sleep(100 * time.Microsecond) {
		err = t.beginWrite()
		if primaryCode(err) != sqlite3.SQLITE_BUSY || time.Since(begun) >= busyTimeout {
			break
		}
	}
	return errors.Join(err, t.conn.exec("PRAGMA "+waitFor(busyTimeout)))
}

// look must be called when a transaction has begun: nobody else has opened the
// store for writing unless another connection has written to the file.
func (t *tx) look() error {
	version, err := t.dataVersion()
	if err != nil || version == t.version {
		return err
	}
	epoch, _, err := t.number(`SELECT epoch FROM fence`)
	if err != nil {
		return err
	}
	if epoch != t.epoch {
		return fmt.Errorf("its epoch is %d and this writer's is %d: %w", epoch, t.epoch, queue.ErrDeposed)
	}
	t.version = version
	t.batches.forget() // somebody has written who opened no store
	t.changes.forget()
	return nil
}

// protect must be called before the first change of a request that may find,
// after a change, that it has to fail. It may be called again.
func (t *tx) protect() error {
	if t.protected {
		return nil
	}
	if err := t.control("SAVEPOINT caller"); err != nil {
		return err
	}
	t.protected, t.before = true, t.conn.recording.now()
	return nil
}

// exec executes a statement that changes rows.
func (t *tx) exec(query string, args ...any) error {
	_, err := t.change(query, args...)
	return err
}

// change executes a statement and returns how many rows it changed. A
// statement that fails has changed nothing. None should have a RETURNING, for
// which SQLite makes a table each time: a look before or after costs less.
func (t *tx) change(query string, args ...any) (int64, error) {
	s, err := t.prepare(query)
	if err != nil {
		return 0, err
	}
	n, err := s.exec(args)
	if err != nil {
		return 0, explain(err)
	}
	t.changed = true
	return n, nil
}

// insert executes a statement that adds a row to a table whose rows have numbers, and
// returns the row's.
func (t *tx) insert(query string, args ...any) (seq int64, err error) {
	err = t.exec(query, args...)
	return t.conn.lastRow(), err
}
