package proc

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"
)

// DefaultTag is the environment variable that marks every process of a run, unless Config.Tag names another.
// Its value is "<instance>/<job>/<attempt>".
const DefaultTag = "AGENTSCHED_RUN"

// ErrGhost is matched by every error that says that a tree could not be emptied; errors.As with *GhostError tells which
// processes are left.
var ErrGhost = errors.New("processes could not be killed")

// ErrClosed is returned for work asked of a Host that was closed.
var ErrClosed = errors.New("process host is closed")

// GhostError names the processes that survived a kill, for example in uninterruptible sleep or owned by another user.
type GhostError struct {
	Run  string // tag value of the run, or the prefix of a sweep
	Left []Proc // empty only if Err kept us from looking
	Err  error  // what a kill or a look met; may be nil
}

func (e *GhostError) Error() string {
	left := make([]string, len(e.Left))
	for i, p := range e.Left {
		left[i] = p.String()
	}
	msg := fmt.Sprintf("empty process tree of %q: %v: %s", e.Run, ErrGhost, strings.Join(left, ", "))
	if e.Err != nil {
		msg += ": " + e.Err.Error()
	}
	return msg
}

// Is reports that every GhostError is an ErrGhost.
func (e *GhostError) Is(target error) bool { return target == ErrGhost }

func (e *GhostError) Unwrap() error { return e.Err }

// Proc names one process for good: a pid alone may be given to another process, a pid and its start time may not.
type Proc struct {
	Pid   int
	Start uint64 // clock ticks since boot (proc_pid_stat(5) field 22); 0 where the system does not tell
	Comm  string // command name, at most 15 bytes on Linux
}

func (p Proc) String() string { return fmt.Sprintf("%d (%s)", p.Pid, p.Comm) }

// ProcInfo is what a sweep lets its caller decide on.
type ProcInfo struct {
	Proc
	PPid, PGid, Sid int
	Tag             string // value of the tag variable, "" if it has none or its environment cannot be read
	Cgroup          string // cgroup v2 path as /proc/PID/cgroup shows it, "" if unknown

	state            byte // state letter of proc_pid_stat(5)
	threads          int
	kernel           bool   // a thread of the kernel
	envStart, envEnd uint64 // address; 0 while it is in execve, and where it may not be read
}

// alive tells a process from its remains. A zombie counts as dead, except when only its first thread has ended and
// others still run: such a process also shows Z, but with more than one thread.
func (p ProcInfo) alive() bool {
	return p.state != 'X' && (p.state != 'Z' || p.threads > 1)
}

// ExitState is how a leader ended.
type ExitState struct {
	Code   int            // exit code; -1 when a signal ended it or Err is set
	Signal syscall.Signal // the signal that ended it, or 0
	Err    error          // the exit state could not be collected
}

// Success reports an exit with code 0.
func (s ExitState) Success() bool { return s.Err == nil && s.Signal == 0 && s.Code == 0 }

func (s ExitState) String() string {
	switch {
	case s.Err != nil:
		return "unknown exit: " + s.Err.Error()
	case s.Signal != 0:
		return "ended by signal: " + s.Signal.String()
	default:
		return fmt.Sprintf("exit code %d", s.Code)
	}
}

// Stage is the last thing that a stop had to do before the leader was gone.
type Stage int

const (
	StageExited    Stage = iota // the leader had already ended by itself
	StageFirst                  // Stages.First was enough
	StageInterrupt              // SIGINT
	StageTerminate              // SIGTERM
	StageKill                   // SIGKILL
)

func (s Stage) String() string {
	return [...]string{"exited", "first", "interrupt", "terminate", "kill"}[s]
}

// Report says what a stop did. It is a proof: it is returned only for a tree that was found empty.
type Report struct {
	Latency time.Duration // from the call of Stop to the proof
	Stage   Stage         // what ended the leader
	Killed  []Proc        // whom SIGKILL was sent to by name, leader included; a group kill may have met more
	Walks   int           // walks over all of /proc; 0 when the cheap proof was enough
}
