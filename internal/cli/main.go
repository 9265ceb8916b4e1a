package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/agentsched/agentsched/internal/agentcore"
	"github.com/agentsched/agentsched/internal/daemon"
	"github.com/agentsched/agentsched/internal/proc"
	"github.com/agentsched/agentsched/internal/sandbox"
	"github.com/agentsched/agentsched/internal/terminal"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/policy"
	"github.com/agentsched/agentsched/worker"
)

// Exit codes.
const (
	exitOK          = 0   // every job completed
	exitFailed      = 1   // a job failed, or the command did
	exitUsage       = 2   // the command line, a file or the host is not right; nothing was started
	exitInterrupted = 130 // stopped by Ctrl-C or SIGTERM
)

// coreCommand is the argument with which this program runs as the agentcore.
const coreCommand = "agentcore"

// Options are what a program has beside what is built in.
type Options struct {
	// Adapters are kinds of worker, by name. One that has the name of a built-in one
	// replaces it.
	Adapters map[string]worker.Adapter
	// Policies are ways to say who is next, by the name under which a configuration
	// chooses them. One that has the name of a built-in one replaces it.
	Policies map[string]func(policy.Config) (policy.Policy, error)
}

// Run runs the program with the arguments and standard streams of this process and
// returns its exit code. It is also the core that the program starts: the core is
// this same program, called with one argument.
func Run(o Options) int {
	if help := agentcore.Helper(os.Args); help != nil {
		return help()
	}
	m, err := newProgram(o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "scheduler:", err)
		return exitUsage
	}
	if len(os.Args) == 2 && os.Args[1] == coreCommand {
		return agentcore.Main(m.prog.adapters)
	}
	proc.KeepDescriptors()
	if !ofRun(os.Getenv(job.RunTagVariable)) {
		if err := proc.Seclude(); err != nil { // also where this program has replaced the one before
			fmt.Fprintln(os.Stderr, "scheduler:", err)
		}
	}
	return m.run(os.Args[1:])
}

// newProgram returns the program with what o adds to it.
func newProgram(o Options) (*Main, error) {
	m := newMain()
	for _, name := range slices.Sorted(maps.Keys(o.Adapters)) {
		if err := job.ValidWorker(job.WorkerKind(name)); err != nil {
			return nil, fmt.Errorf("adapter %q: %w", name, err)
		}
		if o.Adapters[name] == nil {
			return nil, fmt.Errorf("adapter %q: is nil", name)
		}
		m.prog.adapters[name], m.prog.ownCore = o.Adapters[name], true
	}
	for _, name := range slices.Sorted(maps.Keys(o.Policies)) {
		if name == "" || o.Policies[name] == nil {
			return nil, fmt.Errorf("policy %q: it needs a name and a constructor", name)
		}
	}
	m.prog.policies = o.Policies
	return m, nil
}

// Main is the program: its parts are fields, so that a test can start it the
// way a user does.
type Main struct {
	con   *console
	prog  *program
	local *local
	at    *target
	runs  *runner
}

// console is where the program meets its user: the streams and the environment.
type console struct {
	stdin          *os.File
	stdout, stderr io.Writer
	environ        []string
	getenv         func(string) string
	color          colourMode
	json           bool // --json
	started        time.Time
}

// program is what this program is made of and how it is configured.
type program struct {
	con      *console
	adapters map[string]worker.Adapter
	ownCore  bool // there are adapters that no other program has
	policies policies
	version  string
	host     func(context.Context) sandbox.Host // looks at what can hold runs
	standard func(context.Context) error        // looks whether level standard can

	configPath string // --config
	corePath   string // --core
}

// local is the state directory that the flags name, on this host.
type local struct {
	con  *console
	prog *program

	stateDir string // --state; "": the default one
	logLevel string // --log-level
}

// target is the scheduler that the flags name: one at a URL, or that of the local
// state directory.
type target struct {
	con   *console
	prog  *program
	local *local

	server    string // --server: the URL of a scheduler's API; "": the state directory's
	tokenFile string // --token-file
	caFile    string // --ca
}

// runner runs a scheduler in this process, for `run` and `serve`.
type runner struct {
	con   *console
	prog  *program
	local *local
	at    *target

	// Flags that override the configuration, also when it is reloaded.
	atOnce int    // --concurrency; 0: as configured
	cores  int    // --cores; 0: as configured
	store  string // --store; "": as configured

	// inherited are the sockets that the program before this one, or the service
	// manager, has left to `serve`; who takes them empties it.
	inherited map[string]daemon.Inherited

	// signals are those of a scheduler of a fleet, which is several things in turn; nil: whoever listens has its own.
	signals chan os.Signal
}

func newMain() *Main {
	con := &console{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, environ: os.Environ(), getenv: os.Getenv, started: time.Now()}
	prog := &program{con: con, adapters: agentcore.Adapters(), version: agentcore.Version(), host: sandbox.Probe, standard: sandbox.ProbeStandard}
	local := &local{con: con, prog: prog}
	at := &target{con: con, prog: prog, local: local}
	return &Main{con: con, prog: prog, local: local, at: at, runs: &runner{con: con, prog: prog, local: local, at: at}}
}

// exitError is an error with the exit code that it means.
type exitError struct {
	code  int
	err   error // nil: everything was said already
	hints []string
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// usage marks err as one that the user mends before anything can start.
func usage(err error, hints ...string) error {
	return &exitError{code: exitUsage, err: err, hints: hints}
}

// hinted adds a hint to an error if it is of a kind, which keeps its exit code; one
// that has none is one that the user mends.
func hinted(err, kind error, hint string) error {
	if err == nil || !errors.Is(err, kind) {
		return err
	}
	if exit, ok := errors.AsType[*exitError](err); ok {
		return &exitError{code: exit.code, err: exit.err, hints: append([]string{hint}, exit.hints...)}
	}
	return usage(err, hint)
}

// run executes a command line and returns the exit code.
func (m *Main) run(args []string) int {
	cmd := m.rootCommand()
	cmd.SetArgs(args)
	err := cmd.Execute()
	if err == nil {
		return exitOK
	}
	var exit *exitError
	if !errors.As(err, &exit) {
		exit = &exitError{code: exitUsage, err: plainExclusion(err)} // cobra's own: flags that exclude each other
		exit.hints = []string{"scheduler COMMAND --help lists the flags of a command"}
	}
	if exit.err != nil {
		fmt.Fprintf(m.con.stderr, "scheduler: %s\n", terminal.Visible(exit.err.Error(), "\n\t"))
	}
	for _, h := range exit.hints {
		fmt.Fprintf(m.con.stderr, "hint: %s\n", terminal.Visible(h, "\n\t"))
	}
	return exit.code
}

// coreProgram returns the command of the agentcore: the one that --core names,
// the program beside this one, the one on PATH, or this program itself. Only this
// program has the adapters that were added to it.
func (prog *program) coreProgram() ([]string, error) {
	if prog.corePath != "" {
		path, err := exec.LookPath(prog.corePath)
		if err != nil {
			return nil, usage(fmt.Errorf("--core %s: %w", prog.corePath, err))
		}
		return []string{path}, nil
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program's own file: %w", err)
	}
	if prog.ownCore {
		return []string{self, coreCommand}, nil
	}
	if path := beside(self, "agentcore"); path != "" {
		return []string{path}, nil
	}
	if path, err := exec.LookPath("agentcore"); err == nil {
		return []string{path}, nil
	}
	return []string{self, coreCommand}, nil
}
