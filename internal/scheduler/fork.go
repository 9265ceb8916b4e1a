package scheduler

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// Fork submits a job that begins with a copy of another one's work, in a folder of its own, and with a copy of the session of
// its agent, which is told something. The other one stays as it is. The error wraps queue.ErrNotFound,
// queue.ErrIllegalTransition, or is one of Scheduler.Submit.
func (s *Conversations) Fork(ctx context.Context, id job.ID, in api.Fork) (api.Said, error) {
	in.ID = cmp.Or(in.ID, uuid.NewString())
	if !ValidMessageID(in.ID) {
		return api.Said{}, queue.Refuse("%q is no id of a message; give 1 to 100 of a-z A-Z 0-9 . _ -", in.ID)
	}
	defer s.lock(id)()
	e, err := s.store.Get(ctx, id)
	if err != nil {
		return api.Said{}, err
	}
	space := queue.JobSpace(id, "forks")
	switch r, err := s.store.Record(ctx, space, in.ID); {
	case err == nil:
		return s.forkedBefore(ctx, r, in.Text)
	case !errors.Is(err, queue.ErrNotFound):
		return api.Said{}, err
	}
	fork, err := s.forkOf(ctx, &e, in.Name)
	if err != nil {
		return api.Said{}, err
	}
	m := message{Begins: true, Message: api.Message{Number: 1, ID: in.ID, Job: fork.ID, From: in.By, Text: in.Text, State: api.MessageQueued, At: fork.CreatedAt}}
	op, err := write(messageSpace(fork.ID), 1, &m)
	if err != nil {
		return api.Said{}, err
	}
	made, err := json.Marshal(fork.ID)
	if err != nil {
		return api.Said{}, err
	}
	f := &newFollowUp{batch: queue.Batch{ID: fork.Batch, Source: "submitted: fork of " + string(id), CreatedAt: fork.CreatedAt}, entry: fork}
	f.ops = []queue.Op{op, queue.Write{Once: true, Record: queue.Record{Space: space, Key: in.ID, Value: made, At: fork.CreatedAt}}}
	if err := s.startFollowUp(ctx, f); err != nil {
		return api.Said{}, fmt.Errorf("fork job %s: %w", e.Spec.Name, err)
	}
	return api.Said{Message: m.Message, Note: fmt.Sprintf("job %s (%s) begins with a copy of it", fork.ID, fork.Spec.Name)}, nil
}

// forkedBefore returns what the fork of a record was told.
func (s *Conversations) forkedBefore(ctx context.Context, r queue.Record, text string) (api.Said, error) {
	var fork job.ID
	if err := json.Unmarshal(r.Value, &fork); err != nil {
		return api.Said{}, fmt.Errorf("read %s of %s: %w", r.Key, r.Space, err)
	}
	list, err := Messages(ctx, s.store, fork)
	switch {
	case err != nil:
		return api.Said{}, err
	case len(list) == 0:
		return api.Said{}, queue.Refuse("job %s was made by %s, and is forgotten", fork, r.Key)
	case list[0].Text != text:
		return api.Said{}, queue.Refuse("the message %s says something else already", r.Key)
	}
	return api.Said{Message: list[0], Note: "it was made before"}, nil
}

// forkOf returns the entry that begins with copies of a job's work and session.
func (s *Conversations) forkOf(ctx context.Context, e *queue.Entry, name job.Name) (queue.Entry, error) {
	if err := cannotHear(e); err != nil {
		return queue.Entry{}, err
	}
	if name == "" {
		base := string(e.Spec.Name)
		if i := strings.IndexAny(base, "@+"); i > 0 { // a part of a workflow's job
			base = base[:i]
		}
		name = job.Name(base + "-fork")
	}
	last, err := lastAttempt(ctx, s.store, e.ID)
	if err != nil {
		return queue.Entry{}, err
	}
	later := *e // the last that goes on from it
	for later.ContinuedAs != "" {
		if later, err = s.store.Get(ctx, later.ContinuedAs); err != nil {
			return queue.Entry{}, err
		}
	}
	fork := goOn(e, last, now())
	switch {
	case job.ValidName(string(name)) != nil:
		return queue.Entry{}, queue.Refuse("the name of the fork: %v; give it another", job.ValidName(string(name)))
	case e.State == job.Dispatched:
		return queue.Entry{}, queue.Refuse("job %s is %s: its work and session change; interrupt it, or wait for its end", e.Spec.Name, StateOf(e))
	case later.State == job.Dispatched:
		return queue.Entry{}, queue.Refuse("job %s goes on as job %s, which is %s: its work and session change; interrupt that, or wait for its end", e.Spec.Name, later.ID, StateOf(&later))
	case e.Spec.Workspace.Isolation == job.Direct:
		return queue.Entry{}, queue.Refuse("job %s works in %s itself, of which there is no second; submit another job", e.Spec.Name, e.Spec.Workspace.Path)
	case fork.Session == "":
		return queue.Entry{}, queue.Refuse("job %s has left no session to go on from; submit another job", e.Spec.Name)
	case !s.kinds.traits(fork.SessionWorker).Forks:
		return queue.Entry{}, queue.Refuse("worker %s cannot go on from a copy of a session; those that can are %s", fork.SessionWorker, strings.Join(s.kinds.forking(), ", "))
	}
	fork.Batch = job.NewBatchID()
	fork.Continues, fork.Folder, fork.ForkedFrom = "", "", e.ID
	fork.Spec.Name, fork.Spec.Trace = name, NewTrace()
	fork.Spec.OnDuplicate, fork.Spec.Key, fork.Spec.Turn = job.RunEach, "", ""
	return fork, nil
}
