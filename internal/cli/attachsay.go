package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"golang.org/x/term"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/internal/terminal"
	"github.com/agentsched/agentsched/job"
)

// act is something that was written, and is done when the scheduler answers.
type act struct {
	do    func(ctx context.Context) error
	tries int
}

// attachHelp is what /help says.
const attachHelp = `a line is told to the agent; while it asks, a line answers:
  yes, no or stop, each with WORDS if you like; always [PATTERN]; always tenant [PATTERN]
/answer N …    answers another question than the oldest
/tell TEXT     says what begins like an answer, or with /
/interrupt     stops its turn and keeps the session
/more N        shows all of what was folded; ctrl-o or no N: the last
/diff          shows what it has changed
/quit, ctrl-d  leaves; the job goes on
ctrl-j begins another line of a message; ↑ ↓ call back what was written`

// write takes a line that was written; leave says that it is the wish to go.
func (a *attached) write(w terminal.Written) (leave bool) {
	line := strings.TrimSpace(w.Text)
	verb, rest, _ := strings.Cut(line, " ")
	rest = strings.TrimSpace(rest)
	switch {
	case line == "":
	case !strings.HasPrefix(line, "/"):
		a.say(line, w.Asks)
	case verb == "/quit":
		return true
	case verb == "/help":
		a.then(func(context.Context) error { return a.note(a.text.Text(utcNow(), "", attachHelp)) })
	case verb == "/tell":
		a.tell(rest)
	case verb == "/interrupt":
		a.interrupt()
	case verb == "/answer":
		number, words, _ := strings.Cut(rest, " ")
		n, err := strconv.Atoi(number)
		if err != nil || n < 1 {
			a.refuse(fmt.Errorf("/answer needs the number of a question and an answer, e.g. /answer 2 no use make test"))
			break
		}
		a.answer(n, strings.TrimSpace(words))
	case verb == "/more":
		a.unfold(rest)
	case verb == "/diff":
		a.diff()
	default:
		a.refuse(fmt.Errorf("there is no %s: /help lists the words; /tell TEXT says it to the agent", verb))
	}
	return false
}

// then has something done after what was written before.
func (a *attached) then(do func(context.Context) error) { a.todo = append(a.todo, &act{do: do}) }

// refuse says that a line cannot be done.
func (a *attached) refuse(err error) { a.then(func(context.Context) error { return usage(err) }) }

// act does what was written, in its order, as far as there is a scheduler to do it. What it
// could not be told is kept, and tried again.
func (a *attached) act(ctx context.Context) error {
	for len(a.todo) > 0 {
		first := a.todo[0]
		err := first.do(ctx)
		var locked *statedir.LockedError // by a scheduler that does not answer yet
		switch first.tries++; {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, errView):
			return err
		case err != nil && (errors.As(err, &locked) || unreached(err)):
			if first.tries == 1 {
				return a.note(a.text.Trouble(utcNow(), "not told yet, it is tried again: "+err.Error()))
			}
			return nil
		case err != nil:
			a.refusals++
			text := err.Error()
			if exit, ok := errors.AsType[*exitError](err); ok && len(exit.hints) > 0 {
				text += "; " + strings.Join(exit.hints, "; ")
			}
			if err := a.complain(text); err != nil {
				return err
			}
		}
		a.todo = a.todo[1:]
		a.fresh = freshLooks
	}
	return nil
}

// complain says that something was refused: without a terminal on standard error.
func (a *attached) complain(text string) error {
	lines := a.text.Trouble(utcNow(), text)
	if !a.person {
		return shown(terminal.WriteTalk(a.con.stderr, lines))
	}
	return a.note(lines)
}

// unreached reports whether nobody has said no: a scheduler may still answer.
func unreached(err error) bool {
	exit, ok := errors.AsType[*exitError](err)
	return away(err) && (!ok || exit.code == exitFailed)
}

// change asks the scheduler for a change, or makes it while none runs. The state directory is
// free again afterwards, so that one can be started.
func (a *attached) change(do func(*peer) error) error { return a.at.do(do) }

