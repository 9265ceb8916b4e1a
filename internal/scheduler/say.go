package scheduler

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/schedule"
)

// Say stores a message for a job's agent and gives it to the run that is under way. One that nobody can be given yet waits
// for the next attempt. If the job has ended, the message begins a follow-up, which is a job of its own, or is for the one
// that goes on already. The error wraps queue.ErrNotFound, queue.ErrIllegalTransition, or is one of Scheduler.Submit.
func (s *Conversations) Say(ctx context.Context, id job.ID, in api.Say) (api.Said, error) {
	if in.ID != "" && !ValidMessageID(in.ID) {
		return api.Said{}, queue.Refuse("%q is no id of a message; give 1 to 100 of a-z A-Z 0-9 . _ -", in.ID)
	}
	e, unlock, err := s.latest(ctx, id)
	if err != nil {
		return api.Said{}, err
	}
	defer unlock()
	if in.ID != "" {
		m, err := s.saidBefore(ctx, id, in.ID)
		switch {
		case err != nil:
			return api.Said{}, err
		case m != nil && m.Text != in.Text:
			return api.Said{}, queue.Refuse("the message %s says something else already", in.ID)
		case m != nil:
			return api.Said{Message: *m, Note: "it was said before"}, nil
		}
	}
	return s.say(ctx, &e, in, nil)
}

// say is Say to that job, whose conversation is locked. More is stored in the same transaction; answered is a question of an
// earlier job that is answered by it, or nil.
func (s *Conversations) say(ctx context.Context, e *queue.Entry, in api.Say, answered *question, more ...queue.Op) (api.Said, error) {
	if err := cannotHear(e); err != nil {
		return api.Said{}, err
	}
	list, err := records[message](ctx, s.store, messageSpace(e.ID))
	if err != nil {
		return api.Said{}, err
	}
	if e.State.Terminal() {
		return s.followUp(ctx, e, list, messageOf(e, list, in), answered, more)
	}
	if answered != nil && answered.Job != e.ID {
		there, err := records[question](ctx, s.store, questionSpace(e.ID))
		if err != nil {
			return api.Said{}, err
		}
		op, err := write(questionSpace(e.ID), len(there)+1, answered.of(e.ID, len(there)+1))
		if err != nil {
			return api.Said{}, err
		}
		more = append(more, op)
	}
	m, ops, err := newMessage(e, list, in)
	if err != nil {
		return api.Said{}, err
	}
	p, err := s.has(ctx, e.ID)
	if err != nil {
		return api.Said{}, err
	}
	ops = append(ops, more...)
	waits := e.Held == job.HeldForWords && p == nil
	if waits {
		ops = append(ops, queue.Ready{ID: e.ID, Now: m.At})
	}
	if err := s.apply(ctx, ops...); err != nil {
		return api.Said{}, fmt.Errorf("store the message: %w", err)
	}
	note := "it is told with its next attempt"
	switch {
	case p != nil:
		note = "it waits: the job is in the hands of " + p.name()
	case waits:
		note = "it goes on now"
		s.feed.publishEntry(ctx, e.ID)
		s.dispatch()
	case e.State == job.Dispatched:
		taken, why := false, "no attempt is under way"
		if r := s.runOf(e.ID); r != nil {
			taken, why = s.deliver(ctx, r)
		}
		if note = "it was given to the agent"; !taken {
			note = "it waits: " + why
			s.again(e.ID)
		}
		if after, err := records[message](ctx, s.store, messageSpace(e.ID)); err == nil && len(after) >= m.Number {
			m = after[m.Number-1]
		}
	}
	return api.Said{Message: m.Message, Note: note}, nil
}

// messageOf returns a message for the agent of a job whose messages are list.
func messageOf(e *queue.Entry, list []message, in api.Say) message {
	return message{Message: api.Message{
		Number: len(list) + 1, ID: cmp.Or(in.ID, uuid.NewString()), Job: e.ID, From: in.By, Text: in.Text, State: api.MessageQueued, At: now(),
	}}
}

// newMessage returns a message for the agent of a job that has not ended, whose messages are list, and the ops that store it.
func newMessage(e *queue.Entry, list []message, in api.Say) (m message, ops []queue.Op, err error) {
	if len(list) >= maxMessages {
		return m, nil, queue.Refuse("job %s was told %d messages, which is the maximum", e.Spec.Name, len(list))
	}
	waiting := encodedLen(in.Text)
	for i := range list {
		if list[i].State == api.MessageQueued {
			waiting += encodedLen(list[i].Text)
		}
	}
	if waiting > maxWaiting {
		return m, nil, queue.Refuse("what waits for job %s would have %d bytes, at most %d are kept; say it when it has read the rest", e.Spec.Name, waiting, maxWaiting)
	}
	m = messageOf(e, list, in)
	op, err := write(messageSpace(e.ID), m.Number, &m)
	if err != nil {
		return m, nil, err
	}
	return m, []queue.Op{op, queue.Write{Record: queue.Record{Space: toldSpace(e.ID), Key: toldKey, Value: json.RawMessage(`true`), At: m.At}}}, nil
}

