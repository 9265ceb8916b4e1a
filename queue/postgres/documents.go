package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/agentsched/agentsched/internal/statedir"
)

// Documents are small texts by name, which every scheduler of the queue may change.
type Documents struct{ db *Database }

var _ statedir.Documents = (*Documents)(nil)

// Documents returns them.
func (d *Database) Documents() *Documents { return &Documents{d} }

// Read returns a text and its version; "": there is none.
func (x *Documents) Read(ctx context.Context, name string) (text []byte, version string, err error) {
	ctx, cancel := patient(ctx)
	defer cancel()
	var n int64
	err = x.db.pool.QueryRow(ctx, `SELECT text, version FROM documents WHERE name = $1`, name).Scan(&text, &n)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", fmt.Errorf("read %s in the database: %w", name, unavailable(err))
	}
	return text, strconv.FormatInt(n, 10), nil
}

// Version returns the version alone.
func (x *Documents) Version(ctx context.Context, name string) (string, error) {
	ctx, cancel := patient(ctx)
	defer cancel()
	var n int64
	err := x.db.pool.QueryRow(ctx, `SELECT version FROM documents WHERE name = $1`, name).Scan(&n)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read %s in the database: %w", name, unavailable(err))
	}
	return strconv.FormatInt(n, 10), nil
}

// Write replaces a text if its version is still that, "" where there must be none, and
// returns the new one.
func (x *Documents) Write(ctx context.Context, name string, text []byte, version string) (string, error) {
	if len(text) > statedir.MaxDocument {
		return "", fmt.Errorf("write %s in the database: it has %d bytes, and %d are the most", name, len(text), statedir.MaxDocument)
	}
	if text == nil {
		text = []byte{}
	}
	var n int64
	var err error
	if version == "" {
		err = x.db.pool.QueryRow(ctx, `INSERT INTO documents (name, text) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING RETURNING version`, name, text).Scan(&n)
	} else {
		old, parse := strconv.ParseInt(version, 10, 64)
		if parse != nil {
			return "", fmt.Errorf("write %s in the database: version %q is none", name, version)
		}
		err = x.db.pool.QueryRow(ctx, `UPDATE documents SET text = $2, version = nextval('document_version'), changed = clock_timestamp()
			WHERE name = $1 AND version = $3 RETURNING version`, name, text, old).Scan(&n)
	}
	if errors.Is(err, pgx.ErrNoRows) {
		err = statedir.ErrChanged
	}
	if err != nil {
		return "", fmt.Errorf("write %s in the database: %w", name, err)
	}
	return strconv.FormatInt(n, 10), nil
}

// Where implements statedir.Documents.
func (x *Documents) Where(name string) string { return name + " in the database" }
