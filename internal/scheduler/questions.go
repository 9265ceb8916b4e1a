package scheduler

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/ask"
	"github.com/agentsched/agentsched/internal/supervisor"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/schedule"
)

// question is a question as it is stored.
type question struct {
	api.Question
	ID  string `json:"id"`  // the core's, in the attempt that has asked it last
	Key string `json:"key"` // as ipc.Question.Key
	// Expired says that the program has gone on without an answer.
	Expired bool `json:"expired,omitempty"`
	// Told is the attempt that was told the answer in its instructions, toldBySaying if it was said as a message; 0: none was.
	Told int `json:"told,omitempty"`
}

const toldBySaying = -1

func questionSpace(id job.ID) string { return queue.JobSpace(id, "questions") }

const openQuestions = "questions/"

// openSpace is where it is noted that a question is open.
func openSpace(id job.ID, n int) string { return openQuestions + string(id) + "/" + placeKey(n) }

const openKey = "open"

// wire returns the answer to a question as a core is told it.
func (q *question) wire() ipc.Answer {
	a := q.Answer
	return ipc.Answer{Question: q.ID, Decision: a.Decision, Text: a.Text, Value: a.Value, By: a.By}
}

// store returns the ops that store a question.
func (q *question) store() ([]queue.Op, error) {
	op, err := write(questionSpace(q.Job), q.Number, q)
	if err != nil {
		return nil, err
	}
	space := openSpace(q.Job, q.Number)
	if q.State == api.QuestionOpen {
		return []queue.Op{op, queue.Write{Record: queue.Record{Space: space, Key: openKey, Value: json.RawMessage(`true`), At: q.AskedAt}}}, nil
	}
	return []queue.Op{op, queue.Erase{Space: space, UpTo: openKey}}, nil
}

// stands reports whether a question was answered and no program has been given that: it counts when the same is asked again.
func (q *question) stands() bool {
	return q.State == api.QuestionAnswered && q.Answer.Given == 0 && (!q.Expired || q.Answer.Decision == api.Allow || q.Answer.Decision == "")
}

// of returns a question as one of a job that goes on from its own.
func (q *question) of(id job.ID, n int) *question {
	c := *q
	c.Job, c.Number, c.Attempt, c.ID, c.Waits, c.Until, c.Told = id, n, 0, "", false, nil, min(q.Told, 0)
	return &c
}

// maxAnswered bounds the texts of answers that an attempt is told in its instructions, in bytes.
const maxAnswered = 64 << 10

// answered returns the answers that an attempt is told which goes on with the session of one that had asked, and notes that
// it is. They stay what the same question is answered with: an agent that does not ask again knows them all the same.
func (s *Conversations) answered(ctx context.Context, r *schedule.Run) (out []ipc.Answered, err error) {
	list, err := records[question](ctx, s.store, questionSpace(r.Entry.ID))
	if err != nil || len(list) == 0 || r.Resume() == "" {
		return nil, err
	}
	cut, err := s.wasCut(ctx, r.Entry.ID, r.Attempt-1)
	if err != nil {
		return nil, err
	}
	var ops []queue.Op
	bytes := 0
	for i := range list {
		q := &list[i]
		lost := q.Told == r.Attempt || cut && q.Told == r.Attempt-1
		if !q.stands() || q.Expired || q.Attempt == r.Attempt || q.Told != 0 && !lost {
			continue
		}
		text, _ := job.Cut(q.Text, 1<<10)
		if bytes += len(text) + len(q.Answer.Text) + len(q.Answer.Value); bytes > maxAnswered {
			break
		}
		out = append(out, ipc.Answered{Question: text, Decision: q.Answer.Decision, Text: q.Answer.Text, Value: q.Answer.Value})
		q.Told = r.Attempt
		op, err := write(questionSpace(q.Job), q.Number, q)
		if err != nil {
			return nil, err
		}
		ops = append(ops, op)
	}
	if len(ops) > 0 {
		err = s.apply(ctx, ops...)
	}
	return out, err
}

