package shell

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// holdScript puts a script into memory. To make and remove a file for each run is
// slow on some file systems: ext4 goes around what was removed lately.
func holdScript(script string) (*os.File, error) {
	fd, err := unix.MemfdCreate(scriptName, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), scriptName)
	if _, err := f.WriteString(script); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
