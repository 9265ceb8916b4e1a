package travel

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// maxHead bounds the line of a parcel's file, in bytes.
const maxHead = 512 << 10

// MaxFile bounds a parcel's file with the default Limits, in bytes.
const MaxFile = 1<<30 + maxHead

// File is a parcel as it is sent and kept: one line with the Parcel as JSON, and the
// bundle.
type File struct {
	Digest string // SHA-256 of all of it, hexadecimal
	Size   int64  // bytes
	head   []byte
	bundle string // path, "" for none
}

// File returns the parcel's file, which can be opened until Close.
func (p *Packed) File() (*File, error) {
	head, err := json.Marshal(&p.Parcel)
	if err != nil {
		return nil, err
	}
	if len(head) >= maxHead {
		return nil, fmt.Errorf("the description of the parcel has %d bytes, want less than %d", len(head), maxHead)
	}
	f := &File{head: append(head, '\n'), bundle: p.Path}
	r, err := f.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	hash := sha256.New()
	if f.Size, err = io.Copy(hash, r); err != nil {
		return nil, fmt.Errorf("read the bundle: %w", err)
	}
	f.Digest = hex.EncodeToString(hash.Sum(nil))
	return f, nil
}

// Open returns what is in it.
func (f *File) Open() (io.ReadCloser, error) {
	if f.bundle == "" {
		return io.NopCloser(bytes.NewReader(f.head)), nil
	}
	bundle, err := os.Open(f.bundle)
	if err != nil {
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(f.head), bundle), bundle}, nil
}

// ReadHead reads the line of a parcel's file, and returns the parcel, which is valid; the
// bundle follows. headSize is how many bytes the line has.
func ReadHead(r *bufio.Reader) (p Parcel, headSize int64, err error) {
	line, err := readLine(r)
	if err != nil {
		return p, 0, fmt.Errorf("read the parcel: %w", err)
	}
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&p); err != nil {
		return p, 0, fmt.Errorf("read the parcel: its first line: %w", err)
	}
	if err := p.Validate(); err != nil {
		return p, 0, fmt.Errorf("read the parcel: %w", err)
	}
	return p, int64(len(line)), nil
}

func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if line = append(line, part...); len(line) > maxHead {
			return nil, fmt.Errorf("its first line has more than %d bytes", maxHead)
		}
		switch {
		case err == nil:
			return line, nil
		case errors.Is(err, io.EOF):
			return nil, errors.New("it ends within its first line")
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}