// withdrawAll returns the ops that take back the open questions of a job.
func withdrawAll(id job.ID, list []question) (ops []queue.Op, err error) {
	for i := range list {
		q := &list[i]
		if q.State != api.QuestionOpen {
			continue
		}
		q.State, q.Waits = api.QuestionWithdrawn, false
		more, err := q.store()
		if err != nil {
			return nil, err
		}
		ops = append(ops, more...)
	}
	return ops, nil
}

// ask stores a question of a run, or gives the answer that an equal one was given before.
func (s *Conversations) ask(ctx context.Context, c *supervisor.Core, r ipc.AskPerson) (ipc.AskPersonResult, error) {
	e, err := s.flying(c, r.Job, r.Attempt)
	if err != nil {
		return ipc.AskPersonResult{}, err
	}
	defer s.lock(r.Job)()
	list, err := records[question](ctx, s.store, questionSpace(e.ID))
	if err != nil {
		return ipc.AskPersonResult{}, err
	}
	q, known := known(list, &r)
	if known && q.Answer != nil {
		q.Answer.Given, q.ID, q.Attempt, q.Waits = r.Attempt, r.Question.ID, r.Attempt, false
		op, err := write(questionSpace(e.ID), q.Number, q)
		if err == nil {
			err = s.apply(ctx, op)
		}
		return ipc.AskPersonResult{Answer: new(q.wire())}, err
	}
	at := now()
	if !known {
		if len(list) >= maxQuestions {
			return ipc.AskPersonResult{Answer: &ipc.Answer{Question: r.Question.ID, Text: fmt.Sprintf("the job has asked %d questions, which is the maximum", len(list))}}, nil
		}
		in := &r.Question
		q = &question{Key: in.Key, Question: api.Question{
			Number: len(list) + 1, Job: e.ID, Name: e.Spec.Name, Tenant: e.Spec.Tenant, Kind: in.Kind, Text: in.Text, Tool: in.Tool, Command: in.Command,
			Path: in.Path, Host: in.Host, Diff: in.Diff, Decisions: in.Decisions, Schema: in.Schema, State: api.QuestionOpen, AskedAt: at,
		}}
	}
	q.ID, q.Attempt, q.Waits, q.Expired, q.Until = r.Question.ID, r.Attempt, true, false, new(at.Add(r.Wait.Std()))
	ops, err := q.store()
	if err == nil {
		err = s.apply(ctx, ops...)
	}
	if err != nil {
		return ipc.AskPersonResult{}, err
	}
	s.tellAsked(&e, q)
	return ipc.AskPersonResult{}, nil
}

// known finds the question that a run asks among those of its job: the same one, or an equal one of an earlier attempt that
// is open, or whose answer no program was given.
func known(list []question, r *ipc.AskPerson) (*question, bool) {
	for i := range list {
		q := &list[i]
		if q.Attempt == r.Attempt && q.ID == r.Question.ID {
			return q, true
		}
	}
	for i := range list {
		q := &list[i]
		if q.Key != r.Question.Key || q.Attempt == r.Attempt && q.Waits {
			continue
		}
		if q.State == api.QuestionOpen || q.State == api.QuestionAnswered && q.Answer.Given == 0 {
			return q, true
		}
	}
	return nil, false
}

// tellAsked tells people that a run asks them.
func (s *Conversations) tellAsked(e *queue.Entry, q *question) {
	s.feed.signal(e, api.QuestionAsked, strconv.Itoa(q.Number), q.Text)
	if s.onQuestion != nil {
		s.onQuestion(Question{
			Kind: string(api.QuestionAsked), Job: e.ID, Name: e.Spec.Name, Tenant: e.Spec.Tenant, Number: q.Number, About: q.Kind, Command: q.Command, Path: q.Path, Host: q.Host,
			Approval: queue.Approval{Attempt: q.Attempt, Why: q.Text, AskedAt: q.AskedAt, Until: q.Until},
		})
	}
}

