package proc

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// Spec says what to start.
type Spec struct {
	Run  string   // the run that the process is of: "<instance>/<job>/<attempt>", unique among the live trees of a host
	Path string   // program; a name without a slash is looked up on the PATH of this process, not on Env's
	Name string   // what the program is told as its own name; "" is Path. See CoreName
	Args []string // arguments without the program's name
	Env  []string // the whole environment; the tag is added, replacing one that is there
	Dir  string   // "" is the directory of this process

	// The three standard files. A nil file is the null device, or with its Pipe flag a pipe whose other end the Tree
	// holds. A file given here stays the caller's to close.
	Stdin, Stdout, Stderr             *os.File
	PipeStdin, PipeStdout, PipeStderr bool

	// Extra are descriptors 3, 4, and so on of the leader. They stay the caller's to close.
	Extra []*os.File

	NewSession bool // a session of its own (setsid), as workers have; else only a process group of its own

	// Terminal says that Stdin is a terminal, which becomes that of the new session: NewSession must be set.
	Terminal bool

	// PdeathSignal is what the kernel sends to the leader, and to it alone, when this process dies. 0 is none, which is
	// for a leader that stops its own children first (the core); workers take SIGKILL. Only Linux has it.
	PdeathSignal syscall.Signal

	// Subreaper says that the leader opens a Host of its own. Orphans below it are then adopted by it as long as it
	// lives, so a stray that reaches this process meanwhile cannot be one of its tree.
	Subreaper bool

	// Mark, if not 0, is what the leader marks itself with, and so all that it starts (Host.NewMark): nothing of the tree can
	// take that off, as a sandbox sees to.
	Mark uint64

	// Limits bound the tree, together with all others that have some (see LimitAll). nil is for what is no run.
	Limits *Limits

	// KeepCapabilities leaves the leader what Config.Confine takes from the others: it gives that up itself, see Reaching.
	KeepCapabilities bool

	// Enter, if not nil, is for a leader that starts the program in surroundings of its own. It is called with the
	// leader's pid once that runs; Start returns when it has returned. An error ends the tree and is Start's.
	Enter func(leader int) (Inner, error)
}

// Tree is a leader and all its descendants.
type Tree struct {
	host      *Host
	run       string
	proc      *os.Process
	pid       int
	start     uint64 // of the leader, as in Proc.Start
	comm      string
	subreaper bool
	mark      uint64
	limits    *Limits
	inner     Inner // set once, before Start returns, or nil; guarded by host.mu

	stdin, stdout, stderr *os.File // our ends of pipes, or nil

	exited chan struct{} // closed by reapLeader, after state was set
	state  ExitState

	stopping chan struct{} // semaphore of Stop, capacity 1; holding it guards proven and members
	hurry    chan struct{} // closed by the first Stop that wants no gentle stage; guarded by host.mu
	hurried  bool
	proven   *Report       // set once, when the tree was found empty
	members  map[Proc]bool // descendants seen before a gentle stop; comm is left out of the key. Guarded by host.mu

	sys systemTree // what differs by operating system
}

// Start starts a process as the leader of a new tree.
func (h *Host) Start(spec Spec) (*Tree, error) {
	t, err := h.start(spec)
	if err == nil {
		err = t.enter(spec)
	}
	if err != nil {
		return nil, fmt.Errorf("start %s for run %q: %w", spec.Path, spec.Run, err)
	}
	return t, nil
}

func (h *Host) start(spec Spec) (*Tree, error) {
	if spec.Run == "" || strings.ContainsRune(spec.Run, 0) {
		return nil, errors.New("the run must be named, without a NUL byte")
	}
	path, err := program(spec.Path)
	if err != nil {
		return nil, err
	}
	t := &Tree{
		host:      h,
		run:       spec.Run,
		comm:      commandName(path, spec.Name),
		subreaper: spec.Subreaper,
		mark:      spec.Mark,
		limits:    spec.Limits,
		exited:    make(chan struct{}),
		stopping:  make(chan struct{}, 1),
		hurry:     make(chan struct{}),
	}
	std, err := t.openStd(spec)
	if err != nil {
		return nil, err
	}
	defer std.closeChildEnds()

	attr := &os.ProcAttr{
		Dir:   spec.Dir,
		Env:   withTag(spec.Env, h.cfg.Tag, spec.Run),
		Files: append(std.files[:], spec.Extra...),
		Sys:   sysProcAttr(&spec),
	}
	spawner := h.spawn
	if spec.KeepCapabilities {
		spawner = h.trusted
	}
	err = h.on(spawner, func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		if err := h.checkOpen(); err != nil {
			return err
		}
		if h.liveRun(spec.Run) != nil {
			return errors.New("a tree of this run is still live: stop it first")
		}
		if err := h.fork(t, path, append([]string{cmp.Or(spec.Name, spec.Path)}, spec.Args...), attr); err != nil {
			return err
		}
		h.leaders.Add(1)
		h.awaitLeader(t, h.register(t.pid, t))
		h.trees[t] = true
		return nil
	})
	if err != nil {
		t.ClosePipes()
		return nil, err
	}
	return t, nil
}

