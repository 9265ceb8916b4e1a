package postgres

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/jackc/pgx/v5"

	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/queue/sqlite"
)

// Copy is the copy of the queue on this host: one that follows, or leads.
type Copy struct {
	db   *Database
	path string
	lock *os.File

	// While it follows.
	stop    context.CancelFunc
	stopped chan struct{}
	leader  chan struct{} // receives when who leads may have changed

	mu       sync.Mutex // guards what follows
	store    *sqlite.Store
	revision int64
	waiters  map[chan struct{}]int64 // closed when the revision is reached
}

// OpenCopy makes the copy, or brings the one that is there up to date. It does not
// follow yet. Errors as of Connect.
func (d *Database) OpenCopy(ctx context.Context) (*Copy, error) {
	c, err := d.openCopy(ctx)
	if err != nil {
		return nil, fmt.Errorf("copy the queue of %s: %w", d.cfg.Where, unavailable(err))
	}
	return c, nil
}

func (d *Database) openCopy(ctx context.Context) (_ *Copy, err error) {
	if err := d.pool.QueryRow(ctx, `SELECT version FROM meta`).Scan(&d.version); err != nil {
		return nil, err
	}
	if d.version > d.newest {
		return nil, fmt.Errorf("its tables have version %d and this program knows versions up to %d: %w", d.version, d.newest, queue.ErrNewerVersion)
	}
	if err := os.MkdirAll(d.cfg.Folder, 0o700); err != nil {
		return nil, err
	}
	c := &Copy{db: d, path: filepath.Join(d.cfg.Folder, "copy.db"), leader: make(chan struct{}, 1), waiters: map[chan struct{}]int64{}}
	if c.lock, err = os.OpenFile(filepath.Join(d.cfg.Folder, "lock"), os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(c.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		c.lock.Close()
		return nil, fmt.Errorf("another process has the copy in %s: %w", d.cfg.Folder, err)
	}
	if err := c.open(ctx); err != nil {
		return nil, errors.Join(err, c.closeStore(), c.lock.Close())
	}
	return c, nil
}

func (c *Copy) closeStore() error {
	if c.store == nil {
		return nil
	}
	return c.store.Close()
}

// open opens the copy to follow in place of the one that is open, from a new file if the one that
// is there is in doubt.
func (c *Copy) open(ctx context.Context) error {
	if err := c.closeStore(); err != nil {
		return err
	}
	opts := sqlite.CopyOptions{Log: c.db.cfg.Log, Version: c.db.version}
	for fresh := false; ; fresh = true {
		if fresh {
			if err := sqlite.RemoveCopy(c.path); err != nil {
				return err
			}
		}
		s, err := sqlite.OpenCopy(ctx, c.path, opts)
		if err != nil && fresh {
			return err
		}
		if err != nil {
			continue
		}
		c.setStore(s)
		of, err := c.store.Copied(ctx)
		if err == nil && !of.Leads && of.Truth == c.db.id && of.Boot == bootID() && of.Boot != "" {
			c.reached(of.Revision)
			return nil
		}
		if fresh || err == nil && of.Truth == "" {
			break
		}
		if err := c.store.Close(); err != nil {
			return err
		}
	}
	return c.reload(ctx)
}

func (c *Copy) reload(ctx context.Context) error {
	began := time.Now()
	revision, err := c.db.load(ctx, c.store)
	if err != nil {
		return err
	}
	c.db.cfg.Log.Info().Int64("revision", revision).Dur("took_ms", time.Since(began)).Msg("the queue was copied from the database")
	c.reached(revision)
	return nil
}

func (c *Copy) reached(revision int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.revision = revision
	for w, at := range c.waiters {
		if at <= revision {
			close(w)
			delete(c.waiters, w)
		}
	}
}

// Revision is what the copy goes up to.
func (c *Copy) Revision() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.revision
}

// Await returns when the copy goes up to a revision.
func (c *Copy) Await(ctx context.Context, revision int64) error {
	c.mu.Lock()
	if c.revision >= revision {
		c.mu.Unlock()
		return nil
	}
	w := make(chan struct{})
	c.waiters[w] = revision
	c.mu.Unlock()
	select {
	case <-w:
		return nil
	case <-ctx.Done():
		c.mu.Lock()
		delete(c.waiters, w)
		c.mu.Unlock()
		return fmt.Errorf("wait for revision %d of the queue: %w", revision, context.Cause(ctx))
	}
}

// Store is the copy to read; nil while its tables are of an older version than the
// program's, until that leads.
func (c *Copy) Store() *sqlite.Store {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.db.version != c.db.newest {
		return nil
	}
	return c.store
}

func (c *Copy) setStore(s *sqlite.Store) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.store = s
}

// LeaderChanged receives, while the copy follows, when who leads may have changed.
func (c *Copy) LeaderChanged() <-chan struct{} { return c.leader }

// Follow keeps the copy up to date until Unfollow.
func (c *Copy) Follow() {
	ctx, stop := context.WithCancel(context.Background())
	c.stop, c.stopped = stop, make(chan struct{})
	go func() {
		defer close(c.stopped)
		c.follow(ctx)
	}()
}

