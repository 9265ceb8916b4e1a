package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
)

const (
	running   = 100 // runs at once, of which the core is killed
	submits   = 200 // jobs of a round that are submitted one after the other
	liveWait  = time.Minute
	shellPeer = `echo $$ > "$1"`
	// commits of a job until its first command: its submission, its claim, its attempt.
	commits = 3
)

// liveCase measures a scheduler that serves: how soon a job that is submitted begins
// while nothing else is done, what a run takes in memory, and what the death of a core
// with many runs costs.
func liveCase(ctx context.Context, b *bench) (_ []row, err error) {
	bytes, err := commitBytes(ctx, b)
	if err != nil {
		return nil, err
	}
	l, err := serve(ctx, b, "live", "--concurrency", fmt.Sprint(running))
	if err != nil {
		return nil, err
	}
	defer func() { err = joinClose(err, l.close) }()

	var ours, peers sample // of every submission
	for range b.rounds {
		if ours, err = l.submitted(ctx, ours); err == nil {
			peers, err = l.forked(ctx, bytes, peers)
		}
		if err != nil {
			return nil, l.said.told(err)
		}
	}
	s, err := l.runs(ctx, min(b.rounds, 5))
	if err != nil {
		return nil, l.said.told(err)
	}
	last := bound{most: 20, unit: " ms"}
	p99 := ours.quantile(0.99)
	return []row{
		latencies("submitted over HTTP to its first command, idle, p50", sample{ours.median()}, "3 fdatasyncs, sh forked", sample{peers.median()}, bound{}),
		{fmt.Sprintf("  p99 of %d", len(ours)), showMillis(p99), "3 fdatasyncs, sh forked " + showMillis(peers.quantile(0.99)),
			fmt.Sprintf("%.1f ms", p99*1e3), last.String(), last.reached(p99 * 1e3)},
		{fmt.Sprintf("core killed with %d runs, to the last process's end", running), showTime(s.gone), "-", "-", "-", "-"},
		{"  to the last run's start anew", showTime(s.again), "started at first " + showTime(s.first), fmt.Sprintf("%.2f x", s.again.median()/s.first.median()), "-", "-"},
		{fmt.Sprintf("memory of a run, of %d", running), "scheduler " + showKibi(s.scheduler), "core " + showKibi(s.core), "-", "-", "-"},
	}, nil
}

func showMillis(seconds float64) string { return fmt.Sprintf("%.1f ms", seconds*1e3) }

func showKibi(s sample) string { return fmt.Sprintf("%.0f KiB", s.median()/1024) }

// live is a scheduler that serves, and the pipe in which its jobs say their process
// ids.
type live struct {
	client *client.Client
	pipe   *os.File
	lines  *bufio.Reader
	said   *tail
	cmd    *exec.Cmd
	stop   context.CancelFunc
	one    int // jobs that were submitted
}

func serve(ctx context.Context, b *bench, name string, args ...string) (*live, error) {
	program, err := b.buildPrograms(ctx)
	if err != nil {
		return nil, err
	}
	state, err := b.folder(name)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(state, "started")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		return nil, os.NewSyscallError("mkfifo", err)
	}
	// Opened for writing too, so that it has no end between two jobs.
	pipe, err := os.OpenFile(path, os.O_RDWR|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	l := &live{pipe: pipe, lines: bufio.NewReader(pipe), stop: stop, client: client.New(filepath.Join(state, "scheduler.sock"))}
	l.cmd, l.said = command(ctx, program, state, append([]string{"serve"}, args...)...)
	if err := l.cmd.Start(); err != nil {
		return nil, errors.Join(err, pipe.Close())
	}
	for deadline := time.Now().Add(liveWait); ; time.Sleep(50 * time.Millisecond) {
		_, err := l.client.Status(ctx)
		if err == nil {
			return l, nil
		} else if time.Now().After(deadline) {
			return nil, errors.Join(l.said.told(fmt.Errorf("wait for the scheduler: %w", err)), l.close())
		}
	}
}

func (l *live) close() error {
	l.stop()
	var ended *exec.ExitError
	err := l.cmd.Wait()
	if errors.As(err, &ended) || errors.Is(err, context.Canceled) {
		err = nil // it was told to
	}
	return errors.Join(err, l.pipe.Close())
}

// submit submits n jobs that say their process ids in the pipe, and do then what the
// shell is told.
func (l *live) submit(ctx context.Context, n int, then string) (api.Jobs, error) {
	var text strings.Builder
	text.WriteString("jobs:\n")
	for range n {
		l.one++
		fmt.Fprintf(&text, "  - {id: job-%d, type: TOOL, workspace: {isolation: none}, instructions: \"echo $$ > '%s'; %s\"}\n", l.one, l.pipe.Name(), then)
	}
	return l.client.SubmitFile(ctx, api.JobFile{Text: text.String()})
}

