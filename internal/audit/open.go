package audit

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/agentsched/agentsched/api"
)

// openWriter takes the folder and finds the end of its chain.
func openWriter(dir string, o Options) (w *writer, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	lock, err := take(dir, o.Wait)
	if err != nil {
		return nil, err
	}
	w = &writer{dir: dir, o: o, lock: lock, head: Head{Hash: Genesis}}
	defer func() {
		if err == nil {
			return
		}
		release(lock)
		for _, f := range []*os.File{w.file, w.heads} {
			if f != nil {
				f.Close()
			}
		}
	}()
	known, headErr := readHead(dir)
	if w.heads, err = os.OpenFile(filepath.Join(dir, headName), os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return nil, err
	}
	numbers, err := files(dir)
	if err != nil {
		return nil, err
	}
	if err := w.goOn(numbers); err != nil {
		return nil, err
	}
	if err := w.compare(known, headErr, len(numbers) > 0); err != nil {
		return nil, err
	}
	w.dirty = true // the head may be behind
	return w, errors.Join(w.sync(), syncDir(dir))
}

// goOn finds the place behind the last record.
func (w *writer) goOn(numbers []int) error {
	if len(numbers) == 0 {
		return w.begin(1, map[string]any{"file": fileName(1)})
	}
	last := numbers[len(numbers)-1]
	path := filepath.Join(w.dir, fileName(last))
	end, err := endOf(path)
	if err != nil {
		return err
	}
	w.head = end.head
	for i := len(numbers) - 2; w.head.Seq == 0 && i >= 0; i-- {
		before, err := endOf(filepath.Join(w.dir, fileName(numbers[i])))
		if err != nil {
			return err
		}
		w.head = before.head
	}
	if w.head.Seq == 0 {
		w.head.Hash = Genesis
	}
	if end.bad != nil {
		// Nothing is taken away from what somebody has changed.
		text := fmt.Sprintf("%s does not end as it was written: %v", fileName(last), end.bad)
		return w.begin(last+1, map[string]any{"file": fileName(last + 1), "after": fileName(last), "damaged": text})
	}
	if w.file, err = os.OpenFile(path, os.O_RDWR, 0o600); err != nil {
		return err
	}
	w.number, w.size, w.count = last, end.size, end.records
	if end.records == 0 {
		if err := w.one(system(ActionBegin, map[string]any{"file": fileName(last)})); err != nil {
			return err
		}
	}
	if len(end.torn) == 0 {
		return nil
	}
	// The record is written over what is torn, so that it is not lost in between.
	sum := sha256.Sum256(end.torn)
	err = w.one(system(ActionTorn, map[string]any{
		"file": fileName(last), "bytes": len(end.torn), "sha256": hex.EncodeToString(sum[:]), "text": string(end.torn[:min(len(end.torn), maxText)]),
	}))
	if err != nil {
		return err
	}
	return w.file.Truncate(w.size)
}

// maxText bounds a text in a record, in bytes: a command, what is left of a line.
const maxText = 4 << 10

// compare records that the log's end is not where the head says that it was: the
// next head would hide that.
func (w *writer) compare(known Head, headErr error, some bool) error {
	text := ""
	switch {
	case isMissing(headErr) && some:
		text = "the file that names the last record is missing: a cut end cannot be seen"
	case isMissing(headErr):
		return nil
	case headErr != nil:
		text = headErr.Error()
	default:
		found, err := w.has(known)
		if err != nil {
			return err
		}
		if found {
			return nil
		}
		text = fmt.Sprintf("the log ended with record %d or a later one, and does not have that any more", known.Seq)
	}
	detail := map[string]any{"text": text}
	if headErr == nil {
		detail["head"] = known.String()
	}
	return w.one(system(ActionDamaged, detail))
}

// has reports whether a record is in the last two files: the head is never
// further behind.
func (w *writer) has(h Head) (found bool, err error) {
	if h.Seq == 0 {
		return true, nil
	}
	for n := w.number; n > 0 && n > w.number-2 && !found; n-- {
		err := eachLine(filepath.Join(w.dir, fileName(n)), func(_ int, line []byte, _ bool) {
			if bytes.Contains(line, []byte(h.Hash)) {
				r, err := parse(line)
				found = found || err == nil && r.Seq == h.Seq && r.Hash == h.Hash
			}
		})
		if err != nil && !isMissing(err) {
			return false, err
		}
	}
	return found, nil
}

// end is how a file ends.
type end struct {
	first, last api.AuditRecord
	head        Head  // of its last record that is as it was written; zero if none is
	records     int   // lines
	size        int64 // up to the end of the last line
	torn        []byte
	bad         error // of its last line
}

func endOf(path string) (e end, err error) {
	var latest []byte
	err = eachLine(path, func(n int, line []byte, whole bool) {
		if !whole {
			e.torn = bytes.Clone(line)
			return
		}
		e.records++
		e.size += int64(len(line)) + 1
		latest = append(latest[:0], line...)
		if n == 1 {
			e.first, _ = parse(line) //nolint:errcheck // Verify tells of it
		}
	})
	if err != nil || e.records == 0 {
		return e, err
	}
	if e.last, e.bad = parse(latest); e.bad != nil {
		err = eachLine(path, func(_ int, line []byte, _ bool) {
			if r, err := parse(line); err == nil {
				e.last = r
			}
		})
	}
	e.head = Head{e.last.Seq, e.last.Hash}
	return e, err
}

// ends returns the first and the last record of a file that are as they were written.
func ends(path string) (first, last api.AuditRecord, err error) {
	e, err := endOf(path)
	return e.first, e.last, err
}

// eachLine calls f with each line of a file, counted from 1, without its newline;
// whole is false for a last line that has none. The slice is only valid during
// the call.
func eachLine(path string, f func(n int, line []byte, whole bool)) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	br := bufio.NewReaderSize(file, 64<<10)
	for n := 1; ; n++ {
		line, err := br.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			long := bytes.Clone(line)
			line, err = br.ReadBytes('\n')
			line = append(long, line...)
		}
		if body, whole := bytes.CutSuffix(line, []byte("\n")); len(line) > 0 {
			f(n, body, whole)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
