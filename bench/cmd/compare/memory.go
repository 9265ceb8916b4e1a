package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/queue/sqlite"
)

const (
	manyJobs = 1_000_000
	// startWait is how long the first job may take to run.
	startWait = time.Minute
	// settle is how long a scheduler works beside its queue before its memory is
	// looked at: what it does each second it has done.
	settle = 3 * time.Second
	mebi   = 1 << 20
)

// memoryCase starts the scheduler on 10⁶ queued jobs and on none, with one slot
// that the first job takes and keeps.
func memoryCase(ctx context.Context, b *bench) ([]row, error) {
	program, err := b.buildPrograms(ctx)
	if err != nil {
		return nil, err
	}
	many, err := b.millionDir(ctx)
	if err != nil {
		return nil, err
	}
	none, err := b.folder("none")
	if err != nil {
		return nil, err
	}
	if err := b.fillState(ctx, none, 0); err != nil {
		return nil, err
	}
	full, empty := &standing{b: b, program: program, state: many}, &standing{b: b, program: program, state: none}
	s, err := turns(ctx, min(b.rounds, 3), full.start, empty.start, openTime(many), openTime(none))
	if err != nil {
		return nil, err
	}
	resident, peak := full.resident.median()-empty.resident.median(), full.peak.median()-empty.peak.median()
	most, within := bound{most: 64, unit: " MB"}, bound{most: 2, unit: " s"}
	return []row{
		{"memory of the scheduler, 10^6 queued", showSize(full.resident), "none queued " + showSize(empty.resident),
			fmt.Sprintf("%+.0f MB", resident/mebi), most.String(), most.reached(resident / mebi)},
		{"  its peak since the start", showSize(full.peak), "none queued " + showSize(empty.peak), fmt.Sprintf("%+.0f MB", peak/mebi), "-", "-"},
		{"start to first job running, 10^6 queued", showTime(s[0]), "none queued " + showTime(s[1]),
			fmt.Sprintf("%.2f s", s[0].median()), within.String(), within.reached(s[0].median())},
		latencies("  opening the store alone, 10^6 queued", s[2], "none queued", s[3], bound{}),
	}, nil
}

func showSize(s sample) string { return fmt.Sprintf("%.0f MB", s.median()/mebi) }

// pipe is where the first job says that it runs.
func (b *bench) pipe() string { return filepath.Join(b.dir, "started") }

// millionDir returns a state directory with 10⁶ queued jobs behind the one that
// keeps the slot.
func (b *bench) millionDir(ctx context.Context) (string, error) {
	if b.million != "" {
		return b.million, nil
	}
	dir, err := b.folder("million")
	if err != nil {
		return "", err
	}
	if err := b.fillState(ctx, dir, manyJobs); err != nil {
		return "", err
	}
	b.million = dir
	return dir, nil
}

// fillState makes a state directory, with a run of one job, and fills its queue:
// the job that says that it runs and then waits to be stopped, and n others.
func (b *bench) fillState(ctx context.Context, dir string, n int) (err error) {
	program, err := b.buildPrograms(ctx)
	if err != nil {
		return err
	}
	if _, err := runJobs(ctx, program, dir, filepath.Join(b.dir, "one.yaml"), 1, false); err != nil {
		return err
	}
	if err := syscall.Mkfifo(b.pipe(), 0o600); err != nil && !errors.Is(err, syscall.EEXIST) {
		return os.NewSyscallError("mkfifo", err)
	}
	ours, err := openBed(ctx, dir, 0)
	if err != nil {
		return err
	}
	defer func() { err = joinClose(err, ours.store.Close) }()
	first := ours.entry()
	first.Spec.Name, first.Spec.Priority = "first", 100
	first.Spec.Instructions = fmt.Sprintf("echo running > '%s'; exec sleep 600", b.pipe())
	if err := ours.store.Enqueue(ctx, ours.batch, []queue.Entry{first}); err != nil {
		return err
	}
	return ours.fill(ctx, n)
}

// standing is a scheduler that is started on a state directory once a round.
type standing struct {
	b              *bench
	program, state string
	resident, peak sample // bytes, of the scheduler's process alone
}

// start returns the seconds until the first job runs, and notes the memory.
func (s *standing) start(ctx context.Context) (_ float64, err error) {
	// Opened for writing too, so that it can be opened before the job does.
	pipe, err := os.OpenFile(s.b.pipe(), os.O_RDWR|syscall.O_NONBLOCK, 0)
	if err != nil {
		return 0, err
	}
	defer pipe.Close()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	c, said := command(ctx, s.program, s.state, "serve", "--json", "--concurrency", "1")
	began := time.Now()
	if err := c.Start(); err != nil {
		return 0, err
	}
	ended := make(chan error, 1)
	go func() {
		ended <- c.Wait()
		pipe.SetReadDeadline(time.Now()) // nobody will write any more
	}()
	defer func() {
		stop()
		if e := <-ended; err != nil {
			err = said.told(errors.Join(err, e))
		}
	}()
	if err := pipe.SetReadDeadline(began.Add(startWait)); err != nil {
		return 0, err
	}
	if _, err := pipe.Read(make([]byte, 16)); err != nil {
		return 0, fmt.Errorf("wait for the first job: %w", err)
	}
	took := time.Since(began).Seconds()
	select {
	case <-time.After(settle):
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	resident, peak, err := memoryOf(c.Process.Pid)
	s.resident, s.peak = append(s.resident, resident), append(s.peak, peak)
	return took, err
}

// memoryOf returns what a process has and had at most in memory, in bytes.
func memoryOf(pid int) (resident, peak float64, err error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		key, value, _ := strings.Cut(lines.Text(), ":")
		kilobytes, _ := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 64)
		switch key {
		case "VmRSS":
			resident = kilobytes * 1024
		case "VmHWM":
			peak = kilobytes * 1024
		}
	}
	if resident == 0 {
		return 0, 0, fmt.Errorf("process %d has no memory: it has ended", pid)
	}
	return resident, peak, lines.Err()
}

// openTime is the seconds that opening a queue takes by itself.
func openTime(dir string) side {
	return func(ctx context.Context) (float64, error) {
		began := time.Now()
		store, err := sqlite.Open(ctx, filepath.Join(dir, "queue.db"), sqlite.Options{Log: zerolog.Nop()})
		if err != nil {
			return 0, err
		}
		took := time.Since(began).Seconds()
		return took, store.Close()
	}
}
