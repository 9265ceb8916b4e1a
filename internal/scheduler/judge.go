package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/agentsched/agentsched/internal/eval"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/policy"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/schedule"
	"github.com/agentsched/agentsched/workflow/oversight"
)

// judged are the jobs that have ended and are to be evaluated.
type judged struct {
	wake chan struct{} // capacity 1
	mu   sync.Mutex
	list []job.ID
}

func newJudged() *judged { return &judged{wake: make(chan struct{}, 1)} }

// judge has a job evaluated that has ended, if it or its batch asks for it.
func (s *Scheduler) judge(e *queue.Entry) {
	if s.cfg.Evaluator == nil || e.Spec.Flow.Evaluation == nil && !e.Spec.Flow.Joined {
		return
	}
	s.judged.put(e.ID)
}

func (j *judged) put(id job.ID) {
	j.mu.Lock()
	j.list = append(j.list, id)
	j.mu.Unlock()
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

func (j *judged) take() []job.ID {
	j.mu.Lock()
	defer j.mu.Unlock()
	list := j.list
	j.list = nil
	return list
}

// Work that has ended and is to be evaluated is marked by a record of this key in
// the space toJudge+ID, written with its end: a scheduler may be killed between
// the two.
const (
	toJudge = "evaluate/"
	dueKey  = "due"
)

// markJudged returns the op that marks a job whose end is about to be stored.
func markJudged(e *queue.Entry, at time.Time) []queue.Op {
	if e.Spec.Flow.Evaluation == nil {
		return nil
	}
	return []queue.Op{queue.Write{Record: queue.Record{Space: toJudge + string(e.ID), Key: dueKey, Value: json.RawMessage("true"), At: at}}}
}

// recallJudged finds what an earlier scheduler has not evaluated any more.
func (s *Scheduler) recallJudged(ctx context.Context) error {
	spaces, err := s.cfg.Store.Spaces(ctx, toJudge)
	if err != nil {
		return err
	}
	for _, space := range spaces {
		s.judged.put(job.ID(strings.TrimPrefix(space, toJudge)))
	}
	// A judge may have ended whose verdict nobody has taken.
	open, _, err := s.cfg.Store.List(ctx, queue.Filter{Joined: true, Limit: 1 << 30})
	if err != nil {
		return err
	}
	seen := map[job.BatchID]bool{}
	for i := range open {
		if b := open[i].Batch; !seen[b] {
			seen[b] = true
			if err := s.cfg.Evaluator.Batch(ctx, b); err != nil {
				return err
			}
		}
	}
	return nil
}

// judgeLoop evaluates what has ended until ctx ends, and then what is left. To
// evaluate twice counts once.
func (s *Scheduler) judgeLoop(ctx context.Context) error {
	if s.cfg.Evaluator == nil {
		<-ctx.Done()
		return nil
	}
	if err := s.recallJudged(ctx); err != nil && ctx.Err() == nil {
		s.cfg.Log.Error().Err(err).Msg("look for what is to be evaluated")
	}
	for {
		select {
		case <-ctx.Done():
		case <-s.judged.wake:
		}
		for _, id := range s.judged.take() {
			if err := s.evaluate(context.WithoutCancel(ctx), id); err != nil {
				s.cfg.Log.Error().Err(err).Str("job", string(id)).Msg("evaluate")
			}
		}
		if ctx.Err() != nil {
			return nil
		}
	}
}

func (s *Scheduler) evaluate(ctx context.Context, id job.ID) error {
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	e, err := s.cfg.Store.Get(ctx, id)
	if errors.Is(err, queue.ErrNotFound) { // it was forgotten meanwhile
		return s.cfg.Store.Apply(ctx, queue.Erase{Space: toJudge + string(id), UpTo: dueKey})
	}
	if err != nil {
		return err
	}
	if !e.State.Terminal() {
		return nil // marked by a write that was not its end
	}
	attempts, err := s.cfg.Store.Attempts(ctx, id)
	if err != nil {
		return err
	}
	if _, err = s.cfg.Evaluator.Record(ctx, &e, attempts); err != nil || e.Spec.Flow.Evaluation == nil {
		return err
	}
	return s.cfg.Store.Apply(ctx, queue.Erase{Space: toJudge + string(id), UpTo: dueKey})
}

// TakeVerdict tells the policy and whoever watches of a verdict that was stored.
func (s *Scheduler) TakeVerdict(v eval.Verdict) {
	for _, r := range v.Reputations {
		if r.Subject.Kind == eval.Tenant {
			s.loop.post(schedule.Reputation{Tenant: job.Tenant(r.Subject.Name), Value: r.R})
		}
	}
	for _, a := range v.Alerts {
		text := fmt.Sprintf("%s drifts in domain %s: its latest work (%s, %.2f) is %.2f away from what it was (%.2f)", a.Subject, a.Domain, a.Job, a.Last, a.Drift, a.R)
		s.cfg.Log.Warn().Str("subject", a.Subject.String()).Str("domain", a.Domain).Float64("drift", a.Drift).Msg("drift")
		s.Feed.Tell(text)
	}
	s.poke()
}

// recallReputations tells a policy that has just been put in force what is known
// of the tenants.
func (s *Scheduler) recallReputations(ctx context.Context, p policy.Policy) error {
	r, ok := p.(policy.Reputed)
	if !ok || s.cfg.Evaluator == nil {
		return nil
	}
	known, err := s.cfg.Evaluator.Tenants(ctx)
	if err != nil {
		return fmt.Errorf("recall the reputations of tenants: %w", err)
	}
	for tenant, value := range known {
		r.SetReputation(tenant, value)
	}
	return nil
}

// choiceSpace holds in which order a job's workers are tried, where their
// reputation says that.
const choiceSpace = "choice"

// ranked is what was drawn for a job, and what followed.
type ranked struct {
	Draw  float64 `json:"draw"`
	Order []int   `json:"order"` // indices into Spec.Choices
}

// rank returns the spec of a job with its workers in the order of their reputations, if
// it is to run on the best; else nil. The order is found at the first attempt and kept: a
// later attempt, also after a crash, has the same.
func (s *Scheduler) rank(ctx context.Context, e *queue.Entry) (*job.Spec, error) {
	spec := e.Spec
	choices := spec.Choices()
	if !spec.Flow.Best || len(choices) < 2 || s.cfg.Evaluator == nil {
		return nil, nil
	}
	space := queue.JobSpace(e.ID, choiceSpace)
	var r ranked
	record, err := s.cfg.Store.Record(ctx, space, choiceSpace)
	switch {
	case err == nil:
		err = json.Unmarshal(record.Value, &r)
	case errors.Is(err, queue.ErrNotFound):
		r, err = s.drawRank(ctx, e, choices, space)
	}
	if err != nil {
		return nil, fmt.Errorf("order the workers of job %s: %w", e.ID, err)
	}
	ordered := make([]job.Choice, 0, len(choices))
	for _, i := range r.Order {
		if i >= 0 && i < len(choices) {
			ordered = append(ordered, choices[i])
		}
	}
	if len(ordered) != len(choices) {
		return nil, fmt.Errorf("order the workers of job %s: the order that was kept is %v, of %d workers", e.ID, r.Order, len(choices))
	}
	spec.Worker, spec.Model, spec.Fallback = ordered[0].Worker, ordered[0].Model, ordered[1:]
	return &spec, nil
}

func (s *Scheduler) drawRank(ctx context.Context, e *queue.Entry, choices []job.Choice, space string) (r ranked, err error) {
	known, err := s.cfg.Evaluator.Known(ctx, eval.DomainOf(&e.Spec), choices)
	if err != nil {
		return r, err
	}
	r.Draw = oversight.Draw(e.ID, 0, seedOf(s.cfg.Instance))
	r.Order = policy.Rank(choices, known, s.cfg.Evaluator.Settings().Explore, r.Draw)
	value, err := json.Marshal(r)
	if err != nil {
		return r, err
	}
	return r, s.apply(ctx, queue.Write{Record: queue.Record{Space: space, Key: choiceSpace, Value: value, At: now()}, Once: true})
}