// say is a line that is no command: an answer while something is asked, else a message. What is not
// written at a terminal answers by /answer. asked names what was asked when it was written: an agent that asks
// something else meanwhile has no answer to that.
func (a *attached) say(line, asked string) {
	if a.person {
		q := a.asks()
		if in, ok := answerOfLine(q, line); ok {
			if nameOf(q) != asked {
				a.refuse(fmt.Errorf("question %d was not asked yet when you wrote that: read it, and answer again", q.Number))
				return
			}
			a.answerWith(q.Number, in)
			return
		}
	}
	a.tell(line)
}

// asks is the question that a line answers: the oldest that a run waits for. Without one it is the
// latest that can be answered if it takes yes and no: while no run is there, none waits. It may be nil.
func (a *attached) asks() *api.Question {
	for i := range a.open {
		if a.open[i].Waits {
			return &a.open[i]
		}
	}
	if n := len(a.open); n > 0 && (a.idle || len(a.open[n-1].Decisions) > 0) {
		return &a.open[n-1]
	}
	return nil
}

// nameOf names a question among those of all jobs.
func nameOf(q *api.Question) string { return fmt.Sprintf("%s/%d", q.Job, q.Number) }

// answerOfLine returns the answer that a line is to a question, if it is one.
func answerOfLine(q *api.Question, line string) (in api.AnswerQuestion, ok bool) {
	switch {
	case q == nil:
		return in, false
	case len(q.Decisions) == 0:
		return api.AnswerQuestion{Text: line}, true
	}
	verb, words, _ := strings.Cut(line, " ")
	words = strings.TrimSpace(words)
	switch strings.ToLower(strings.TrimRight(verb, ",.:!")) {
	case "yes":
		return api.AnswerQuestion{Decision: api.Allow, Text: words}, true
	case "no":
		return api.AnswerQuestion{Decision: api.Deny, Text: words}, true
	case "stop":
		return api.AnswerQuestion{Decision: api.DenyAndStop, Text: words}, true
	case "always":
		in = api.AnswerQuestion{Decision: api.Allow, Scope: api.GrantJob, Pattern: words}
		if first, rest, _ := strings.Cut(words, " "); first == string(api.GrantTenant) {
			in.Scope, in.Pattern = api.GrantTenant, strings.TrimSpace(rest)
		}
		return in, true
	}
	return in, false
}

// answer answers a question by its number.
func (a *attached) answer(number int, words string) {
	for i := range a.open {
		q := &a.open[i]
		if q.Number != number {
			continue
		}
		in, ok := answerOfLine(q, words)
		if !ok || words == "" {
			a.refuse(fmt.Errorf("question %d wants an answer: yes, no, stop or always", number))
			return
		}
		a.answerWith(number, in)
		return
	}
	a.refuse(fmt.Errorf("question %d is not open", number))
}

func (a *attached) answerWith(number int, in api.AnswerQuestion) {
	in.By = a.by
	id := string(a.job.Job.ID)
	a.then(func(ctx context.Context) error {
		return a.change(func(p *peer) error {
			done, err := p.AnswerQuestion(ctx, id, number, in)
			if err != nil {
				return mends(p.refused(err))
			}
			return a.note(a.text.Note(utcNow(), fmt.Sprintf("(question %d: %s)", done.Question.Number, done.Note)))
		})
	})
}

// tell says something to the agent. It has an id, so that it is said once however often it is tried.
func (a *attached) tell(text string) {
	switch {
	case text == "":
		a.refuse(errors.New("there is nothing to say: the text is empty"))
		return
	case len(text) > job.MaxMessage:
		a.refuse(fmt.Errorf("the text has more than %d bytes: write the rest into a file of the job's folder and name that", job.MaxMessage))
		return
	}
	in := api.Say{Text: text, ID: uuid.NewString(), By: a.by}
	a.then(func(ctx context.Context) error {
		id := a.job.Job.ID // that of now: it may be another than when it was written
		return a.change(func(p *peer) error {
			said, err := p.Tell(ctx, string(id), in)
			if err != nil {
				return mends(p.refused(err))
			}
			if next := cmp.Or(said.Message.FollowUp, said.Message.Job); next != id {
				a.next = next
			}
			return a.note(a.text.Note(utcNow(), "("+said.Note+")"))
		})
	})
}

