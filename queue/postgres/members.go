package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Member is a scheduler of the queue.
type Member struct {
	Instance    string // of its state directory
	Host        string
	Address     string // host:port at which other members reach it; "": they cannot
	Fingerprint string // SHA-256 of its certificate there, in hexadecimal
	Version     string
	Config      string // a hash of its configuration
	// Set by the database alone.
	Started time.Time
	Silent  time.Duration // since it was seen
}

// memberTime is how long a member is known that is not seen any more.
const memberTime = 24 * time.Hour

// Announce says who this scheduler is and that it lives. It is to be called every few
// seconds.
func (d *Database) Announce(ctx context.Context) error {
	m := &d.cfg.Self
	b := &pgx.Batch{}
	b.Queue(`INSERT INTO members (instance, host, address, fingerprint, version, config, started, seen) VALUES ($1, $2, $3, $4, $5, $6, clock_timestamp(), clock_timestamp())
		ON CONFLICT (instance) DO UPDATE SET host = excluded.host, address = excluded.address, fingerprint = excluded.fingerprint, version = excluded.version,
			config = excluded.config, seen = excluded.seen, started = CASE WHEN members.fingerprint = excluded.fingerprint THEN members.started ELSE excluded.started END`,
		m.Instance, m.Host, m.Address, m.Fingerprint, m.Version, m.Config)
	b.Queue(`DELETE FROM members WHERE seen < clock_timestamp() - make_interval(secs => $1)`, memberTime.Seconds())
	if err := d.pool.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("announce this scheduler: %w", unavailable(err))
	}
	return nil
}

// ErrTwice is wrapped where another host has a scheduler of the same instance: one of the
// two state directories is a copy of the other.
var ErrTwice = errors.New("the state directory is a copy of one that is in use")

// aliveTime is how long a member counts as alive after it was seen.
const aliveTime = 10 * time.Second

// Join is the first Announce. It refuses an instance that lives on another host.
func (d *Database) Join(ctx context.Context) error {
	var host string
	var silent time.Duration
	err := d.pool.QueryRow(ctx, `SELECT host, clock_timestamp() - seen FROM members WHERE instance = $1`, d.cfg.Self.Instance).Scan(&host, &silent)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
	case err != nil:
		return fmt.Errorf("announce this scheduler: %w", unavailable(err))
	case host != d.cfg.Self.Host && silent < aliveTime:
		return fmt.Errorf("host %s has a scheduler of instance %s: %w", host, d.cfg.Self.Instance, ErrTwice)
	}
	return d.Announce(ctx)
}

// Leave says that this scheduler ends.
func (d *Database) Leave(ctx context.Context) error {
	_, err := d.pool.Exec(ctx, `DELETE FROM members WHERE instance = $1`, d.cfg.Self.Instance)
	return err
}

// Members returns the schedulers of the queue, by instance.
func (d *Database) Members(ctx context.Context) ([]Member, error) {
	rows, err := d.pool.Query(ctx, `SELECT instance, host, address, fingerprint, version, config, started, clock_timestamp() - seen FROM members ORDER BY instance`)
	if err != nil {
		return nil, unavailable(err)
	}
	return collect(rows, func(row pgx.CollectableRow) (m Member, err error) {
		err = row.Scan(&m.Instance, &m.Host, &m.Address, &m.Fingerprint, &m.Version, &m.Config, &m.Started, &m.Silent)
		return m, err
	})
}

// A PastTerm is one of the latest times for which somebody has led.
type PastTerm struct {
	Epoch    int64
	Instance string
	Since    time.Time
	Reason   string
}

// Terms returns the latest ones, the newest first.
func (d *Database) Terms(ctx context.Context, limit int) ([]PastTerm, error) {
	rows, err := d.pool.Query(ctx, `SELECT epoch, holder, since, reason FROM terms ORDER BY epoch DESC LIMIT $1`, limit)
	if err != nil {
		return nil, unavailable(err)
	}
	return collect(rows, func(row pgx.CollectableRow) (t PastTerm, err error) {
		err = row.Scan(&t.Epoch, &t.Instance, &t.Since, &t.Reason)
		return t, err
	})
}

func collect[T any](rows pgx.Rows, scan pgx.RowToFunc[T]) ([]T, error) {
	list, err := pgx.CollectRows(rows, scan)
	return list, unavailable(err)
}
