package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/agentsched/agentsched/internal/agentcore"
	"github.com/agentsched/agentsched/internal/proc"
	"github.com/agentsched/agentsched/internal/sandbox"
	"github.com/agentsched/agentsched/internal/terminal"
	"github.com/agentsched/agentsched/internal/workspace"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

func sandboxExecCommand(con *console, prog *program, local *local, at *target) *cobra.Command {
	return &cobra.Command{
		Use: "exec JOB -- COMMAND [ARGS]", Short: "Run a command as a job's run would be held", Args: cobra.MinimumNArgs(2),
		Long: `Run a command in the workspace of a job as it lies there now, held as a run of the job is, with the
run's environment. What it is refused is told on standard error. It gets neither the job's secrets nor
its repositories nor models, and its limits do not hold. Ctrl-C ends the command and all that it has started.

Exit code: that of the command, 128 and the signal's number if a signal has ended it, 2 if it was not
started, 130 after Ctrl-C.`,
		Example: "  scheduler sandbox exec fix-login -- git status\n  scheduler sandbox exec fix-login -- sh",
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
			defer stop()
			if con.getenv(execVariable) == "" {
				return runBelow(ctx, con, nil, nil)
			}
			ctx, cancel := endsWith(ctx, os.NewFile(3, "the process above"))
			defer cancel()
			var c *confinedJob
			err := at.do(func(p *peer) error {
				j, err := p.Job(ctx, args[0])
				switch {
				case err != nil:
					return err
				case j.Job.State == job.Dispatched && p.offline.dir.Held() != nil: // else no run is alive, whatever the store says
					return usage(fmt.Errorf("job %s is running, and its workspace is its run's", j.Job.Spec.Name), "wait until it has ended: scheduler wait "+args[0])
				}
				if err := local.outside(ctx, p.offline.dir); err != nil {
					return err
				}
				c, err = confinedJobOf(ctx, con, prog, p, p.offline.dir, &j)
				return err
			})
			if err != nil {
				return err
			}
			if c.tree == nil {
				return usage(fmt.Errorf("job %s has no workspace: it has not started, or was cleaned", c.name), "scheduler retry "+args[0]+" runs it again")
			}
			return c.exec(ctx, con, args[1:])
		},
	}
}

// execVariable tags the process that owns the command of a `sandbox exec`, below the one that the user has started.
const execVariable = "AGENTSCHED_SANDBOX_EXEC"

// runBelow has a process below this one do the same, and waits for its end. Each of the two adopts what the other leaves
// when that is killed: the one below sees that its descriptor 3 has ended, and ends the command in order. more are its descriptors
// from 4 on; started, if not nil, is called when it has them.
func runBelow(ctx context.Context, con *console, more []*os.File, started func()) (err error) {
	self, err := os.Executable()
	if err != nil {
		return failure(fmt.Errorf("find this program's own file: %w", err))
	}
	theirs, ours, err := os.Pipe()
	if err != nil {
		return failure(err)
	}
	defer theirs.Close()
	defer ours.Close()
	host, err := proc.NewHost(proc.Config{Tag: execVariable, Log: zerolog.Nop()})
	if err != nil {
		return failure(fmt.Errorf("prepare to own processes: %w", err))
	}
	defer func() { err = errors.Join(err, failure(host.Close())) }()
	tree, err := host.Start(proc.Spec{
		Run: fmt.Sprintf("exec/%d", os.Getpid()), Path: self, Name: os.Args[0], Args: os.Args[1:], Env: con.environ,
		Stdin: con.stdin, Stdout: con.stdoutFile(), Stderr: os.Stderr, Extra: append([]*os.File{theirs}, more...), Subreaper: true, KeepCapabilities: true,
	})
	if err != nil {
		return failure(err)
	}
	if started != nil {
		started()
	}
	select {
	case <-tree.Exited():
	case <-ctx.Done():
		ours.Close()
		<-tree.Exited() // it bounds how long that takes
	}
	if _, err := tree.Stop(context.Background(), proc.Stages{}); err != nil {
		return failure(err)
	}
	switch state := tree.ExitState(); {
	case state.Signal != 0:
		return failure(fmt.Errorf("the process that owned the command was ended by %v; the command has been ended", state.Signal))
	case !state.Success():
		return &exitError{code: state.Code} // it has said why
	}
	return nil
}

// endsWith returns a context that ends when the file does, too: at the latest with this process.
func endsWith(ctx context.Context, file *os.File) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		_, _ = file.Read(make([]byte, 1))
		cancel()
	}()
	return ctx, cancel
}

// own is what a process of this program has of its own while it runs a program as a run of a job is held.
type own struct {
	of   agentcore.Confining
	host *proc.Host
	tag  string // of the program
}

