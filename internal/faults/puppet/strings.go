package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/agentsched/agentsched/internal/faults/act"
)

// tagVariable is job.RunTagVariable, which a worker knows by its name alone.
const tagVariable = "AGENTSCHED_RUN"

// strings are what a process of a worker hangs by.
type strings struct {
	socket, kind string

	conn    net.Conn // closed by the kernel, whatever the process's end is
	answers *bufio.Reader
}

// hello connects to the suite; when it returns, the process is counted.
func (s *strings) hello(role act.Role, job, run string) error {
	conn, err := net.Dial(act.Address(s.socket))
	if err != nil {
		return err
	}
	s.conn, s.answers = conn, bufio.NewReader(conn)
	return s.tell(act.Word{Hello: true, Run: run, Job: job, Kind: s.kind, Role: role, Pid: os.Getpid()})
}

// errAgain: the suite wants the attempt to be made again.
var errAgain = errors.New("again")

// tell says w and waits until it was heard.
func (s *strings) tell(w act.Word) error {
	line, err := json.Marshal(w)
	if err != nil {
		return err
	}
	if _, err := s.conn.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("tell the suite: %w", err)
	}
	answer, err := s.answers.ReadString('\n')
	if err != nil {
		return fmt.Errorf("the suite does not answer: %w", err)
	}
	if answer == act.Again {
		return errAgain
	}
	return nil
}

// idle is the life of a child or daemon: it lasts until somebody ends it. When
// file 3 is closed, it is counted.
func (s *strings) idle(role, job, run string) error {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	if err := s.hello(act.Role(role), job, run); err != nil {
		return err
	}
	if err := syscall.Close(3); err != nil {
		return err
	}
	_, err := s.answers.ReadByte() // the suite has no more to say
	return err
}

// fork starts n children that stay.
func (s *strings) fork(n int, job, run string) error {
	for range n {
		cmd := s.command("child", job, run)
		// They hold the worker's own output open, as a tool's server does.
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		if err := s.started(cmd); err != nil {
			return fmt.Errorf("fork: %w", err)
		}
	}
	return nil
}

// daemonise starts n daemons: each of a parent that has ended, in a session of
// its own, in the root folder.
func (s *strings) daemonise(n int, naked bool, job, run string) error {
	for range n {
		cmd := s.command("fork-daemon", job, run)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		cmd.Dir = "/"
		if naked {
			cmd.Env = []string{}
		}
		if err := s.started(cmd); err != nil {
			return fmt.Errorf("daemonise: %w", err)
		}
		if err := cmd.Wait(); err != nil {
			return fmt.Errorf("daemonise: %w", err)
		}
	}
	return nil
}

// forkDaemon is the life of a daemon's parent.
func (s *strings) forkDaemon(job, run string) error {
	cmd := s.command("daemon", job, run)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.ExtraFiles = []*os.File{os.NewFile(3, "ready")}
	return cmd.Start()
}

func (s *strings) command(role, job, run string) *exec.Cmd {
	return exec.Command("/proc/self/exe", role, s.socket, s.kind, job, run)
}

// started starts cmd and waits until it, or what it starts, is counted.
func (s *strings) started(cmd *exec.Cmd) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	cmd.ExtraFiles = []*os.File{w}
	err = cmd.Start()
	w.Close()
	if err != nil {
		return err
	}
	if n, err := r.Read(make([]byte, 1)); n != 0 || err == nil {
		return errors.New("somebody wrote to the pipe")
	}
	return nil
}
