package workspace

import (
	"context"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// copyContent shares the blocks where the file system can (btrfs, XFS, …) and
// otherwise copies the parts of the file that are not holes.
func copyContent(ctx context.Context, out, in *os.File, size int64) error {
	if unix.IoctlFileClone(int(out.Fd()), int(in.Fd())) == nil {
		return nil
	}
	for at := int64(0); at < size; {
		data, err := unix.Seek(int(in.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break // only a hole is left
		}
		hole := size
		if err != nil { // the file system knows nothing of holes
			data = at
		} else if hole, err = unix.Seek(int(in.Fd()), data, unix.SEEK_HOLE); err != nil {
			hole = size
		}
		if _, err := in.Seek(data, io.SeekStart); err != nil {
			return err
		}
		if _, err := out.Seek(data, io.SeekStart); err != nil {
			return err
		}
		if err := copyRange(ctx, out, in, hole-data); err != nil {
			return err
		}
		at = hole
	}
	return out.Truncate(size)
}
