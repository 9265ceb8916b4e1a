package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"time"
)

// Names in the folder besides the log's files.
const (
	headName = "head" // the last Head that is on disk
	lockName = "lock"
)

// ErrHeld is wrapped when another process holds the log.
var ErrHeld = errors.New("another process writes to the audit log")

var namePattern = regexp.MustCompile(`^audit-(\d{6,})\.jsonl$`)

func fileName(number int) string { return fmt.Sprintf("audit-%06d.jsonl", number) }

// fileNumber is the number in a file's name; 0 if it is none of the log's.
func fileNumber(name string) int {
	m := namePattern.FindStringSubmatch(filepath.Base(name))
	if m == nil {
		return 0
	}
	n, err := strconv.Atoi(m[1])
	if err != nil || fileName(n) != m[0] {
		return 0
	}
	return n
}

// files returns the numbers of the log's files, the oldest first.
func files(dir string) (numbers []int, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries { // sorted by name
		if n := fileNumber(e.Name()); n > 0 {
			numbers = append(numbers, n)
		}
	}
	for i := 1; i < len(numbers); i++ { // a seventh digit sorts elsewhere
		for j := i; j > 0 && numbers[j] < numbers[j-1]; j-- {
			numbers[j], numbers[j-1] = numbers[j-1], numbers[j]
		}
	}
	return numbers, nil
}

// take locks the folder for this process, which the kernel undoes at its end.
func take(dir string, wait time.Duration) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the audit log: %w", err)
	}
	for until := time.Now().Add(wait); ; {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return f, nil
		case errors.Is(err, syscall.EINTR):
			continue
		case !errors.Is(err, syscall.EWOULDBLOCK):
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
		case !time.Now().Before(until):
			f.Close()
			return nil, fmt.Errorf("%w (%s is locked)", ErrHeld, f.Name())
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func release(f *os.File) {
	syscall.Flock(int(f.Fd()), syscall.LOCK_UN) //nolint:errcheck // closing is what counts then
	f.Close()
}

// readHead returns the head that the folder keeps; fs.ErrNotExist if it has none.
func readHead(dir string) (Head, error) {
	text, err := os.ReadFile(filepath.Join(dir, headName))
	if err != nil {
		return Head{}, err
	}
	seq, hash, _ := bytes.Cut(bytes.TrimSuffix(text, []byte("\n")), []byte(" "))
	n, err := strconv.ParseInt(string(seq), 10, 64)
	if err != nil || !isHash(string(hash)) || string(headText(Head{n, string(hash)})) != string(text) {
		return Head{}, fmt.Errorf("%s is damaged: it has %q", filepath.Join(dir, headName), text)
	}
	return Head{n, string(hash)}, nil
}

// headText is always of the same length, so that it is written over the last one.
func headText(h Head) []byte { return fmt.Appendf(nil, "%020d %s\n", h.Seq, h.Hash) }

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

func isMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
