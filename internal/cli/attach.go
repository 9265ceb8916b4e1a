package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/agentsched/agentsched/internal/terminal"
	"github.com/agentsched/agentsched/job"
)

func attachCommand(con *console, at *target) *cobra.Command {
	by := ""
	cmd := &cobra.Command{
		Use: "attach JOB", Short: "Talk with the agent of a job, in its conversation", Args: cobra.ExactArgs(1),
		Long: `Show the conversation with a job's agent and take part in it: what it was to do, what it says and does,
what it asks and is told, first what was, then what is, over restarts of the scheduler and into the jobs
that go on from it. Each line that you write is told to it. While it asks, a line answers:

  yes, yes WORDS            it may                      /answer N yes…   another question than the oldest
  no, no WORDS              it may not, and goes on     /tell TEXT       a message that begins with yes or no
  stop, stop WORDS          it may not, and stops       /interrupt       stop its turn, keep the session
  always, always PATTERN    in this job from now on     /more N          all of what was folded; no N: the last
  always tenant …           in all of its tenant        /diff            what it has changed
  WORDS                     where it wants words        /quit            leave; the job goes on

Ctrl-D, Ctrl-C and the end of the terminal leave, too. Without a terminal what happens is printed as lines
until the job has ended, and each line of standard input is a message or one of the words that begin with /.`,
		Example: "  scheduler attach fix-login\n  echo \"Leave the docs alone\" | scheduler attach fix-login > conversation.txt",
		RunE: func(cmd *cobra.Command, args []string) error {
			if by == "" {
				by = userName()
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
			defer stop()
			return attach(ctx, con, at, args[0], by)
		},
	}
	cmd.Flags().StringVar(&by, "by", "", "speak under this `NAME` (default: yours)")
	con.jsonFlag(cmd, "print one JSON object for each thing that happens")
	return cmd
}

// attach follows and takes part in the conversation of the job that ref names, until the
// person leaves, or ctx ends.
func attach(ctx context.Context, con *console, at *target, ref, by string) (err error) {
	p, err := at.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(p.refused(err), p.Close()) }()
	j, err := p.Job(ctx, ref)
	if err != nil {
		return err
	}
	a := &attached{con: con, at: at, p: p, by: by, every: p.Pace()}
	if out := con.stdoutFile(); !con.json && out != nil && terminal.CanLive(out, con.getenv("TERM")) && con.stdin != nil && term.IsTerminal(int(con.stdin.Fd())) {
		talk := terminal.OpenTalk(ctx, con.stdin, out, terminal.TalkOptions{Colour: con.colour(out), Term: con.getenv("TERM")})
		a.view, a.person = talk, true
	} else {
		a.view = newLines(con)
	}
	err = a.converse(ctx, j)
	if cerr := a.view.Close(); err == nil {
		err = failure(cerr)
	}
	switch {
	case err != nil:
		return err
	case len(a.todo) > 0:
		return failure(fmt.Errorf("%s of yours not done: no scheduler answered", count(len(a.todo), "line")))
	case a.person:
		if name := a.job.Job.Spec.Name; !a.job.Job.State.Terminal() {
			fmt.Fprintf(con.stdout, "you have left, %s goes on: `scheduler attach %s` comes back\n", name, name)
		}
	case ctx.Err() != nil:
		return &exitError{code: exitInterrupted}
	case a.refusals > 0:
		return &exitError{code: exitFailed}
	}
	return nil
}

// talkView is where a conversation is shown and written.
type talkView interface {
	// Show shows lines below those before.
	Show([]terminal.TalkLine) error
	// Stand shows how things stand.
	Stand(terminal.TalkStand)
	// Written is what was written, line by line; it is closed when nothing more comes.
	Written() <-chan terminal.Written
	Close() error
}

// plainLines is a talkView without a terminal.
type plainLines struct {
	out     io.Writer
	written chan terminal.Written
	stop    chan struct{} // closed by Close
}

func newLines(con *console) *plainLines {
	v := &plainLines{out: con.stdout, written: make(chan terminal.Written), stop: make(chan struct{})}
	if con.stdin == nil {
		close(v.written)
		return v
	}
	go v.read(con.stdin) // a read from standard input cannot be ended: it goes on until the process ends
	return v
}

func (v *plainLines) read(in io.Reader) {
	defer close(v.written)
	r := bufio.NewReader(in)
	for {
		// What is too long is refused as a message; no more of it is kept than tells that.
		line, err := readLine(r, job.MaxMessage+1)
		if strings.TrimSpace(line) != "" {
			select {
			case v.written <- terminal.Written{Text: line}:
			case <-v.stop:
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// readLine returns the next line, without its end and at most so many bytes of it.
func readLine(r *bufio.Reader, most int) (string, error) {
	var line []byte
	for {
		b, err := r.ReadByte()
		if err != nil || b == '\n' {
			return strings.TrimSuffix(string(line), "\r"), err
		}
		if len(line) < most {
			line = append(line, b)
		}
	}
}

func (v *plainLines) Show(lines []terminal.TalkLine) error { return terminal.WriteTalk(v.out, lines) }
func (v *plainLines) Stand(terminal.TalkStand)             {}
func (v *plainLines) Written() <-chan terminal.Written     { return v.written }

func (v *plainLines) Close() error {
	close(v.stop)
	return nil
}
