package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/agentsched/agentsched/queue"
)

// writing is a queue.Write that was looked at: value is its JSON without blanks,
// so that two of them can be compared.
type writing struct {
	queue.Write
	value string
}

func newWriting(op queue.Write) (w writing, err error) {
	r := op.Record
	if len(r.Value) == 0 {
		r.Value = json.RawMessage("null")
	}
	var value bytes.Buffer
	if r.Space == "" || r.Key == "" {
		err = errors.New("want both a space and a key")
	} else if err = json.Compact(&value, r.Value); err != nil {
		err = fmt.Errorf("its value is no JSON: %w", err)
	}
	if err != nil {
		return w, fmt.Errorf("record %q of %q: %w", r.Key, r.Space, err)
	}
	return writing{op, value.String()}, nil
}

func (t *tx) write(op writing) error {
	r := op.Record
	if op.Once {
		var there string
		err := t.row(`SELECT value FROM records WHERE space = ? AND key = ?`, []any{r.Space, r.Key}, &there)
		switch {
		case err == nil && there == op.value:
			return nil
		case err == nil:
			return fmt.Errorf("record %q of %q: %w", r.Key, r.Space, queue.ErrExists)
		case !errors.Is(err, sql.ErrNoRows):
			return err
		}
	}
	return t.exec(`INSERT INTO records (space, key, value, at) VALUES (?, ?, ?, ?)
		ON CONFLICT (space, key) DO UPDATE SET value = excluded.value, at = excluded.at`, r.Space, r.Key, op.value, nanos(r.At))
}

func (t *tx) erase(op queue.Erase) error {
	return t.exec(`DELETE FROM records WHERE space = ? AND key <= ? AND key <> ''`, op.Space, op.UpTo)
}

// Record implements queue.Journal.
func (s *Store) Record(ctx context.Context, space, key string) (queue.Record, error) {
	r := queue.Record{Space: space, Key: key}
	var value string
	var at int64
	err := s.reads.QueryRowContext(ctx, `SELECT value, at FROM records WHERE space = ? AND key = ?`, space, key).Scan(&value, &at)
	if err != nil {
		return queue.Record{}, fmt.Errorf("record %q of %q: %w", key, space, readError(ctx, err))
	}
	r.Value, r.At = json.RawMessage(value), moment(at)
	return r, nil
}

// Records implements queue.Journal. A limit below 1 means 1000.
func (s *Store) Records(ctx context.Context, space, after string, limit int) ([]queue.Record, error) {
	list, err := s.records(ctx, space, after, limit)
	if err != nil {
		return nil, fmt.Errorf("records of %q: %w", space, readError(ctx, err))
	}
	return list, nil
}

func (s *Store) records(ctx context.Context, space, after string, limit int) (list []queue.Record, err error) {
	rows, err := s.reads.QueryContext(ctx, `SELECT key, value, at FROM records WHERE space = ? AND key > ? ORDER BY key LIMIT ?`, space, after, limitOf(limit))
	if err != nil {
		return nil, err
	}
	err = eachRow(rows, func(rows *sql.Rows) error {
		r := queue.Record{Space: space}
		var value string
		var at int64
		err := rows.Scan(&r.Key, &value, &at)
		r.Value, r.At = json.RawMessage(value), moment(at)
		list = append(list, r)
		return err
	})
	return list, err
}

// selectSpaces goes from space to space, each of them a seek.
const selectSpaces = `WITH RECURSIVE s (space) AS (
		SELECT min(space) FROM records WHERE space >= ?1 AND space < ?2
	UNION ALL
		SELECT (SELECT min(r.space) FROM records r WHERE r.space > s.space AND r.space < ?2) FROM s WHERE s.space IS NOT NULL
	)
	SELECT space FROM s WHERE space IS NOT NULL`

// Spaces implements queue.Journal.
func (s *Store) Spaces(ctx context.Context, prefix string) (spaces []string, err error) {
	rows, err := s.reads.QueryContext(ctx, selectSpaces, prefix, behind(prefix))
	if err == nil {
		err = eachRow(rows, func(rows *sql.Rows) error {
			var space string
			err := rows.Scan(&space)
			spaces = append(spaces, space)
			return err
		})
	}
	if err != nil {
		return nil, fmt.Errorf("spaces of records that begin with %q: %w", prefix, readError(ctx, err))
	}
	return spaces, nil
}

// behind returns a text that is behind every text with the prefix: no byte of
// UTF-8 is 0xff.
func behind(prefix string) string { return prefix + "\xff" }
