package sqlite

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

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
		there, found, err := t.record(r.Space, r.Key)
		switch {
		case err != nil || found && string(there.Value) == op.value:
			return err
		case found:
			return fmt.Errorf("record %q of %q: %w", r.Key, r.Space, queue.ErrExists)
		}
	}
	return t.setRecord(r.Space, r.Key, op.value, r.At)
}

func (t *tx) setRecord(space, key, value string, at time.Time) error {
	return t.exec(`INSERT INTO records (space, key, value, at) VALUES (?, ?, ?, ?)
		ON CONFLICT (space, key) DO UPDATE SET value = excluded.value, at = excluded.at`, space, key, value, at)
}

func (t *tx) deleteRecord(space, key string) error {
	return t.exec(`DELETE FROM records WHERE space = ? AND key = ?`, space, key)
}

func (t *tx) erase(op queue.Erase) error {
	return t.exec(`DELETE FROM records WHERE space = ? AND key <= ? AND key <> ''`, op.Space, op.UpTo)
}

// Record implements queue.Journal.
func (s *Store) Record(ctx context.Context, space, key string) (queue.Record, error) {
	return read(ctx, s, fmt.Sprintf("record %q of %q", key, space), func(d *db) (queue.Record, error) {
		r, found, err := d.record(space, key)
		if err == nil && !found {
			err = queue.ErrNotFound
		}
		return r, err
	})
}

func (d *db) record(space, key string) (r queue.Record, found bool, err error) {
	found, err = d.row(selectRecords+` AND key = ?`, []any{space, key}, &r.Space, &r.Key, &r.Value, &r.At)
	return r, found, err
}

// Records implements queue.Journal. A limit below 1 means 1000.
func (s *Store) Records(ctx context.Context, space, after string, limit int) ([]queue.Record, error) {
	return read(ctx, s, fmt.Sprintf("records of %q", space), func(d *db) ([]queue.Record, error) {
		return collect(d, scanRecord, selectRecords+` AND key > ? ORDER BY key LIMIT ?`, space, after, limitOf(limit))
	})
}

const selectRecords = `SELECT space, key, value, at FROM records WHERE space = ?`

func scanRecord(row scanner) (r queue.Record, err error) {
	err = row.Scan(&r.Space, &r.Key, &r.Value, &r.At)
	return r, err
}

// selectSpaces goes from space to space, each of them a seek.
const selectSpaces = `WITH RECURSIVE s (space) AS (
		SELECT min(space) FROM records WHERE space >= ?1 AND space < ?2
	UNION ALL
		SELECT (SELECT min(r.space) FROM records r WHERE r.space > s.space AND r.space < ?2) FROM s WHERE s.space IS NOT NULL
	)
	SELECT space FROM s WHERE space IS NOT NULL`

// Spaces implements queue.Journal.
func (s *Store) Spaces(ctx context.Context, prefix string) ([]string, error) {
	return read(ctx, s, fmt.Sprintf("spaces of records that begin with %q", prefix), func(d *db) ([]string, error) {
		return collect(d, scanText, selectSpaces, prefix, behind(prefix))
	})
}

func scanText(row scanner) (text string, err error) {
	err = row.Scan(&text)
	return text, err
}

// behind returns a text that is behind every text with the prefix: no byte of
// UTF-8 is 0xff.
func behind(prefix string) string { return prefix + "\xff" }
