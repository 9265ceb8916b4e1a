package logging

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// Defaults of OpenFile.
const (
	// MaxFile is the size beyond which a log file is put aside, in bytes.
	MaxFile = 16 << 20
	// KeepFiles is how many that were put aside are kept.
	KeepFiles = 3
)

// File is a log file that puts itself aside when it has grown: PATH becomes
// PATH.1, PATH.1 becomes PATH.2 and so on, and the oldest is removed. A Write is
// never split over two files, and lands in the old one if no new one can be made.
type File struct {
	path string
	max  int64
	keep int

	mu    sync.Mutex
	file  *os.File
	size  int64
	limit int64 // of size: beyond it the file is put aside
}

// OpenFile opens the log file at path, mode 0600, to append to it; each Write is
// a line or several. max is in bytes and keep a number of files; 0 is MaxFile and
// KeepFiles.
func OpenFile(path string, max int64, keep int) (*File, error) {
	if max <= 0 {
		max = MaxFile
	}
	if keep <= 0 {
		keep = KeepFiles
	}
	f := &File{path: path, max: max, keep: keep, limit: max}
	if err := f.open(); err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	return f, nil
}

// open opens the file at path in the place of the one that is open.
func (f *File) open() error {
	file, err := os.OpenFile(f.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err != nil {
		file.Close()
		return err
	}
	if f.file != nil {
		f.file.Close() // every line was written, and is not lost by that
	}
	f.file, f.size = file, info.Size()
	return nil
}

// Write appends lines.
func (f *File) Write(lines []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.size > 0 && f.size+int64(len(lines)) > f.limit {
		f.limit = f.max
		if err := f.putAside(); err != nil {
			// The lines matter more than the size. It is tried again later.
			f.limit = f.size + f.max
			log := zerolog.New(f.file)
			log.Error().Time(zerolog.TimestampFieldName, time.Now()).Str("component", string(Daemon)).Err(err).Msg("the log cannot be put aside: it grows")
		}
	}
	n, err := f.file.Write(lines)
	f.size += int64(n)
	return n, err
}

func (f *File) putAside() error {
	for i := f.keep; i > 0; i-- {
		from := f.aside(i - 1)
		if err := os.Rename(from, f.aside(i)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return f.open()
}

// aside returns the path of the i-th file that was put aside; 0: the file itself.
func (f *File) aside(i int) string {
	if i == 0 {
		return f.path
	}
	return fmt.Sprintf("%s.%d", f.path, i)
}

// Close closes the file.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.file.Close()
}
