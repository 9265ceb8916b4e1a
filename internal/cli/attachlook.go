package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/terminal"
	"github.com/agentsched/agentsched/job"
)

// attached is somebody who takes part in the conversation of a job. It looks at what is
// stored again and again, and goes on where it was: so nothing is shown twice or left out,
// whichever scheduler runs the job, and whether one does. One goroutine has it.
type attached struct {
	con    *console
	at     *target
	p      *peer // to read
	by     string
	view   talkView
	person bool          // at a terminal
	every  time.Duration // between two looks

	text terminal.Transcript
	job  api.JobDetail
	next job.ID // the job that goes on from it; "" none is known
	mark string // how the job stood
	// cursor is that of the latest event, messages and questions how each was shown.
	cursor    int64
	messages  map[int]string
	questions map[int]string
	open      []api.Question // that can be answered, the oldest first
	fresh     int            // in how many looks messages and questions are asked for
	looks     int
	behind    bool  // there are more events than the last look has shown
	idle      bool  // no scheduler runs
	lost      error // why the last look failed

	todo     []*act // what was written and is not done yet
	refusals int
	left     bool // the person has gone
}

// How messages and questions are looked for, which no event tells of in time: in some looks after
// something points to them, and now and then.
const (
	freshLooks = 5
	rareLook   = 10
	// attachPage is how many events are asked for at once, and attachPages how often in one look:
	// what is written meanwhile waits for it.
	attachPage  = 200
	attachPages = 5
	// maxTodo is how much of what was written may wait for a scheduler.
	maxTodo = 100
)

// converse shows the conversation of a job and does what is written, until nothing more
// can come or the person leaves.
func (a *attached) converse(ctx context.Context, j api.JobDetail) error {
	if err := a.begin(j, false); err != nil {
		return err
	}
	written, since := a.view.Written(), time.Now()
	for {
		err := a.look(ctx)
		for err == nil && a.over() && a.next != "" {
			err = a.follow(ctx)
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			a.lost, since = nil, time.Now()
			if err := a.act(ctx); err != nil {
				return err
			}
		case errors.Is(err, errView) || !away(err) || !a.person && time.Since(since) > patience:
			return err
		default:
			a.lost, a.fresh = err, max(a.fresh, 1)
		}
		ended := a.lost == nil && len(a.todo) == 0 && a.over() && a.next == ""
		if written == nil && (a.left || ended) {
			return nil
		}
		a.stand()
		every, from := a.every, written
		if a.behind && a.lost == nil {
			every = 0
		}
		if len(a.todo) >= maxTodo {
			from = nil
		}
		pace := time.NewTimer(every)
		select {
		case <-ctx.Done():
		case <-pace.C:
		case line, more := <-from:
			if !more {
				written, a.left = nil, a.person || stdinIsTerminal(a.con)
			} else if a.write(line) {
				written, a.left = nil, true
			}
		}
		pace.Stop()
	}
}

// over reports whether nothing more happens in the job, and all was shown.
func (a *attached) over() bool { return a.job.Job.State.Terminal() && !a.behind }

// stand says how things stand below the conversation.
func (a *attached) stand() {
	e, st := &a.job.Job, statusOf(&a.job.Job)
	s := terminal.TalkStand{Text: fmt.Sprintf("%s · %s", e.Spec.Name, st.State)}
	if e.Attempts > 0 {
		s.Text += fmt.Sprintf(" · attempt %d on %s", e.Attempts, workerOf(e))
	}
	if cost := terminal.Cost(e.Spent); cost != "-" {
		s.Text += " · " + cost
	}
	switch {
	case a.lost != nil:
		s.Text, s.Lost = "no answer, it is tried again: "+terminal.Clean(a.lost.Error()), true
	case a.idle:
		s.Text, s.Lost = s.Text+" · "+a.unheard(), true
	}
	if q := a.asks(); q != nil {
		s.Asks, s.How, s.Name = fmt.Sprintf("asks %d: %s", q.Number, terminal.Asked(q)), "yes · no WORDS · always · stop", nameOf(q)
		if len(q.Decisions) == 0 {
			s.How = "your line is the answer"
		}
	}
	a.view.Stand(s)
}