// started reads the process ids of n jobs that have begun.
func (l *live) started(n int) (pids []int, err error) {
	if err := l.pipe.SetReadDeadline(time.Now().Add(liveWait)); err != nil {
		return nil, err
	}
	for range n {
		line, err := l.lines.ReadString('\n')
		if err != nil {
			return nil, fmt.Errorf("wait for job %d of %d: %w", len(pids)+1, n, err)
		}
		var pid int
		if _, err := fmt.Sscan(line, &pid); err != nil {
			return nil, fmt.Errorf("a job said %q, not its process id: %w", line, err)
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

// submitted adds the seconds from each submission to the job's first command. The next
// is submitted when the one before has ended.
func (l *live) submitted(ctx context.Context, s sample) (sample, error) {
	for range submits {
		began := time.Now()
		jobs, err := l.submit(ctx, 1, "true")
		if err != nil {
			return s, err
		}
		if _, err := l.started(1); err != nil {
			return s, err
		}
		s = append(s, time.Since(began).Seconds())
		if err := l.end(ctx, jobs); err != nil {
			return s, err
		}
	}
	return s, nil
}

// end waits until jobs have ended.
func (l *live) end(ctx context.Context, jobs api.Jobs) error {
	for _, j := range jobs.Jobs {
		for _, err := range l.client.Follow(ctx, string(j.ID), client.FollowOptions{}) {
			if err != nil {
				return fmt.Errorf("follow job %s: %w", j.ID, err)
			}
		}
	}
	return nil
}

// forked adds the seconds that the same command takes that is only started, after as many
// bytes were made durable as often.
func (l *live) forked(ctx context.Context, bytes int, s sample) (_ sample, err error) {
	f, err := os.OpenFile(l.pipe.Name()+".log", os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return s, err
	}
	defer func() { err = joinClose(err, f.Close) }()
	for range submits {
		began := time.Now()
		for range commits {
			if _, err := f.Write(make([]byte, bytes)); err != nil {
				return s, err
			}
			if err := unix.Fdatasync(int(f.Fd())); err != nil {
				return s, os.NewSyscallError("fdatasync", err)
			}
		}
		c := exec.CommandContext(ctx, "/bin/sh", "-c", shellPeer, "sh", l.pipe.Name())
		if err := c.Start(); err != nil {
			return s, err
		}
		if _, err := l.started(1); err != nil {
			return s, err
		}
		s = append(s, time.Since(began).Seconds())
		if err := c.Wait(); err != nil {
			return s, err
		}
	}
	return s, nil
}

// manyRuns is what many runs at once cost: seconds, and bytes for each.
type manyRuns struct{ first, gone, again, scheduler, core sample }

// runs starts many jobs at once, looks at what they take in memory, and kills their
// core.
func (l *live) runs(ctx context.Context, rounds int) (s manyRuns, err error) {
	for range rounds {
		idle, core, err := l.memory(ctx)
		if err != nil {
			return s, err
		}
		began := time.Now()
		jobs, err := l.submit(ctx, running, "exec sleep 600")
		if err != nil {
			return s, err
		}
		pids, err := l.started(running)
		if err != nil {
			return s, err
		}
		s.first = append(s.first, time.Since(began).Seconds())
		select {
		case <-time.After(settle):
		case <-ctx.Done():
			return s, context.Cause(ctx)
		}
		busy, _, err := l.memory(ctx)
		if err != nil {
			return s, err
		}
		if s.core == nil { // later rounds begin with the memory that the first has left
			s.scheduler = append(s.scheduler, (busy[0]-idle[0])/running)
			s.core = append(s.core, (busy[1]-idle[1])/running)
		}

		if err := l.kill(core, pids, &s); err != nil {
			return s, err
		}
		for _, j := range jobs.Jobs {
			if _, err := l.client.Cancel(ctx, string(j.ID)); err != nil {
				return s, err
			}
		}
		if err := l.end(ctx, jobs); err != nil {
			return s, err
		}
	}
	return s, nil
}

// kill kills a core, and notes when all that it ran has ended and when all of it runs
// again.
func (l *live) kill(core int, pids []int, s *manyRuns) error {
	var ends []unix.PollFd
	defer func() {
		for _, end := range ends {
			unix.Close(int(end.Fd)) //nolint:errcheck // nothing was written
		}
	}()
	for _, pid := range pids {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			return fmt.Errorf("a job's process %d: %w", pid, err)
		}
		ends = append(ends, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	began := time.Now()
	if err := syscall.Kill(core, syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill core %d: %w", core, err)
	}
	gone := make(chan error, 1)
	go func() { gone <- l.ended(ends, began, s) }()
	_, err := l.started(running)
	s.again = append(s.again, time.Since(began).Seconds())
	return errors.Join(err, <-gone)
}

func (l *live) ended(ends []unix.PollFd, began time.Time, s *manyRuns) error {
	for _, end := range ends {
		for {
			n, err := unix.Poll([]unix.PollFd{end}, int(liveWait.Milliseconds()))
			if errors.Is(err, unix.EINTR) {
				continue
			} else if err != nil {
				return os.NewSyscallError("poll", err)
			} else if n == 0 {
				return fmt.Errorf("a process of a killed core runs %s later", liveWait)
			}
			break
		}
	}
	s.gone = append(s.gone, time.Since(began).Seconds())
	return nil
}

// memory returns what the scheduler and its core have in memory, in bytes, and the
// core's process id.
func (l *live) memory(ctx context.Context) (bytes [2]float64, core int, err error) {
	st, err := l.client.Status(ctx)
	if err != nil {
		return bytes, 0, err
	}
	if i := slices.IndexFunc(st.Cores, func(c api.Core) bool { return c.State == "up" }); i >= 0 {
		core = st.Cores[i].PID
	} else {
		return bytes, 0, errors.New("no core is up")
	}
	for i, pid := range []int{l.cmd.Process.Pid, core} {
		if bytes[i], _, err = memoryOf(pid); err != nil {
			return bytes, 0, err
		}
	}
	return bytes, core, nil
}
