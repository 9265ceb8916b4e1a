package mcp

import (
	"context"
	"slices"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/job"
)

func addWait(s *server, role string) {
	add(s, role, tool{name: "wait_jobs", role: read, about: "Wait until jobs have ended, or one of them asks something, and tell how they stand. It returns within `seconds`: call it again while `ended` is false. A client that can elicit has open questions asked of its user meanwhile."}, waitJobs)
}

// Bounds of a wait.
const (
	maxWaited   = 20 // jobs of one call
	usualWait   = 45 // seconds: many clients give up on a tool after 60
	longestWait = 15 * 60
	lookEvery   = 2 * time.Second  // at the jobs, whether or not anything was heard
	signEvery   = 10 * time.Second // of life, while nothing happens
)

// waited is how jobs stand after a wait.
type waited struct {
	Ended     bool       `json:"ended" jsonschema:"all of the jobs have ended"`
	Jobs      []endedJob `json:"jobs"`
	Questions []question `json:"questions" jsonschema:"what they ask now"`
	Note      string     `json:"note" jsonschema:"why the wait is over"`
	Notice    string     `json:"notice"`
}

// endedJob is a job that was waited for.
type endedJob struct {
	Job     jobLine    `json:"job"`
	FromRun *ofAttempt `json:"from_run,omitempty" jsonschema:"of the last attempt, when the job has ended"`
}

type waitIn struct {
	Jobs    []string `json:"jobs" jsonschema:"names or ids of 1 to 20 jobs"`
	Seconds int      `json:"seconds,omitempty" jsonschema:"how long to wait at most, 1 to 900; absent: 45"`
	Any     bool     `json:"any,omitempty" jsonschema:"return as soon as one of them has ended"`
}

func waitJobs(ctx context.Context, c *call, in waitIn) (waited, error) {
	seconds := in.Seconds
	if seconds == 0 {
		seconds = usualWait
	}
	switch {
	case len(in.Jobs) == 0 || len(in.Jobs) > maxWaited:
		return waited{}, wrong("jobs", "has %d names, want 1 to %d", len(in.Jobs), maxWaited)
	case seconds < 1 || seconds > longestWait:
		return waited{}, wrong("seconds", "is %d, want 1 to %d", in.Seconds, longestWait)
	}
	w := &waiter{call: c}
	for _, ref := range in.Jobs {
		if err := needsJob(ref); err != nil {
			return waited{}, err
		}
		j, err := c.Job(ctx, ref)
		if err != nil {
			return waited{}, err
		}
		if !slices.ContainsFunc(w.jobs, func(other api.JobDetail) bool { return other.Job.ID == j.Job.ID }) {
			w.jobs = append(w.jobs, j)
		}
	}
	note, err := w.wait(ctx, time.Duration(seconds)*time.Second, in.Any)
	if err != nil {
		return waited{}, err
	}
	return w.told(note), nil
}

// waiter looks after jobs until they have ended.
type waiter struct {
	*call
	jobs      []api.JobDetail
	questions []api.Question // open ones of the jobs
	asking    *asking        // a question that the client's user is asked; nil: none
	progress  float64
}

