package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/internal/eval"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/policy"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/schedule"
)

// Judge has the work of jobs evaluated that have ended, if they or their batches ask
// for it, and puts workers into the order of their reputations. What is due is marked
// in the store together with the end (markJudged), so it survives the scheduler.
type Judge struct {
	store     queue.Store
	evaluator *eval.Evaluator // nil: nobody judges
	feed      *Feed
	log       zerolog.Logger
	apply     func(context.Context, ...queue.Op) error
	post      func(schedule.Event) // tells the machine
	seed      uint64               // of what is drawn

	wake bell
	mu   sync.Mutex // guards due
	due  []job.ID
}

// judge has a job evaluated that has ended, if it or its batch asks for it.
func (j *Judge) judge(e *queue.Entry) {
	if j.evaluator != nil && (e.Spec.Flow.Evaluation != nil || e.Spec.Flow.Joined) {
		j.put(e.ID)
	}
}

func (j *Judge) put(id job.ID) {
	j.mu.Lock()
	j.due = append(j.due, id)
	j.mu.Unlock()
	j.wake.ring()
}

func (j *Judge) take() []job.ID {
	j.mu.Lock()
	defer j.mu.Unlock()
	list := j.due
	j.due = nil
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

// recall finds what an earlier scheduler has not evaluated any more.
func (j *Judge) recall(ctx context.Context) error {
	spaces, err := j.store.Spaces(ctx, toJudge)
	if err != nil {
		return err
	}
	for _, space := range spaces {
		j.put(job.ID(strings.TrimPrefix(space, toJudge)))
	}
	// A judge may have ended whose verdict nobody has taken.
	open, _, err := j.store.List(ctx, queue.Filter{Joined: true, Limit: 1 << 30})
	if err != nil {
		return err
	}
	seen := map[job.BatchID]bool{}
	for i := range open {
		if b := open[i].Batch; !seen[b] {
			seen[b] = true
			if err := j.evaluator.Batch(ctx, b); err != nil {
				return err
			}
		}
	}
	return nil
}

// run evaluates what has ended until ctx ends, and then what is left. To
// evaluate twice counts once.
func (j *Judge) run(ctx context.Context) error {
	if j.evaluator == nil {
		<-ctx.Done()
		return nil
	}
	if err := j.recall(ctx); err != nil && ctx.Err() == nil {
		j.log.Error().Err(err).Msg("look for what is to be evaluated")
	}
	for {
		select {
		case <-ctx.Done():
		case <-j.wake:
		}
		for _, id := range j.take() {
			if err := j.evaluate(context.WithoutCancel(ctx), id); err != nil {
				j.log.Error().Err(err).Str("job", string(id)).Msg("evaluate")
			}
		}
		if ctx.Err() != nil {
			return nil
		}
	}
}

func (j *Judge) evaluate(ctx context.Context, id job.ID) error {
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	e, err := j.store.Get(ctx, id)
	if errors.Is(err, queue.ErrNotFound) { // it was forgotten meanwhile
		return j.store.Apply(ctx, queue.Erase{Space: toJudge + string(id), UpTo: dueKey})
	}
	if err != nil {
		return err
	}
	if !e.State.Terminal() {
		return nil // marked by a write that was not its end
	}
	attempts, err := j.store.Attempts(ctx, id)
	if err != nil {
		return err
	}
	if _, err = j.evaluator.Record(ctx, &e, attempts); err != nil || e.Spec.Flow.Evaluation == nil {
		return err
	}
	return j.store.Apply(ctx, queue.Erase{Space: toJudge + string(id), UpTo: dueKey})
}

// TakeVerdict tells the policy and whoever watches of a verdict that was stored.
func (j *Judge) TakeVerdict(v eval.Verdict) {
	for _, r := range v.Reputations {
		if r.Subject.Kind == eval.Tenant {
			j.post(schedule.Reputation{Tenant: job.Tenant(r.Subject.Name), Value: r.R})
		}
	}
	for _, a := range v.Alerts {
		text := fmt.Sprintf("%s drifts in domain %s: its latest work (%s, %.2f) is %.2f away from what it was (%.2f)", a.Subject, a.Domain, a.Job, a.Last, a.Drift, a.R)
		j.log.Warn().Str("subject", a.Subject.String()).Str("domain", a.Domain).Float64("drift", a.Drift).Msg("drift")
		j.feed.Tell(text)
	}
}

// tellReputations tells a policy that has just been put in force what is known
// of the tenants.
func (j *Judge) tellReputations(ctx context.Context, p policy.Policy) error {
	r, ok := p.(policy.Reputed)
	if !ok || j.evaluator == nil {
		return nil
	}
	known, err := j.evaluator.Tenants(ctx)
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

// rank returns the spec of a job with its workers in the order of their reputations, nil if it
// is not to run on the best. The order is found at the first attempt and kept: a later
// attempt, also after a crash, has the same.
func (j *Judge) rank(ctx context.Context, e *queue.Entry) (*job.Spec, error) {
	choices := e.Spec.Choices()
	if !e.Spec.Flow.Best || len(choices) < 2 || j.evaluator == nil {
		return nil, nil
	}
	space := queue.JobSpace(e.ID, choiceSpace)
	var r ranked
	record, err := j.store.Record(ctx, space, choiceSpace)
	switch {
	case err == nil:
		err = json.Unmarshal(record.Value, &r)
	case errors.Is(err, queue.ErrNotFound):
		r, err = j.draw(ctx, e, choices, space)
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
	spec := e.Spec
	spec.Worker, spec.Model, spec.Fallback = ordered[0].Worker, ordered[0].Model, ordered[1:]
	return &spec, nil
}

func (j *Judge) draw(ctx context.Context, e *queue.Entry, choices []job.Choice, space string) (r ranked, err error) {
	known, err := j.evaluator.Known(ctx, eval.DomainOf(&e.Spec), choices)
	if err != nil {
		return r, err
	}
	r.Draw = draw(e.ID, 0, j.seed)
	r.Order = policy.Rank(choices, known, j.evaluator.Settings().Explore, r.Draw)
	value, err := json.Marshal(r)
	if err != nil {
		return r, err
	}
	return r, j.apply(ctx, queue.Write{Record: queue.Record{Space: space, Key: choiceSpace, Value: value, At: now()}, Once: true})
}