// closed returns the ops that store that a run waits for answers no more.
func (s *Conversations) closed(ctx context.Context, e *queue.Entry, r ipc.ReportTalk) (ops []queue.Op, err error) {
	if len(r.Closed) == 0 {
		return nil, nil
	}
	list, err := records[question](ctx, s.store, questionSpace(e.ID))
	if err != nil {
		return nil, err
	}
	for _, closed := range r.Closed {
		i := slices.IndexFunc(list, func(q question) bool { return q.Attempt == r.Attempt && q.ID == closed.Question })
		if i < 0 || !list[i].Waits {
			continue
		}
		q := &list[i]
		q.Waits, q.Until = false, nil
		switch {
		case closed.How == ipc.ClosedAnswered && q.Answer != nil:
			q.Answer.Given = r.Attempt
		case closed.How == ipc.ClosedAnswered && q.State == api.QuestionOpen:
			// Nobody has answered this one: it was allowed for good while it was open.
			q.State, q.Answer = api.QuestionAnswered, &api.QuestionAnswer{Decision: api.Allow, By: "a grant", At: now(), Given: r.Attempt}
		case closed.How == ipc.ClosedExpired:
			q.Expired = true
		case closed.How == ipc.ClosedWithdrawn && q.State == api.QuestionOpen:
			q.State = api.QuestionWithdrawn
		}
		more, err := q.store()
		if err != nil {
			return nil, err
		}
		ops = append(ops, more...)
	}
	return ops, nil
}

// Questions returns those of a job, in the order in which they were asked.
func (s *Conversations) Questions(ctx context.Context, id job.ID) ([]api.Question, error) {
	list, err := records[question](ctx, s.store, questionSpace(id))
	return s.shown(list), err
}

// Question returns a question of a job. The error wraps queue.ErrNotFound.
func (s *Conversations) Question(ctx context.Context, e *queue.Entry, n int) (api.Question, error) {
	q, err := s.question(ctx, e, n)
	if err != nil {
		return api.Question{}, err
	}
	return s.shown([]question{q})[0], nil
}

// Open returns the questions that can be answered: of a tenant, or of all if t is empty.
func (s *Conversations) Open(ctx context.Context, t job.Tenant) ([]api.Question, error) {
	spaces, err := s.store.Spaces(ctx, openQuestions)
	if err != nil {
		return nil, err
	}
	var list []question
	for _, space := range spaces {
		id, key, _ := strings.Cut(strings.TrimPrefix(space, openQuestions), "/")
		r, err := s.store.Record(ctx, questionSpace(job.ID(id)), key)
		if errors.Is(err, queue.ErrNotFound) {
			continue // its job was forgotten: see tidy
		}
		var q question
		if err == nil {
			err = json.Unmarshal(r.Value, &q)
		}
		if err != nil {
			return nil, fmt.Errorf("read question %s of job %s: %w", key, id, err)
		}
		if q.State == api.QuestionOpen && (t == "" || q.Tenant == t) {
			list = append(list, q)
		}
	}
	slices.SortStableFunc(list, func(a, b question) int { return a.AskedAt.Compare(b.AskedAt) })
	return s.shown(list), nil
}

