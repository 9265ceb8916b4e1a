package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/agentcore"
	"github.com/agentsched/agentsched/internal/proc"
	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/internal/terminal"
	"github.com/agentsched/agentsched/internal/workspace"
	"github.com/agentsched/agentsched/job"
)

func takeoverCommand(con *console, prog *program, local *local, at *target) *cobra.Command {
	t := &takeover{con: con, prog: prog, local: local, at: at}
	cmd := &cobra.Command{
		Use: "takeover JOB", Short: "Go on with a job's session yourself, in its agent's own program", Args: cobra.ExactArgs(1),
		Long: `Stop what the agent of a job does now, as ` + "`scheduler interrupt`" + ` does, and open the agent's own program on
its session in this terminal: in the job's folder, held as its runs are, with their environment and
models. Of an agent without such a program it is a shell. The job is in your hands until
` + "`scheduler handback`" + `, also when you leave the program: takeover again opens it again. What is said to
the job meanwhile waits; ` + "`scheduler cancel`" + ` ends it. What you use of models is not charged to the job, and
its limits do not hold.

Of a job that has ended it opens the program, and nothing follows from that. Without a terminal, or with
--print, it says what it would start, and starts nothing.

Exit code: that of the program, 128 and the signal's number if a signal has ended it, 2 if it was not
started, 130 after a signal.`,
		Example: "  scheduler takeover fix-login\n  scheduler takeover fix-login --print",
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
			defer stop()
			t.by = cmp.Or(t.by, userName())
			if con.getenv(execVariable) != "" {
				return t.below(ctx, args[0])
			}
			return t.above(ctx, args[0])
		},
	}
	cmd.Flags().BoolVar(&t.print, "print", false, "say what would be started, and start nothing")
	cmd.Flags().StringVar(&t.by, "by", "", "take it over under this `NAME` (default: yours)")
	con.jsonFlag(cmd, "with --print: print that as JSON")
	return cmd
}

// takeover opens the program of a job's agent for a person. The process that they have started has their terminal; one below it
// has the program, as `sandbox exec` does it:
//
//	terminal ◄─► above (terminal.Relay) ◄─ pseudo terminal ─► program
//	              └── below: what holds and serves the program ──┘
//
// Whichever is killed, the other ends the program and gives the terminal back.
type takeover struct {
	con   *console
	prog  *program
	local *local
	at    *target

	by    string
	print bool
}

// Descriptors of the process below, after the one that tells of the end of that above.
const (
	slaveFile = 4 // the program's terminal
	readyFile = 5 // is told when the program has it
)

// dir returns the state directory of this host, which with --server is a node's.
func (t *takeover) dir(p *peer) (*statedir.Dir, error) {
	if p.offline != nil {
		return p.offline.dir, nil
	}
	return t.local.existing()
}

// above takes the job over and lends the terminal to what the process below starts.
func (t *takeover) above(ctx context.Context, ref string) error {
	ended := false
	err := t.at.do(func(p *peer) error {
		dir, err := t.dir(p)
		if err != nil {
			return err
		}
		if err := t.local.outside(ctx, dir); err != nil {
			return err
		}
		j, err := goesOn(ctx, p, ref)
		if err != nil {
			return meant(ctx, p, ref, err)
		}
		if j.Job.Continues != "" { // ref may name an earlier one
			ref = string(j.Job.ID)
		}
		if node := nodeOf(&j); node != "" && p.offline != nil {
			return usage(fmt.Errorf("job %s works on node %s, where its folder is", j.Job.Spec.Name, node),
				fmt.Sprintf("run `scheduler takeover %s --server URL --state DIR` there, DIR being the node's", ref))
		}
		if ended = j.Job.State.Terminal(); ended {
			return nil
		}
		c, err := confinedJobOf(ctx, t.con, t.prog, p, dir, &j)
		if err == nil {
			err = c.knowsWorker() // before the job is taken from its agent
		}
		if err != nil {
			return err
		}
		return t.take(ctx, p, ref)
	})
	if err != nil {
		return err
	}
	if t.print || !t.onTerminal() {
		t.print = true
		return t.below(ctx, ref)
	}
	err = t.lend(ctx)
	if !ended {
		fmt.Fprintf(t.con.stderr, "job %s is in your hands: `scheduler takeover %s` opens it again, `scheduler handback %s` lets its agent go on\n", ref, ref, ref)
	}
	return err
}

