package proc

import (
	"context"
	"errors"
	"sync"
)

// RunTree starts a command and waits until it has ended, or ctx has; then whatever is
// left of its tree is killed without gentle stages. Each of pipes runs in a
// goroutine of its own and is waited for; it reads from a pipe of the tree, or
// writes to it, until that is at its end.
//
// err is why the command did not succeed: it could not be started, the cause of
// ctx, or how it exited. left is not nil if the tree could not be emptied.
func (h *Host) RunTree(ctx context.Context, spec Spec, pipes ...func(*Tree)) (err, left error) {
	tree, err := h.Start(spec)
	if err != nil {
		return err, nil
	}
	var running sync.WaitGroup
	for _, work := range pipes {
		running.Go(func() { work(tree) })
	}
	var cause error
	select {
	case <-tree.Exited():
	case <-ctx.Done():
		cause = context.Cause(ctx)
	}
	_, left = tree.Stop(context.WithoutCancel(ctx), Stages{})
	if left != nil {
		tree.ClosePipes() // a process that cannot be killed may hold them open for ever
	}
	running.Wait()
	tree.ClosePipes()
	switch state := tree.ExitState(); {
	case cause != nil:
		return cause, left
	case !state.Success():
		return errors.New(state.String()), left
	}
	return nil, left
}
