package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// Types of file systems that live in memory, from linux/magic.h.
const (
	tmpfs = 0x01021994
	ramfs = 0x858458f6
)

// onDisk refuses a folder in which a sync is free.
func onDisk(dir string) error {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return fmt.Errorf("look at the file system of %s: %w", dir, err)
	}
	if kind := int64(fs.Type); kind == tmpfs || kind == ramfs {
		return fmt.Errorf("%s is in memory, where a sync is free: name a folder on a disk with -dir", dir)
	}
	return nil
}

// printMachine says on what the figures were taken.
func printMachine(w io.Writer, dir string) error {
	probe := &syncer{path: filepath.Join(dir, "probe"), bytes: 4096}
	took, err := probe.append(context.Background(), 200)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%d CPUs (%s), %s %s/%s, fdatasync of 4 KiB appended %.0f µs\n",
		runtime.NumCPU(), cpuModel(), runtime.Version(), runtime.GOOS, runtime.GOARCH, took*1e6)
	return err
}

func cpuModel() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

// syncer is the floor of every durable write: some bytes and one sync.
type syncer struct {
	path  string
	bytes int
}

// append returns the mean seconds of n appends, each synced.
func (s *syncer) append(ctx context.Context, n int) (float64, error) {
	return s.write(ctx, n, os.O_TRUNC, func(int) int64 { return -1 })
}

// overwrite is append within a file that has its size already, as a write-ahead
// log has from its second time round: no metadata changes.
func (s *syncer) overwrite(ctx context.Context, n int) (float64, error) {
	return s.write(ctx, n, 0, func(i int) int64 { return int64(i * s.bytes) })
}

func (s *syncer) write(ctx context.Context, n, flag int, at func(i int) int64) (float64, error) {
	f, err := os.OpenFile(s.path, os.O_RDWR|os.O_CREATE|flag, 0o600)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	block := make([]byte, s.bytes)
	if flag == 0 { // lay the file out, not measured
		for range n {
			if _, err := f.Write(block); err != nil {
				return 0, err
			}
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
	}
	began := time.Now()
	for i := range n {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		if pos := at(i); pos < 0 {
			_, err = f.Write(block)
		} else {
			_, err = f.WriteAt(block, pos)
		}
		if err != nil {
			return 0, err
		}
		if err := syscall.Fdatasync(int(f.Fd())); err != nil {
			return 0, os.NewSyscallError("fdatasync", err)
		}
	}
	return time.Since(began).Seconds() / float64(n), nil
}