// owning calls do with the workspace of the job locked. ctx ends for do if a program tries what no honest one does; tell is told
// what it is refused.
func (c *confinedJob) owning(ctx context.Context, lock func(context.Context, *workspace.Manager) (*workspace.Lock, error), tell func(job.Event),
	do func(context.Context, *own) error) (err error) {
	o := &own{of: c.of}
	o.of.Host = sandbox.Probe(ctx) // before there is a proc.Host
	held, err := lock(ctx, workspaces(o.of.Dir, nil))
	if err != nil {
		return usage(err)
	}
	defer held.Close()
	if o.host, err = proc.NewHost(proc.Config{Tag: job.RunTagVariable, Log: zerolog.Nop(), Confine: true}); err != nil {
		return failure(fmt.Errorf("prepare to own processes: %w", err))
	}
	defer func() { err = errors.Join(err, failure(o.host.Close())) }()

	// Its own tag: a scheduler that starts meanwhile ends it, as all that an earlier one has left.
	o.tag = fmt.Sprintf("%s/exec/%d", o.of.Dir.Instance(), os.Getpid())
	temps := o.of.Dir.Temps(os.Getpid())
	if o.of.Temp, err = temps.Take(o.tag); err != nil {
		return failure(err)
	}
	defer func() { err = errors.Join(err, failure(errors.Join(temps.Close(), temps.Return(o.of.Temp)))) }()

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var audit sandbox.AuditLog
	defer func() { err = errors.Join(err, failure(audit.Close())) }()
	o.of.Audit, o.of.Emit, o.of.Stop = &audit, tell, func(s *worker.Stop) { cancel(s) }
	return do(ctx, o)
}

// exec runs a command as a run of the job is held, to its end or that of ctx.
func (c *confinedJob) exec(ctx context.Context, con *console, command []string) error {
	path, err := programIn(c.tree.Dir, command[0])
	if err != nil {
		return usage(err)
	}
	lock := func(ctx context.Context, m *workspace.Manager) (*workspace.Lock, error) {
		return m.Lock(ctx, c.of.Spec.Workspace)
	}
	return c.owning(ctx, lock, con.tellRefused(), func(ctx context.Context, o *own) (err error) {
		held, err := agentcore.Confine(ctx, o.of)
		if err != nil {
			return usage(err, hintOf(err)...)
		}
		defer func() { err = errors.Join(err, failure(held.Close())) }()
		environ := append(worker.BaseEnv(con.environ, append(c.settings.Env, o.of.Spec.Env...)...), c.tree.Env...)
		spec := proc.Spec{
			Run: o.tag, Path: path, Name: command[0], Args: command[1:], Env: held.Environ(worker.SetEnv(environ, "TMPDIR", o.of.Temp)), Dir: c.tree.Dir,
			Stdin: con.stdin, Stdout: con.stdoutFile(), Stderr: os.Stderr, NewSession: true, PdeathSignal: syscall.SIGKILL,
		}
		if held == nil {
			fmt.Fprintf(con.stderr, "scheduler: nothing holds runs of job %s: its sandbox level is none\n", c.name)
		} else if err := held.MakeFolders(spec.Env); err != nil {
			return failure(err)
		}
		return c.start(ctx, o, held, &worker.Command{Path: path}, spec, nil)
	})
}

// start starts a program in what holds it, which may be nil, and waits for its end, or ends it with ctx. started, if not nil, is
// called when it runs.
func (c *confinedJob) start(ctx context.Context, o *own, held *agentcore.Confinement, cmd *worker.Command, spec proc.Spec, started func()) (err error) {
	if held == nil {
		return c.await(ctx, o.host, spec, started)
	}
	start, err := held.Policy(cmd).Prepare(cmd.Path, nil)
	if err != nil {
		return failure(err)
	}
	defer func() { err = errors.Join(err, failure(start.Close())) }()
	return c.await(ctx, o.host, start.Apply(spec), func() {
		held.Started(start)
		if started != nil {
			started()
		}
	})
}

// await starts a program and waits for its end, or ends it with ctx, and then all that is left of it.
func (c *confinedJob) await(ctx context.Context, host *proc.Host, spec proc.Spec, started func()) error {
	tree, err := host.Start(spec)
	if err != nil {
		return usage(fmt.Errorf("start %s: %w", spec.Name, err))
	}
	if started != nil {
		started()
	}
	var stages proc.Stages
	select {
	case <-tree.Exited():
	case <-ctx.Done():
		s := c.cfg.Stop
		stages = proc.Stages{Interrupt: s.Interrupt.Std(), Terminate: s.Terminate.Std(), Kill: s.Kill.Std()}
	}
	if _, err := tree.Stop(context.Background(), stages); err != nil {
		return failure(err)
	}
	if ctx.Err() != nil {
		if stop, ok := errors.AsType[*worker.Stop](context.Cause(ctx)); ok {
			return failure(stop)
		}
		return &exitError{code: exitInterrupted}
	}
	switch state := tree.ExitState(); {
	case state.Signal != 0:
		return &exitError{code: 128 + int(state.Signal)}
	case !state.Success():
		return &exitError{code: state.Code}
	}
	return nil
}

// programIn returns the path of a program as a shell in the folder finds it.
func programIn(folder, name string) (string, error) {
	if strings.ContainsRune(name, filepath.Separator) && !filepath.IsAbs(name) {
		name = filepath.Join(folder, name)
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("find the program: %w", err)
	}
	return filepath.Abs(path)
}

// tellRefused tells on standard error what a run was refused.
func (con *console) tellRefused() func(job.Event) {
	var mu sync.Mutex
	return func(e job.Event) {
		text := refusalText(e)
		if text == "" {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(con.stderr, "scheduler: %s\n", terminal.Visible(text, ""))
	}
}

// refusalText is what an event tells of what a run was refused; "" if it does not.
func refusalText(e job.Event) string {
	switch n := e.Connection; {
	case n == nil:
		return e.Text
	case n.Allowed:
		return ""
	default:
		return fmt.Sprintf("refused: %s:%d: %s", n.Host, n.Port, n.Reason)
	}
}