// goesOn returns the job that ref names, or the latest that goes on from it: that works in its folder.
func goesOn(ctx context.Context, p *peer, ref string) (api.JobDetail, error) {
	j, err := p.Job(ctx, ref)
	for err == nil && j.Job.ContinuedAs != "" {
		j, err = p.Job(ctx, string(j.Job.ContinuedAs))
	}
	return j, err
}

// nodeOf returns the node on which the folder of a job is; "" is the scheduler's own host.
func nodeOf(j *api.JobDetail) string {
	if n := len(j.Attempts); n > 0 {
		return cmp.Or(j.Job.SessionNode, j.Attempts[n-1].Node)
	}
	return j.Job.SessionNode
}

func (t *takeover) onTerminal() bool {
	out := t.con.stdoutFile()
	return out != nil && t.con.stdin != nil && term.IsTerminal(int(t.con.stdin.Fd())) && term.IsTerminal(int(out.Fd()))
}

// take puts the job into the person's hands, and waits until its run has stopped.
func (t *takeover) take(ctx context.Context, p *peer, ref string) error {
	taken, err := change(ctx, p, func() (api.TakenOver, error) { return p.TakeOver(ctx, ref, api.Takeover{By: t.by}) })
	if err = mends(err); err != nil || taken.Held {
		return err
	}
	if p.offline != nil && p.offline.dir.Held() == nil {
		return usage(fmt.Errorf("job %s was running when its scheduler ended: it is yours when one starts", ref), "`scheduler serve` starts one; then take it over again")
	}
	fmt.Fprintln(t.con.stderr, "the agent is stopping what it does")
	p.BePatient()
	for {
		j, err := ask(ctx, p, func() (api.JobDetail, error) { return p.Job(ctx, string(taken.Job)) })
		switch {
		case ctx.Err() != nil:
			return &exitError{code: exitInterrupted, err: fmt.Errorf("job %s is still about to stop: it will be in your hands", ref)}
		case err != nil:
			return err
		case j.Job.Held == job.HeldByPerson:
			return nil
		case j.Job.State.Terminal() || j.Job.Held == job.HeldForApproval:
			return usage(fmt.Errorf("job %s came to its end before it could be stopped", ref), fmt.Sprintf("`scheduler show %s` says how", ref))
		}
		if pause(ctx, p.Pace()) != nil {
			continue
		}
	}
}

// lend has a process below start the program, at a pseudo terminal, and passes on what is typed and shown.
func (t *takeover) lend(ctx context.Context) error {
	relay, err := terminal.NewRelay(t.con.stdin, t.con.stdoutFile())
	if err != nil {
		return failure(err)
	}
	told, tells, err := os.Pipe()
	if err != nil {
		return failure(errors.Join(err, relay.Slave.Close(), relay.Close(false)))
	}
	var starting sync.WaitGroup
	var failed error
	starting.Go(func() {
		if n, _ := told.Read(make([]byte, 1)); n > 0 { // else the program was not started
			failed = relay.Start()
		}
	})
	ours := func() { // are the process below's from now on
		relay.Slave.Close()
		tells.Close()
	}
	err = runBelow(ctx, t.con, []*os.File{relay.Slave, tells}, ours)
	ours()
	starting.Wait()
	exit, _ := errors.AsType[*exitError](err)
	killed := err != nil && (exit == nil || exit.err != nil || exit.code >= 128)
	return errors.Join(err, failure(errors.Join(failed, told.Close(), relay.Close(killed))))
}

