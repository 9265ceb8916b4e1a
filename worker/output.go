package worker

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/agentsched/agentsched/internal/proc"
	"github.com/agentsched/agentsched/job"
)

const (
	// maxLine is the longest output line that a session is told; a tool's
	// output can make one JSON line megabytes long. A longer one is counted
	// and skipped.
	maxLine = 64 << 20
	// readSize is of the buffer that every run has for each of its streams: a
	// pipe gives what was written, which is seldom more, and a longer line is put
	// together from several reads.
	readSize = 8 << 10
	// maxLog bounds each raw log file, so that a worker that floods its output
	// does not fill the disk.
	maxLog = 256 << 20
	// tailSize is how much of stderr a session's Result gets to see.
	tailSize = 16 << 10
	// maxLogEvents bounds how many stderr lines become events; all of them are
	// in the log file.
	maxLogEvents = 2000
	// drainTime is how long output is still read after the tree is empty. The
	// pipes are at their end then; only a ghost can hold one open.
	drainTime = 2 * time.Second
)

// pumping is the goroutines that move a run's streams.
type pumping struct {
	tree  *proc.Tree
	stdin *feed
	done  sync.WaitGroup
}

// pump starts the goroutines that write stdin and read stdout and stderr. They end by
// themselves: the readers at the end of the pipes, which the last process of the tree
// closes, the writer with the feed or when the program reads no more. wait collects
// them.
func pump(tree *proc.Tree, cmd Command, d *driver, logs *logs) *pumping {
	m := &pumping{tree: tree, stdin: d.stdin}
	if stdin := tree.Stdin(); stdin != nil {
		m.done.Go(func() {
			// A program that does not read its input is no failure; it may end early.
			stdin.Write(cmd.Stdin)
			if cmd.KeepStdin {
				d.stdin.copyTo(stdin)
			}
			d.stdin.close()
			stdin.Close()
		})
	} else {
		d.stdin.close()
	}
	m.done.Go(func() {
		err := eachLine(tree.Stdout(), func(line []byte, size int) {
			logs.stdout.write(line)
			if size > len(line) {
				d.rec.record(job.Event{Kind: job.EventWarning, Text: fmt.Sprintf("an output line of %d bytes was skipped, at most %d are read", size, maxLine)})
				return
			}
			d.step(Output{line})
		})
		if err != nil {
			d.end(&Stop{Class: job.Crash, Message: fmt.Sprintf("read the worker's output: %v", err), ours: true})
		}
	})
	m.done.Go(func() {
		eachLine(tree.Stderr(), func(line []byte, _ int) {
			logs.keepTail(logs.stderr.write(line))
			d.step(ErrorOutput{line})
		})
	})
	return m
}

// wait returns when both streams are at their end. With a ghost that may hold
// them open, what is not read after drainTime is given up.
func (m *pumping) wait(ghost bool) {
	m.stdin.close()
	if stdin := m.tree.Stdin(); stdin != nil {
		stdin.Close()
	}
	if ghost {
		deadline := time.Now().Add(drainTime)
		m.tree.Stdout().SetReadDeadline(deadline)
		m.tree.Stderr().SetReadDeadline(deadline)
	}
	m.done.Wait()
}

// eachLine calls f with each line of r, without its line end, and with its
// size in bytes. Of a line longer than maxLine only the head is given, so that
// len(line) < size. The slice is valid until f returns. The last line needs no
// newline.
func eachLine(r io.Reader, f func(line []byte, size int)) error {
	br := bufio.NewReaderSize(r, readSize)
	for {
		line, size, err := readLine(br)
		if size > 0 || err == nil {
			f(line, size)
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, os.ErrClosed):
			return nil
		case err != nil:
			return err
		}
	}
}

// readLine returns the next line, at most maxLine bytes of it, and its whole size.
func readLine(br *bufio.Reader) (line []byte, size int, err error) {
	part, err := br.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		line = trimEnd(part)
		return line, len(line), err
	}
	total := 0
	for {
		total += len(part)
		line = append(line, part[:min(len(part), maxLine-len(line))]...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			break
		}
		part, err = br.ReadSlice('\n')
	}
	if total > len(line) {
		return line, total, err
	}
	line = trimEnd(line)
	return line, len(line), err
}

func trimEnd(line []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
}

// logs are the output of a run, in two files: as it was printed, but for secrets.
type logs struct {
	stdout, stderr *logFile

	mu   sync.Mutex
	tail []byte
}

// newLogs removes the logs of an earlier run of the same name. A run that
// prints nothing makes none.
func newLogs(run Run, cancel context.CancelCauseFunc) *logs {
	fail := func(err error) {
		cancel(&Stop{Class: job.ResourceExhausted, Message: err.Error(), Hint: "make room in the state directory", ours: true})
	}
	l := &logs{
		stdout: &logFile{name: run.LogName + job.ArtifactStdout, path: filepath.Join(run.LogDir, run.LogName+"stdout.log"), redact: run.Redact.Lines(), fail: fail},
		stderr: &logFile{name: run.LogName + job.ArtifactStderr, path: filepath.Join(run.LogDir, run.LogName+"stderr.log"), redact: run.Redact.Lines(), fail: fail},
	}
	if _, err := os.Lstat(run.LogDir); errors.Is(err, fs.ErrNotExist) {
		return l
	}
	for _, f := range []*logFile{l.stdout, l.stderr} {
		if err := os.Remove(f.path); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
			fail(fmt.Errorf("remove old log: %w", err))
		}
	}
	return l
}

func (l *logs) keepTail(line []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tail = append(append(l.tail, line...), '\n')
	if extra := len(l.tail) - tailSize; extra > 0 {
		l.tail = append(l.tail[:0], l.tail[extra:]...)
	}
}

func (l *logs) stderrTail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(bytes.ToValidUTF8(l.tail, []byte("\uFFFD")))
}

func (l *logs) artifacts() []job.Artifact {
	var list []job.Artifact
	for _, f := range []*logFile{l.stdout, l.stderr} {
		if f.file != nil && f.written > 0 {
			list = append(list, job.Artifact{Name: f.name, Path: f.file.Name(), Bytes: f.written})
		}
	}
	return list
}

func (l *logs) close() {
	for _, f := range []*logFile{l.stdout, l.stderr} {
		if f.file != nil {
			f.file.Close()
		}
	}
}

// logFile is a bounded log. A write that fails ends the log, not the run: the
// events are kept elsewhere. That it cannot be made ends the run.
type logFile struct {
	name    string
	path    string
	redact  func(line []byte) []byte
	fail    func(error) // told that it cannot be made
	file    *os.File    // nil before the first line
	written int64
	full    bool
}

// open makes the file, and the folder that it is in.
func (l *logFile) open() error {
	err := os.MkdirAll(filepath.Dir(l.path), 0o700)
	if err == nil {
		l.file, err = os.OpenFile(l.path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	}
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	return nil
}

// write writes a line without its secrets, and returns it as it was written.
func (l *logFile) write(line []byte) []byte {
	line = l.redact(line)
	l.append(line)
	return line
}

func (l *logFile) append(line []byte) {
	if l.full {
		return
	}
	if l.file == nil {
		if err := l.open(); err != nil {
			l.full = true
			l.fail(err)
			return
		}
	}
	if l.written+int64(len(line))+1 > maxLog {
		l.full = true
		fmt.Fprintf(l.file, "… log cut here at %d bytes …\n", l.written)
		return
	}
	// One write a line, so that who follows the log sees whole lines.
	n, err := l.file.Write(append(bytes.Clone(line), '\n'))
	l.written += int64(n)
	l.full = err != nil
}
