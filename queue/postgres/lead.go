package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/queue/sqlite"
)

// Lead is a copy that leads: a queue.Store whose writes are acknowledged when the
// database has them.
type Lead struct {
	*sqlite.Store
	copied *Copy
	ship   *shipper
	after  []func() error // are called when it is closed
}

var _ queue.Store = (*Lead)(nil)

// Lead opens the copy for writing in a term. It catches up first, and brings the
// database's tables up to date if an older program has made them.
func (c *Copy) Lead(ctx context.Context, t *Term) (*Lead, error) {
	l, err := c.lead(ctx, t.epoch, t)
	if err != nil {
		return nil, fmt.Errorf("lead the queue of %s: %w", c.db.cfg.Where, err)
	}
	return l, nil
}

func (c *Copy) lead(ctx context.Context, epoch int64, t *Term) (*Lead, error) {
	c.Unfollow()
	conn, err := pgx.ConnectConfig(ctx, c.db.cfg.Where.connConfig())
	if err != nil {
		return nil, err
	}
	err = c.catchUp(ctx, conn)
	disconnect(conn)
	if err != nil {
		return nil, err
	}
	if c.db.version < c.db.newest {
		if err := c.migrate(ctx, epoch); err != nil {
			return nil, err
		}
	}
	tables, err := tablesOf(ctx, c.db.newest)
	if err != nil {
		return nil, err
	}
	cursor, err := c.store.EventCursor(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.store.Close(); err != nil {
		return nil, err
	}
	l := &Lead{copied: c, ship: newShipper(c.db, tables, epoch, c.Revision(), cursor, t)}
	l.Store, err = sqlite.OpenCopy(ctx, c.path, sqlite.CopyOptions{Log: c.db.cfg.Log, Truth: l.ship, Epoch: epoch})
	if err != nil {
		l.ship.close()
		return nil, errors.Join(err, c.open(ctx))
	}
	c.setStore(l.Store)
	return l, nil
}

// migrate brings the copy's tables up to date, and then the database's.
func (c *Copy) migrate(ctx context.Context, epoch int64) error {
	if err := c.store.Close(); err != nil {
		return err
	}
	s, err := sqlite.OpenCopy(ctx, c.path, sqlite.CopyOptions{Log: c.db.cfg.Log})
	if err != nil {
		return err
	}
	c.setStore(s)
	revision, err := c.db.rewrite(ctx, c.store, c.db.newest, epoch)
	if err != nil {
		return fmt.Errorf("bring the tables from version %d to %d: %w", c.db.version, c.db.newest, err)
	}
	c.mu.Lock()
	c.db.version = c.db.newest
	c.mu.Unlock()
	if err := c.store.SetCopied(ctx, c.db.copied(revision)); err != nil {
		return err
	}
	c.reached(revision)
	return nil
}

// Revision is what the database has acknowledged.
func (l *Lead) Revision() int64 {
	l.ship.mu.Lock()
	defer l.ship.mu.Unlock()
	return l.ship.revision
}

// Close sends what waits and closes the store; the copy follows again after Copy.Reopen.
func (l *Lead) Close() error {
	revision, ok := l.ship.close()
	if ok {
		l.copied.reached(revision)
	}
	err := l.Store.CloseCopy(l.copied.db.copied(revision), ok)
	for _, f := range l.after {
		err = errors.Join(err, f())
	}
	l.after = nil
	return err
}

// GiveUp answers what the database does not answer: it may have happened or not. It is for
// an end that cannot wait.
func (l *Lead) GiveUp() { l.ship.stop(errUnknown) }

// Reopen opens the copy to follow again after it has led. Errors as of Connect.
func (c *Copy) Reopen(ctx context.Context) error {
	if err := c.open(ctx); err != nil {
		return fmt.Errorf("copy the queue of %s: %w", c.db.cfg.Where, unavailable(err))
	}
	return nil
}

// Open takes the lead at once, whoever has it, and keeps it until somebody else does the
// same: there is no lease. The copy lies in a folder of its own, until the store is closed.
func Open(ctx context.Context, cfg Config) (*Lead, error) {
	d, err := Connect(ctx, cfg)
	if err != nil {
		return nil, err
	}
	l, err := d.openNow(ctx)
	if err != nil {
		d.Close()
		return nil, fmt.Errorf("open store %s: %w", cfg.Where, err)
	}
	return l, nil
}

func (d *Database) openNow(ctx context.Context) (*Lead, error) {
	t, err := d.seize(ctx, d.cfg.Lease, func(Leader) string { return "it was opened by " + d.cfg.Self.Instance })
	if err != nil {
		return nil, err
	}
	c, err := d.openCopy(ctx)
	if err != nil {
		return nil, err
	}
	l, err := c.lead(ctx, t.epoch, nil)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	l.after = append(l.after, func() error {
		d.Close()
		return c.lock.Close()
	})
	return l, nil
}