// tidy forgets which questions are open of jobs that were forgotten, or cancelled while no scheduler ran.
func (s *Conversations) tidy(ctx context.Context) error {
	spaces, err := s.store.Spaces(ctx, openQuestions)
	if err != nil {
		return err
	}
	for _, space := range spaces {
		id, key, _ := strings.Cut(strings.TrimPrefix(space, openQuestions), "/")
		e, err := s.store.Get(ctx, job.ID(id))
		if err == nil {
			if e.State.Terminal() {
				s.over(ctx, &e)
			}
			_, err = s.store.Record(ctx, questionSpace(e.ID), key)
		}
		if errors.Is(err, queue.ErrNotFound) {
			err = s.apply(ctx, queue.Erase{Space: space, UpTo: openKey})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// shown returns questions as people see them: no run waits any more that is not under way.
func (s *Conversations) shown(list []question) []api.Question {
	out := make([]api.Question, len(list))
	for i := range list {
		q := list[i].Question
		if r := s.runOf(q.Job); q.Waits && (r == nil || r.Attempt != q.Attempt) {
			q.Waits, q.Until = false, nil
		}
		out[i] = q
	}
	return out
}

// question reads a question. The error wraps queue.ErrNotFound.
func (s *Conversations) question(ctx context.Context, e *queue.Entry, n int) (q question, err error) {
	r, err := s.store.Record(ctx, questionSpace(e.ID), placeKey(n))
	if err == nil {
		err = json.Unmarshal(r.Value, &q)
	}
	switch {
	case errors.Is(err, queue.ErrNotFound):
		return q, fmt.Errorf("question %d of job %s: %w", n, e.Spec.Name, queue.ErrNotFound)
	case err != nil:
		return q, fmt.Errorf("read question %d of job %s: %w", n, e.Spec.Name, err)
	}
	return q, nil
}

// check returns the answer that in is to a question, or why it is none.
func (q *question) check(in *api.AnswerQuestion) (*api.QuestionAnswer, error) {
	a := &api.QuestionAnswer{Decision: in.Decision, Text: strings.TrimSpace(in.Text), Value: in.Value, By: in.By, At: now()}
	words := len(q.Decisions) == 0
	switch d := in.Decision; {
	case q.State == api.QuestionAnswered:
		return nil, queue.Refuse("question %d of job %s was answered already by %s: %s", q.Number, q.Name, cmp.Or(q.Answer.By, "somebody"), cmp.Or(q.Answer.Decision, q.Answer.Text))
	case q.State != api.QuestionOpen:
		return nil, queue.Refuse("question %d of job %s was withdrawn", q.Number, q.Name)
	case words && in.Decision != "":
		return nil, queue.Refuse("question %d of job %s wants words, not %q", q.Number, q.Name, in.Decision)
	case words && a.Text == "" && len(a.Value) == 0:
		return nil, queue.Refuse("question %d of job %s wants words", q.Number, q.Name)
	case words:
		return a, nil
	case d == "":
		return nil, queue.Refuse("question %d of job %s wants allow or deny; words can come with that", q.Number, q.Name)
	case d != api.Allow && d != api.Deny && d != api.DenyAndStop:
		return nil, queue.Refuse("%q is no answer to question %d of job %s; answer allow, deny or deny_and_stop", in.Decision, q.Number, q.Name)
	case d != api.Allow && in.Scope != "" && in.Scope != api.GrantOnce:
		return nil, queue.Refuse("only an allow can be for more than this question")
	case d == api.Allow:
		a.Scope = cmp.Or(in.Scope, api.GrantOnce)
	}
	return a, nil
}

// rule returns what an answer allows for good; nil if it is for once.
func (q *question) rule(in *api.AnswerQuestion) (*job.AskRule, error) {
	if in.Scope == "" || in.Scope == api.GrantOnce {
		return nil, nil
	}
	if in.Pattern == "" {
		r, err := ask.Pattern(ask.Request{Kind: ask.Kind(q.Kind), Tool: q.Tool, Command: q.Command, Path: q.Path, Host: q.Host}, workspaceName)
		if err != nil {
			return nil, queue.Refuse("%v, or for good by a pattern of yours", err)
		}
		return &r, nil
	}
	r, ok := ruleOf(&api.RunGrant{Kind: api.RunGrantKind(q.Kind), Entry: in.Pattern})
	if !ok {
		return nil, queue.Refuse("question %d of job %s wants words, for which there is no pattern", q.Number, q.Name)
	}
	if errs := r.Validate(); len(errs) > 0 {
		return nil, queue.Refuse("the pattern %q: %v", in.Pattern, errs[0])
	}
	return &r, nil
}

// workspaceName stands for the workspace of a run, whose files questions name without it.
const workspaceName = "/workspace"

// Answer answers a question. The first answer counts: the error wraps queue.ErrIllegalTransition if there is one, or in is
// none, and queue.ErrNotFound.
func (s *Conversations) Answer(ctx context.Context, id job.ID, n int, in api.AnswerQuestion) (api.AnsweredQuestion, error) {
	defer s.lock(id)()
	e, err := s.store.Get(ctx, id)
	if err != nil {
		return api.AnsweredQuestion{}, err
	}
	q, err := s.question(ctx, &e, n)
	if err != nil {
		return api.AnsweredQuestion{}, err
	}
	answer, err := q.check(&in)
	if err != nil {
		return api.AnsweredQuestion{}, err
	}
	rule, err := q.rule(&in)
	if err != nil {
		return api.AnsweredQuestion{}, err
	}
	q.State, q.Answer = api.QuestionAnswered, answer
	var ops []queue.Op
	allowed := func() {}
	if rule != nil {
		if ops, allowed, err = s.grants.allowRule(ctx, &e, *rule, answer); err != nil {
			return api.AnsweredQuestion{}, err
		}
	}
	note, err := s.settle(ctx, &e, &q, ops)
	if err != nil {
		return api.AnsweredQuestion{}, fmt.Errorf("store the answer: %w", err)
	}
	allowed()
	s.feed.signal(&e, api.QuestionResolved, strconv.Itoa(n), cmp.Or(answer.Decision, answer.Text))
	return api.AnsweredQuestion{Question: q.Question, Note: note}, nil
}

// settle stores an answer with more ops, does what follows from it, and says what that is. The conversation of e is locked.
func (s *Conversations) settle(ctx context.Context, e *queue.Entry, q *question, more []queue.Op) (note string, err error) {
	r := s.runOf(e.ID)
	waits := q.Waits && r != nil && r.Attempt == q.Attempt
	denied := q.Answer.Decision != "" && q.Answer.Decision != api.Allow
	ended := e.State.Terminal()
	if !waits && (q.Expired || ended) && !denied {
		said, err := s.sayAnswer(ctx, e, q, more)
		if err == nil {
			return said.Note, nil
		}
		note = "the agent cannot be told: " + err.Error()
	}
	ops, err := q.store()
	if err == nil {
		err = s.apply(ctx, append(ops, more...)...)
	}
	if err != nil {
		return "", err
	}
	switch {
	case note != "":
	case waits:
		taken, why := s.deliver(ctx, r)
		if note = "it was given to the agent"; !taken {
			s.again(e.ID)
			note = "it waits: " + why
		}
	case !q.Expired && !ended:
		note = "it is given to the agent when it asks again"
	case q.Expired:
		note = "the agent was told no already, since nobody had answered"
	default:
		note = "the job has ended without it"
	}
	return note, nil
}

// sayAnswer stores an answer that came too late together with a message that says so: to the job whose agent has asked, or, if
// that has ended, to the one that goes on from it.
func (s *Conversations) sayAnswer(ctx context.Context, e *queue.Entry, q *question, more []queue.Op) (api.Said, error) {
	text := fmt.Sprintf("Your question was not answered in time, but it is now: %q", q.Text)
	if q.Answer.Decision != "" {
		text += "\nYou may: ask again if you still need it."
	}
	if q.Answer.Text != "" {
		text += "\nThe answer: " + q.Answer.Text
	}
	if len(q.Answer.Value) > 0 {
		text += "\nThe answer: " + string(q.Answer.Value)
	}
	to := *e
	if e.ContinuedAs != "" {
		last, unlock, err := s.latest(ctx, e.ContinuedAs)
		if err != nil {
			return api.Said{}, err
		}
		defer unlock()
		to = last
	}
	answered := *q
	answered.Told = toldBySaying
	ops, err := answered.store()
	if err != nil {
		return api.Said{}, err
	}
	return s.say(ctx, &to, api.Say{Text: text, By: q.Answer.By}, &answered, append(ops, more...)...)
}

// tellRules has runs under way told what people allow from now on. telling is held.
func (s *Grants) tellRules(ctx context.Context, e *queue.Entry, scope api.RunGrantScope) {
	for _, r := range s.runs() {
		if r.Core == 0 || r.Entry.Spec.Tenant != e.Spec.Tenant || scope != api.GrantTenant && r.Entry.WorksIn() != e.WorksIn() || !r.Entry.Spec.Ask.Asks() {
			continue
		}
		s.tellRulesTo(ctx, r)
	}
}

// tellRulesTo has a run told that. telling is held.
func (s *Grants) tellRulesTo(ctx context.Context, r *schedule.Run) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tellTime)
	defer cancel()
	rules, err := s.rules(ctx, r)
	if err == nil {
		err = s.call(ctx, r.Core, ipc.MethodTellRun, ipc.TellRun{Job: r.Entry.ID, Attempt: r.Attempt, Rules: &rules}, nil)
	}
	if err != nil {
		log := logOf(s.log, r)
		log.Warn().Err(err).Msg("the core could not be told what people allow the run: it holds from the next attempt on")
	}
}
