package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/agentsched/agentsched/queue"
)

// Term is a time for which a scheduler leads. It renews its lease until it is released,
// or lost to another one.
type Term struct {
	db    *Database
	epoch int64
	lease time.Duration

	mu    sync.Mutex // guards what follows
	until time.Time  // up to which nobody else can have taken over, with the monotonic clock
	err   error      // why it is over
	// changed is called, without mu, when valid may have changed; nil: nobody asks.
	changed func()

	lost chan struct{} // closed when it is over
	stop context.CancelFunc
	done chan struct{} // closed when nothing is renewed any more
}

// Epoch is the term's number.
func (t *Term) Epoch() int64 { return t.epoch }

// Lost is closed when another scheduler has taken over.
func (t *Term) Lost() <-chan struct{} { return t.lost }

// Err returns why the term is over, nil if it is not.
func (t *Term) Err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

// Silent returns for how long nobody has been able to take the lease as renewed; 0 while
// it holds.
func (t *Term) Silent() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return max(0, time.Since(t.until))
}

func (t *Term) valid() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err == nil && time.Now().Before(t.until)
}

// drift is the share of a lease by which the clocks of the database and of this host may
// part while it lasts.
const drift = 10 // per cent

// renewed notes that the lease was renewed by a request that was sent at that time.
func (t *Term) renewed(sent time.Time) {
	t.mu.Lock()
	t.until = sent.Add(t.lease * (100 - drift) / 100)
	changed := t.changed
	t.mu.Unlock()
	if changed != nil {
		changed()
	}
}

// tell has changed called from now on when valid may have changed.
func (t *Term) tell(changed func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.changed = changed
}

// lose ends the term.
func (t *Term) lose(err error) {
	t.mu.Lock()
	first := t.err == nil
	if first {
		t.err = err
		close(t.lost)
	}
	changed := t.changed
	t.mu.Unlock()
	if first {
		t.stop()
		if changed != nil {
			changed()
		}
	}
}

// keep renews the lease until the term ends.
func (t *Term) keep(ctx context.Context) {
	defer close(t.done)
	every := t.lease / 5
	tick := time.NewTicker(every)
	defer tick.Stop()
	var conn *pgx.Conn
	defer func() { disconnect(conn) }()
	silent := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		sent := time.Now()
		held := false
		err := func() (err error) {
			ctx, cancel := context.WithTimeout(ctx, t.lease)
			defer cancel()
			if conn == nil {
				if conn, err = pgx.ConnectConfig(ctx, t.db.cfg.Where.connConfig()); err != nil {
					return err
				}
				sent = time.Now()
			}
			tag, err := conn.Exec(ctx, `UPDATE leader SET renewed = clock_timestamp() WHERE epoch = $1 AND NOT released`, t.epoch)
			held = tag.RowsAffected() == 1
			return err
		}()
		switch {
		case err == nil && held:
			if silent {
				t.db.cfg.Log.Info().Int64("epoch", t.epoch).Msg("the lease is renewed again")
			}
			silent = false
			t.renewed(sent)
		case err == nil:
			t.lose(fmt.Errorf("epoch %d: %w", t.epoch, queue.ErrDeposed))
			return
		case ctx.Err() == nil:
			if !silent {
				t.db.cfg.Log.Warn().Err(err).Int64("epoch", t.epoch).Msg("the lease could not be renewed")
			}
			silent = true
			disconnect(conn)
			conn = nil
		}
	}
}

