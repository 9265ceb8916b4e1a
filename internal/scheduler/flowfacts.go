package scheduler

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/workflow"
)

// maxAnswer bounds the answer of a job that others refer to, in bytes.
const maxAnswer = 4 << 20

// factsOf returns what has become of a job.
func (f *Followers) factsOf(ctx context.Context, e *queue.Entry) (workflow.Job, error) {
	j := workflow.Job{Spec: &e.Spec, State: e.State, Exit: e.ExitKind, Held: e.Held, CancelRequested: e.CancelRequested, Skipped: e.Skipped, Output: e.Result, Class: e.ErrorClass, Message: e.DeadLetter}
	if !e.State.Terminal() || e.Attempts == 0 && e.CoalescedWith == "" {
		return j, nil
	}
	attempts, err := f.store.Attempts(ctx, e.ID)
	if err != nil {
		return j, fmt.Errorf("read the attempts of job %s: %w", e.ID, err)
	}
	j.Metrics = workflow.MetricsOf(attempts)
	if len(attempts) == 0 || attempts[len(attempts)-1].Outcome == nil {
		return j, nil
	}
	o := attempts[len(attempts)-1].Outcome
	patch, _ := o.Artifact(job.ArtifactPatch)
	j.Patch, j.Bytes = patch.Path, patch.Bytes
	// Without the whole, what was kept of it stands; who expects JSON is told that
	// it is none.
	answer, err := f.wholeAnswer(ctx, o)
	switch {
	case errors.Is(err, errNotNow):
		return j, err
	case err != nil:
		answer = o.Answer
	}
	j.Output = workflow.Output(&e.Spec, answer)
	j.Digest = o.PatchHash
	for _, f := range o.Files {
		j.Files = append(j.Files, f.Path)
	}
	if o.Check != nil {
		j.Check = &workflow.CheckResult{Passed: o.Check.Passed, Message: o.Check.Text, Mute: o.Check.Mute}
	}
	return j, nil
}

// errNotNow: a file that is kept elsewhere cannot be had now.
var errNotNow = errors.New("a file of the attempt is not reached")

// wholeAnswer returns what an attempt answered, also if that was too long for the
// store.
func (f *Followers) wholeAnswer(ctx context.Context, o *job.Outcome) (string, error) {
	a, long := o.Artifact(job.ArtifactAnswer)
	if !long {
		return o.Answer, nil
	}
	if a.Bytes > maxAnswer {
		return "", fmt.Errorf("%s has %d bytes, at most %d can be referred to", a.Path, a.Bytes, maxAnswer)
	}
	a, err := fileHere(ctx, f.fileHere, a)
	if err != nil && !errors.Is(err, queue.ErrNotFound) {
		return "", fmt.Errorf("%w: %w", errNotNow, err)
	}
	file, err := statedir.OpenArtifact(a)
	if err != nil {
		return "", err
	}
	defer file.Close()
	text, err := io.ReadAll(file)
	return string(text), err
}

// moved returns the jobs that a look at a workflow has changed, each once, as they
// were before. Those that it has added are not among them.
func moved(moves []workflow.Move, byName map[job.Name]*queue.Entry) (list []*queue.Entry) {
	seen := map[job.ID]bool{}
	for _, m := range moves {
		var name job.Name
		switch m := m.(type) {
		case workflow.Ready:
			name = m.Name
		case workflow.Keep:
			name = m.Name
		case workflow.Skip:
			name = m.Name
		case workflow.Conclude:
			name = m.Name
		}
		if e := byName[name]; e != nil && !seen[e.ID] {
			seen[e.ID] = true
			list = append(list, e)
		}
	}
	return list
}

// tellMoves tells whoever watches of what a look at a workflow has changed.
func (f *Followers) tellMoves(ctx context.Context, moves []workflow.Move, byName map[job.Name]*queue.Entry) {
	for _, before := range moved(moves, byName) {
		e, err := f.store.Get(context.WithoutCancel(ctx), before.ID)
		if err != nil {
			f.log.Warn().Err(err).Str("job", string(before.ID)).Msg("read a job to tell of it")
			continue
		}
		f.feed.publishChange(ctx, &e)
	}
}
