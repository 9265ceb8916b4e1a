package shell

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// holdScript puts a script where only memory is needed, and returns the path
// by which a program of this user can read it until the file is closed.
func holdScript(script string) (path string, held *os.File, err error) {
	fd, err := unix.MemfdCreate(scriptName, unix.MFD_CLOEXEC)
	if err != nil {
		return "", nil, fmt.Errorf("hold the script in memory: %w", err)
	}
	held = os.NewFile(uintptr(fd), scriptName)
	if _, err := held.WriteString(script); err != nil {
		held.Close()
		return "", nil, fmt.Errorf("hold the script in memory: %w", err)
	}
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd), held, nil
}