// below starts the program, or says what it would start.
func (t *takeover) below(ctx context.Context, ref string) error {
	var was *terminal.Settings
	if !t.print {
		var cancel context.CancelFunc
		ctx, cancel = endsWith(ctx, os.NewFile(3, "the process above"))
		defer cancel()
		var err error
		if was, err = terminal.SettingsOf(t.con.stdin); err != nil {
			return failure(err)
		}
	}
	var c *confinedJob
	var p agentcore.Person
	err := t.at.do(func(peer *peer) error {
		j, err := goesOn(ctx, peer, ref)
		if err != nil {
			return err
		}
		dir, err := t.dir(peer)
		if err != nil {
			return err
		}
		if c, err = confinedJobOf(ctx, t.con, t.prog, peer, dir, &j); err != nil {
			return err
		}
		p, err = c.person(t.con, &j)
		return err
	})
	if err != nil {
		return err
	}
	refused := &refusals{}
	lock := func(ctx context.Context, m *workspace.Manager) (*workspace.Lock, error) {
		return m.TakeOver(ctx, c.of.Job, c.of.Spec.Workspace)
	}
	return c.owning(ctx, lock, refused.add, func(ctx context.Context, o *own) (err error) {
		p.Confining, p.Programs = o.of, o.host
		seat, err := agentcore.TakeSeat(ctx, p)
		if err != nil {
			return usage(err, hintOf(err)...)
		}
		defer func() { err = errors.Join(err, failure(seat.Close())) }()
		if t.print {
			return t.tell(c, &p, seat)
		}
		slave, ready := os.NewFile(slaveFile, "the program's terminal"), os.NewFile(readyFile, "ready")
		cmd := &seat.Command
		err = c.start(ctx, o, seat.Held, cmd, proc.Spec{
			Run: o.tag, Path: cmd.Path, Args: cmd.Args, Env: cmd.Env, Dir: cmd.Dir, Stdin: slave, Stdout: slave, Stderr: slave,
			NewSession: true, Terminal: true, PdeathSignal: syscall.SIGKILL,
		}, func() { _, _ = ready.Write([]byte{1}) })
		refused.print(slave)
		if ctx.Err() != nil { // so may the process above have
			err = errors.Join(err, failure(was.RestoreRaw()))
		}
		return err
	})
}

// knowsWorker refuses a worker that this program has no settings of.
func (c *confinedJob) knowsWorker() error {
	if c.adapter != nil {
		return nil
	}
	return usage(fmt.Errorf("worker %s of job %s is unknown to this program", c.of.Worker, c.name), "add it to workers of the configuration, or name that which has it by --config")
}

// person returns what a person needs who goes on with the session of the job.
func (c *confinedJob) person(con *console, j *api.JobDetail) (agentcore.Person, error) {
	e := &j.Job
	p := agentcore.Person{Adapter: c.adapter, Worker: c.settings, Secrets: secretSettings(c.cfg.Secrets), Prices: c.cfg.Prices, Session: e.Session, Environ: con.environ}
	if n := len(j.Attempts); n > 0 {
		last := &j.Attempts[n-1]
		p.Attempt, p.Session = last.Number, cmp.Or(p.Session, last.Session)
		if o := last.Outcome; o != nil {
			p.Session = cmp.Or(p.Session, o.Session)
		}
	}
	switch {
	case c.tree == nil:
		return p, usage(fmt.Errorf("job %s has no folder: it has not started, or was cleaned", c.name))
	case c.adapter == nil:
		return p, c.knowsWorker()
	case p.Session == "":
		return p, usage(fmt.Errorf("job %s has no session to go on with", c.name), "its next attempt begins a new one, and its folder anew; `scheduler sandbox exec` runs a command there")
	case !e.State.Terminal() && e.Held != job.HeldByPerson:
		return p, usage(fmt.Errorf("job %s is in nobody's hands", c.name), "take it over again")
	}
	p.Dir, p.Env = c.tree.Dir, c.tree.Env
	return p, nil
}

