package scheduler

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/supervisor"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/schedule"
)

// Conversations are what people say to the agents of jobs, and what these ask people. All of it is in the store before an
// agent, or a person, hears of it:
//
//	job/ID/messages   NUMBER   a message, and what became of it
//	job/ID/questions  NUMBER   a question, and its answer
//	questions/ID/NUMBER        there is such a question that is open
//	told/ID                    something was said to it before it had ended
//
// A message is given to an attempt after the store says to which: so one that was on its way when the attempt was cut short
// is known, and given to the next one as such (ipc.Message.Again). A question outlives the attempt that has asked it.
// What is said to a job that has ended begins another one, which goes on from it: see goOn.
type Conversations struct {
	store      queue.Store
	feed       *Feed
	log        zerolog.Logger
	grants     *Grants
	kinds      kinds
	runs       func() []*schedule.Run
	call       func(ctx context.Context, core schedule.CoreID, method string, params, result any) error
	flying     func(c *supervisor.Core, id job.ID, attempt int) (queue.Entry, error)
	dispatch   func() // has the dispatcher look at the queue
	admit      func(ctx context.Context, b *queue.Batch, entries []queue.Entry, store func(context.Context) error) error
	onQuestion func(Question) // may be nil

	wake bell

	mu    sync.Mutex // guards what follows
	due   map[job.ID]bool
	locks map[job.ID]*jobLock
	stops map[job.ID]stopping // what runs were told whose jobs people take over
}

// jobLock keeps the order of what happens to one conversation.
type jobLock struct {
	sync.Mutex
	users int
}

// Bounds of a conversation.
const (
	maxMessages  = 1000      // of a job
	maxWaiting   = 128 << 10 // bytes, as JSON, of those that an attempt is yet to be told: it begins with all of them
	maxQuestions = 256       // of a job
)

// lock returns what unlocks the conversation of a job.
func (s *Conversations) lock(id job.ID) (unlock func()) {
	s.mu.Lock()
	l := s.locks[id]
	if l == nil {
		l = &jobLock{}
		s.locks[id] = l
	}
	l.users++
	s.mu.Unlock()
	l.Lock()
	return func() {
		l.Unlock()
		s.mu.Lock()
		defer s.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(s.locks, id)
		}
	}
}

// message is a message as it is stored.
type message struct {
	api.Message
	// Refused is the attempt whose program did not take it, so that it is not given it again.
	Refused int `json:"refused,omitempty"`
	// Begins says that the job goes on from another one because of it: it stands in the instructions of each attempt.
	Begins bool `json:"begins,omitempty"`
}

func messageSpace(id job.ID) string { return queue.JobSpace(id, "messages") }

func placeKey(n int) string { return fmt.Sprintf("%06d", n) }

// write returns the op that stores a record of a conversation.
func write(space string, n int, v any) (queue.Op, error) {
	value, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode %s %d: %w", space, n, err)
	}
	return queue.Write{Record: queue.Record{Space: space, Key: placeKey(n), Value: value, At: now()}}, nil
}

// records reads what is stored in a space.
func records[T any](ctx context.Context, store queue.Journal, space string) ([]T, error) {
	list, err := store.Records(ctx, space, "", 1<<20)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", space, err)
	}
	out := make([]T, len(list))
	for i, r := range list {
		if err := json.Unmarshal(r.Value, &out[i]); err != nil {
			return nil, fmt.Errorf("read %s of %s: %w", r.Key, space, err)
		}
	}
	return out, nil
}

// Messages returns what was said to a job, in that order.
func Messages(ctx context.Context, store queue.Journal, id job.ID) ([]api.Message, error) {
	list, err := records[message](ctx, store, messageSpace(id))
	out := make([]api.Message, len(list))
	for i := range list {
		out[i] = list[i].Message
	}
	return out, err
}

// apply makes ops durable, whatever becomes of who asks.
func (s *Conversations) apply(ctx context.Context, ops ...queue.Op) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTime)
	defer cancel()
	return s.store.Apply(ctx, ops...)
}

// ValidMessageID reports whether somebody may name a message so.
func ValidMessageID(id string) bool { return messageID.MatchString(id) }

var messageID = regexp.MustCompile(`^[A-Za-z0-9._-]{1,100}$`)

