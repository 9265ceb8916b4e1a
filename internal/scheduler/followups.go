package scheduler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// A follow-up is a job that goes on from one that has ended: with the session of its agent, in the same folder,
// and with what somebody has said since. It is an entry of its own, so that it has a budget, a permit and a record of
// its own, and the folder is that of the first job (queue.Entry.Folder).

// goOn returns the entry that goes on from one that has ended, of whose attempts the last is given; nil: it never ran.
func goOn(e *queue.Entry, last *job.Attempt, at time.Time) queue.Entry {
	again := Again{Letter: *e, Fresh: true}
	next := again.entry(at)
	next.RequeuedFrom, next.Continues, next.Folder = "", e.ID, e.WorksIn()
	if e.ExitKind == job.ExitFailed {
		next.Feedback = e.Feedback
	}
	if policy, key := e.Spec.Duplicates(); policy != job.RunEach { // what it is told is no other job's
		next.Spec.OnDuplicate, next.Spec.Key = job.Serialize, key
	}
	next.Spec.Flow.Best = false // the worker has been chosen
	next.Choice, next.Session, next.SessionWorker, next.SessionNode = e.Choice, e.Session, e.SessionWorker, e.SessionNode
	if last == nil {
		return next
	}
	if i := slices.Index(next.Spec.Choices(), last.Choice); i >= 0 {
		next.Choice = i
	}
	session := last.Session
	if last.Outcome != nil {
		session = cmp.Or(last.Outcome.Session, session)
	}
	if session != "" {
		next.Session, next.SessionWorker, next.SessionNode = session, last.Choice.Worker, last.Node
	}
	return next
}

// lastAttempt returns the last attempt of a job; nil without one.
func lastAttempt(ctx context.Context, store queue.Reader, id job.ID) (*job.Attempt, error) {
	attempts, err := store.Attempts(ctx, id)
	if err != nil || len(attempts) == 0 {
		return nil, err
	}
	return &attempts[len(attempts)-1], nil
}

// latest returns the job that goes on last from a job, itself if none does, with its conversation locked.
func (s *Conversations) latest(ctx context.Context, id job.ID) (e queue.Entry, unlock func(), err error) {
	for {
		unlock = s.lock(id)
		if e, err = s.store.Get(ctx, id); err == nil && e.ContinuedAs == "" {
			return e, unlock, nil
		}
		unlock()
		if err != nil {
			return e, nil, err
		}
		id = e.ContinuedAs
	}
}

// saidBefore returns the message of an id that was said to a job, to the one before it, or to those that go on from it;
// nil: there is none.
func (s *Conversations) saidBefore(ctx context.Context, id job.ID, message string) (found *api.Message, err error) {
	e, err := s.store.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	jobs := []job.ID{e.Continues, e.ID}
	for next := e.ContinuedAs; next != ""; next = e.ContinuedAs {
		jobs = append(jobs, next)
		if e, err = s.store.Get(ctx, next); err != nil {
			return nil, err
		}
	}
	for _, id := range jobs {
		list, err := Messages(ctx, s.store, id)
		if err != nil {
			return nil, err
		}
		if i := slices.IndexFunc(list, func(m api.Message) bool { return m.ID == message }); i >= 0 {
			found = &list[i]
		}
	}
	return found, nil
}

// newFollowUp is a follow-up that is about to be stored, with what begins it.
type newFollowUp struct {
	batch queue.Batch
	entry queue.Entry
	ops   []queue.Op // of its conversation, and of that before it
	first message    // the last of those that it begins with
}

// beginWith returns the follow-up of a job that begins with what the job was not told, and with what somebody says now.
// list has the job's messages, answered is a question of its that is answered by that, or nil.
func (s *Conversations) beginWith(ctx context.Context, e *queue.Entry, list []message, answered *question, more ...message) (*newFollowUp, error) {
	at := now()
	last, err := lastAttempt(ctx, s.store, e.ID)
	if err != nil {
		return nil, err
	}
	f := &newFollowUp{entry: goOn(e, last, at)}
	f.batch = queue.Batch{ID: job.NewBatchID(), Source: "submitted: follow-up of " + string(e.ID), CreatedAt: at}
	f.entry.Batch = f.batch.ID
	var begin []message
	for i := range list {
		m := &list[i]
		if m.State != api.MessageQueued || m.Begins {
			continue
		}
		begin = append(begin, *m)
		m.State, m.Reason, m.FollowUp = api.MessageSuperseded, "the job ended before it was told", f.entry.ID
		if err := f.write(messageSpace(e.ID), m.Number, m); err != nil {
			return nil, err
		}
	}
	waiting := 0
	for i, m := range append(begin, more...) {
		m.Number, m.Job, m.State, m.Attempt, m.Reason, m.Refused, m.Begins = i+1, f.entry.ID, api.MessageQueued, 0, "", 0, true
		if waiting += encodedLen(m.Text); waiting > maxWaiting {
			return nil, queue.Refuse("what waits for job %s would have %d bytes, at most %d are kept", e.Spec.Name, waiting, maxWaiting)
		}
		if err := f.write(messageSpace(f.entry.ID), m.Number, &m); err != nil {
			return nil, err
		}
		f.first = m
	}
	questions, err := records[question](ctx, s.store, questionSpace(e.ID))
	if err != nil {
		return nil, err
	}
	n := 0
	for i := range questions {
		q := &questions[i]
		if answered != nil && answered.Number == q.Number {
			q = answered
		}
		if q.stands() {
			n++
			if err := f.write(questionSpace(f.entry.ID), n, q.of(f.entry.ID, n)); err != nil {
				return nil, err
			}
		}
	}
	f.ops = append(f.ops, queue.Erase{Space: toldSpace(e.ID), UpTo: toldKey})
	return f, nil
}

