package scheduler

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// A person takes a job over and hands it back:
//
//	job/ID/person 000001   who has taken it over last, and whether it was handed back
//	persons/ID     open    it is in a person's hands, or about to be
//
// It is stored before the run hears of it. From then on the job is on its way to be held
// (job.HeldByPerson): pursue stops the run, holds the job where it stands in the queue, and is
// called again until it does, also by a later scheduler. What people say meanwhile waits.

// person is who has taken a job over last, as it is stored.
type person struct {
	By string    `json:"by"`
	At time.Time `json:"at"`
	// Back is how it came back; nil: they have it still.
	Back *backAgain `json:"back,omitempty"`
	// Before is the id of the Handback by which who had it before has given it back.
	Before string `json:"before,omitempty"`
}

type backAgain struct {
	ID string    `json:"id"` // of the Handback
	At time.Time `json:"at"`
}

func personSpace(id job.ID) string { return queue.JobSpace(id, "person") }

const (
	inHands  = "persons/" // spaces of jobs that are in somebody's
	handsKey = "open"
)

// person returns who has a job in their hands, or had it last; nil if nobody ever had.
func (s *Conversations) person(ctx context.Context, id job.ID) (*person, error) {
	r, err := s.store.Record(ctx, personSpace(id), placeKey(1))
	if errors.Is(err, queue.ErrNotFound) {
		return nil, nil
	}
	p := new(person)
	if err == nil {
		err = json.Unmarshal(r.Value, p)
	}
	if err != nil {
		return nil, fmt.Errorf("read who has job %s: %w", id, err)
	}
	return p, nil
}

// has returns the person who has a job in their hands, or is about to; nil if nobody has.
func (s *Conversations) has(ctx context.Context, id job.ID) (*person, error) {
	p, err := s.person(ctx, id)
	if err != nil || p == nil || p.Back != nil {
		return nil, err
	}
	return p, nil
}

// store returns the ops that store who has a job.
func (p *person) store(id job.ID) ([]queue.Op, error) {
	op, err := write(personSpace(id), 1, p)
	if err != nil {
		return nil, err
	}
	if p.Back == nil {
		return []queue.Op{op, queue.Write{Record: queue.Record{Space: inHands + string(id), Key: handsKey, Value: json.RawMessage(`true`), At: p.At}}}, nil
	}
	return []queue.Op{op, queue.Erase{Space: inHands + string(id), UpTo: handsKey}}, nil
}

// letGo returns the ops that store that nobody has a job, whom nobody had to hand it back.
func letGo(id job.ID) []queue.Op {
	return []queue.Op{queue.Erase{Space: personSpace(id), UpTo: placeKey(1)}, queue.Erase{Space: inHands + string(id), UpTo: handsKey}}
}

// name is how the person is called.
func (p *person) name() string { return cmp.Or(p.By, "somebody") }

// hold returns the op that holds a job for the person.
func (p *person) hold(id job.ID) queue.Op {
	return queue.Keep{ID: id, For: job.HeldByPerson, Waiting: job.Waiting{Reason: job.WaitPerson,
		Text: fmt.Sprintf("in the hands of %s since %s", p.name(), p.At.UTC().Format("2006-01-02 15:04 MST"))}.String()}
}

// cannotTake says why a person cannot take a job over that nobody has; nil if they can.
func cannotTake(e *queue.Entry) error {
	name := e.Spec.Name
	switch {
	case e.State.Terminal():
		return queue.Refuse("job %s has ended, and nothing goes on with it: its folder can be worked in, and `scheduler tell` has its agent go on", name)
	case e.CancelRequested:
		return queue.Refuse("job %s is being cancelled", name)
	case e.State == job.Dispatched:
		return nil
	case e.Held == job.HeldForApproval:
		return queue.Refuse("job %s waits for somebody to look at what it has made; reject it first, then it can be taken over", name)
	case e.Held != "" && e.Held != job.HeldForWords || e.Session == "":
		return queue.Refuse("job %s has no session yet that a person could go on with", name)
	}
	return nil
}

