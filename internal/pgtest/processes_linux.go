package pgtest

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// attributes have the server shut down at once when the thread that started it ends.
func attributes(as *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: as, Setsid: true, Pdeathsig: syscall.SIGQUIT}
}

// processes calls f with each process of the server that is there: those that work in
// its folder. A process that has ended is left out, whoever has its id now.
func (s *Server) processes(f func(pid, fd int) error) error {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			return err
		}
		if err := s.process(pid, f); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return nil
}

func (s *Server) process(pid int, f func(pid, fd int) error) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return unix.ESRCH // or a thread that is no process
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written
	// The folder is read after fd was opened, so that it is the folder of fd's process.
	if dir, _ := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "cwd")); dir != s.data() && !strings.HasPrefix(dir, s.data()+"/") {
		return nil
	}
	return f(pid, fd)
}

// signalAll signals all processes of the server.
func (s *Server) signalAll(sig syscall.Signal) error {
	return s.processes(func(_, fd int) error { return unix.PidfdSendSignal(fd, sig, nil, 0) })
}

// freeze stops all processes and returns when they are stopped. The first one starts no
// others after that.
func (s *Server) freeze() error {
	if err := s.process(s.run.process.Pid, stopProcess); err != nil {
		return err
	}
	return s.processes(stopProcess)
}

func stopProcess(pid, fd int) error {
	if err := unix.PidfdSendSignal(fd, unix.SIGSTOP, nil, 0); err != nil {
		return err
	}
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for ; ; <-look.C {
		stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
		if err != nil {
			return unix.ESRCH
		}
		// proc_pid_stat(5): the state follows the name, which is in parentheses.
		if i := strings.LastIndex(string(stat), ") "); i < 0 || strings.IndexByte("TtZX", stat[i+2]) >= 0 {
			return nil
		}
	}
}

// forgetMemory has the kernel remove the server's System V shared memory when the last
// of its processes ends, even if that is killed.
func (s *Server) forgetMemory() error {
	text, err := os.ReadFile(filepath.Join(s.data(), "postmaster.pid"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	// Its seventh line: the key and the id.
	lines := strings.Split(string(text), "\n")
	if len(lines) < 7 {
		return nil
	}
	words := strings.Fields(lines[6])
	if len(words) != 2 {
		return nil
	}
	id, err := strconv.Atoi(words[1])
	if err != nil {
		return err
	}
	// EINVAL, EIDRM: it was removed.
	if _, err := unix.SysvShmCtl(id, unix.IPC_RMID, nil); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EIDRM) {
		return os.NewSyscallError("shmctl", err)
	}
	return nil
}
