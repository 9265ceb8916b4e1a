package postgres

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/agentsched/agentsched/internal/objects"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// Artifacts are files that attempts left, which every scheduler of the queue has.
type Artifacts struct {
	db     *Database
	bucket *objects.Bucket // nil: their content lies in the database

	mu    sync.Mutex // guards what follows
	after string     // the key after which the bucket is searched next
}

// Artifacts returns them; new ones are kept in a bucket, or in the database if that is nil.
func (d *Database) Artifacts(bucket *objects.Bucket) *Artifacts {
	return &Artifacts{db: d, bucket: bucket}
}

// artifact is a row: where the content of a file lies and what it is.
type artifact struct {
	size   int64
	object string // its key, "" for pieces
	sum    []byte // SHA-256 of the content of an object
}

// Keep stores a file of an attempt, in place of one that is there.
func (x *Artifacts) Keep(ctx context.Context, id job.ID, attempt int, name string, content io.Reader) error {
	keep, where := x.keepPieces, "the database"
	if x.bucket != nil {
		keep, where = x.keepObject, x.bucket.String()
	}
	if err := keep(ctx, id, attempt, name, content); err != nil {
		return fmt.Errorf("keep %s of attempt %d of job %s in %s: %w", name, attempt, id, where, err)
	}
	return nil
}

func (x *Artifacts) keepPieces(ctx context.Context, id job.ID, attempt int, name string, content io.Reader) error {
	return pgx.BeginFunc(ctx, x.db.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `DELETE FROM artifacts WHERE job = $1 AND attempt = $2 AND name = $3`, string(id), attempt, name); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `INSERT INTO artifacts (job, attempt, name, size) VALUES ($1, $2, $3, 0)`, string(id), attempt, name); err != nil {
			return err
		}
		var size int64
		var pack packer
		err := inPieces(content, func(number int, piece []byte) error {
			size += int64(len(piece))
			data, packed := pack.pack(piece)
			_, err := tx.Exec(ctx, `INSERT INTO artifact_pieces (job, attempt, name, number, data, packed) VALUES ($1, $2, $3, $4, $5, $6)`, string(id), attempt, name, number, data, packed)
			return err
		})
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `UPDATE artifacts SET size = $4 WHERE job = $1 AND attempt = $2 AND name = $3`, string(id), attempt, name, size)
		return err
	})
}

// Write writes a file of an attempt to w. The error wraps queue.ErrNotFound if there is none; with any error, what was
// written is not the file.
func (x *Artifacts) Write(ctx context.Context, id job.ID, attempt int, name string, w io.Writer) error {
	a, err := x.find(ctx, id, attempt, name)
	switch {
	case err != nil:
	case a.object == "":
		err = x.writePieces(ctx, id, attempt, name, a.size, w)
	default:
		err = x.writeObject(ctx, id, attempt, name, a, w)
	}
	if err != nil {
		return fmt.Errorf("read %s of attempt %d of job %s: %w", name, attempt, id, unavailable(err))
	}
	return nil
}

// find returns the row of a file. The error wraps queue.ErrNotFound if there is none.
func (x *Artifacts) find(ctx context.Context, id job.ID, attempt int, name string) (a artifact, err error) {
	ctx, cancel := patient(ctx)
	defer cancel()
	err = x.db.pool.QueryRow(ctx, `SELECT size, object, sha256 FROM artifacts WHERE job = $1 AND attempt = $2 AND name = $3`, string(id), attempt, name).Scan(&a.size, &a.object, &a.sum)
	if errors.Is(err, pgx.ErrNoRows) {
		err = queue.ErrNotFound
	}
	return a, err
}

func (x *Artifacts) writePieces(ctx context.Context, id job.ID, attempt int, name string, size int64, w io.Writer) error {
	var written int64
	for number := 0; written < size; number++ {
		var piece []byte
		var packed bool
		err := x.db.pool.QueryRow(ctx, `SELECT data, packed FROM artifact_pieces WHERE job = $1 AND attempt = $2 AND name = $3 AND number = $4`, string(id), attempt, name, number).Scan(&piece, &packed)
		if err == nil && packed {
			piece, err = unpack(piece)
		}
		if err == nil && len(piece) == 0 {
			err = fmt.Errorf("piece %d is empty", number)
		}
		if err != nil {
			return err
		}
		if _, err := w.Write(piece); err != nil {
			return err
		}
		written += int64(len(piece))
	}
	return nil
}

// Forget removes the files of jobs that the queue has forgotten, and objects that no file has. What a bucket does not
// remove is tried again by the next call; so is what is more than a call's share.
func (x *Artifacts) Forget(ctx context.Context) error {
	var err error
	if x.bucket == nil {
		_, err = x.db.pool.Exec(ctx, `DELETE FROM artifacts a WHERE `+forgotten)
	} else {
		err = errors.Join(x.forgetObjects(ctx), x.sweep(ctx, time.Now()))
	}
	if err != nil {
		return fmt.Errorf("forget files of jobs that are gone: %w", err)
	}
	return nil
}

// forgotten is of rows a whose job is gone.
const forgotten = `NOT EXISTS (SELECT FROM entries e WHERE e.id = a.job)`

// packer compresses pieces. Its zero value is ready.
type packer struct {
	buf bytes.Buffer
	zip *gzip.Writer
}

// pack returns a piece compressed, until the next call, or as it is if that is not smaller.
func (p *packer) pack(piece []byte) (data []byte, packed bool) {
	if p.zip == nil {
		p.zip, _ = gzip.NewWriterLevel(&p.buf, gzip.BestSpeed) // the level is right
	}
	p.buf.Reset()
	p.zip.Reset(&p.buf)
	_, err := p.zip.Write(piece)
	if err = errors.Join(err, p.zip.Close()); err != nil || p.buf.Len() >= len(piece) {
		return piece, false
	}
	return p.buf.Bytes(), true
}

func unpack(data []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	piece, err := io.ReadAll(io.LimitReader(r, pieceSize+1))
	if err == nil && len(piece) > pieceSize {
		err = fmt.Errorf("a piece has more than %d bytes", pieceSize)
	}
	return piece, err
}

// inPieces reads content to its end, and gives it on in pieces of pieceSize.
func inPieces(content io.Reader, take func(number int, piece []byte) error) error {
	piece := make([]byte, pieceSize)
	for number := 0; ; number++ {
		n, err := io.ReadFull(content, piece)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return err
		}
		if n == 0 {
			return nil
		}
		if err := take(number, piece[:n]); err != nil {
			return err
		}
	}
}