// tookOver is what `takeover --print` tells.
type tookOver struct {
	Job     job.ID         `json:"job"`
	Folder  string         `json:"folder"`
	Worker  job.WorkerKind `json:"worker"`
	Session string         `json:"session"`
	Command []string       `json:"command"` // as it is started in the job's sandbox
	Sandbox string         `json:"sandbox"` // level
}

func (t *takeover) tell(c *confinedJob, p *agentcore.Person, seat *agentcore.Seat) error {
	level, err := p.Level()
	if err != nil {
		return usage(err, hintOf(err)...)
	}
	out := tookOver{Job: p.Job, Folder: p.Dir, Worker: c.of.Worker, Session: p.Session, Command: append([]string{seat.Command.Path}, seat.Command.Args...), Sandbox: string(level)}
	return t.con.print(out, func(w io.Writer) error {
		quoted := make([]string, len(out.Command))
		for i, word := range out.Command {
			quoted[i] = shellWord(word)
		}
		_, err := fmt.Fprintf(w, "folder:   %s\nsession:  %s of %s\ncommand:  %s\nsandbox:  %s\nstart it: scheduler takeover %s\n", terminal.Clean(out.Folder), terminal.Clean(out.Session),
			out.Worker, terminal.Clean(strings.Join(quoted, " ")), out.Sandbox, c.name)
		return err
	})
}

// shellWord returns a word as a shell takes it for one.
func shellWord(word string) string {
	if word != "" && strings.Trim(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=:,@+") == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// refusals are what a person's program was refused, which they are told when it has ended: it has the screen until then.
type refusals struct {
	mu   sync.Mutex // guards what follows
	list []string
	more int
}

const maxRefusals = 20

func (r *refusals) add(e job.Event) {
	text := refusalText(e)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case text == "":
	case len(r.list) < maxRefusals:
		r.list = append(r.list, text)
	default:
		r.more++
	}
}

// print tells them on a terminal of whatever settings.
func (r *refusals) print(w io.Writer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, text := range r.list {
		fmt.Fprintf(w, "\r\nscheduler: %s", terminal.Visible(text, ""))
	}
	if r.more > 0 {
		fmt.Fprintf(w, "\r\nscheduler: and %d more", r.more)
	}
	if len(r.list) > 0 {
		fmt.Fprint(w, "\r\n")
	}
}

func handbackCommand(con *console, at *target) *cobra.Command {
	in := api.Handback{}
	cmd := &cobra.Command{
		Use: "handback JOB [TEXT]", Short: "Let the agent of a job go on that you have taken over", Args: cobra.RangeArgs(1, 2),
		Long: `Let a job go on that was taken over: with its next attempt, in the same session and folder. Its agent is
told that a person has worked there in between, and TEXT; with - for it, what standard input holds. While
a terminal of ` + "`scheduler takeover`" + ` is open, the attempt waits for its end.`,
		Example: "  scheduler handback fix-login\n  scheduler handback fix-login \"The parser is done. Write its tests.\"",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				text, err := con.words(args[1])
				if err != nil {
					return err
				}
				in.Text = text
			}
			in.By, in.ID = cmp.Or(in.By, userName()), uuid.NewString()
			return at.do(func(p *peer) error {
				done, err := change(cmd.Context(), p, func() (api.HandedBack, error) { return p.HandBack(cmd.Context(), args[0], in) })
				if err = mends(meant(cmd.Context(), p, args[0], err)); err != nil {
					return err
				}
				if con.json {
					return writeJSON(con.stdout, done)
				}
				_, err = fmt.Fprintln(con.stdout, terminal.Clean(done.Note))
				return err
			})
		},
	}
	cmd.Flags().StringVar(&in.By, "by", "", "hand it back under this `NAME` (default: yours)")
	con.jsonFlag(cmd, "print what became of it as JSON")
	return cmd
}
