package statedir

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/agentsched/agentsched/job"
)

// ChangedError says that an artifact is not the file that its attempt left.
type ChangedError struct {
	Path            string
	Found, Recorded string // e.g. "SHA-256 3b1f…"
}

func (e *ChangedError) Error() string {
	return fmt.Sprintf("%s was changed after its attempt ended: found %s, recorded %s", e.Path, e.Found, e.Recorded)
}

// OpenArtifact opens a file that an attempt left. The caller closes it and reads
// what the attempt recorded, whatever happens to a.Path meanwhile: the file is an
// unnamed copy, which was compared with the recorded digest. The error is a
// *ChangedError if a.Path has other content or is not a regular file; a link is
// not followed. An artifact that has no digest, such as a log, is opened itself.
func OpenArtifact(a job.Artifact) (*os.File, error) {
	from, err := openPlain(a.Path)
	if err != nil {
		return nil, err
	}
	return Checked(from, a)
}

// OpenWithin opens an artifact that lies in the folder of its attempt, whatever links there
// are, and does not wait for a pipe. What it holds is not compared with anything.
func OpenWithin(folder string, a job.Artifact) (*os.File, error) {
	name, err := filepath.Rel(folder, a.Path)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: a.Path, Err: err}
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

// Checked does what OpenArtifact does with a file that was opened already, and
// closes it if it does not return it.
func Checked(from *os.File, a job.Artifact) (*os.File, error) {
	if a.SHA256 == "" {
		return from, nil
	}
	defer from.Close()
	f, err := os.CreateTemp("", "agentsched-artifact-*")
	if err != nil {
		return nil, err
	}
	if err = os.Remove(f.Name()); err == nil {
		err = copyChecked(f, from, a)
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// CopyArtifact writes an artifact into the new file to, with the errors of
// OpenArtifact. After an error, to may exist and must not be used.
func CopyArtifact(to string, a job.Artifact) error {
	from, err := openPlain(a.Path)
	if err != nil {
		return err
	}
	defer from.Close()
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(copyChecked(f, from, a), f.Close())
}

// CheckArtifact returns the error that OpenArtifact would, without a copy.
func CheckArtifact(a job.Artifact) error {
	f, err := openPlain(a.Path)
	if err != nil {
		return err
	}
	defer f.Close()
	return copyChecked(io.Discard, f, a)
}

// openPlain opens a regular file, and nothing that a run could have put in its
// place: a link to somewhere else, or a pipe, which would be waited for.
func openPlain(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ELOOP) {
		return nil, &ChangedError{path, "a symbolic link", "a regular file"}
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &ChangedError{path, "a file of the type " + info.Mode().Type().String(), "a regular file"}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// copyChecked copies one byte more than a.Bytes at most: a file that was made larger
// is refused before it fills the disk.
func copyChecked(w io.Writer, from *os.File, a job.Artifact) error {
	if a.SHA256 == "" {
		_, err := io.Copy(w, from)
		return err
	}
	var most int64 = math.MaxInt64
	if a.Bytes > 0 {
		most = a.Bytes + 1
	}
	hash := sha256.New()
	n, err := io.Copy(io.MultiWriter(w, hash), io.LimitReader(from, most))
	if err != nil {
		return fmt.Errorf("read %s: %w", a.Path, err)
	}
	recorded := "SHA-256 " + a.SHA256
	if n == most {
		return &ChangedError{a.Path, fmt.Sprintf("more than %d bytes", a.Bytes), fmt.Sprintf("%d bytes, %s", a.Bytes, recorded)}
	}
	if sum := hex.EncodeToString(hash.Sum(nil)); sum != a.SHA256 {
		return &ChangedError{a.Path, "SHA-256 " + sum, recorded}
	}
	return nil
}
