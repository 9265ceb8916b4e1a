package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"time"
)

// forkRate starts a program n times, so many at once, and waits for each: what
// any scheduler of processes has to pay at least.
func forkRate(ctx context.Context, atOnce, n int, program string, args ...string) (float64, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	attr := &os.ProcAttr{Files: []*os.File{null, null, null}}
	var left atomic.Int64
	left.Store(int64(n))
	began := time.Now()
	err = together(atOnce, func() error {
		for left.Add(-1) >= 0 {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			p, err := os.StartProcess(program, append([]string{program}, args...), attr)
			if err != nil {
				return err
			}
			if _, err := p.Wait(); err != nil {
				return err
			}
		}
		return nil
	})
	return rate(n, time.Since(began)), err
}

// spooler is task-spooler, which keeps its queue in memory.
type spooler struct {
	program string
	env     []string
}

// findSpooler looks for task-spooler, and tries to install it as Debian's
// package if it may. missing says why it is left out.
func findSpooler(ctx context.Context, dir string) (_ *spooler, missing error) {
	program, err := exec.LookPath("tsp")
	if err != nil && os.Geteuid() == 0 {
		install := exec.CommandContext(ctx, "apt-get", "install", "-y", "task-spooler")
		install.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if err := install.Run(); err != nil {
			return nil, fmt.Errorf("apt-get install task-spooler: %w", err)
		}
		program, err = exec.LookPath("tsp")
	}
	if err != nil {
		return nil, errors.New("tsp is not installed")
	}
	env := append(os.Environ(), "TMPDIR="+dir, "TS_SOCKET="+filepath.Join(dir, "tsp.socket"), "TS_MAXFINISHED=10",
		fmt.Sprintf("TS_SLOTS=%d", atOnce))
	return &spooler{program: program, env: env}, nil
}

// round gives it jobs from as many callers as run at once, and waits for the last.
func (s *spooler) round(ctx context.Context) (_ float64, err error) {
	if err := s.call(ctx); err != nil { // starts its server
		return 0, err
	}
	defer func() { err = errors.Join(err, s.call(context.WithoutCancel(ctx), "-K")) }()
	var left atomic.Int64
	left.Store(tspJobs)
	began := time.Now()
	err = together(atOnce, func() error {
		for left.Add(-1) >= 0 {
			if err := s.call(ctx, "-n", "true"); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	if err := s.call(ctx, "-w"); err != nil { // the job that was added last
		return 0, err
	}
	return rate(tspJobs, time.Since(began)), nil
}

// call runs tsp. Its server inherits what it is given, hence no pipe.
func (s *spooler) call(ctx context.Context, args ...string) error {
	c := exec.CommandContext(ctx, s.program, args...)
	c.Env = s.env
	if err := c.Run(); err != nil {
		return fmt.Errorf("tsp %q: %w", args, err)
	}
	return nil
}
