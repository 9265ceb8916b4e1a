package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/agentsched/agentsched/api"
)

// writer appends to the files. One goroutine uses it.
type writer struct {
	dir  string
	o    Options
	lock *os.File
	told *atomic.Pointer[Head] // where the head that is on disk is shown

	file   *os.File
	number int
	size   int64 // of the file, up to its last whole record
	count  int   // of records in the file
	head   Head  // the last record that is written
	dirty  bool  // not all of it is on disk
	heads  *os.File

	gap   gap
	again time.Time // a failed write is not tried before, for what nobody waits for
}

// gap is what could not be written since the last record.
type gap struct {
	Records int64     `json:"records"`
	Since   time.Time `json:"since"`
	Until   time.Time `json:"until"`
	Error   string    `json:"error"`
}

// retryTime is how soon a failed write is tried again for agents' requests.
const retryTime = time.Second

func system(action string, detail any) Entry {
	return Entry{Who: api.AuditWho{Name: "scheduler", Role: RoleSystem}, Action: action, Detail: detail}
}

// lose counts entries that were not written, and tells of them.
func (w *writer) lose(n int64, err error) {
	if n == 0 {
		return
	}
	now := w.o.Now()
	if w.gap.Records == 0 {
		w.gap.Since = now.UTC()
	}
	w.gap.Records += n
	w.gap.Until, w.gap.Error = now.UTC(), err.Error()
	w.o.Failed(err, n)
}

// writeAll writes a batch, and tells those who wait when it is on disk. Of a batch
// that cannot be written nothing is, but for what fitted into the file before.
func (w *writer) writeAll(batch []pending) {
	urgent := false
	for _, p := range batch {
		urgent = urgent || p.done != nil
	}
	if !urgent && w.o.Now().Before(w.again) {
		w.lose(int64(len(batch)), errors.New(w.gap.Error))
		return
	}
	written, err := w.append(batch)
	var unsafe error // that what is written is not on disk
	if urgent && written > 0 {
		unsafe = w.sync()
	}
	for i, p := range batch {
		switch {
		case p.done == nil:
		case i < written:
			p.done <- unsafe
		default:
			p.done <- err
		}
	}
	if lost := int64(len(batch) - written); lost > 0 {
		w.again = w.o.Now().Add(retryTime)
		w.lose(lost, err)
	}
}

// append writes the gap's record, if there is one, and the entries, and returns
// how many of those are written. A line that is too long for what is left of a
// file begins the next one.
func (w *writer) append(batch []pending) (written int, err error) {
	if w.gap.Records > 0 {
		if err := w.one(system(ActionGap, w.gap)); err != nil {
			return 0, err
		}
		w.gap = gap{}
	}
	text := make([]byte, 0, 512*len(batch)) // as long as most lines are
	head, waiting := w.head, 0              // of entries whose lines are in text
	flush := func() error {
		err := w.put(text, head, waiting)
		if err == nil {
			written += waiting
		}
		text, waiting = nil, 0
		return err
	}
	for _, p := range batch {
		line, next, err := w.line(p.entry, head)
		if err != nil {
			return written, err
		}
		if w.count+waiting > 1 && w.size+int64(len(text)+len(line)) > w.o.MaxSize {
			if err := flush(); err != nil {
				return written, err
			}
			if err := w.rotate(); err != nil {
				return written, fmt.Errorf("begin the next file: %w", err)
			}
			if line, next, err = w.line(p.entry, w.head); err != nil {
				return written, err
			}
		}
		text, head, waiting = append(text, line...), next, waiting+1
	}
	err = flush()
	return written, err
}

// one writes one entry of the log's own.
func (w *writer) one(e Entry) error {
	line, head, err := w.line(e, w.head)
	if err != nil {
		return err
	}
	return w.put(line, head, 1)
}

// put writes whole lines at the end of the file, all or none.
func (w *writer) put(text []byte, head Head, records int) error {
	if len(text) == 0 {
		return nil
	}
	if _, err := w.o.write(w.file, text, w.size); err != nil {
		// A part of it may be there. What follows is written over it.
		return errors.Join(fmt.Errorf("write %s: %w", fileName(w.number), err), w.file.Truncate(w.size))
	}
	w.size += int64(len(text))
	w.head, w.count, w.dirty = head, w.count+records, true
	return nil
}

