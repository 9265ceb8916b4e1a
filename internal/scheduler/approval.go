package scheduler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/policy"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/schedule"
	"github.com/agentsched/agentsched/workflow"
)

// Question is what a person is told when a job begins to wait for them.
type Question struct {
	Kind   string     `json:"kind"` // "approval_requested", or "question_asked" by the agent of a run
	Job    job.ID     `json:"job"`
	Name   job.Name   `json:"name"`
	Tenant job.Tenant `json:"tenant"`
	queue.Approval
	// Answer is the beginning of what the agent answered, Changed what it changed,
	// e.g. "2 files changed, 5 insertions(+)".
	Answer  string `json:"answer,omitempty"`
	Changed string `json:"changed,omitempty"`
	// Of a question of an agent, Number is that among those of its job, and About what it is about: command, write, read,
	// host, tool or words. Why is the question.
	Number  int    `json:"number,omitempty"`
	About   string `json:"about,omitempty"`
	Command string `json:"command,omitempty"`
	Path    string `json:"path,omitempty"`
	Host    string `json:"host,omitempty"`
	// Link opens a page on which whoever has it answers, once, without a login. It is a secret. "" where there is no public
	// address of the scheduler.
	Link string `json:"link,omitempty"`
}

// Approvals has people look at the work of jobs that are overseen, takes their answers,
// and gives the default answer where nobody has answered in time. What waits for an
// answer is known from the store alone.
type Approvals struct {
	store      queue.Store
	feed       *Feed
	log        zerolog.Logger
	follow     func(*queue.Entry) // finds what follows from an answer
	dispatch   func()             // has the dispatcher look at the queue
	onQuestion func(Question)     // may be nil
	seed       uint64             // of what is drawn

	asked bell // a job waits for a person that did not before
}

// maxQuestion bounds the words of an agent in a Question, in bytes.
const maxQuestion = 4 << 10

// oversee returns the op that has a person look at what an attempt made, or nil
// if its job is not overseen or need not be this time. What an attempt that
// failed has made is asked about only where the job would be given up.
func (s *Approvals) oversee(at time.Time, r *schedule.Run, o *job.Outcome, d *policy.Decision) queue.Op {
	e, attempt := &r.Entry, r.Attempt
	spec := &e.Spec
	if spec.Flow.Oversight == nil || d.Exit == "" || spec.Flow.Loop != nil && !workflow.LastTurn(spec, o) {
		return nil // a turn of a loop is not yet the work
	}
	drawn := draw(e.ID, attempt, s.seed)
	why := reviewReason(spec, o, d.Exit == job.ExitFailed, e.Rejections > 0, drawn)
	if d.Escalated {
		why = d.DeadLetter
	}
	if why == "" {
		return nil
	}
	a := queue.Approval{Attempt: attempt, Why: why, AskedAt: at}
	if spec.Flow.Oversight.Mode == job.SpotCheck {
		a.Draw = &drawn
	}
	if patience := spec.Flow.Oversight.Timeout.Std(); patience > 0 {
		until := at.Add(patience)
		a.Until, a.Default = &until, cmp.Or(spec.Flow.Oversight.Default, "reject")
	}
	return queue.Await{
		ID: e.ID, Fence: e.Fence, Attempt: attempt, Outcome: *o, Approval: a, Now: at,
		Waiting: why,
	}
}

// seedOf returns the seed of the draws of a state directory.
func seedOf(id job.InstanceID) uint64 {
	h := fnv.New64a()
	h.Write([]byte(id)) //nolint:errcheck // it cannot fail
	return h.Sum64()
}

// ask tells a person that a job waits for them.
func (s *Approvals) ask(e *queue.Entry, o *job.Outcome) {
	s.feed.signal(e, api.ApprovalRequested, "", e.Approval.Why)
	if s.onQuestion != nil {
		answer, _ := job.Cut(o.Answer, maxQuestion)
		s.onQuestion(Question{
			Kind: string(api.ApprovalRequested), Job: e.ID, Name: e.Spec.Name, Tenant: e.Spec.Tenant, Approval: *e.Approval, Answer: answer, Changed: o.DiffStat,
		})
	}
	s.asked.ring()
}

// ErrNoComment: a rejection without a word leads to the same work again.
var ErrNoComment = errors.New("a rejection needs a comment that says what is to be done better")

