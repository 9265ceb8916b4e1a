//go:build amd64 || arm64

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentsched/agentsched/internal/proc"
)

// innerProgram is the program of a strict sandbox, as its init tells of it. It implements proc.Inner.
type innerProgram struct {
	report *net.UnixConn
	done   chan struct{} // closed when nothing more is told

	leader, init, pid int // of bubblewrap, of the init and of the program, as this process sees them
	pidfd             int // of the program; -1 if it ended before one could be had

	mu    sync.Mutex
	ended bool // the program has; state is how
	state proc.ExitState
	left  []proc.Proc
}

var errNotEntered = errors.New("bubblewrap did not start the program")

// enter waits for the program to be started in the sandbox that leader makes, and listens for its end from then on. The
// report is closed by close, or by an error.
func enter(ctx context.Context, report *net.UnixConn, leader int) (*innerProgram, error) {
	in := &innerProgram{report: report, done: make(chan struct{}), leader: leader, pidfd: -1}
	stop := context.AfterFunc(ctx, func() { _ = report.SetReadDeadline(time.Unix(1, 0)) })
	err := in.await()
	if !stop() {
		err = fmt.Errorf("%w: %w", errNotEntered, context.Cause(ctx))
	}
	if err != nil {
		return nil, errors.Join(err, report.Close())
	}
	go in.listen()
	return in, nil
}

func (in *innerProgram) await() error {
	for _, want := range []struct {
		kind uint32
		pid  *int
	}{{initReady, &in.init}, {initStarted, &in.pid}} {
		m, pid, err := in.receive()
		if err != nil || m.Kind != want.kind || pid <= 0 {
			return errNotEntered
		}
		*want.pid = pid
	}
	fd, err := unix.PidfdOpen(in.pid, 0)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open a pidfd of the program: %w", err)
	}
	// It is the program's if its parent is the init now that it is open.
	if parent, err := proc.Parent(in.pid); err != nil || parent != in.init {
		return unix.Close(fd)
	}
	in.pidfd = fd
	return nil
}

// receive reads a message of the init and who sent it.
func (in *innerProgram) receive() (m initMessage, pid int, err error) {
	var buf [16]byte
	oob := make([]byte, unix.CmsgSpace(unix.SizeofUcred))
	n, oobn, _, _, err := in.report.ReadMsgUnix(buf[:], oob)
	if err != nil {
		return m, 0, err
	}
	return parseReport(buf[:n], oob[:oobn])
}

func parseReport(data, oob []byte) (m initMessage, pid int, err error) {
	m, ok := parseInitMessage(data)
	if !ok {
		return m, 0, fmt.Errorf("read the init's report: %d bytes, want 8", len(data))
	}
	list, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return m, 0, fmt.Errorf("read the init's report: %w", err)
	}
	for i := range list {
		if c, err := unix.ParseUnixCredentials(&list[i]); err == nil {
			pid = int(c.Pid)
		}
	}
	return m, pid, nil
}

// listen takes what the init tells until it ends, or Exit or close has no patience.
func (in *innerProgram) listen() {
	defer close(in.done)
	for {
		m, _, err := in.receive()
		if err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				in.drain()
			}
			return
		}
		in.take(m)
	}
}

// drain takes what has been told already.
func (in *innerProgram) drain() {
	conn, err := in.report.SyscallConn()
	if err != nil {
		return
	}
	_ = conn.Control(func(fd uintptr) {
		var buf [16]byte
		for {
			n, _, err := unix.Recvfrom(int(fd), buf[:], unix.MSG_DONTWAIT)
			m, ok := parseInitMessage(buf[:max(n, 0)])
			if err != nil || !ok {
				return
			}
			in.take(m)
		}
	})
}

func (in *innerProgram) take(m initMessage) {
	var state proc.ExitState
	var left []proc.Proc
	switch m.Kind {
	case initEnded:
		state = exitState(m.Value)
	case initLeft:
		state = exitState(m.Value)
		left, _ = proc.Below(in.init) // without the names, it is ended all the same
		_, _ = in.report.Write(make([]byte, 8))
	case initNotFound:
		state = proc.ExitState{Code: -1, Err: fmt.Errorf("start the program in the sandbox: %w", syscall.Errno(m.Value))}
	default:
		return
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if !in.ended { // else it is the end of a process that could not become the program
		in.ended, in.state, in.left = true, state, left
	}
}

// exitState is a wait status as proc has it.
func exitState(status int32) proc.ExitState {
	ws := syscall.WaitStatus(status)
	if ws.Signaled() {
		return proc.ExitState{Code: -1, Signal: ws.Signal()}
	}
	return proc.ExitState{Code: ws.ExitStatus()}
}

// Pid of the program.
func (in *innerProgram) Pid() int { return in.pid }

// Around are bubblewrap and the init.
func (in *innerProgram) Around() []int { return []int{in.leader, in.init} }

// processGroup is PIDFD_SIGNAL_PROCESS_GROUP, since Linux 6.9.
const processGroup = 1 << 2

// Signal sends sig to the program's process group.
func (in *innerProgram) Signal(sig syscall.Signal) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.ended || in.pidfd < 0 {
		return os.ErrProcessDone
	}
	err := unix.PidfdSendSignal(in.pidfd, sig, nil, processGroup)
	if errors.Is(err, unix.EINVAL) {
		// While the pidfd has its process, the number of the group is not another's.
		if err = unix.PidfdSendSignal(in.pidfd, 0, nil, 0); err == nil {
			err = unix.Kill(-in.pid, sig)
		}
	}
	if errors.Is(err, unix.ESRCH) {
		return os.ErrProcessDone
	}
	if err != nil {
		return fmt.Errorf("send %v to process group %d: %w", sig, in.pid, err)
	}
	return nil
}

// Exit is how the program ended; if its init was killed before it told, it is how that ended.
func (in *innerProgram) Exit(leader proc.ExitState) proc.ExitState {
	_ = in.report.SetReadDeadline(time.Unix(1, 0)) // bubblewrap is gone, so all is told
	<-in.done
	in.mu.Lock()
	defer in.mu.Unlock()
	switch {
	case in.ended:
		return in.state
	case leader.Code > 128: // bubblewrap's word for an init that was killed; the init itself says no such code
		return proc.ExitState{Code: -1, Signal: syscall.Signal(leader.Code - 128)}
	default:
		return leader
	}
}

// LeftBehind lists what lived on when the program had ended.
func (in *innerProgram) LeftBehind() []proc.Proc {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.left
}

// close ends the listening and waits for that.
func (in *innerProgram) close() error {
	err := in.report.Close()
	<-in.done
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.pidfd >= 0 {
		err = errors.Join(err, unix.Close(in.pidfd))
		in.pidfd = -1
	}
	return err
}