// Unfollow ends Follow.
func (c *Copy) Unfollow() {
	if c.stop != nil {
		c.stop()
		<-c.stopped
		c.stop = nil
	}
}

// follow catches up whenever the database says that something has changed, and looks by
// itself every followEvery.
func (c *Copy) follow(ctx context.Context) {
	wait := backoff.NewExponentialBackOff(backoff.WithInitialInterval(50*time.Millisecond), backoff.WithMaxInterval(2*time.Second), backoff.WithMaxElapsedTime(0))
	for ctx.Err() == nil {
		err := c.listen(ctx, wait.Reset)
		if ctx.Err() != nil {
			return
		}
		c.db.cfg.Log.Warn().Err(err).Msg("the copy of the queue does not follow the database; it is tried again")
		select {
		case <-ctx.Done():
		case <-time.After(wait.NextBackOff()):
		}
	}
}

const followEvery = time.Second

func (c *Copy) listen(ctx context.Context, ok func()) error {
	conn, err := pgx.ConnectConfig(ctx, c.db.cfg.Where.connConfig())
	if err != nil {
		return err
	}
	defer disconnect(conn)
	if _, err := conn.Exec(ctx, `LISTEN agentsched`); err != nil {
		return err
	}
	for {
		if err := c.catchUp(ctx, conn); err != nil {
			return err
		}
		ok()
		said, err := waitFor(ctx, conn)
		if err != nil {
			return err
		}
		if said == "leader" {
			select {
			case c.leader <- struct{}{}:
			default:
			}
		}
	}
}

// waitFor waits for a notification, for followEvery at most.
func waitFor(ctx context.Context, conn *pgx.Conn) (string, error) {
	waiting, cancel := context.WithTimeout(ctx, followEvery)
	defer cancel()
	n, err := conn.WaitForNotification(waiting)
	switch {
	case err == nil:
		return n.Payload, nil
	case ctx.Err() == nil && waiting.Err() != nil && !conn.IsClosed():
		return "", nil
	}
	return "", err
}

// maxChanges is how many changes are read and merged together.
const maxChanges = 200

// catchUp merges what has changed since the copy's revision.
func (c *Copy) catchUp(ctx context.Context, conn *pgx.Conn) error {
	for {
		revision := c.Revision()
		patches, last, whole, err := readChanges(ctx, conn, revision)
		switch {
		case err != nil:
			return err
		case !whole:
			if err := c.renew(ctx); err != nil {
				return err
			}
			continue
		case last == revision:
			return nil
		}
		if err := c.store.Merge(ctx, patches, c.db.copied(last)); err != nil {
			if !errors.Is(err, queue.ErrCorrupt) {
				return err
			}
			c.db.cfg.Log.Error().Err(err).Int64("revision", revision).Msg("the copy of the queue is none of what the database holds; it is made anew")
			if err := c.renew(ctx); err != nil {
				return err
			}
			continue
		}
		c.reached(last)
	}
}

// renew loads the copy anew.
func (c *Copy) renew(ctx context.Context) error {
	var version int
	if err := c.db.pool.QueryRow(ctx, `SELECT version FROM meta`).Scan(&version); err != nil {
		return err
	}
	switch {
	case version > c.db.newest:
		return fmt.Errorf("the tables have version %d by now and this program knows versions up to %d; it neither follows nor leads: %w", version, c.db.newest, queue.ErrNewerVersion)
	case version != c.db.version:
		if err := c.store.Close(); err != nil {
			return err
		}
		c.mu.Lock()
		c.db.version = version
		c.mu.Unlock()
		return errors.Join(sqlite.RemoveCopy(c.path), c.open(ctx))
	}
	return c.reload(ctx)
}

// readChanges returns the patches after a revision and the revision of the last; whole is
// false if the feed does not have them all any more.
func readChanges(ctx context.Context, conn *pgx.Conn, after int64) (patches [][]byte, last int64, whole bool, err error) {
	rows, err := conn.Query(ctx, `SELECT revision, patch FROM changes WHERE revision >= $1 ORDER BY revision LIMIT $2`, after, maxChanges)
	if err != nil {
		return nil, 0, false, err
	}
	defer rows.Close()
	last = after
	bytes := 0
	for first := true; rows.Next(); first = false {
		var revision int64
		var feed []byte
		if err := rows.Scan(&revision, &feed); err != nil {
			return nil, 0, false, err
		}
		switch {
		case first && revision == after:
			whole = true
			continue
		case first || revision != last+1 || feed == nil:
			return nil, 0, false, nil
		}
		last = revision
		for len(feed) > 0 {
			n, width := binary.Uvarint(feed)
			if width <= 0 || n > uint64(len(feed)-width) {
				return nil, 0, false, fmt.Errorf("revision %d: %w", revision, errPatch)
			}
			patches = append(patches, feed[width:width+int(n)])
			feed = feed[width+int(n):]
		}
		if bytes += len(feed); bytes > maxShipment {
			break
		}
	}
	return patches, last, whole, rows.Err()
}

// Close closes the copy, which does not follow or lead any more.
func (c *Copy) Close() error {
	c.Unfollow()
	return errors.Join(c.store.Close(), c.lock.Close())
}