// line returns the entry's line behind head.
func (w *writer) line(e Entry, head Head) ([]byte, Head, error) {
	if e.Time.IsZero() {
		e.Time = w.o.Now()
	}
	clean := w.o.Redact
	r := api.AuditRecord{
		Time: e.Time.UTC(), Who: api.AuditWho{Name: clean.String(e.Who.Name), Role: e.Who.Role, Door: e.Who.Door}, Action: e.Action, Target: clean.String(e.Target),
		Job: e.Job, Attempt: e.Attempt, Event: e.Event,
	}
	if e.Detail != nil {
		var err error
		if r.Detail, err = clean.JSON(e.Detail); err != nil {
			r.Detail, _ = json.Marshal(map[string]string{"error": err.Error()}) //nolint:errchkjson // strings
		}
	}
	return seal(&r, head)
}

// sync puts what is written on disk, and shows the head.
func (w *writer) sync() error {
	if !w.dirty {
		return nil
	}
	w.dirty = false
	if err := w.file.Sync(); err != nil {
		err = fmt.Errorf("sync %s: %w", fileName(w.number), err)
		w.o.Failed(err, 0)
		return err
	}
	head := w.head
	if w.told != nil {
		w.told.Store(&head)
	}
	if _, err := w.heads.WriteAt(headText(head), 0); err != nil {
		w.o.Failed(fmt.Errorf("write %s: %w", headName, err), 0)
	}
	return nil
}

// rotate begins the next file, and removes those that are too many.
func (w *writer) rotate() error {
	if err := w.sync(); err != nil {
		return err
	}
	last := w.number
	if err := w.begin(last+1, map[string]any{"file": fileName(last + 1), "after": fileName(last), "last_seq": w.head.Seq, "last_hash": w.head.Hash}); err != nil {
		return err
	}
	if err := w.prune(); err != nil {
		w.o.Failed(fmt.Errorf("remove old files: %w", err), 0) // the log itself goes on
	}
	return nil
}

// begin makes a file and writes its first record. If it cannot, the file before
// stays the last.
func (w *writer) begin(number int, detail any) error {
	path := filepath.Join(w.dir, fileName(number))
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	before := *w
	w.file, w.number, w.size, w.count = f, number, 0, 0
	if err = w.one(system(ActionBegin, detail)); err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = syncDir(w.dir)
	}
	if err != nil {
		w.file, w.number, w.size, w.count, w.head = before.file, before.number, before.size, before.count, before.head
		return errors.Join(err, f.Close(), os.Remove(path))
	}
	if before.file != nil {
		before.file.Close()
	}
	return nil
}

// prune removes the oldest files, after a record of each is on disk.
func (w *writer) prune() error {
	numbers, err := files(w.dir)
	if err != nil {
		return err
	}
	for _, n := range numbers[:max(0, len(numbers)-w.o.Keep)] {
		path := filepath.Join(w.dir, fileName(n))
		first, last, err := ends(path)
		if err != nil {
			return err
		}
		if err := w.one(system(ActionRemoved, removed{fileName(n), first.Seq, last.Seq, last.Hash})); err != nil {
			return err
		}
		if err := w.sync(); err != nil {
			return err
		}
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	return syncDir(w.dir)
}

// removed is the detail of ActionRemoved.
type removed struct {
	File     string `json:"file"`
	FirstSeq int64  `json:"first_seq"`
	LastSeq  int64  `json:"last_seq"`
	LastHash string `json:"last_hash"`
}

// close puts everything on disk and lets go of the folder.
func (w *writer) close() error {
	var err error
	if w.gap.Records > 0 {
		if err = w.one(system(ActionGap, w.gap)); err == nil {
			w.gap = gap{}
		}
	}
	err = errors.Join(err, w.sync(), w.file.Close(), w.heads.Close())
	release(w.lock)
	return err
}
