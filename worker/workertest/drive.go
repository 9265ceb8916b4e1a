package workertest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// Drive runs the session's real program to its end and returns its events and
// its result. If onEvent is not nil it is called with each event, and may
// return true once to have the session cancelled, as the Runner would, but
// without signals. It is a small stand-in for worker.Runner, to test an
// adapter alone: questions are not answered, timers not set, steps not stored,
// and the program has a minute, then its process group is killed.
func Drive(t testing.TB, s worker.Session, onEvent func(job.Event) (cancel bool)) ([]job.Event, worker.Result) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	c := s.Command()
	cmd := exec.CommandContext(ctx, c.Path, c.Args...)
	cmd.Env, cmd.Dir, cmd.ExtraFiles = c.Env, c.Dir, c.Files
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	written := make(chan struct{})
	go func() {
		defer close(written)
		stdin.Write(c.Stdin) // a program that does not read is no failure
		if !c.KeepStdin {
			stdin.Close()
		}
	}()

	var events []job.Event
	var result worker.Result
	stopped := false
	var step func(in worker.Input)
	step = func(in worker.Input) {
		for _, a := range s.Step(time.Now(), in) {
			switch a := a.(type) {
			case worker.Emit:
				events = append(events, a.Event)
				if onEvent != nil && onEvent(a.Event) && !stopped {
					stopped = true
					step(worker.Cancel{})
				}
			case worker.Write:
				<-written
				if _, err := stdin.Write(a.Data); err != nil {
					t.Errorf("write to the program: %v", err)
				}
			case worker.CloseInput:
				<-written
				stdin.Close()
			case worker.Finish:
				result = a.Result
			}
		}
	}
	step(worker.Started{})
	lines := bufio.NewReader(stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			step(worker.Output{Line: bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))})
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				t.Errorf("read the program's output: %v", err)
			}
			break
		}
	}
	stdin.Close()
	<-written
	_ = cmd.Wait() // its error is in ProcessState
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	if ctx.Err() != nil {
		t.Fatalf("the program did not end in time; stderr: %s", stderr.String())
	}
	for line := range bytes.Lines(stderr.Bytes()) {
		step(worker.ErrorOutput{Line: bytes.TrimSuffix(line, []byte("\n"))})
	}
	e := worker.Exit{Code: cmd.ProcessState.ExitCode(), Stderr: stderr.String(), Stopped: stopped}
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		e.Signal = ws.Signal().String()
	}
	step(worker.Ended{Exit: e})
	if closer, ok := s.(io.Closer); ok {
		if err := closer.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	return events, result
}