// cannotHear says why a job can be told nothing; nil if it can.
func cannotHear(e *queue.Entry) error {
	switch {
	case e.Spec.Type.Command():
		return queue.Refuse("job %s is a command, which cannot be told anything; cancel it, or submit another", e.Spec.Name)
	case e.Spec.Type == job.External:
		return queue.Refuse("job %s is worked on by another program, which this scheduler cannot tell anything", e.Spec.Name)
	case e.Spec.Flow.ForEach != nil || e.Spec.Flow.Loop != nil && e.Spec.Flow.Node == "":
		return queue.Refuse("job %s stands for its parts; tell one of them", e.Spec.Name)
	}
	return nil
}

// runOf returns the run of a job that is under way, or nil.
func (s *Conversations) runOf(id job.ID) *schedule.Run {
	for _, r := range s.runs() {
		if r.Entry.ID == id && r.Attempt > 0 && r.Core != 0 {
			return r
		}
	}
	return nil
}

// encodedLen returns how many bytes a text takes on the wire.
func encodedLen(text string) int {
	quoted, _ := json.Marshal(text) // of a string there is always one
	return len(quoted)
}

// deliver gives a run what waits for it, and reports whether it took it, or why not. The conversation is locked.
func (s *Conversations) deliver(ctx context.Context, r *schedule.Run) (taken bool, why string) {
	tell, err := s.waiting(ctx, r)
	if err != nil {
		s.log.Error().Err(err).Str("job", string(r.Entry.ID)).Msg("what people have for a run cannot be read")
		return false, "the store cannot be read at this moment"
	}
	if len(tell.Messages)+len(tell.Answers) == 0 {
		return true, ""
	}
	answer, err := s.tellRun(ctx, r, tell)
	if err != nil {
		return false, "its core does not answer at this moment"
	}
	return answer.Taken, answer.Why
}

// tellRun gives a run something.
func (s *Conversations) tellRun(ctx context.Context, r *schedule.Run, tell ipc.TellRun) (answer ipc.TellRunResult, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tellTime)
	defer cancel()
	tell.Job, tell.Attempt = r.Entry.ID, r.Attempt
	err = s.call(ctx, r.Core, ipc.MethodTellRun, tell, &answer)
	if err != nil {
		log := logOf(s.log, r)
		log.Warn().Err(err).Msg("the core could not be told what people have for the run")
	}
	return answer, err
}

// waiting returns what waits for a run, and notes that it is given it.
func (s *Conversations) waiting(ctx context.Context, r *schedule.Run) (tell ipc.TellRun, err error) {
	if tell.Messages, err = s.give(ctx, r); err != nil {
		return tell, err
	}
	list, err := records[question](ctx, s.store, questionSpace(r.Entry.ID))
	for i := range list {
		if q := &list[i]; q.Attempt == r.Attempt && q.Waits && q.Answer != nil && q.Answer.Given == 0 {
			tell.Answers = append(tell.Answers, q.wire())
		}
	}
	return tell, err
}

// again has what waits for a job's run tried again.
func (s *Conversations) again(id job.ID) {
	s.mu.Lock()
	s.due[id] = true
	s.mu.Unlock()
	s.wake.ring()
}

// How soon what a run did not take is tried again: at first, and at most.
const (
	againSoon = 100 * time.Millisecond
	againLate = 5 * time.Second
)

// run gives runs again what they did not take.
func (s *Conversations) run(ctx context.Context) error {
	if err := s.tidy(ctx); err != nil && ctx.Err() == nil {
		s.log.Error().Err(err).Msg("look for questions of jobs that were forgotten")
	}
	if err := s.recallTold(ctx); err != nil && ctx.Err() == nil {
		s.log.Error().Err(err).Msg("look for what jobs were not told before they ended")
	}
	if err := s.recall(ctx); err != nil && ctx.Err() == nil {
		s.log.Error().Err(err).Msg("look for what waits for runs of an earlier scheduler")
	}
	if err := s.recallPersons(ctx); err != nil && ctx.Err() == nil {
		s.log.Error().Err(err).Msg("look for jobs that are in the hands of people")
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	after, soon := againSoon, true
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
			if after = againSoon; !soon { // else many that ring would put it off for good
				timer.Reset(after)
				soon = true
			}
			continue
		case <-timer.C:
			soon = false
		}
		s.mu.Lock()
		due := s.due
		s.due = map[job.ID]bool{}
		s.mu.Unlock()
		left := false
		for id := range due {
			left = !s.tryAgain(ctx, id) || left
		}
		if after = min(2*after, againLate); left {
			timer.Reset(after)
		}
	}
}

// ended has what follows from the end of a job found, which may have had no run.
func (s *Conversations) ended(e *queue.Entry) {
	if cannotHear(e) == nil {
		s.again(e.ID)
	}
}