func (f *newFollowUp) write(space string, n int, v any) error {
	op, err := write(space, n, v)
	f.ops = append(f.ops, op)
	return err
}

// startFollowUp makes a follow-up durable, with other ops, and has it run.
func (s *Conversations) startFollowUp(ctx context.Context, f *newFollowUp, more ...queue.Op) error {
	entries := []queue.Entry{f.entry}
	return s.admit(ctx, &f.batch, entries, func(ctx context.Context) error {
		return s.apply(ctx, slices.Concat([]queue.Op{queue.Add{Batch: f.batch, Entries: entries}}, f.ops, more)...)
	})
}

// over finds what follows for a conversation when a claim of its job has ended.
func (s *Conversations) over(ctx context.Context, e *queue.Entry) {
	if cannotHear(e) != nil {
		return
	}
	defer s.lock(e.ID)()
	if !s.afterEnd(ctx, e.ID) {
		s.log.Warn().Str("job", string(e.ID)).Msg("the job has ended, and what goes on from it begins when its tenant may queue more jobs")
		s.again(e.ID)
	}
}

// afterEnd is over of a job whose conversation is locked. It reports false if it is to be tried again.
func (s *Conversations) afterEnd(ctx context.Context, id job.ID) (done bool) {
	err := s.overLocked(ctx, id)
	switch {
	case err == nil, errors.Is(err, queue.ErrNotFound):
		return true
	case errors.Is(err, queue.ErrQueueFull):
		return false
	}
	s.log.Error().Err(err).Str("job", string(id)).Msg("look at what people have said to a job that has ended, or whose attempt has")
	return true
}

func (s *Conversations) overLocked(ctx context.Context, id job.ID) error {
	if taken, held, err := s.forPerson(ctx, id); taken || err != nil {
		if !held {
			s.again(id)
		}
		return err
	}
	list, err := records[message](ctx, s.store, messageSpace(id))
	if err != nil {
		return err
	}
	waits := slices.ContainsFunc(list, func(m message) bool { return m.State == api.MessageQueued })
	questions, err := records[question](ctx, s.store, questionSpace(id))
	if err != nil || len(list)+len(questions) == 0 {
		return err
	}
	e, err := s.store.Get(ctx, id)
	if err != nil {
		return err
	}
	switch {
	case e.Held == job.HeldForWords && waits:
		defer s.dispatch()
		return s.apply(ctx, queue.Ready{ID: id, Now: now()})
	case !e.State.Terminal():
		return nil
	case waits:
		return s.leftUntold(ctx, &e, list, questions)
	}
	return s.conclude(ctx, &e, questions)
}

// leftUntold has a follow-up begin with what a job that has ended by itself was not told. A follow-up that ends without having
// read what it began with is the last.
func (s *Conversations) leftUntold(ctx context.Context, e *queue.Entry, list []message, questions []question) error {
	goesOn := slices.ContainsFunc(list, func(m message) bool { return m.State == api.MessageQueued && !m.Begins })
	if goesOn && e.ContinuedAs == "" && (e.ExitKind == job.ExitSucceeded || e.ExitKind == job.ExitFailed) {
		f, err := s.beginWith(ctx, e, list, nil)
		if err == nil {
			err = s.startFollowUp(ctx, f)
		}
		if err != nil {
			return fmt.Errorf("go on from job %s with what it was not told: %w", e.ID, err) // a later scheduler tries again, if this one does not
		}
		s.log.Info().Str("job", string(e.ID)).Str("follow_up", string(f.entry.ID)).Msg("the job ended before it was told something: a follow-up goes on with that")
	}
	var ops []queue.Op
	for i := range list {
		m := &list[i]
		if m.State != api.MessageQueued {
			continue
		}
		m.State, m.Reason = api.MessageSuperseded, "the job ended before it was told"
		op, err := write(messageSpace(e.ID), m.Number, m)
		if err != nil {
			return err
		}
		ops = append(ops, op)
	}
	return s.conclude(ctx, e, questions, ops...)
}

// conclude stores ops about a job that has ended, and that nobody is to be told what was said to it. Of one that was cancelled
// nothing is asked any more.
func (s *Conversations) conclude(ctx context.Context, e *queue.Entry, questions []question, ops ...queue.Op) error {
	if e.State == job.Cancelled || e.ExitKind == job.ExitCancelled {
		more, err := withdrawAll(e.ID, questions)
		if err != nil {
			return err
		}
		ops = append(ops, more...)
	}
	return s.apply(ctx, append(ops, queue.Erase{Space: toldSpace(e.ID), UpTo: toldKey})...)
}

// toldSpace is where it is noted that something was said to a job that has not ended.
func toldSpace(id job.ID) string { return toldSpaces + string(id) }

const (
	toldSpaces = "told/"
	toldKey    = "told"
)

// recallTold finds what follows from the ends of jobs that an earlier scheduler has not looked at.
func (s *Conversations) recallTold(ctx context.Context) error {
	spaces, err := s.store.Spaces(ctx, toldSpaces)
	if err != nil {
		return err
	}
	for _, space := range spaces {
		id := job.ID(strings.TrimPrefix(space, toldSpaces))
		e, err := s.store.Get(ctx, id)
		switch {
		case errors.Is(err, queue.ErrNotFound): // it was forgotten
			err = s.apply(ctx, queue.Erase{Space: space, UpTo: toldKey})
		case err == nil && e.State.Terminal():
			s.over(ctx, &e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
