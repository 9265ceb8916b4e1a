package postgres

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/agentsched/agentsched/internal/objects"
	"github.com/agentsched/agentsched/job"
)

// An object is written before the row that names it, under a key that no other writing has, and removed after the row has
// gone or names another one. So a row never names what is not there, whoever fails or is late, and what is left over is an
// object without a row. The sweep removes those of this queue.

const (
	// One call of Forget removes the objects of objectSteps times objectStep rows at most, and looks at as many keys.
	objectStep, objectSteps = 500, 10
	// orphanAge is how old an object without a row is before it is removed: no writing takes so long, and clocks do not
	// differ by as much.
	orphanAge = 24 * time.Hour
	// staleReads is how often a file may be replaced while it is being opened.
	staleReads = 3
)

// keys is what the keys of this queue's objects begin with. A bucket may hold those of several queues.
func (x *Artifacts) keys() string { return x.db.id + "/" }

// newKey returns the key of one writing of a file.
func (x *Artifacts) newKey(id job.ID, attempt int, name string) string {
	return x.keys() + string(id) + "/" + strconv.Itoa(attempt) + "/" + name + "." + rand.Text()
}

func (x *Artifacts) keepObject(ctx context.Context, id job.ID, attempt int, name string, content io.Reader) error {
	packed, a, err := x.spool(content)
	if err != nil {
		return err
	}
	defer packed.Close()
	a.object = x.newKey(id, attempt, name)
	info, err := packed.Stat()
	if err != nil {
		return err
	}
	if err := x.bucket.Put(ctx, a.object, packed, info.Size()); err != nil {
		return err
	}
	var old string
	err = pgx.BeginFunc(ctx, x.db.pool, func(tx pgx.Tx) error {
		old, err = replaceRow(ctx, tx, id, attempt, name, a)
		return err
	})
	if err != nil || old == "" {
		return err // an object whose row was not written, or perhaps was, is the sweep's
	}
	if err := x.bucket.Remove(ctx, old); err != nil {
		x.db.cfg.Log.Warn().Err(err).Str("job", string(id)).Msg("a file that was replaced stays in the bucket until it is swept")
	}
	return nil
}

// spool compresses content into a file without a name, which starts at its beginning.
func (x *Artifacts) spool(content io.Reader) (_ *os.File, a artifact, err error) {
	f, err := os.CreateTemp(x.db.cfg.Folder, "artifact-")
	if err != nil {
		return nil, a, err
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	if err := os.Remove(f.Name()); err != nil {
		return nil, a, err
	}
	pack, err := gzip.NewWriterLevel(f, gzip.BestSpeed)
	if err != nil {
		return nil, a, err
	}
	sum := sha256.New()
	if a.size, err = io.Copy(io.MultiWriter(pack, sum), content); err != nil {
		return nil, a, err
	}
	if err := pack.Close(); err != nil {
		return nil, a, err
	}
	a.sum = sum.Sum(nil)
	_, err = f.Seek(0, io.SeekStart)
	return f, a, err
}

// replaceRow has the row of a file name an object, and returns which it named before.
func replaceRow(ctx context.Context, tx pgx.Tx, id job.ID, attempt int, name string, a artifact) (old string, err error) {
	err = tx.QueryRow(ctx, `SELECT object FROM artifacts WHERE job = $1 AND attempt = $2 AND name = $3 FOR UPDATE`, string(id), attempt, name).Scan(&old)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return "", err
	}
	if _, err := tx.Exec(ctx, `DELETE FROM artifact_pieces WHERE job = $1 AND attempt = $2 AND name = $3`, string(id), attempt, name); err != nil {
		return "", err
	}
	_, err = tx.Exec(ctx, `INSERT INTO artifacts (job, attempt, name, size, object, sha256) VALUES ($1, $2, $3, $4, $5, $6)
		ON CONFLICT (job, attempt, name) DO UPDATE SET size = excluded.size, object = excluded.object, sha256 = excluded.sha256`,
		string(id), attempt, name, a.size, a.object, a.sum)
	return old, err
}

// writeObject writes what a row names, or what it names by then if that was replaced meanwhile.
func (x *Artifacts) writeObject(ctx context.Context, id job.ID, attempt int, name string, a artifact, w io.Writer) error {
	if x.bucket == nil {
		return fmt.Errorf("it lies in a bucket as object %s, and this scheduler has none; set fleet.artifacts as on the scheduler that kept it", a.object)
	}
	for read := 1; ; read++ {
		content, err := x.bucket.Open(ctx, a.object)
		if err == nil {
			defer content.Close()
			return unpackObject(content, a, w)
		}
		if !errors.Is(err, objects.ErrNotFound) || read == staleReads {
			return err
		}
		now, ferr := x.find(ctx, id, attempt, name)
		switch {
		case ferr != nil:
			return ferr
		case now.object == a.object:
			return fmt.Errorf("it was lost from the bucket: %w", err)
		case now.object == "":
			return x.writePieces(ctx, id, attempt, name, now.size, w)
		}
		a = now
	}
}

