package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/terminal"
	"github.com/agentsched/agentsched/job"
)

func tellCommand(con *console, at *target) *cobra.Command {
	in := api.Say{}
	cmd := &cobra.Command{
		Use: "tell JOB TEXT", Short: "Say something to the agent of a job", Args: cobra.ExactArgs(2),
		Long: `Say something to the agent of a job; with - for the text, what standard input holds. A job that runs
is told now, if its worker can be talked to, else with its next attempt; one that waits finds it in
its instructions; one that was interrupted goes on with it; one that has ended goes on as another job,
with the same session, in the same folder. Order is kept, and nothing is said twice:
` + "`scheduler show JOB`" + ` says what became of each message.`,
		Example: "  scheduler tell fix-login \"Leave the docs alone\"\n  git diff | scheduler tell fix-login -",
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if in.Text, err = con.words(args[1]); err != nil {
				return err
			}
			if in.By == "" {
				in.By = userName()
			}
			in.ID = uuid.NewString() // so that the command may ask again
			return at.do(func(p *peer) error {
				said, err := change(cmd.Context(), p, func() (api.Said, error) { return p.Tell(cmd.Context(), args[0], in) })
				if err = mends(meant(cmd.Context(), p, args[0], err)); err != nil {
					return err
				}
				if con.json {
					return writeJSON(con.stdout, said)
				}
				_, err = fmt.Fprintf(con.stdout, "message %d: %s\n", said.Message.Number, terminal.Clean(said.Note))
				return err
			})
		},
	}
	cmd.Flags().StringVar(&in.By, "by", "", "say it under this `NAME` (default: yours)")
	con.jsonFlag(cmd, "print the message as JSON")
	return cmd
}

// words returns what somebody says on the command line; - is what standard input holds.
func (con *console) words(arg string) (string, error) {
	text := arg
	if text == "-" {
		read, err := io.ReadAll(io.LimitReader(con.stdin, job.MaxMessage+1))
		if err != nil {
			return "", fmt.Errorf("read what to say: %w", err)
		}
		text = string(read)
	}
	switch {
	case strings.TrimSpace(text) == "":
		return "", usage(errors.New("there is nothing to say: the text is empty"))
	case len(text) > job.MaxMessage:
		return "", usage(fmt.Errorf("the text has more than %d bytes", job.MaxMessage), "write the rest into a file of the job's folder and name that")
	}
	return text, nil
}

func forkCommand(con *console, at *target) *cobra.Command {
	in := api.Fork{}
	var name string
	cmd := &cobra.Command{
		Use: "fork JOB TEXT", Short: "Go on from a job a second time, beside it", Args: cobra.ExactArgs(2),
		Long: `Submit a job that begins with a copy of another one's work, in a folder of its own, and with a copy of
its agent's session, which is told TEXT; with - for that, what standard input holds. The other job stays
as it is. It must not run at that moment, and its worker must be able to fork a session into another folder: claude
and codex can, and programs of yours that say so.`,
		Example: "  scheduler fork fix-login \"Try it with the other parser\"\n  scheduler fork fix-login --name fix-login-2 \"Now without the cache\"",
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if in.Text, err = con.words(args[1]); err != nil {
				return err
			}
			if in.By == "" {
				in.By = userName()
			}
			in.Name, in.ID = job.Name(name), uuid.NewString() // so that the command may ask again
			return at.do(func(p *peer) error {
				made, err := change(cmd.Context(), p, func() (api.Said, error) { return p.Fork(cmd.Context(), args[0], in) })
				if err = mends(meant(cmd.Context(), p, args[0], err)); err != nil {
					return err
				}
				if con.json {
					return writeJSON(con.stdout, made)
				}
				_, err = fmt.Fprintln(con.stdout, terminal.Clean(made.Note))
				return err
			})
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "the `NAME` of the new job (default: that of the other, with -fork)")
	cmd.Flags().StringVar(&in.By, "by", "", "say it under this `NAME` (default: yours)")
	con.jsonFlag(cmd, "print the message as JSON")
	return cmd
}