// TakeOver puts a job into a person's hands: its run is stopped as Interrupt does that, and it is held until HandBack.
// The answer may come before the run has ended. It may be repeated by the same person. The error wraps queue.ErrNotFound or
// queue.ErrIllegalTransition.
func (s *Conversations) TakeOver(ctx context.Context, id job.ID, in api.Takeover) (api.TakenOver, error) {
	defer s.lock(id)()
	e, err := s.store.Get(ctx, id)
	if err != nil {
		return api.TakenOver{}, err
	}
	if err := cannotHear(&e); err != nil {
		return api.TakenOver{}, err
	}
	before, err := s.person(ctx, id)
	p := before
	if p != nil && p.Back != nil {
		p = nil
	}
	switch {
	case err != nil:
		return api.TakenOver{}, err
	case p != nil && p.By != in.By && !e.State.Terminal():
		return api.TakenOver{}, queue.Refuse("job %s is in the hands of %s since %s; `scheduler handback` lets it go on", e.Spec.Name, p.name(), timeText(p.At))
	case p == nil || e.State.Terminal():
		if err := cannotTake(&e); err != nil {
			return api.TakenOver{}, err
		}
		p = &person{By: in.By, At: now()}
		if before != nil && before.Back != nil {
			p.Before = before.Back.ID
		}
		ops, err := p.store(id)
		if err == nil {
			err = s.apply(ctx, ops...)
		}
		if err != nil {
			return api.TakenOver{}, fmt.Errorf("store who takes job %s over: %w", e.Spec.Name, err)
		}
		s.feed.signal(&e, api.JobTaken, "", p.name())
	}
	held, err := s.pursue(ctx, id, p)
	if err != nil {
		return api.TakenOver{}, err
	}
	if !held {
		s.again(id)
	}
	return api.TakenOver{Job: id, By: p.By, Since: p.At, Held: held}, nil
}

// stopAgain is how often a run is told to stop for a person that has begun another turn instead.
const stopAgain = 15 * time.Second

// stopping is what a run was told.
type stopping struct {
	attempt int
	at      time.Time
}

// pursue does what brings a job into the hands of the person whose it is to be, and reports whether it is there. The
// conversation is locked. The error is one of the person's if it can never be, who then does not have it.
func (s *Conversations) pursue(ctx context.Context, id job.ID, p *person) (held bool, err error) {
	e, err := s.store.Get(ctx, id)
	switch {
	case err != nil:
		return false, err
	case e.Held == job.HeldByPerson:
		return true, nil
	case e.State == job.Dispatched:
		return false, s.stopFor(ctx, &e, p)
	case e.State == job.Queued && (e.Held == "" || e.Held == job.HeldForWords):
		if err := s.apply(ctx, p.hold(id)); err != nil {
			if errors.Is(err, queue.ErrIllegalTransition) { // it was claimed meanwhile
				return false, nil
			}
			return false, fmt.Errorf("hold job %s: %w", e.Spec.Name, err)
		}
		s.forget(id)
		s.feed.publishEntry(ctx, id)
		return true, nil
	}
	// It came to its end, or to people, before the run heard of the person.
	s.forget(id)
	if err := s.apply(ctx, letGo(id)...); err != nil {
		return false, err
	}
	return false, queue.Refuse("job %s is %s: its run was over before it could be taken over", e.Spec.Name, StateOf(&e))
}

// stopFor has the run of a job stop for a person.
func (s *Conversations) stopFor(ctx context.Context, e *queue.Entry, p *person) error {
	r := s.runOf(e.ID)
	if r == nil {
		return nil // it begins, or has ended
	}
	s.mu.Lock()
	last := s.stops[e.ID]
	s.mu.Unlock()
	if last.attempt == r.Attempt && now().Before(last.at.Add(stopAgain)) {
		return nil
	}
	answer, err := s.tellRun(ctx, r, ipc.TellRun{Interrupt: "taken over by " + p.name()})
	switch {
	case err != nil:
		return nil // it is tried again
	case answer.Never:
		err := queue.Refuse("job %s cannot be taken over while it runs: %s", e.Spec.Name, answer.Why)
		return errors.Join(err, s.apply(ctx, letGo(e.ID)...))
	case answer.Taken:
		s.mu.Lock()
		s.stops[e.ID] = stopping{r.Attempt, now()}
		s.mu.Unlock()
	}
	return nil
}

