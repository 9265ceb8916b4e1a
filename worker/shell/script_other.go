//go:build !linux

package shell

import (
	"errors"
	"os"
)

// holdScript has no file without a name here.
func holdScript(string) (*os.File, error) { return nil, errors.ErrUnsupported }
