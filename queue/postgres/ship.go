package postgres

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/jackc/pgx/v5"

	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/queue/sqlite"
)

// What waits to be sent is bounded: beyond it the store executes nothing more.
const (
	maxPending      = 2048     // commits
	maxPendingBytes = 32 << 20 // of patches
	maxShipment     = 8 << 20  // bytes of patches in one transaction
)

// The feed is kept for standbys that were away: feedTime, but not more than feedBytes.
const (
	feedTime  = 10 * time.Minute
	feedBytes = 256 << 20
	feedEvery = 30 * time.Second
)

// closeTime is how long what is pending may take when the store is closed.
const closeTime = 10 * time.Second

// errUnknown is wrapped where a commit was sent and the answer never came.
var errUnknown = fmt.Errorf("the database did not answer: it may have happened or not: %w", context.DeadlineExceeded)

// shipper is the sqlite.Truth of a leader. Its goroutine sends what waits:
//
//	Ship ──► pending ──► one transaction for all of them ──► acknowledged ──► Done, Await
//
// A transaction whose end is not known is looked for by its revision, on a new
// connection, and sent again if it is not there.
type shipper struct {
	db     *Database
	tables map[string]*table
	epoch  int64
	term   *Term // nil: one that was seized, which has no lease

	mu       sync.Mutex // guards what follows
	changed  sync.Cond  // of all of it
	pending  []sqlite.Commit
	bytes    int   // of pending
	sent     int64 // the number of the newest commit that was taken
	acked    int64 // and of the newest one that is in the database
	revision int64 // of that
	err      error // why nothing is sent any more
	closing  bool
	idle     chan struct{} // closed when nothing is on its way; nil: nobody waits for that, or nothing is
	sending  bool
	waiters  map[chan struct{}]bool // closed when acked, err or the term changes

	// Of the goroutine alone.
	conn   *pgx.Conn
	cursor int64
	feed   []shipment // what this leader has added to the feed
	pruned time.Time

	ctx  context.Context // ends when nothing is to be tried again
	stop context.CancelCauseFunc
	done chan struct{}
}

type shipment struct {
	revision int64
	bytes    int
	at       time.Time
}

func newShipper(d *Database, tables map[string]*table, epoch, revision, cursor int64, term *Term) *shipper {
	s := &shipper{db: d, tables: tables, epoch: epoch, term: term, revision: revision, cursor: cursor, waiters: map[chan struct{}]bool{}, pruned: time.Now(), done: make(chan struct{})}
	s.changed.L = &s.mu
	s.ctx, s.stop = context.WithCancelCause(context.Background())
	if term != nil {
		term.tell(s.wake)
	}
	go s.run()
	return s
}

// Ship implements sqlite.Truth.
func (s *shipper) Ship(c sqlite.Commit) {
	s.mu.Lock()
	for s.err == nil && (len(s.pending) >= maxPending || s.bytes > maxPendingBytes) {
		s.changed.Wait()
	}
	err := s.err
	if err == nil {
		s.pending, s.bytes, s.sent = append(s.pending, c), s.bytes+len(c.Patch), c.Number
		s.changed.Broadcast()
	}
	s.mu.Unlock()
	if err != nil {
		c.Done(err)
	}
}

// Busy implements sqlite.Truth.
func (s *shipper) Busy() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil || !s.sending && len(s.pending) == 0 {
		return nil
	}
	if s.idle == nil {
		s.idle = make(chan struct{})
	}
	return s.idle
}

// rest tells those that wait for it that nothing is on its way; s.mu is held.
func (s *shipper) rest() {
	s.sending = false
	if s.idle != nil {
		close(s.idle)
		s.idle = nil
	}
}

// Await implements sqlite.Truth.
func (s *shipper) Await(ctx context.Context, number int64) error {
	var late <-chan time.Time
	for {
		s.mu.Lock()
		err, known := s.err, s.acked >= number
		var w chan struct{}
		if err == nil && !(known && s.valid()) {
			w = make(chan struct{})
			s.waiters[w] = true
		}
		s.mu.Unlock()
		if w == nil {
			return err
		}
		patience := queue.Patience(ctx)
		if late == nil && patience > 0 {
			timer := time.NewTimer(patience)
			defer timer.Stop()
			late = timer.C
		}
		select {
		case <-w:
			continue
		case <-late:
			err = fmt.Errorf("no answer within %s: %w", patience, queue.ErrUnavailable)
		case <-ctx.Done():
			err = fmt.Errorf("wait for the database: %w", context.Cause(ctx))
		}
		s.mu.Lock()
		delete(s.waiters, w)
		s.mu.Unlock()
		return err
	}
}

