//go:build !linux

package shell

import (
	"errors"
	"os"
)

// holdScript is for systems that show a process's open files by path.
func holdScript(string) (path string, held *os.File, err error) {
	return "", nil, errors.ErrUnsupported
}
