package access

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// digest is the SHA-256 of a secret of 256 random bits. Such a secret cannot be
// guessed however fast a guess is, so that a slow hash, as passwords need, would
// only make requests slow.
type digest [sha256.Size]byte

func digestOf(secret string) digest { return sha256.Sum256([]byte(secret)) }

// MarshalText writes it in hexadecimal.
func (d digest) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, d[:]), nil }

// UnmarshalText reads what MarshalText wrote.
func (d *digest) UnmarshalText(text []byte) error {
	if hex.DecodedLen(len(text)) != len(d) {
		return fmt.Errorf("a SHA-256 has %d hexadecimal digits, not %d", hex.EncodedLen(len(d)), len(text))
	}
	_, err := hex.Decode(d[:], text)
	return err
}

// secretLength is how long newSecret's texts are.
const secretLength = 43

// newSecret returns 32 random bytes as base64url.
func newSecret() string {
	b := make([]byte, 32)
	rand.Read(b) //nolint:errcheck // it never fails
	return base64.RawURLEncoding.EncodeToString(b)
}

// stamp tells one version of a file from another without reading it.
type stamp struct {
	mtime, size int64
	inode       uint64
	mode        fs.FileMode
}

func stampOf(info fs.FileInfo) stamp {
	s := stamp{mtime: info.ModTime().UnixNano(), size: info.Size(), mode: info.Mode()}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		s.inode = sys.Ino
	}
	return s
}

// stampAt returns the stamp of the file at path, the zero stamp if there is none.
func stampAt(path string) (stamp, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return stamp{}, nil
	}
	if err != nil {
		return stamp{}, err
	}
	return stampOf(info), nil
}

// maxFile bounds what is read of a file, in bytes.
const maxFile = 16 << 20

// readPrivate reads a file that only its owner may read. One that is not there is
// empty and has the zero stamp.
func readPrivate(path string) ([]byte, stamp, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, stamp{}, nil
	}
	if err != nil {
		return nil, stamp{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, stamp{}, err
	}
	s := stampOf(info)
	if !s.mode.IsRegular() {
		return nil, s, fmt.Errorf("%s is no regular file", path)
	}
	if s.mode.Perm()&0o077 != 0 {
		return nil, s, fmt.Errorf("%s is open to other users (mode %04o); run: chmod 600 %s", path, s.mode.Perm(), path)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, stamp{}, err
	}
	if len(text) > maxFile {
		return nil, s, fmt.Errorf("%s is larger than %d MiB", path, maxFile>>20)
	}
	return text, s, nil
}

// lockBeside takes the lock that guards changes of the file at path, and waits for
// it. It is free again after unlock, or when this process has died.
func lockBeside(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EINTR) {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
		}
	}
	return func() {
		// Closing alone would leave it with a child that is just being forked.
		unix.Flock(int(f.Fd()), unix.LOCK_UN) //nolint:errcheck // closing is what counts then
		f.Close()
	}, nil
}