// valid reports whether nobody else can have taken over yet.
func (s *shipper) valid() bool { return s.term == nil || s.term.valid() }

// wake has all that wait look again.
func (s *shipper) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.release()
}

func (s *shipper) release() {
	for w := range s.waiters {
		close(w)
	}
	clear(s.waiters)
	s.changed.Broadcast()
}

// fail ends the sending: what waits, and comes, is answered with err.
func (s *shipper) fail(err error) {
	s.mu.Lock()
	if s.err == nil {
		s.err = err
	}
	err = s.err
	pending := s.pending
	s.pending, s.bytes = nil, 0
	s.rest()
	s.release()
	s.mu.Unlock()
	for _, c := range pending {
		c.Done(err)
	}
}

func (s *shipper) run() {
	defer close(s.done)
	defer func() {
		if s.conn != nil {
			s.conn.Close(context.Background()) //nolint:errcheck // nothing is under way on it
		}
	}()
	for {
		batch := s.next()
		if batch == nil {
			return
		}
		if err := s.send(batch); err != nil {
			if errors.Is(err, queue.ErrDeposed) && s.term != nil {
				s.term.lose(err)
			}
			s.mu.Lock()
			s.err = err
			s.mu.Unlock()
			for _, c := range batch {
				c.Done(err)
			}
			s.fail(err)
			return
		}
		s.mu.Lock()
		s.acked = batch[len(batch)-1].Number
		if len(s.pending) == 0 {
			s.rest()
		}
		s.release()
		s.mu.Unlock()
		for _, c := range batch {
			c.Done(nil)
		}
	}
}

// next waits for commits and returns as many as go together; nil: the end.
func (s *shipper) next() []sqlite.Commit {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.pending) == 0 {
		if s.closing || s.err != nil {
			return nil
		}
		s.changed.Wait()
	}
	n, bytes := 0, 0
	for n < len(s.pending) && (n == 0 || bytes+len(s.pending[n].Patch) <= maxShipment) {
		bytes += len(s.pending[n].Patch)
		n++
	}
	s.sending = true
	batch := s.pending[:n:n]
	s.pending, s.bytes = s.pending[n:], s.bytes-bytes
	s.changed.Broadcast()
	return batch
}

// send has the database commit what a batch has changed, and tries until it has or it
// is certain that it never will.
func (s *shipper) send(batch []sqlite.Commit) error {
	var all net
	var feed []byte
	size := 0
	for _, c := range batch {
		size += binary.MaxVarintLen32 + len(c.Patch)
	}
	cursor := s.cursor
	for _, c := range batch {
		if len(c.Patch) == 0 {
			continue
		}
		if feed == nil {
			feed = make([]byte, 0, size)
		}
		feed = binary.AppendUvarint(feed, uint64(len(c.Patch)))
		feed = append(feed, c.Patch...)
		r := patchReader{tables: s.tables, rest: string(c.Patch)}
		err := r.read(func(x change, key string) error {
			if x.table.Name == "events" && x.op == insert {
				cursor = max(cursor, x.at(0).n)
			}
			return all.add(x, key)
		})
		if err != nil {
			return err
		}
	}
	if feed == nil && s.term != nil && s.term.valid() {
		return nil // nobody else can have written
	}
	revision := s.revision
	if feed != nil {
		revision++
	}
	// A batch belongs to the connection that it was sent on.
	made := func() (*pgx.Batch, error) {
		b := &pgx.Batch{}
		if feed == nil {
			b.Queue(`SELECT 1 / count(*) FROM leader WHERE epoch = $1`, s.epoch)
			return b, nil
		}
		b.Queue(`INSERT INTO changes (revision, epoch, cursor, patch)
			SELECT $1::bigint, (SELECT epoch FROM leader WHERE epoch = $2 FOR KEY SHARE), $3::bigint, $4::bytea FROM pg_notify('agentsched', '')`, revision, s.epoch, cursor, feed)
		return b, all.queue(b)
	}
	if err := s.try(made, revision); err != nil {
		return err
	}
	if feed != nil {
		s.mu.Lock()
		s.revision = revision
		s.mu.Unlock()
		s.cursor, s.feed = cursor, append(s.feed, shipment{revision, len(feed), time.Now()})
		s.prune()
	}
	return nil
}