func interruptCommand(con *console, at *target) *cobra.Command {
	in := api.Interrupt{}
	cmd := &cobra.Command{
		Use: "interrupt JOB...", Short: "Stop what the agent of a job does now, and keep its session", Args: cobra.MinimumNArgs(1),
		Long: `Have the agents of jobs stop their turns. Their sessions and folders stay, their slots are free, and the
jobs wait until they are told how to go on, with ` + "`scheduler tell`" + `. To end a job: ` + "`scheduler cancel`" + `.`,
		Example: "  scheduler interrupt fix-login\n  scheduler tell fix-login \"Use the other parser\"",
		RunE: func(cmd *cobra.Command, args []string) error {
			if in.By == "" {
				in.By = userName()
			}
			return at.do(func(p *peer) error {
				return changeJobs(cmd.Context(), con, p, args, func(ref string) (api.JobDetail, error) { return p.Interrupt(cmd.Context(), ref, in) },
					func(_ string, j *api.Job) string { return fmt.Sprintf("%s  %s  interrupted", j.ID, j.Spec.Name) })
			})
		},
	}
	cmd.Flags().StringVar(&in.By, "by", "", "interrupt it under this `NAME` (default: yours)")
	con.jsonFlag(cmd, "print the jobs as JSON")
	return cmd
}

// decisions are the words for the decisions of an answer.
var decisions = map[string]string{"yes": api.Allow, "no": api.Deny}

func answerQuestionCommand(con *console, at *target) *cobra.Command {
	var in api.AnswerQuestion
	var number int
	var stop bool
	var scope string
	cmd := &cobra.Command{
		Use: "answer JOB [yes|no]", Short: "Answer what the agent of a job asks", Args: cobra.RangeArgs(1, 2),
		Long: `Answer a question of a job's agent: yes or no, with words by -m if you like, or words alone where it wants
some. ` + "`scheduler approvals ls`" + ` lists the questions. The first answer counts. A yes holds once; with --for job
for all further runs of the job, with --for tenant for all jobs of its tenant, of exactly what was asked
or of what --pattern says. ` + "`scheduler grants`" + ` shows and ends that.`,
		Example: "  scheduler answer fix-login yes\n  scheduler answer fix-login no -m \"use make test instead\"\n  scheduler answer fix-login yes --for tenant --pattern \"npm test *\"",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				var ok bool
				if in.Decision, ok = decisions[args[1]]; !ok {
					return usage(fmt.Errorf("%q is no answer: say yes or no", args[1]), "words go by -m TEXT")
				}
			}
			switch {
			case in.Decision == "" && in.Text == "":
				return usage(errors.New("there is no answer: say yes or no, or words by -m TEXT"))
			case stop && in.Decision != api.Deny:
				return usage(errors.New("--stop goes with no: the agent stops then"))
			case stop:
				in.Decision = api.DenyAndStop
			}
			in.Scope = api.RunGrantScope(scope)
			if in.Scope != "" && in.Scope != api.GrantJob && in.Scope != api.GrantTenant {
				return usage(fmt.Errorf("invalid --for %q: use job or tenant", scope))
			}
			if in.Pattern != "" && in.Scope == "" {
				return usage(errors.New("--pattern goes with --for job or --for tenant"))
			}
			if in.By == "" {
				in.By = userName()
			}
			return at.do(func(p *peer) error { return answerQuestion(cmd.Context(), con, p, args[0], number, in) })
		},
	}
	f := cmd.Flags()
	f.StringVarP(&in.Text, "message", "m", "", "words for the agent")
	f.IntVar(&number, "question", 0, "the `NUMBER` of the question (default: the only open one)")
	f.BoolVar(&stop, "stop", false, "with no: the agent is to stop here")
	f.StringVar(&scope, "for", "", "with yes: for good, for the `job` or for the tenant")
	f.StringVar(&in.Pattern, "pattern", "", "with --for: what to allow, e.g. \"npm test *\"")
	f.StringVar(&in.By, "by", "", "answer under this `NAME` (default: yours)")
	con.jsonFlag(cmd, "print the question as JSON")
	return cmd
}

