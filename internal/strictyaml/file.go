package strictyaml

import (
	"errors"
	"io"
	"os"
)

// ErrNotRegular: the path is of something else than a file, such as a folder.
var ErrNotRegular = errors.New("is not a regular file")

// ReadFile reads a regular file: a pipe could block for ever and a device never
// end. Of one that has more than limit bytes it returns one byte more than that,
// so that the caller sees it. An error does not name the path.
func ReadFile(path string, limit int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, WithoutPath(err)
	}
	if !info.Mode().IsRegular() {
		return nil, ErrNotRegular
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, WithoutPath(err)
	}
	defer f.Close() // only read: nothing can be lost
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, WithoutPath(err)
	}
	return data, nil
}

// WithoutPath takes the path out of an error whose message names it already.
func WithoutPath(err error) error {
	var inPath *os.PathError
	if errors.As(err, &inPath) {
		return inPath.Err
	}
	return err
}
