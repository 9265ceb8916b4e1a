//go:build !linux || !(amd64 || arm64)

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"

	"github.com/agentsched/agentsched/internal/proc"
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

func (s *Start) enter(context.Context, int) (proc.Inner, error) { return nil, nil }

func (s *Start) around(spec proc.Spec) proc.Spec { return spec }

// Listeners are none.
func (s *Start) Listeners() []net.Listener { return nil }

// Dial connects to a port of the loopback.
func (s *Start) Dial(ctx context.Context, port uint16) (net.Conn, error) { return dialHost(ctx, port) }

// Close ends what serves the run.
func (s *Start) Close() error { return nil }

func probe(ctx context.Context) Host { return probeStandard(ctx) }

func probeStandard(context.Context) Host {
	problem := &Problem{What: runtime.GOOS + "/" + runtime.GOARCH + " has no sandbox: only Linux on amd64 and arm64 has one"}
	return Host{System: runtime.GOOS + "/" + runtime.GOARCH, Landlock: problem, Notify: problem, Standard: problem, Audit: problem, Namespaces: problem, Bubblewrap: problem}
}

// AuditLog hears in the kernel's audit log what runs are refused.
type AuditLog struct{}

// Follow fails: there is no such log.
func (*AuditLog) Follow(func(Denial)) (*AuditedRun, error) {
	return nil, fmt.Errorf("%s has no audit log of Landlock: %w", runtime.GOOS, errors.ErrUnsupported)
}

// Close does nothing.
func (*AuditLog) Close() error { return nil }

// AuditedRun is none.
type AuditedRun struct{}

// Close does nothing.
func (*AuditedRun) Close() {}

func canReport() error {
	return fmt.Errorf("%s has no way to watch a run: %w", runtime.GOOS, errors.ErrUnsupported)
}
