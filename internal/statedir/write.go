package statedir

import (
	"errors"
	"os"
	"path/filepath"
	"time"
)

// WriteFile replaces the file at path: afterwards, also after a crash at any
// instant, it has the old content or the new one, and once WriteFile has returned
// nil the new one for good. Only its owner can read it.
func WriteFile(path string, data []byte) error { return replace(path, data, 0) }

// replace is WriteFile of a file whose mtime, in ns since 1970, is to be later than
// after: clocks of file systems tick every few milliseconds only, and may be set back.
func replace(path string, data []byte, after int64) error {
	dir := filepath.Dir(path)
	tmp, err := os.CreateTemp(dir, filepath.Base(path)+"-*.tmp")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name()) // in vain once it was renamed
	_, err = tmp.Write(data)
	if after > 0 && err == nil {
		err = setLater(tmp, after)
	}
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return err
	}
	return syncDir(dir)
}

// setLater sets the mtime of a file to one that is later than after, unless it is.
func setLater(f *os.File, after int64) error {
	info, err := f.Stat()
	if err != nil || info.ModTime().UnixNano() > after {
		return err
	}
	return os.Chtimes(f.Name(), time.Time{}, time.Unix(0, after+1))
}

// syncDir makes the renames in a folder last.
func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
