package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/agentsched/agentsched/internal/parcel"
)

// Parcels are folders of submitters, which every scheduler of the queue has. Times of
// their last use are the database's.
type Parcels struct{ db *Database }

var _ parcel.Store = (*Parcels)(nil)

// Parcels returns them.
func (d *Database) Parcels() *Parcels { return &Parcels{d} }

// pieceSize is of a row, as the migration says.
const pieceSize = 512 << 10

// Put implements parcel.Store.
func (x *Parcels) Put(ctx context.Context, k parcel.Kept, content io.Reader) error {
	err := pgx.BeginFunc(ctx, x.db.pool, func(tx pgx.Tx) error {
		// One that is there is locked until the end of this, so that nobody removes it.
		var made bool
		err := tx.QueryRow(ctx, `INSERT INTO parcels (digest, repository, on_digest, base, commit_id, size) VALUES ($1, $2, $3, $4, $5, $6)
			ON CONFLICT (digest) DO UPDATE SET used = clock_timestamp() RETURNING xmax = 0`, k.Digest, k.Repository, k.On, k.Base, k.Commit, k.Size).Scan(&made)
		if err != nil || !made {
			return err
		}
		return putPieces(ctx, tx, k.Digest, content)
	})
	if err != nil {
		return fmt.Errorf("keep parcel %.12s in the database: %w", k.Digest, err)
	}
	return nil
}

func putPieces(ctx context.Context, tx pgx.Tx, digest string, content io.Reader) error {
	return inPieces(content, func(number int, piece []byte) error {
		_, err := tx.Exec(ctx, `INSERT INTO parcel_pieces (digest, number, data) VALUES ($1, $2, $3)`, digest, number, piece)
		return err
	})
}

// returningKept is what scanKept reads.
const returningKept = ` RETURNING digest, repository, on_digest, base, commit_id, size`

func scanKept(row pgx.Row, what string) (k parcel.Kept, err error) {
	err = row.Scan(&k.Digest, &k.Repository, &k.On, &k.Base, &k.Commit, &k.Size)
	if errors.Is(err, pgx.ErrNoRows) {
		return parcel.Kept{}, fmt.Errorf("%s: %w", what, parcel.ErrUnknown)
	}
	if err != nil {
		return parcel.Kept{}, fmt.Errorf("read %s in the database: %w", what, err)
	}
	return k, nil
}

// Use implements parcel.Store.
func (x *Parcels) Use(ctx context.Context, digest string) (parcel.Kept, error) {
	return scanKept(x.db.pool.QueryRow(ctx, `UPDATE parcels SET used = clock_timestamp() WHERE digest = $1`+returningKept, digest), fmt.Sprintf("parcel %.12s", digest))
}

// Newest implements parcel.Store.
func (x *Parcels) Newest(ctx context.Context, repository, commit string) (parcel.Kept, error) {
	return scanKept(x.db.pool.QueryRow(ctx, `UPDATE parcels SET used = clock_timestamp() WHERE digest = (SELECT digest FROM parcels
		WHERE repository = $1 AND (commit_id = $2 OR $2 = '' AND on_digest = '') ORDER BY used DESC LIMIT 1)`+returningKept, repository, commit),
		fmt.Sprintf("a parcel of repository %.12s", repository))
}

// ReadAt implements parcel.Store.
func (x *Parcels) ReadAt(ctx context.Context, digest string, offset int64, n int) (data []byte, size int64, err error) {
	err = x.db.pool.QueryRow(ctx, `SELECT size FROM parcels WHERE digest = $1`, digest).Scan(&size)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, 0, fmt.Errorf("parcel %.12s: %w", digest, parcel.ErrUnknown)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("read parcel %.12s in the database: %w", digest, err)
	}
	if n = int(max(min(int64(n), size-offset), 0)); n == 0 {
		return nil, size, nil
	}
	first, last := offset/pieceSize, (offset+int64(n)-1)/pieceSize
	rows, err := x.db.pool.Query(ctx, `SELECT data FROM parcel_pieces WHERE digest = $1 AND number BETWEEN $2 AND $3 ORDER BY number`, digest, first, last)
	if err != nil {
		return nil, 0, fmt.Errorf("read parcel %.12s in the database: %w", digest, err)
	}
	pieces, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
	if err != nil {
		return nil, 0, fmt.Errorf("read parcel %.12s in the database: %w", digest, err)
	}
	all := bytes.Join(pieces, nil)
	from := int(offset - first*pieceSize)
	if len(all) < from+n {
		return nil, 0, fmt.Errorf("parcel %.12s has lost a part in the database", digest)
	}
	return all[from : from+n], size, nil
}

// Size implements parcel.Store.
func (x *Parcels) Size(ctx context.Context) (total int64, err error) {
	if err := x.db.pool.QueryRow(ctx, `SELECT coalesce(sum(size), 0)::bigint FROM parcels`).Scan(&total); err != nil {
		return 0, fmt.Errorf("measure the parcels in the database: %w", err)
	}
	return total, nil
}

// Prune implements parcel.Store.
func (x *Parcels) Prune(ctx context.Context, named map[string]bool, before time.Time) (int, error) {
	stay := make([]string, 0, len(named))
	for digest := range named {
		stay = append(stay, digest)
	}
	// The age, since the two clocks may differ.
	tag, err := x.db.pool.Exec(ctx, `DELETE FROM parcels WHERE used < clock_timestamp() - make_interval(secs => $2) AND NOT digest = ANY($1)`, stay, time.Since(before).Seconds())
	if err != nil {
		return 0, fmt.Errorf("remove parcels in the database: %w", err)
	}
	return int(tag.RowsAffected()), nil
}
