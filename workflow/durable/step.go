package durable

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/agentsched/agentsched/job"
)

// ErrNoRun: the context of a step carries no Run, see With.
var ErrNoRun = errors.New("the context carries no run of durable steps")

// place is where in a program a context is.
type place struct {
	run   *Run
	outer string // the step within which; "" none
}

type placeKey struct{}

// With returns a context whose steps are those of the run.
func With(ctx context.Context, r *Run) context.Context {
	return context.WithValue(ctx, placeKey{}, place{run: r})
}

// Step returns the result of the step: the stored one, or if there is none, what
// f returns, after it was stored. It always has gone through JSON, so that it is
// the same each time; what JSON does not keep of a T is lost the first time too.
// An error of f is returned, wrapped, and not stored: the next call computes again.
//
// The id is unique in its run: 1 or more printable characters without "/". A step
// that is taken with f's context is a step within this one: its id is
// "outer/inner", and it is stored although the outer one may fail. A step must not
// wait for itself.
func Step[T any](ctx context.Context, id string, f func(context.Context) (T, error)) (T, error) {
	return step(ctx, id, "", f)
}

// StepOf is Step for a computation from inputs, which encode to JSON. Of these a
// hash is stored, see Hash. If the step is stored for others, it is an error
// (*CollisionError): what is stored is no answer to them.
func StepOf[T any](ctx context.Context, id string, inputs any, f func(context.Context) (T, error)) (T, error) {
	name, err := Hash(inputs)
	if err != nil {
		var none T
		return none, fmt.Errorf("step %q: %w", id, err)
	}
	return step(ctx, id, name, f)
}

func step[T any](ctx context.Context, id, inputs string, f func(context.Context) (T, error)) (T, error) {
	var none, result T
	at, ok := ctx.Value(placeKey{}).(place)
	if !ok {
		return none, fmt.Errorf("step %q: %w", id, ErrNoRun)
	}
	path, err := at.inner(id)
	if err != nil {
		return none, err
	}
	text, err := at.run.do(ctx, path, inputs, func(ctx context.Context) (json.RawMessage, error) {
		v, err := f(context.WithValue(ctx, placeKey{}, place{run: at.run, outer: path}))
		if err != nil {
			return nil, err
		}
		return json.Marshal(v)
	})
	var collision *CollisionError
	if errors.As(err, &collision) && collision.ID == path {
		return none, err // it names the step
	}
	if err != nil {
		return none, fmt.Errorf("step %q: %w", path, err)
	}
	if err := json.Unmarshal(text, &result); err != nil {
		return none, fmt.Errorf("step %q: its stored result is no %T: %w", path, none, err)
	}
	return result, nil
}

// inner returns the whole id of a step that is taken here.
func (p place) inner(id string) (string, error) {
	if strings.Contains(id, "/") {
		return "", fmt.Errorf(`step %q: its id contains "/", which stands between a step and one within it`, id)
	}
	if err := job.ValidStepID(id); err != nil {
		return "", err
	}
	if p.outer == "" {
		return id, nil
	}
	path := p.outer + "/" + id
	return path, job.ValidStepID(path)
}
