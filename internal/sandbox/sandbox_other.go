//go:build !linux || !(amd64 || arm64)

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
)

type start struct{}

// Prepare makes what is to be started instead of the program at path. This system has level None only.
func (p *Policy) Prepare(path string, extra []*os.File) (*Start, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	if p.Level != None {
		return nil, fmt.Errorf("prepare sandbox level %s: %w: only Linux on amd64 and arm64 has it", p.Level, errors.ErrUnsupported)
	}
	path, err := program(path)
	if err != nil {
		return nil, err
	}
	return &Start{Path: path, Extra: extra}, nil
}

// Started is called when the process was started.
func (s *Start) Started(context.Context) error { return nil }

// Close ends what serves the run.
func (s *Start) Close() error { return nil }

func probe(context.Context) Host {
	problem := &Problem{What: runtime.GOOS + "/" + runtime.GOARCH + " has no sandbox: only Linux on amd64 and arm64 has one"}
	return Host{System: runtime.GOOS + "/" + runtime.GOARCH, Landlock: problem, Notify: problem, Standard: problem, Namespaces: problem, Bubblewrap: problem}
}