// wait returns why the wait is over.
func (w *waiter) wait(ctx context.Context, limit time.Duration, any bool) (note string, err error) {
	ctx, cancel := context.WithCancel(ctx)
	updates, done := w.listen(ctx)
	defer func() {
		cancel()
		<-done
		w.asking.stop()
	}()
	over, look, sign := time.NewTimer(limit), time.NewTicker(lookEvery), time.NewTicker(signEvery)
	defer over.Stop()
	defer look.Stop()
	defer sign.Stop()
	timeOver := false
	for {
		if err := w.look(ctx); err != nil {
			return "", err
		}
		left := w.left()
		w.ask(ctx)
		switch {
		case len(left) == 0:
			return "all of the jobs have ended", nil
		case any && len(left) < len(w.jobs):
			return "one of the jobs has ended", nil
		case w.asking != nil: // as long as somebody is asked, the answer is waited for
		case w.newQuestions():
			return "a job asks something that a person has to answer, by answer_question or otherwise; then call wait_jobs again", nil
		case timeOver:
			return "the time is over, not ended yet: " + strings.Join(left, ", ") + "; call wait_jobs again", nil
		}
	heard:
		for {
			select {
			case <-ctx.Done():
				return "", context.Cause(ctx)
			case <-w.ending():
				return "the scheduler is about to end: call wait_jobs again", nil
			case <-over.C:
				if timeOver && w.asking != nil { // nobody has answered, or the client is gone
					w.server.asked.leave(w.key(&w.asking.question))
					w.asking.stop()
					w.asking = nil
				}
				timeOver = true
				over.Reset(longestWait * time.Second)
				break heard
			case <-w.asking.answered():
				if err := w.answer(ctx); err != nil {
					return "", err
				}
				break heard
			case <-look.C:
				break heard
			case <-sign.C:
				w.tell(ctx, strings.Join(left, ", ")+" not ended yet")
			case u := <-updates:
				if w.about(u) {
					if u.Event == nil {
						break heard
					}
					w.tell(ctx, string(u.Name)+": "+eventLine(u.Event))
				}
			}
		}
	}
}

// listen has the scheduler tell what happens; done is closed when it no longer does. Nothing is lost if it cannot: the
// jobs are looked at all the same.
func (w *waiter) listen(ctx context.Context) (updates chan api.Update, done chan struct{}) {
	updates, done = make(chan api.Update), make(chan struct{})
	go func() {
		defer close(done)
		for u, err := range w.Stream(ctx, client.StreamOptions{Kinds: []api.UpdateKind{api.UpdateJob, api.UpdateSignal, api.UpdateEvent}}) {
			if err != nil {
				return
			}
			select {
			case updates <- u:
			case <-ctx.Done():
				return
			}
		}
	}()
	return updates, done
}

// about reports whether an update is about one of the jobs, or may be.
func (w *waiter) about(u api.Update) bool {
	return u.Kind == api.UpdateGap || slices.ContainsFunc(w.jobs, func(j api.JobDetail) bool { return j.Job.ID == u.Job })
}

// look reads how the jobs stand, and what they ask.
func (w *waiter) look(ctx context.Context) error {
	open := map[job.ID]bool{}
	for i := range w.jobs {
		if id := w.jobs[i].Job.ID; !w.jobs[i].Job.State.Terminal() {
			j, err := w.Job(ctx, string(id))
			if err != nil {
				return err
			}
			w.jobs[i] = j
			open[id] = true
		}
	}
	if len(open) == 0 {
		w.questions = nil
		return nil
	}
	list, err := w.OpenQuestions(ctx, "")
	if err != nil {
		return err
	}
	w.questions = slices.DeleteFunc(list.Questions, func(q api.Question) bool { return !open[q.Job] || !q.Waits })
	return nil
}

// left returns the names of the jobs that have not ended.
func (w *waiter) left() (names []string) {
	for i := range w.jobs {
		if e := &w.jobs[i].Job; !e.State.Terminal() {
			names = append(names, string(e.Spec.Name))
		}
	}
	return names
}

// tell tells a client that wants to know it how the wait goes on.
func (w *waiter) tell(ctx context.Context, text string) {
	token := w.request.Params.GetProgressToken()
	if token == nil {
		return
	}
	w.progress++
	w.request.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ProgressToken: token, Progress: w.progress, Message: line(text)}) //nolint:errcheck // the client may be gone, which ends ctx
}

// told describes the jobs after the wait.
func (w *waiter) told(note string) waited {
	out := waited{Ended: len(w.left()) == 0, Jobs: []endedJob{}, Questions: []question{}, Note: note, Notice: notice}
	for i := range w.jobs {
		j := &w.jobs[i]
		e := endedJob{Job: lineOf(&j.Job)}
		if n := len(j.Attempts); j.Job.State.Terminal() && n > 0 {
			e.FromRun = attemptOf(&j.Attempts[n-1], maxAnswer/len(w.jobs), maxListed).FromRun
		}
		out.Jobs = append(out.Jobs, e)
	}
	for i := range w.questions[:min(len(w.questions), maxListed)] {
		out.Questions = append(out.Questions, questionOf(&w.questions[i]))
	}
	return out
}