// unpackObject writes the content of an object to w, never more than its row says.
func unpackObject(content io.Reader, a artifact, w io.Writer) error {
	sum := sha256.New()
	out := &counting{to: io.MultiWriter(sum, w)}
	// Incompressible content grows by 5 bytes in 64 KiB (RFC 1951, section 3.2.4). Whoever pads the object, also with blocks
	// that hold nothing, ends here.
	unpack, err := gzip.NewReader(io.LimitReader(content, a.size+a.size>>8+4096))
	if err == nil {
		unpack.Multistream(false)
		_, err = io.Copy(out, io.LimitReader(unpack, a.size))
	}
	if out.err != nil {
		return out.err
	}
	more := 0
	if err == nil && out.n == a.size {
		more, err = unpack.Read(make([]byte, 1)) // io.EOF, when the check sum of gzip was right
	}
	got := sum.Sum(nil)
	switch {
	case more > 0:
		err = fmt.Errorf("it has more than %d bytes", a.size)
	case err == nil, errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF) && out.n < a.size:
		err = fmt.Errorf("it ends after %d bytes of %d", out.n, a.size)
	case !errors.Is(err, io.EOF):
		err = fmt.Errorf("after %d bytes of %d: %w", out.n, a.size, err)
	case !bytes.Equal(got, a.sum):
		err = fmt.Errorf("its SHA-256 is %x, want %x", got, a.sum)
	default:
		return nil
	}
	return fmt.Errorf("object %s is not what was kept: %w", a.object, err)
}

// counting counts what was written, and keeps the error of who took it.
type counting struct {
	to  io.Writer
	n   int64
	err error
}

func (c *counting) Write(p []byte) (n int, err error) {
	n, c.err = c.to.Write(p)
	c.n += int64(n)
	return n, c.err
}

// forgetObjects removes the files of jobs that are gone, the objects before the rows that name them.
func (x *Artifacts) forgetObjects(ctx context.Context) error {
	if _, err := x.db.pool.Exec(ctx, `DELETE FROM artifacts a WHERE object = '' AND `+forgotten); err != nil {
		return err
	}
	for range objectSteps {
		rows, err := x.db.pool.Query(ctx, `SELECT object FROM artifacts a WHERE object <> '' AND `+forgotten+` LIMIT $1`, objectStep)
		if err != nil {
			return err
		}
		keys, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil || len(keys) == 0 {
			return err
		}
		if err := x.bucket.Remove(ctx, keys...); err != nil {
			return err
		}
		if _, err := x.db.pool.Exec(ctx, `DELETE FROM artifacts WHERE object = ANY($1) AND object <> ''`, keys); err != nil {
			return err
		}
	}
	return nil
}

// sweep removes old objects of this queue that no row names, from where the last call ended.
func (x *Artifacts) sweep(ctx context.Context, now time.Time) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	for range objectSteps {
		list, err := x.bucket.List(ctx, x.keys(), x.after, objectStep)
		if err != nil {
			return err
		}
		orphans, err := x.orphans(ctx, list, now)
		if err != nil {
			return err
		}
		if err := x.bucket.Remove(ctx, orphans...); err != nil {
			return err
		}
		if len(orphans) > 0 {
			x.db.cfg.Log.Info().Int("objects", len(orphans)).Msg("removed objects of the bucket that no file has")
		}
		if len(list) < objectStep {
			x.after = "" // from the beginning again
			return nil
		}
		x.after = list[len(list)-1].Key
	}
	return nil
}

// orphans returns the keys of objects that are old enough and are named by no row.
func (x *Artifacts) orphans(ctx context.Context, list []objects.Object, now time.Time) ([]string, error) {
	var old []string
	for _, o := range list {
		if now.Sub(o.Modified) > orphanAge {
			old = append(old, o.Key)
		}
	}
	if len(old) == 0 {
		return nil, nil
	}
	rows, err := x.db.pool.Query(ctx, `SELECT k FROM unnest($1::text[]) k WHERE NOT EXISTS (SELECT FROM artifacts WHERE object = k AND object <> '')`, old)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// CheckBucket writes, reads, lists and removes an object of this queue.
func (x *Artifacts) CheckBucket(ctx context.Context) error {
	if x.bucket == nil {
		return nil
	}
	return x.bucket.Check(ctx, x.keys()+"check."+rand.Text())
}