// tryAgain gives the run of a job what waits for it, or finds what follows from the job's end, and reports whether there is
// nothing more to do.
func (s *Conversations) tryAgain(ctx context.Context, id job.ID) bool {
	defer s.lock(id)()
	r := s.runOf(id)
	done := false
	if e, err := s.store.Get(ctx, id); err == nil && e.State.Terminal() {
		done = s.afterEnd(ctx, id)
	} else if taken, held, err := s.forPerson(ctx, id); err != nil || taken {
		done = held
	} else if r != nil {
		done, _ = s.deliver(ctx, r)
	} else if e, err := s.store.Get(ctx, id); err != nil || e.State != job.Dispatched {
		done = true // the next attempt is told when it begins
	}
	if !done {
		s.mu.Lock()
		s.due[id] = true
		s.mu.Unlock()
	}
	return done
}

// recall has what waits for runs that an earlier scheduler has begun tried again.
func (s *Conversations) recall(ctx context.Context) error {
	list, _, err := s.store.List(ctx, queue.Filter{States: []job.EntryState{job.Dispatched}, Limit: 1 << 30})
	for i := range list {
		if cannotHear(&list[i]) == nil {
			s.again(list[i].ID)
		}
	}
	return err
}

// Interrupt has the agent of a job's run stop its turn. The job then waits for a message, unless one waits for it. The error
// wraps queue.ErrIllegalTransition if there is no run, or its worker cannot be interrupted.
func (s *Conversations) Interrupt(ctx context.Context, id job.ID, in api.Interrupt) error {
	e, err := s.store.Get(ctx, id)
	if err != nil {
		return err
	}
	r := s.runOf(id)
	if r == nil {
		return queue.Refuse("job %s is %s: there is no turn to interrupt", e.Spec.Name, StateOf(&e))
	}
	answer, err := s.tellRun(ctx, r, ipc.TellRun{Interrupt: strings.TrimSpace("interrupted by " + cmp.Or(in.By, "a person"))})
	switch {
	case err != nil:
		return fmt.Errorf("interrupt job %s: %w", e.Spec.Name, err)
	case !answer.Taken:
		return queue.Refuse("job %s cannot be interrupted: %s", e.Spec.Name, answer.Why)
	}
	return nil
}

// report takes from a core what became of messages and questions of a run.
func (s *Conversations) report(ctx context.Context, c *supervisor.Core, r ipc.ReportTalk) (ipc.Empty, error) {
	e, err := s.flying(c, r.Job, r.Attempt)
	if err != nil {
		return ipc.Empty{}, nil // it is over: nobody needs it any more
	}
	defer s.lock(r.Job)()
	ops, err := s.settled(ctx, &e, r)
	if err == nil {
		var more []queue.Op
		more, err = s.closed(ctx, &e, r)
		ops = append(ops, more...)
	}
	if err == nil && len(ops) > 0 {
		err = s.apply(ctx, ops...)
	}
	return ipc.Empty{}, err
}

// lastWords takes what a core has not reported when an attempt ends.
func (s *Conversations) lastWords(c *supervisor.Core, r ipc.ReportTalk) {
	if _, err := s.report(context.Background(), c, r); err != nil {
		s.log.Error().Err(err).Str("job", string(r.Job)).Int("attempt", r.Attempt).Msg("what became of messages and questions was not stored")
	}
}

// settled returns the ops that store what became of messages.
func (s *Conversations) settled(ctx context.Context, e *queue.Entry, r ipc.ReportTalk) (ops []queue.Op, err error) {
	if len(r.Settled) == 0 {
		return nil, nil
	}
	list, err := records[message](ctx, s.store, messageSpace(e.ID))
	if err != nil {
		return nil, err
	}
	changed := map[int]bool{}
	for _, settled := range r.Settled {
		i := slices.IndexFunc(list, func(m message) bool { return m.ID == settled.Message })
		if i < 0 || list[i].State == api.MessageFolded {
			continue
		}
		m := &list[i]
		switch state := api.MessageState(settled.State); state {
		case api.MessageDelivered, api.MessageFolded:
			m.State, m.Reason, m.SettledAt = state, settled.Reason, new(now())
		default: // it waits for the next attempt
			m.State, m.Reason, m.Refused = api.MessageQueued, settled.Reason, r.Attempt
		}
		changed[i] = true
	}
	for i := range list {
		if changed[i] {
			op, err := write(messageSpace(e.ID), list[i].Number, &list[i])
			if err != nil {
				return nil, err
			}
			ops = append(ops, op)
		}
	}
	return ops, nil
}