// followUp has a job go on that has ended, with what somebody says and what it was not told before.
func (s *Conversations) followUp(ctx context.Context, e *queue.Entry, list []message, m message, answered *question, more []queue.Op) (api.Said, error) {
	f, err := s.beginWith(ctx, e, list, answered, m)
	if err != nil {
		return api.Said{}, err
	}
	if err := s.startFollowUp(ctx, f, more...); err != nil {
		return api.Said{}, fmt.Errorf("go on from job %s: %w", e.Spec.Name, err)
	}
	return api.Said{Message: f.first.Message, Note: fmt.Sprintf("the job had ended; job %s goes on from it", f.entry.ID)}, nil
}

// give returns the messages that an attempt is to be told, and notes that it is. Those that an earlier attempt has read are
// told again to an agent that begins anew, and to each those that its job began with.
func (s *Conversations) give(ctx context.Context, r *schedule.Run) ([]ipc.Message, error) {
	e, attempt := &r.Entry, r.Attempt
	list, err := records[message](ctx, s.store, messageSpace(e.ID))
	if err != nil {
		return nil, err
	}
	out, err := s.opening(ctx, e, list)
	if err != nil {
		return nil, err
	}
	cut, fresh := false, r.Resume() == ""
	given := func(m message) bool { return m.Attempt > 0 && m.Attempt < attempt && m.State != api.MessageFolded }
	if attempt > 1 && slices.ContainsFunc(list, given) {
		if cut, err = s.wasCut(ctx, e.ID, attempt-1); err != nil {
			return nil, err
		}
	}
	var ops []queue.Op
	for i := range list {
		m := &list[i]
		lost := cut && m.State == api.MessageDelivered && m.Attempt == attempt-1
		again := m.Attempt < attempt && m.State != api.MessageSuperseded && (m.Begins || fresh)
		if m.State != api.MessageQueued && !lost && !again || m.Refused == attempt {
			continue
		}
		out = append(out, ipc.Message{ID: m.ID, From: m.From, Text: m.Text, Again: given(*m) && cut && !fresh, Unread: m.Begins || given(*m) && !cut})
		if m.Attempt != attempt {
			m.Attempt, m.State, m.SettledAt = attempt, api.MessageQueued, nil
			op, err := write(messageSpace(e.ID), m.Number, m)
			if err != nil {
				return nil, err
			}
			ops = append(ops, op)
		}
	}
	if len(ops) > 0 {
		err = s.apply(ctx, ops...)
	}
	return out, err
}

// opening returns what a follow-up that was requeued begins with, whose own record of messages is list: it was said to the
// job that it does again.
func (s *Conversations) opening(ctx context.Context, e *queue.Entry, list []message) (out []ipc.Message, err error) {
	before, begins := *e, func(m message) bool { return m.Begins }
	for before.Continues != "" && before.Continues == before.RequeuedFrom && !slices.ContainsFunc(list, begins) {
		if before, err = s.store.Get(ctx, before.Continues); err != nil {
			return nil, err
		}
		if list, err = records[message](ctx, s.store, messageSpace(before.ID)); err != nil {
			return nil, err
		}
	}
	if before.ID == e.ID {
		return nil, nil
	}
	for _, m := range list {
		if m.Begins {
			out = append(out, ipc.Message{ID: m.ID, From: m.From, Text: m.Text, Unread: true})
		}
	}
	return out, nil
}

// wasCut reports whether an attempt did not come to its own end, so that what its program had may be in no session.
func (s *Conversations) wasCut(ctx context.Context, id job.ID, attempt int) (bool, error) {
	attempts, err := s.store.Attempts(ctx, id)
	if err != nil || attempt > len(attempts) {
		return false, err
	}
	a := &attempts[attempt-1]
	return a.Lost || a.Outcome == nil || a.Outcome.Class == job.Crash, nil
}

// submit completes what an attempt begins with. What is said after that is given it when it runs.
func (s *Conversations) submit(ctx context.Context, r *schedule.Run, in *ipc.SubmitJob) {
	if cannotHear(&r.Entry) != nil {
		return
	}
	defer s.lock(r.Entry.ID)()
	var err error
	if in.Messages, err = s.give(ctx, r); err == nil {
		in.Answered, err = s.answered(ctx, r)
	}
	if err != nil {
		log := logOf(s.log, r)
		log.Error().Err(err).Msg("what people have said cannot be read: the run begins without")
	}
}