// unheard says what no scheduler means for what is written.
func (a *attached) unheard() string {
	if a.job.Job.State.Terminal() {
		return "nobody hears: the job has ended, and no scheduler is running"
	}
	return "no scheduler is running: what you write waits for one"
}

// listen finds out whether a scheduler runs, and says when that has changed.
func (a *attached) listen(ctx context.Context) error {
	if a.p.offline == nil {
		return nil
	}
	c, err := a.at.running()
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Ready(ctx)
	was := a.idle
	a.idle = errors.Is(err, client.ErrNotRunning)
	switch {
	case a.idle && !was:
		return a.note(a.text.Note(utcNow(), "("+a.unheard()+")"))
	case was && !a.idle:
		return a.note(a.text.Note(utcNow(), "(a scheduler is running again)"))
	}
	return nil
}

// begin turns to a job, which goes on from the one before it or is the first.
func (a *attached) begin(j api.JobDetail, goesOn bool) error {
	a.job, a.next, a.mark, a.cursor, a.open = j, "", "", 0, nil
	a.messages, a.questions, a.fresh = map[int]string{}, map[int]string{}, 1
	lines := a.text.Begin(&j.Job, goesOn)
	if a.con.json {
		return nil // look shows it, as it stands
	}
	return shown(a.view.Show(lines))
}

// follow turns to the job that goes on from this one.
func (a *attached) follow(ctx context.Context) error {
	j, err := a.p.Job(ctx, string(a.next))
	if err != nil {
		return err
	}
	if err := a.begin(j, true); err != nil {
		return err
	}
	return a.look(ctx)
}

// look shows what is new. The job is read before its events: when it has ended, all are there.
func (a *attached) look(ctx context.Context) error {
	id := string(a.job.Job.ID)
	j, err := a.p.Job(ctx, id)
	if err != nil {
		return err
	}
	mark := terminal.TalkMark(&j.Job)
	a.job = j
	if next := j.Job.ContinuedAs; next != "" {
		a.next = next
	}
	rare := a.looks%rareLook == 0
	if a.looks++; a.mark != mark || rare {
		a.fresh = max(a.fresh, 1)
	}
	if err := a.events(ctx); err != nil || a.behind {
		return err
	}
	if mark != a.mark {
		var lines []terminal.TalkLine
		if j.Job.State != job.Dispatched || j.Job.CancelRequested { // else its events and questions say so
			lines = a.text.Stand(utcNow(), &j)
		}
		if err := a.show("job", &j.Job, lines); err != nil {
			return err
		}
		a.mark = mark
	}
	if rare {
		return a.listen(ctx)
	}
	return nil
}

// events shows what has happened since, and what was said and asked meanwhile where it was.
func (a *attached) events(ctx context.Context) error {
	of := a.job.Job.ID
	if other := a.job.Job.CoalescedWith; other != "" {
		of = other // it has no run of its own
	}
	var talk []said
	for n := range attachPages {
		page, err := ask(ctx, a.p, func() (api.Events, error) { return a.p.Client.Events(ctx, string(of), a.cursor, attachPage) })
		if err != nil {
			return err
		}
		if slices.ContainsFunc(page.Events, pointsToTalk) {
			a.fresh = freshLooks
		}
		if n == 0 && a.fresh > 0 {
			a.fresh--
			if talk, err = a.talk(ctx); err != nil {
				return err
			}
		}
		for i := range page.Events {
			e := &page.Events[i]
			if talk, err = a.upTo(talk, e.Time); err != nil {
				return err
			}
			if err := a.show("event", e, a.text.Event(e, false)); err != nil {
				return err
			}
			a.cursor = e.Cursor
		}
		if a.behind = len(page.Events) == attachPage; !a.behind {
			_, err := a.upTo(talk, time.Time{})
			return err
		}
	}
	a.fresh = max(a.fresh, 1) // what was said later than these events comes with the next ones
	return nil
}

