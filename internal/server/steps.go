package server

import (
	"context"
	"fmt"
	"slices"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/workflow/durable"
)

// StepsOf joins the stored steps of a job with its events about them.
func StepsOf(ctx context.Context, store queue.Store, e *queue.Entry) ([]api.Step, error) {
	of := e.ID
	if e.CoalescedWith != "" {
		of = e.CoalescedWith // it had no run of its own
	}
	t := stepTable{steps: []api.Step{}, place: map[string]int{}}
	if err := t.stored(ctx, store, of); err != nil {
		return nil, fmt.Errorf("read the steps of job %s: %w", of, err)
	}
	for after := int64(0); ; {
		events, err := store.Events(ctx, of, after, 1000)
		if err != nil {
			return nil, fmt.Errorf("read the steps of job %s: %w", of, err)
		}
		if len(events) == 0 {
			return t.steps, nil
		}
		for i := range events {
			t.event(&events[i])
		}
		after = events[len(events)-1].Cursor
	}
}

// stepTable is the steps of a job, each once.
type stepTable struct {
	steps []api.Step
	place map[string]int
}

func (t *stepTable) step(id string) *api.Step {
	if _, ok := t.place[id]; !ok {
		t.place[id] = len(t.steps)
		t.steps = append(t.steps, api.Step{ID: id, Uses: []api.StepUse{}})
	}
	return &t.steps[t.place[id]]
}

func (t *stepTable) stored(ctx context.Context, journal queue.Journal, of job.ID) error {
	stored, _, err := durable.Page(ctx, journal, durable.Space(of), "", 0)
	if err != nil {
		return err
	}
	slices.SortStableFunc(stored, func(a, b durable.Stored) int { return a.At.Compare(b.At) })
	for _, one := range stored {
		step := t.step(one.ID)
		step.Inputs, step.StoredAt, step.Attempt = one.Inputs, &one.At, one.Attempt
		if one.Attempt > 0 {
			use(step, api.StepUse{Attempt: one.Attempt, Kept: job.KeptFresh})
		}
	}
	return nil
}

func (t *stepTable) event(e *queue.StoredEvent) {
	if e.Kind != job.EventStep || e.Kept == "" {
		return
	}
	u := api.StepUse{Attempt: e.Attempt, Kept: e.Kept}
	if e.Kept == job.KeptRefused {
		u.Why = e.Text
	}
	use(t.step(e.Step), u)
}

// use adds what an attempt did, once, in the order of the attempts.
func use(s *api.Step, u api.StepUse) {
	if slices.ContainsFunc(s.Uses, func(have api.StepUse) bool { return have.Attempt == u.Attempt && have.Kept == u.Kept }) {
		return
	}
	s.Uses = append(s.Uses, u)
	slices.SortStableFunc(s.Uses, func(a, b api.StepUse) int { return a.Attempt - b.Attempt })
}
