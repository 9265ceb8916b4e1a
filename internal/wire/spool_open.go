package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

const (
	lockName  = "lock"
	stateName = "state"
	stateSize = 8 + 8 + 4 // acked, last and their CRC-32C
	// segmentBytes is the most of a segment: it is read at once when a spool is opened.
	segmentBytes = 8 << 20
)

// OpenSpool opens the spool in a folder, which is made if there is none. What a crash has torn is cut off. The error wraps
// ErrSpoolHeld if somebody else has it open, and is a *DamageError if something is missing that was once durable.
func OpenSpool(dir string, cfg SpoolConfig) (_ *Spool, err error) {
	if cfg.MaxRecord == 0 {
		cfg.MaxRecord = MaxFrame
	}
	if cfg.MaxBytes == 0 {
		cfg.MaxBytes = 256 << 20
	}
	if least := 4 * recordSize(cfg.MaxRecord); cfg.MaxRecord < 0 || cfg.MaxBytes < least {
		return nil, fmt.Errorf("open spool: max bytes is %d and max record %d; they must be at least %d and 0", cfg.MaxBytes, cfg.MaxRecord, least)
	}
	s := &Spool{dir: dir, cfg: cfg, segment: min(cfg.MaxBytes/8, segmentBytes), changed: make(chan struct{})}
	defer func() {
		if err != nil {
			for _, f := range []*os.File{s.file, s.state, s.lock} {
				f.Close() //nolint:errcheck // of nil too; the first error counts
			}
			err = fmt.Errorf("open spool: %w", err)
		}
	}()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if s.lock, err = os.OpenFile(filepath.Join(dir, lockName), os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return nil, err
	}
	if err := flock(s.lock); errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, fmt.Errorf("%w: another process has locked %s", ErrSpoolHeld, s.lock.Name())
	} else if err != nil {
		return nil, fmt.Errorf("lock %s: %w", s.lock.Name(), err)
	}
	if s.state, err = os.OpenFile(filepath.Join(dir, stateName), os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return nil, err
	}
	durable := s.loadState()
	if err := s.load(durable); err != nil {
		return nil, err
	}
	if err := errors.Join(s.saveState(), s.state.Sync(), syncDir(dir)); err != nil {
		return nil, err
	}
	return s, nil
}

func flock(f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// loadState reads what was acknowledged, and the number up to which records were durable then. A state that cannot be read
// says nothing: everything that is there is delivered again.
func (s *Spool) loadState() (durable uint64) {
	b := make([]byte, stateSize)
	if n, _ := s.state.ReadAt(b, 0); n < stateSize || binary.BigEndian.Uint32(b[16:]) != crc32.Checksum(b[:16], castagnoli) { //nolint:errcheck // see above
		return 0
	}
	s.acked = binary.BigEndian.Uint64(b)
	return binary.BigEndian.Uint64(b[8:])
}

// saveState writes it in place, which takes no room on a full disk. A crash of the host may undo it.
func (s *Spool) saveState() error {
	b := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, s.acked), s.last)
	_, err := s.state.WriteAt(binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli)), 0)
	return err
}

// load finds the segments and reads those that count.
func (s *Spool) load(durable uint64) error {
	firsts, err := s.list()
	if err != nil {
		return err
	}
	for len(firsts) > 1 && firsts[1] <= s.acked+1 { // of a crash while it was removed
		if err := os.Remove(s.path(firsts[0])); err != nil {
			return err
		}
		firsts = firsts[1:]
	}
	if len(firsts) == 0 {
		if durable > 0 {
			return &DamageError{File: s.dir, Why: fmt.Sprintf("there is no segment; records up to %d were there", durable)}
		}
		firsts = []uint64{1}
	}
	s.last = firsts[0] - 1
	s.acked = max(s.acked, s.last) // what is before was removed since it was acknowledged
	for i, first := range firsts {
		if first != s.last+1 {
			return &DamageError{File: s.path(first), Why: fmt.Sprintf("it begins with record %d; the one before ends with %d", first, s.last)}
		}
		size, err := s.scan(first, durable, i == len(firsts)-1)
		if err != nil {
			return err
		}
		s.segments = append(s.segments, segment{first: first, size: size})
	}
	tail := s.segments[len(s.segments)-1]
	if s.last < max(durable, s.acked) {
		return &DamageError{File: s.path(tail.first), Offset: tail.size, Why: fmt.Sprintf("the last record is %d; %d was there", s.last, max(durable, s.acked))}
	}
	if s.file, err = os.OpenFile(s.path(tail.first), os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return err
	}
	// What was cut off is gone before something is written in its place, and what a process that died had written is
	// durable before it is delivered.
	return errors.Join(s.file.Truncate(tail.size), s.file.Sync())
}

// list is the first numbers of the segments.
func (s *Spool) list() ([]uint64, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	var firsts []uint64
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ".log")
		first, err := strconv.ParseUint(name, 10, 64)
		if ok && err == nil && first > 0 && segmentName(first) == e.Name() {
			firsts = append(firsts, first)
		}
	}
	slices.Sort(firsts)
	return firsts, nil
}

// scan reads the records of a segment, the first of which is s.last+1, and returns the size of those that are whole.
func (s *Spool) scan(first, durable uint64, tail bool) (int64, error) {
	b, err := os.ReadFile(s.path(first))
	if err != nil && !(tail && errors.Is(err, os.ErrNotExist)) { // a new spool
		return 0, err
	}
	at := 0
	for at < len(b) {
		_, h, err := parseRecord(b[at:], s.cfg.MaxRecord)
		if err == nil && h.number != s.last+1 {
			err = fmt.Errorf("the record has number %d; %d must be next", h.number, s.last+1)
		}
		if err != nil {
			if by := max(durable, s.vouched(b[at:])); !tail || by > s.last {
				return 0, &DamageError{File: s.path(first), Offset: int64(at), Why: err.Error()}
			}
			break
		}
		s.last = h.number
		at += recordHead + h.length
	}
	return int64(at), nil
}

// vouched is up to which number whole records somewhere in b say that records were durable.
func (s *Spool) vouched(b []byte) (synced uint64) {
	for at := 0; at+recordHead <= len(b); at++ {
		h := parseHead(b[at:])
		if h.length > s.cfg.MaxRecord || h.number <= s.last || h.synced >= h.number || h.synced <= synced {
			continue
		}
		if _, _, err := parseRecord(b[at:], s.cfg.MaxRecord); err == nil {
			synced = h.synced
		}
	}
	return synced
}