// disconnect gives a connection up, without a word: it may not answer.
func disconnect(conn *pgx.Conn) {
	if conn == nil {
		return
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	conn.Close(ended) //nolint:errcheck // it is given up
}

// Release ends the term, so that a standby takes over at once.
func (t *Term) Release(ctx context.Context) error {
	t.stop()
	<-t.done
	if t.Err() != nil {
		return nil
	}
	_, err := t.db.pool.Exec(ctx, `WITH gone AS (UPDATE leader SET released = true WHERE epoch = $1 RETURNING 1) SELECT pg_notify('agentsched', 'leader') FROM gone`, t.epoch)
	t.lose(errReleased)
	if err != nil {
		return fmt.Errorf("give up the lead: %w", err)
	}
	return nil
}

// Abandon ends the term without a word to the database: the next program of this
// scheduler takes over from it.
func (t *Term) Abandon() {
	t.stop()
	<-t.done
	t.lose(errReleased)
}

var errReleased = errors.New("the lead was given up")

// A Leader is who leads, as the database has it.
type Leader struct {
	Epoch    int64
	Instance string // members.instance; "": nobody ever has
	Since    time.Time
	Reason   string        // why it took over
	Silent   time.Duration // since it has renewed its lease
	Lease    time.Duration
	Released bool // it has given up the lead

	renewed time.Time // by the database's clock, which may be set
}

// Alive reports whether the lease holds.
func (l *Leader) Alive() bool { return l.Instance != "" && !l.Released && l.Silent < l.Lease }

// Leader asks who leads.
func (d *Database) Leader(ctx context.Context) (Leader, error) {
	l, err := leaderOf(ctx, d.pool)
	return l, unavailable(err)
}

type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

const selectLeader = `SELECT epoch, holder, since, reason, clock_timestamp() - renewed, lease, released, renewed FROM leader`

func leaderOf(ctx context.Context, from querier) (l Leader, err error) {
	err = from.QueryRow(ctx, selectLeader).
		Scan(&l.Epoch, &l.Instance, &l.Since, &l.Reason, &l.Silent, &l.Lease, &l.Released, &l.renewed)
	return l, err
}

// seize takes the lead from whoever has it, if why says so of that one; nil: it did not.
func (d *Database) seize(ctx context.Context, lease time.Duration, why func(Leader) string) (_ *Term, err error) {
	var t *Term
	err = pgx.BeginFunc(ctx, d.pool, func(tx pgx.Tx) error {
		t = nil
		var now Leader
		sent := time.Now()
		err := tx.QueryRow(ctx, selectLeader+` FOR UPDATE`).
			Scan(&now.Epoch, &now.Instance, &now.Since, &now.Reason, &now.Silent, &now.Lease, &now.Released, &now.renewed)
		if err != nil {
			return err
		}
		reason := why(now)
		if reason == "" {
			return nil
		}
		var version int
		if err := tx.QueryRow(ctx, `SELECT version FROM meta`).Scan(&version); err != nil {
			return err
		}
		if version > d.newest { // a newer program has led
			return nil
		}
		t = &Term{db: d, epoch: now.Epoch + 1, lease: lease, lost: make(chan struct{}), done: make(chan struct{})}
		t.until = sent.Add(lease * (100 - drift) / 100)
		_, err = tx.Exec(ctx, `UPDATE leader SET epoch = $1, holder = $2, since = clock_timestamp(), renewed = clock_timestamp(), lease = $3, released = false, reason = $4`,
			t.epoch, d.cfg.Self.Instance, lease, reason)
		if err == nil {
			_, err = tx.Exec(ctx, `INSERT INTO terms (epoch, holder, since, reason) VALUES ($1, $2, clock_timestamp(), $3)`, t.epoch, d.cfg.Self.Instance, reason)
		}
		if err == nil {
			_, err = tx.Exec(ctx, `DELETE FROM terms WHERE epoch <= $1`, t.epoch-maxTerms)
		}
		if err == nil {
			_, err = tx.Exec(ctx, `SELECT pg_notify('agentsched', 'leader')`)
		}
		return err
	})
	if err != nil || t == nil {
		return nil, err
	}
	return t, nil
}

// maxTerms is how many past terms are known.
const maxTerms = 100

// begin renews the lease from now on.
func (t *Term) begin() {
	ctx, stop := context.WithCancel(context.Background())
	t.stop = stop
	go t.keep(ctx)
}

// Stand takes the lead if nobody has it, and renews it; nil: somebody has.
func (d *Database) Stand(ctx context.Context) (*Term, error) { return d.stand(ctx, &sighting{}) }

func (d *Database) stand(ctx context.Context, seen *sighting) (*Term, error) {
	vacant := func(l Leader) string {
		l.Silent = max(l.Silent, seen.note(l))
		return d.vacant(l)
	}
	l, err := d.Leader(ctx) // without the lock that commits wait for
	if err != nil || vacant(l) == "" {
		return nil, err
	}
	t, err := d.seize(ctx, d.cfg.Lease, vacant)
	if err != nil || t == nil {
		return nil, err
	}
	t.begin()
	return t, nil
}

// Campaign waits until nobody leads, takes the lead, and renews it. The error is ctx's.
// It looks whenever changed receives, and by itself.
func (d *Database) Campaign(ctx context.Context, changed <-chan struct{}) (*Term, error) {
	tick := time.NewTicker(max(d.cfg.Lease/10, 100*time.Millisecond))
	defer tick.Stop()
	told := false
	var seen sighting
	for {
		t, err := d.stand(ctx, &seen)
		switch {
		case t != nil:
			return t, nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case err != nil && !told:
			d.cfg.Log.Warn().Err(err).Msg("the database cannot be asked who leads")
		}
		told = err != nil
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-tick.C:
		case <-changed:
		}
	}
}

// sighting is when a standby has last seen that the leader has renewed its lease, by its
// own monotonic clock: the database's may be set back, and would let nobody lead then.
type sighting struct {
	epoch   int64
	renewed time.Time
	at      time.Time
}

// note returns for how long the leader has certainly been silent: the time since it was
// first seen as it is, less what the clocks may differ by.
func (s *sighting) note(l Leader) time.Duration {
	if l.Epoch != s.epoch || !l.renewed.Equal(s.renewed) || s.at.IsZero() {
		*s = sighting{l.Epoch, l.renewed, time.Now()}
	}
	return time.Since(s.at) * (100 - drift) / 100
}

// vacant says why a leader is none any more; "": it is one.
func (d *Database) vacant(l Leader) string {
	switch {
	case l.Epoch == 0:
		return "nobody has led before"
	case l.Released:
		return l.Instance + " has given up the lead"
	case l.Instance == d.cfg.Self.Instance:
		return "it was started again" // it has the lock of its state directory
	case l.Silent >= l.Lease:
		return fmt.Sprintf("%s has not renewed its lease for %s", l.Instance, l.Silent.Round(100*time.Millisecond))
	}
	return ""
}