// commandName is what the process will be called: a descriptor that it is started from, as a sandboxed program is, has no
// name of the program.
func commandName(path, name string) string {
	if name != "" && strings.HasPrefix(path, "/proc/self/fd/") {
		path = name
	}
	return filepath.Base(path)
}

// CoreName is the Spec.Name of a core: a process that may not read its environment knows its run by its command line, which
// only the core itself can change.
func CoreName(run string) string { return coreName + run }

const coreName = "agentcore "

// coreRun returns the run of a process with these arguments if it is a core that was named by CoreName.
func coreRun(args []string) string {
	if len(args) == 0 {
		return ""
	}
	run, ok := strings.CutPrefix(args[0], coreName)
	if !ok || !strings.Contains(run, "/core/") {
		return ""
	}
	return run
}

// Pid of the leader, or of the program that it has started (Spec.Enter). It may belong to another process once that has
// exited.
func (t *Tree) Pid() int {
	if inner := t.program(); inner != nil {
		return inner.Pid()
	}
	return t.pid
}

// Run is the tag value of the tree.
func (t *Tree) Run() string { return t.run }

// Exited is closed when the leader has exited and is reaped. Descendants may live on, and hold pipes open.
func (t *Tree) Exited() <-chan struct{} { return t.exited }

// ExitState is how the leader ended, or the program that it has started (Spec.Enter). It waits for Exited.
func (t *Tree) ExitState() ExitState {
	<-t.exited
	if inner := t.program(); inner != nil {
		return inner.Exit(t.state)
	}
	return t.state
}

// Stdin is the writing end of the leader's standard input if Spec.PipeStdin was set, else nil. The caller closes it.
func (t *Tree) Stdin() *os.File { return t.stdin }

// Stdout is the reading end of the leader's standard output if Spec.PipeStdout was set, else nil. The caller reads it,
// independently of Exited: a descendant that holds the other end does not delay Exited, it delays end of file. The
// reader meets end of file when the last holder is gone, so at the latest when Stop has emptied the tree, and not before
// it has read all that was written. The caller closes it.
func (t *Tree) Stdout() *os.File { return t.stdout }

// Stderr is as Stdout, for the standard error.
func (t *Tree) Stderr() *os.File { return t.stderr }

// ClosePipes closes our ends of all pipes; a pending Read then returns os.ErrClosed. It is for a caller that gives up
// reading, for example after ErrGhost, when end of file may never come.
func (t *Tree) ClosePipes() {
	for _, f := range []*os.File{t.stdin, t.stdout, t.stderr} {
		if f != nil {
			_ = f.Close()
		}
	}
}

// Signal sends sig to the process group of the leader, or of the program that it has started (Spec.Enter). It returns
// os.ErrProcessDone when the leader has exited, since the group's number may then belong to others.
func (t *Tree) Signal(sig syscall.Signal) error {
	// Leaders are reaped under mu: while we hold it and the leader is registered, its pid is not reused.
	t.host.mu.Lock()
	defer t.host.mu.Unlock()
	if t.reapedLocked() {
		return os.ErrProcessDone
	}
	if t.inner != nil {
		return t.inner.Signal(sig)
	}
	if err := syscall.Kill(-t.pid, sig); err != nil {
		return fmt.Errorf("send %v to process group %d: %w", sig, t.pid, err)
	}
	return nil
}

func (t *Tree) reapedLocked() bool {
	select {
	case <-t.exited:
		return true
	default:
		return false
	}
}

// reapLeader takes away the remains of the leader and publishes its exit state. It is called under mu when it has exited.
func (t *Tree) reapLeader(c *child) {
	ps, err := t.proc.Wait()
	t.host.unregister(t.pid, c)
	t.state = exitState(ps, err)
	close(t.exited)
	t.host.leaders.Done()
}

func exitState(ps *os.ProcessState, err error) ExitState {
	if err != nil {
		return ExitState{Code: -1, Err: fmt.Errorf("wait for process: %w", err)}
	}
	s := ExitState{Code: ps.ExitCode()}
	if ws, ok := ps.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		s.Signal = ws.Signal()
	}
	return s
}

// program resolves a name so that a Dir of the child cannot change which file is meant.
func program(path string) (string, error) {
	if strings.ContainsRune(path, '/') {
		return filepath.Abs(path)
	}
	return exec.LookPath(path)
}

func withTag(env []string, tag, run string) []string {
	out := make([]string, 0, len(env)+1)
	for _, kv := range env {
		if !strings.HasPrefix(kv, tag+"=") {
			out = append(out, kv)
		}
	}
	return append(out, tag+"="+run)
}