// pointsToTalk reports whether an event says that something was asked, answered or said.
func pointsToTalk(e api.Event) bool {
	switch e.Kind {
	case job.EventQuestion, job.EventAnswer, job.EventMessage, job.EventState:
		return true
	}
	return false
}

// said is a part of the conversation that is no event.
type said struct {
	at   time.Time
	show func() error
}

// upTo shows what was said before a time, all if it is zero, and returns the rest.
func (a *attached) upTo(list []said, at time.Time) ([]said, error) {
	for len(list) > 0 && (at.IsZero() || !list[0].at.After(at)) {
		if err := list[0].show(); err != nil {
			return list, err
		}
		list = list[1:]
	}
	return list, nil
}

// talk returns what is new of what was said and asked, in the order of its times.
func (a *attached) talk(ctx context.Context) ([]said, error) {
	if a.job.Job.Spec.Type != job.WorkerTask {
		return nil, nil
	}
	id := string(a.job.Job.ID)
	messages, err := ask(ctx, a.p, func() (api.Messages, error) { return a.p.Messages(ctx, id) })
	if err != nil {
		return nil, err
	}
	questions, err := ask(ctx, a.p, func() (api.Questions, error) { return a.p.Questions(ctx, id) })
	if err != nil {
		return nil, err
	}
	var list []said
	for i := range messages.Messages {
		m := &messages.Messages[i]
		if m.FollowUp != "" && m.FollowUp != a.job.Job.ID {
			a.next = m.FollowUp
		}
		list = a.message(list, m)
	}
	a.open = a.open[:0]
	for i := range questions.Questions {
		q := &questions.Questions[i]
		if q.State == api.QuestionOpen {
			a.open = append(a.open, *q)
		}
		list = a.question(list, q)
	}
	slices.SortStableFunc(list, func(x, y said) int { return x.at.Compare(y.at) })
	return list, nil
}

// message adds what is new about a message.
func (a *attached) message(list []said, m *api.Message) []said {
	now := string(m.State) + " " + m.Reason
	was, known := a.messages[m.Number]
	switch {
	case !known:
		return append(list, said{m.At, func() error {
			a.messages[m.Number] = now
			return a.show("message", m, a.text.Message(m, false))
		}})
	case was != now:
		return append(list, said{utcNow(), func() error {
			a.messages[m.Number] = now
			return a.show("message", m, a.text.Moved(utcNow(), m))
		}})
	}
	return list
}

// question adds what is new about a question.
func (a *attached) question(list []said, q *api.Question) []said {
	const waits = "waits"
	now := string(q.State)
	if q.State == api.QuestionOpen && q.Waits {
		now = waits
	}
	was, known := a.questions[q.Number]
	if !known {
		list = append(list, said{q.AskedAt, func() error {
			a.questions[q.Number] = waits
			return a.show("question", q, a.text.Question(q, false))
		}})
		was = waits
	}
	if was == now {
		return list
	}
	at := utcNow()
	if q.Answer != nil {
		at = q.Answer.At
	}
	return append(list, said{at, func() error {
		a.questions[q.Number] = now
		if !known && a.con.json {
			return nil // it was printed as it stands
		}
		return a.show("question", q, a.text.Answered(at, q, false))
	}})
}

// errView is wrapped by errors of the view, which asking again does not mend.
var errView = errors.New("the conversation cannot be shown")

// show shows a part of the conversation: as JSON, what it is.
func (a *attached) show(what string, value any, lines []terminal.TalkLine) error {
	if a.con.json {
		return shown(terminal.NewEncoder(a.con.stdout).Encode(map[string]any{what: value}))
	}
	return shown(a.view.Show(lines))
}

// note says something about the conversation itself: with --json on standard error.
func (a *attached) note(lines []terminal.TalkLine) error {
	if a.con.json {
		return shown(terminal.WriteTalk(a.con.stderr, lines))
	}
	return shown(a.view.Show(lines))
}

func shown(err error) error {
	if err != nil {
		return failure(fmt.Errorf("%w: %w", errView, err))
	}
	return nil
}