// try executes a batch that ends with revision, if that is not there already.
func (s *shipper) try(made func() (*pgx.Batch, error), revision int64) error {
	wait := backoff.NewExponentialBackOff(backoff.WithInitialInterval(20*time.Millisecond), backoff.WithMaxInterval(time.Second), backoff.WithMaxElapsedTime(0))
	unknown, told := false, false
	attempt := func() error {
		if s.ctx.Err() != nil {
			if unknown {
				return backoff.Permanent(errUnknown)
			}
			return backoff.Permanent(context.Cause(s.ctx))
		}
		err := s.connected()
		if err == nil && unknown {
			var there bool
			if there, err = s.there(revision); there && err == nil {
				return nil
			}
		}
		if err == nil {
			b, bad := made()
			if bad != nil {
				return backoff.Permanent(bad)
			}
			unknown = true
			err = s.execute(b)
		}
		switch {
		case err == nil:
			return nil
		case code(err) == notNull, code(err) == divisionByZero:
			return backoff.Permanent(fmt.Errorf("epoch %d: %w", s.epoch, queue.ErrDeposed))
		case !passing(err) && code(err) != uniqueKey:
			return backoff.Permanent(fmt.Errorf("the database refuses what was committed: %w", err))
		}
		if !told {
			s.db.cfg.Log.Warn().Err(err).Msg("the database does not take what was committed; it is tried again, and callers wait")
			told = true
		}
		s.disconnect()
		return err
	}
	err := backoff.Retry(attempt, backoff.WithContext(wait, context.WithoutCancel(s.ctx)))
	if told && err == nil {
		s.db.cfg.Log.Info().Msg("the database takes what is committed again")
	}
	return err
}

// execute sends a batch, which is one transaction.
func (s *shipper) execute(b *pgx.Batch) error {
	ctx, cancel := context.WithTimeout(s.ctx, answerTime)
	defer cancel()
	return s.conn.SendBatch(ctx, b).Close()
}

// answerTime is how long the database may take for one transaction before it is given
// up, and looked for on another connection.
const answerTime = 15 * time.Second

const (
	divisionByZero = "22012"
	uniqueKey      = "23505"
)

// there reports whether a revision is in the database, as this leader's. A transaction
// of before that may still be under way there holds the row that is asked for, or ends
// before it can commit.
func (s *shipper) there(revision int64) (there bool, err error) {
	err = s.conn.QueryRow(s.ctx, `SELECT EXISTS (SELECT 1 FROM changes WHERE revision = $1 AND epoch = $2)`, revision, s.epoch).Scan(&there)
	return there, err
}

// connected sees to it that there is a connection. Its statements are planned once, and
// find rows by their keys, however few the tables seem to have.
func (s *shipper) connected() error {
	if s.conn != nil && !s.conn.IsClosed() {
		return nil
	}
	cfg := s.db.cfg.Where.connConfig()
	cfg.StatementCacheCapacity = 1024
	cfg.RuntimeParams["enable_seqscan"], cfg.RuntimeParams["enable_hashjoin"], cfg.RuntimeParams["enable_mergejoin"] = "off", "off", "off"
	cfg.RuntimeParams["plan_cache_mode"] = "force_generic_plan"
	cfg.RuntimeParams["synchronous_commit"] = "on"
	var err error
	s.conn, err = pgx.ConnectConfig(s.ctx, cfg)
	return err
}

func (s *shipper) disconnect() {
	if s.conn != nil {
		ended, cancel := context.WithCancel(context.Background())
		cancel()            // without a word: it may not answer
		s.conn.Close(ended) //nolint:errcheck // it is given up
		s.conn = nil
	}
}

// prune removes what no standby can want any more from the feed.
func (s *shipper) prune() {
	now := time.Now()
	if now.Sub(s.pruned) < feedEvery {
		return
	}
	s.pruned = now
	bytes, upTo := 0, int64(0)
	for i := len(s.feed) - 1; i >= 0; i-- {
		if bytes += s.feed[i].bytes; bytes > feedBytes || now.Sub(s.feed[i].at) > feedTime {
			upTo = s.feed[i].revision
			s.feed = s.feed[i+1:]
			break
		}
	}
	_, err := s.conn.Exec(s.ctx, `DELETE FROM changes WHERE revision <= $1 OR revision < $2 AND at < clock_timestamp() - make_interval(secs => $3)`, upTo, s.revision, feedTime.Seconds())
	if err != nil {
		s.db.cfg.Log.Warn().Err(err).Msg("old changes stay in the database for now")
		s.disconnect()
	}
}

// close sends what waits, and returns the revision up to which all was acknowledged; ok
// is false where something was not.
func (s *shipper) close() (revision int64, ok bool) {
	s.mu.Lock()
	s.closing = true
	s.changed.Broadcast()
	s.mu.Unlock()
	late := time.AfterFunc(closeTime, func() { s.stop(errUnknown) })
	<-s.done
	late.Stop()
	s.stop(errClosed)
	s.fail(errClosed)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revision, s.acked == s.sent && errors.Is(s.err, errClosed)
}

var errClosed = errors.New("the store is closed")