// forget drops what the run of a job was told.
func (s *Conversations) forget(id job.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.stops, id)
}

// workedBetween is what the agent is told when it has its job again.
func workedBetween(p *person, text string) string {
	note := fmt.Sprintf("A person (%s) has taken this job over and worked in your folder, and maybe in this session, since you were stopped. "+
		"Look at what is there now before you go on with it.", p.name())
	return strings.TrimSpace(note + "\n\n" + text)
}

// HandBack lets a job go on that a person has taken over: with its next attempt, in its session and folder. It may be repeated
// with the same id. The error wraps queue.ErrNotFound or queue.ErrIllegalTransition.
func (s *Conversations) HandBack(ctx context.Context, id job.ID, in api.Handback) (api.HandedBack, error) {
	defer s.lock(id)()
	e, err := s.store.Get(ctx, id)
	if err != nil {
		return api.HandedBack{}, err
	}
	p, err := s.person(ctx, id)
	switch {
	case err != nil:
		return api.HandedBack{}, err
	case p != nil && in.ID != "" && in.ID == p.Before, // it comes late, and is not about who has it now
		p != nil && p.Back != nil && (in.ID != "" && in.ID == p.Back.ID || in.Text == "" && !e.State.Terminal()):
		return api.HandedBack{Job: id, Note: "it was handed back before"}, nil
	case e.State.Terminal():
		return api.HandedBack{}, queue.Refuse("job %s has ended: `scheduler tell` has its agent go on", e.Spec.Name)
	case p == nil || p.Back != nil:
		return api.HandedBack{}, queue.Refuse("job %s is in nobody's hands: `scheduler tell` says something to its agent", e.Spec.Name)
	}
	p.Back = &backAgain{ID: in.ID, At: now()}
	ops, err := p.store(id)
	if err != nil {
		return api.HandedBack{}, err
	}
	list, err := records[message](ctx, s.store, messageSpace(id))
	if err != nil {
		return api.HandedBack{}, err
	}
	m, said, err := newMessage(&e, list, api.Say{By: in.By, Text: workedBetween(p, in.Text)})
	switch {
	case err == nil:
		ops = append(ops, said...)
	case in.Text != "" || !errors.Is(err, queue.ErrIllegalTransition):
		return api.HandedBack{}, err
	} // else it was told too much already, and goes on without these words
	if e.Held == job.HeldByPerson {
		ops = append(ops, queue.Ready{ID: id, Now: p.Back.At})
	}
	if err := s.apply(ctx, ops...); err != nil {
		return api.HandedBack{}, fmt.Errorf("hand job %s back: %w", e.Spec.Name, err)
	}
	s.forget(id)
	s.feed.signal(&e, api.JobHandedBack, "", cmp.Or(in.By, "somebody"))
	s.feed.publishEntry(ctx, id)
	s.dispatch()
	s.again(id) // if its run goes on, it is told now
	return api.HandedBack{Job: id, Message: m.Number, Note: "it goes on"}, nil
}

// recallPersons goes on with what an earlier scheduler has begun, and forgets whose jobs have ended.
func (s *Conversations) recallPersons(ctx context.Context) error {
	spaces, err := s.store.Spaces(ctx, inHands)
	if err != nil {
		return err
	}
	for _, space := range spaces {
		id := job.ID(strings.TrimPrefix(space, inHands))
		e, err := s.store.Get(ctx, id)
		switch {
		case errors.Is(err, queue.ErrNotFound) || err == nil && e.State.Terminal():
			err = s.apply(ctx, queue.Erase{Space: space, UpTo: handsKey})
		case err == nil:
			s.again(id)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// forPerson goes on with what a person who takes the job over waits for. It reports whether there is one, and whether they have it.
func (s *Conversations) forPerson(ctx context.Context, id job.ID) (taken, held bool, err error) {
	p, err := s.has(ctx, id)
	if err != nil || p == nil {
		return false, false, err
	}
	held, err = s.pursue(ctx, id, p)
	if errors.Is(err, queue.ErrIllegalTransition) {
		return false, false, nil // they do not get it
	}
	return true, held, err
}
