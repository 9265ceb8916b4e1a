package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/agentsched/agentsched/internal/faults/act"
)

// relay is the life of a core that passes on what the real one says, but for
// the next harm that was not done yet. If there is none, it becomes the real one.
// That goes by its name, by which a scheduler finds the cores that were left.
func relay() error {
	program := os.Getenv(act.CoreVariable)
	var tears []act.Tear
	if err := json.Unmarshal([]byte(os.Getenv(act.TearVariable)), &tears); err != nil {
		return fmt.Errorf("%s: %w", act.TearVariable, err)
	}
	tear, err := next(tears)
	if err != nil {
		return err
	}
	if tear == nil {
		return syscall.Exec(program, os.Args, os.Environ())
	}
	// A signal to end is for the real core, which tells its end by that of its
	// output.
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM)
	cmd := exec.Command(program)
	cmd.Args, cmd.Stderr = os.Args, os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	straight := &act.Tear{}
	calls, answers := straight, tear
	if tear.Calls {
		calls, answers = tear, straight
	}
	go func() {
		pass(in, os.Stdin, *calls)
		in.Close()
	}()
	pass(os.Stdout, out, *answers)
	os.Stdout.Close() // or the scheduler would wait for our end, and the core for the scheduler's
	err = cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		os.Exit(max(exit.ExitCode(), 1))
	}
	return err
}

// next takes the first harm that no process has taken.
func next(tears []act.Tear) (*act.Tear, error) {
	for i := range tears {
		f, err := os.OpenFile(filepath.Join(os.Getenv(act.DirVariable), "tear-"+strconv.Itoa(i)), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return &tears[i], f.Close()
	}
	return nil, nil
}

// pass copies frames from r to w and does the harm on its way.
func pass(w io.Writer, r io.Reader, tear act.Tear) {
	frames := bufio.NewReader(r)
	for n := 1; ; n++ {
		frame, err := frames.ReadBytes('\n')
		if n == tear.Frame && len(frame) > 0 {
			switch tear.Do {
			case act.Cut:
				w.Write(frame[:len(frame)/2])
				syscall.Kill(os.Getpid(), syscall.SIGKILL)
			case act.Garbage:
				io.WriteString(w, "{this is no JSON\n")
			case act.Twice:
				w.Write(frame)
			case act.Huge:
				w.Write(append(bytes.Repeat([]byte("x"), 2<<20), '\n'))
			case act.Late:
				time.Sleep(act.TearDelay)
			case act.Mute:
				io.Copy(io.Discard, frames)
				forever()
			}
		}
		if len(frame) > 0 {
			if _, err := w.Write(frame); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// forever blocks until this process is killed.
func forever() {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGUSR1) // which nobody sends
	for range stop {
	}
}
