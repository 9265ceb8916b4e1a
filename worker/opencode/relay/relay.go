package relay

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// Command is the argument with which a program of this project runs as a relay. The server's program and its arguments
// follow.
const Command = "opencode-relay"

// Program returns the program that runs as a relay with Command as its first argument: this one.
func Program() (string, error) {
	if len(os.Args) > 1 && os.Args[1] == Command {
		return "", errors.New("this program was started as a relay of opencode and does not know it: it has to call relay.Main first")
	}
	return os.Executable()
}

// endTime is between the SIGTERM and the SIGKILL of a server, which not every one obeys.
const endTime = time.Second

// exitFailure is the exit code of a relay that failed itself.
const exitFailure = 1

// Main is the relay of the program args[0] with the arguments args[1:]. It returns the exit code.
func Main(args []string) int {
	if len(args) == 0 {
		fmt.Fprintln(os.Stderr, Command+": no program is named")
		return exitFailure
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	r := relay{out: os.Stdout, errors: os.Stderr}
	code, err := r.run(ctx, os.Stdin, args)
	if err != nil {
		fmt.Fprintln(os.Stderr, Command+":", err)
	}
	return code
}

// relay is between two pipes and a server.
type relay struct {
	errors *os.File

	writing sync.Mutex // guards out: a line is written whole
	out     io.Writer
}

// run starts the server and relays until it ends, the input does, or ctx.
func (r *relay) run(ctx context.Context, in io.Reader, args []string) (code int, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := server{password: rand.Text()}
	listens := newBanner(r.errors)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), passwordVariable+"="+s.password)
	cmd.Stdout, cmd.Stderr = listens, r.errors
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = endTime
	if err := cmd.Start(); err != nil {
		return exitFailure, err
	}
	ended, talked := make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(ended)
		_ = cmd.Wait() // its error is in ProcessState
	}()
	go func() {
		var err error
		select {
		case s.url = <-listens.url:
			err = r.talk(ctx, &s, in)
		case <-ctx.Done():
		}
		talked <- err
	}()
	select {
	case <-ended:
		return exitCode(cmd.ProcessState), nil
	case err = <-talked:
	case <-ctx.Done():
	}
	if err != nil { // maybe since the server ends
		select {
		case <-ended:
			return exitCode(cmd.ProcessState), nil
		case <-time.After(endTime):
			code = exitFailure
		}
	}
	cancel()
	<-ended
	return code, err
}

// exitCode is a server's as a shell would have it.
func exitCode(s *os.ProcessState) int {
	if status, ok := s.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return s.ExitCode()
}

// talk relays until the input ends (nil), or the server's events do.
func (r *relay) talk(ctx context.Context, s *server, in io.Reader) error {
	events, err := s.open(ctx)
	if err != nil {
		return err
	}
	defer events.Close() // a server that ends waits for those who listen
	over := make(chan error, 2)
	go func() { over <- r.passEvents(events) }()
	go func() { over <- r.passRequests(ctx, s, in) }()
	return <-over
}