// answerQuestion answers a question of a job; 0 is the only one that is open.
func answerQuestion(ctx context.Context, con *console, p *peer, ref string, number int, in api.AnswerQuestion) error {
	if number == 0 {
		list, err := p.Questions(ctx, ref)
		if err != nil {
			return mends(meant(ctx, p, ref, err))
		}
		var open []string
		for i := range list.Questions {
			if q := &list.Questions[i]; q.State == api.QuestionOpen {
				number = q.Number
				open = append(open, fmt.Sprintf("--question %d: %s", q.Number, q.Text))
			}
		}
		switch len(open) {
		case 0:
			return usage(fmt.Errorf("job %s asks nothing", ref), "`scheduler approvals ls` lists the questions")
		case 1:
		default:
			return usage(fmt.Errorf("job %s asks %d questions: say which", ref, len(open)), open...)
		}
	}
	done, err := change(ctx, p, func() (api.AnsweredQuestion, error) { return p.AnswerQuestion(ctx, ref, number, in) })
	if err = mends(meant(ctx, p, ref, err)); err != nil {
		return err
	}
	if con.json {
		return writeJSON(con.stdout, done)
	}
	_, err = fmt.Fprintf(con.stdout, "question %d: %s\n", done.Question.Number, terminal.Clean(done.Note))
	return err
}

// printQuestions lists questions that can be answered.
func printQuestions(w io.Writer, list []api.Question, now time.Time) error {
	if len(list) == 0 {
		return nil
	}
	return table(w, "JOB\tID\tTENANT\tASKED\tUNTIL\tQUESTION", func(w io.Writer) {
		for i := range list {
			q := &list[i]
			until := "-"
			if q.Waits && q.Until != nil {
				until = clock(*q.Until, now)
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d: %s\n", q.Name, q.Job.Short(), q.Tenant, clock(q.AskedAt, now), until, q.Number, terminal.Clean(oneLine(q.Text)))
		}
	})
}

// oneLine returns the first line of a text.
func oneLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}

// showTalk says what was said to a job, and asked by its agent.
func showTalk(ctx context.Context, w io.Writer, p *peer, e *api.Job) error {
	if e.Spec.Type != job.WorkerTask {
		return nil
	}
	said, err := p.Messages(ctx, string(e.ID))
	if err != nil {
		return err
	}
	asked, err := p.Questions(ctx, string(e.ID))
	if err != nil {
		return err
	}
	showConversation(w, string(e.Spec.Name), said.Messages, asked.Questions)
	return nil
}

// showConversation says what was said to a job, and asked by its agent.
func showConversation(w io.Writer, name string, said []api.Message, asked []api.Question) {
	if len(said) > 0 {
		fmt.Fprint(w, "\nsaid to it:\n")
	}
	for i := range said {
		m := &said[i]
		state := string(m.State)
		if m.Reason != "" {
			state += ", " + terminal.Clean(m.Reason)
		}
		fmt.Fprintf(w, "  %d  %s  %s (%s)\n", m.Number, dash(terminal.Clean(m.From)), terminal.Clean(oneLine(m.Text)), state)
	}
	if len(asked) > 0 {
		fmt.Fprint(w, "\nasked by it:\n")
	}
	open := false
	for i := range asked {
		q := &asked[i]
		how := string(q.State)
		switch a := q.Answer; {
		case a != nil:
			how = fmt.Sprintf("%s by %s", map[string]string{api.Allow: "yes", api.Deny: "no", api.DenyAndStop: "no, and stop"}[a.Decision], dash(terminal.Clean(a.By)))
			if a.Text != "" {
				how += ": " + terminal.Clean(oneLine(a.Text))
			}
		case q.Waits && q.Until != nil:
			how = "waits until " + q.Until.Local().Format(time.TimeOnly)
		}
		open = open || q.State == api.QuestionOpen
		fmt.Fprintf(w, "  %d  %s (%s)\n", q.Number, terminal.Clean(oneLine(q.Text)), strings.TrimSpace(how))
	}
	if open {
		fmt.Fprintf(w, "answer: scheduler answer %s yes   or: no -m \"why not\"   for good: --for job, --for tenant\n", name)
	}
}