func (a *attached) interrupt() {
	id := string(a.job.Job.ID)
	a.then(func(ctx context.Context) error {
		return a.change(func(p *peer) error {
			if _, err := p.Interrupt(ctx, id, api.Interrupt{By: a.by}); err != nil {
				return mends(p.refused(err))
			}
			return a.note(a.text.Note(utcNow(), "(interrupted)"))
		})
	})
}

// unfold shows all of what was folded under a number; "" is the last.
func (a *attached) unfold(number string) {
	a.then(func(ctx context.Context) error {
		n := 0
		if number != "" {
			var err error
			if n, err = strconv.Atoi(number); err != nil {
				return usage(fmt.Errorf("/more needs the number of what is folded, not %q", number))
			}
		}
		f, why := a.text.Folded(n)
		if why != "" {
			return usage(errors.New(why))
		}
		lines, err := a.whole(ctx, f)
		if err != nil {
			return err
		}
		return a.note(lines)
	})
}

// whole asks for all of what was folded.
func (a *attached) whole(ctx context.Context, f terminal.Folded) ([]terminal.TalkLine, error) {
	id := string(f.Job)
	switch {
	case f.Cursor != 0:
		page, err := a.p.Client.Events(ctx, id, f.Cursor-1, 1)
		if err == nil && len(page.Events) == 1 && page.Events[0].Cursor == f.Cursor {
			return a.text.Event(&page.Events[0], true), nil
		}
		return nil, gone(a.p.refused(err))
	case f.Message != 0:
		list, err := a.p.Messages(ctx, id)
		if err == nil && len(list.Messages) >= f.Message {
			return a.text.Message(&list.Messages[f.Message-1], true), nil
		}
		return nil, gone(a.p.refused(err))
	case f.Question != 0:
		list, err := a.p.Questions(ctx, id)
		for i := range list.Questions {
			if q := &list.Questions[i]; q.Number == f.Question {
				return append(a.text.Question(q, true), a.text.Answered(utcNow(), q, true)...), nil
			}
		}
		return nil, gone(a.p.refused(err))
	}
	j, err := a.p.Job(ctx, id)
	switch {
	case err != nil:
		return nil, err
	case f.Answer && lastOutcome(j.Attempts) != nil:
		return a.text.Answer(&j, true), nil
	}
	return a.text.Prompt(&j.Job, true), nil
}

// gone is err, or says that something is not there any more.
func gone(err error) error {
	if err == nil {
		return usage(errors.New("the scheduler does not have it any more"))
	}
	return err
}

// maxShownDiff is how much of a patch is shown in a conversation, in bytes.
const maxShownDiff = 1 << 20

// diff shows what the job has changed.
func (a *attached) diff() {
	ref := string(a.job.Job.ID)
	a.then(func(ctx context.Context) error {
		out := &bounded{most: maxShownDiff}
		inner := *a.con
		inner.stdout, inner.stderr = out, out
		if err := printDiff(ctx, &inner, a.p, ref, false); err != nil {
			return err
		}
		text := out.String()
		if out.cut {
			text += fmt.Sprintf("\n… the rest: scheduler diff %s", ref)
		}
		return a.note(a.text.Text(utcNow(), "diff", text))
	})
}

// bounded keeps the begin of what is written to it.
type bounded struct {
	bytes.Buffer
	most int
	cut  bool
}

func (b *bounded) Write(p []byte) (int, error) {
	room := max(b.most-b.Len(), 0)
	b.cut = b.cut || len(p) > room
	b.Buffer.Write(p[:min(len(p), room)])
	return len(p), nil
}

func stdinIsTerminal(con *console) bool {
	return con.stdin != nil && term.IsTerminal(int(con.stdin.Fd()))
}