// Decision returns the op by which an answer takes effect on an entry, of whose
// attempts the last is given. The error wraps queue.ErrIllegalTransition if the
// entry waits for no answer, or is ErrNoComment.
func Decision(e *queue.Entry, last *job.Attempt, a api.Answer, at time.Time) (queue.Decide, error) {
	if e.Held != job.HeldForApproval || e.Approval == nil || last == nil {
		return queue.Decide{}, queue.Refuse("job %s (%s) is %s and waits for no approval", e.ID, e.Spec.Name, StateOf(e))
	}
	d := queue.Decide{ID: e.ID, Attempt: e.Approval.Attempt, Approved: a.Approved, By: a.By, Comment: strings.TrimSpace(a.Comment), Now: at}
	if a.Approved {
		return d, nil
	}
	if d.Comment == "" {
		return queue.Decide{}, ErrNoComment
	}
	retries := 0
	if o := e.Spec.Flow.Oversight; o != nil {
		retries = o.MaxRetries
	}
	if e.Rejections >= retries { // with 2, the third one is the end
		d.DeadLetter = fmt.Sprintf("%s: %s; rejected %s, max_retries is %d", job.HumanRejected, brief(d.Comment), count(e.Rejections+1, "time", "times"), retries)
		return d, nil
	}
	d.Retry = &queue.Retry{
		RunnableAt: at, Choice: e.Choice, Feedback: d.Comment, Waiting: job.Waiting{Reason: job.WaitTurn, Text: "rejected; goes on with the feedback"}.String(),
		Session: last.Session, SessionWorker: last.Choice.Worker, SessionNode: last.Node,
	}
	if last.Outcome != nil && last.Outcome.Session != "" {
		d.Retry.Session = last.Outcome.Session
	}
	return d, nil
}

// Decide gives the answer to what a job waits for: to what this attempt has made, or to what is asked about now if it is 0.
func (s *Approvals) Decide(ctx context.Context, id job.ID, attempt int, a api.Answer) (queue.Entry, error) {
	e, err := decide(ctx, s.store, id, attempt, a)
	if err != nil {
		s.dispatch()
		return e, err
	}
	s.log.Info().Str("job", string(id)).Bool("approved", a.Approved).Str("by", a.By).Str("comment", a.Comment).Msg("answered")
	s.follow(&e)
	s.feed.publishChange(ctx, &e)
	s.dispatch()
	return e, nil
}

// decide stores an answer.
func decide(ctx context.Context, store queue.Store, id job.ID, attempt int, a api.Answer) (queue.Entry, error) {
	e, err := store.Get(ctx, id)
	if err != nil {
		return e, err
	}
	if x := e.Approval; attempt != 0 && x != nil && x.Attempt != attempt {
		return e, queue.Refuse("what attempt %d of job %s (%s) has made was answered for: it is at attempt %d", attempt, e.ID, e.Spec.Name, x.Attempt)
	}
	attempts, err := store.Attempts(ctx, id)
	if err != nil {
		return e, err
	}
	var last *job.Attempt
	if len(attempts) > 0 {
		last = &attempts[len(attempts)-1]
	}
	op, err := Decision(&e, last, a, now())
	if err != nil {
		return e, err
	}
	ops := append([]queue.Op{op}, anew(op)...)
	if op.Retry == nil {
		ops = append(ops, markJudged(&e, op.Now)...)
	}
	if err := store.Apply(ctx, ops...); err != nil {
		return e, fmt.Errorf("answer for job %s: %w", id, err)
	}
	return store.Get(ctx, id)
}

// AwaitingApproval returns the jobs that wait for a person, the one that was submitted
// first first.
func AwaitingApproval(ctx context.Context, store queue.Reader) ([]queue.Entry, error) {
	list, _, err := store.List(ctx, queue.Filter{Held: []job.Hold{job.HeldForApproval}, Limit: 1 << 30})
	if err != nil {
		return nil, fmt.Errorf("list what waits for a person: %w", err)
	}
	return list, nil
}

// run gives the default answer where nobody has answered in time.
func (s *Approvals) run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.asked:
		case <-timer.C:
		}
		next, err := s.answerOverdue(ctx)
		if err != nil && ctx.Err() == nil {
			s.log.Error().Err(err).Msg("answer what nobody has answered in time")
		}
		timer.Reset(next)
	}
}

// answerOverdue returns how long nothing more is overdue.
func (s *Approvals) answerOverdue(ctx context.Context) (time.Duration, error) {
	waiting, err := AwaitingApproval(ctx, s.store)
	if err != nil {
		return idle, err
	}
	next := idle
	var errs []error
	for i := range waiting {
		a := waiting[i].Approval
		if a == nil || a.Until == nil {
			continue
		}
		if left := a.Until.Sub(now()); left > 0 {
			next = min(next, left)
			continue
		}
		answer := api.Answer{Approved: a.Default == "approve", By: queue.ByTimeout, Comment: fmt.Sprintf("nobody answered by %s", a.Until.Format(time.RFC3339))}
		e, err := s.Decide(ctx, waiting[i].ID, a.Attempt, answer)
		if err != nil {
			if !errors.Is(err, queue.ErrIllegalTransition) {
				errs = append(errs, err)
			}
			continue
		}
		said := "rejected: "
		if answer.Approved {
			said = "approved: "
		}
		s.feed.observe(Moment{Kind: MomentAnswered, At: now(), Entry: &e, Attempt: a.Attempt, Text: said + answer.Comment})
	}
	return next, errors.Join(errs...)
}
