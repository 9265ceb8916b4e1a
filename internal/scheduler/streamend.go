package scheduler

import (
	"context"
	"errors"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/schedule"
	"github.com/agentsched/agentsched/workflow/pipeline"
)

// errNotTheEvents: the attempt has failed in a way that no event is to blame for.
var errNotTheEvents = errors.New("the worker was stopped, or has failed by itself")

// end ends the feed of an attempt that is over: the last it has said is
// taken, once there is room for it, unless the attempt is cut short.
func (s *streams) end(ctx context.Context, c schedule.CloseStream) schedule.Closed {
	st := s.get(c.Run)
	closed := schedule.Closed{Outcome: c.Outcome}
	if st == nil {
		s.endWithout(ctx, c.Run, &closed)
		return closed
	}
	if c.Died != nil || c.Outcome.State == job.Checkpointed || !blamesEvents(c.Outcome.Class) {
		st.stop(errNotTheEvents)
	}
	st.inlet.end()
	unwatch := context.AfterFunc(ctx, func() { st.stop(context.Cause(ctx)) })
	st.running.Wait()
	unwatch()
	st.stop(errNotTheEvents) // frees the context
	if c.Died == nil && c.Outcome.Succeeded() && st.err != nil {
		closed.Outcome = early(c.Outcome, st.err)
	}
	if c.Died != nil {
		closed.Outcome.Class = job.Crash
	}
	st.judge(&closed)
	return closed
}

// endWithout judges the end of a worker whose stream was an earlier scheduler's. What the log has is done; whatever else the worker
// had is given to the next one, and is nobody's fault.
func (s *streams) endWithout(ctx context.Context, r *schedule.Run, c *schedule.Closed) {
	ctx = context.WithoutCancel(ctx)
	l, names, err := s.open.stageOf(ctx, &r.Entry)
	var stood pipeline.Status
	if err == nil && l != nil {
		stood, err = stageStatus(ctx, l, names.Stage)
	}
	if err == nil && l == nil || stood.Ended && c.Outcome.Succeeded() {
		return
	}
	if c.Outcome.Succeeded() {
		c.Outcome = early(c.Outcome, errNotTheEvents)
	}
	c.Forgiven = true
}

// early is the outcome of a worker that has said that it is done, though the
// stream is not: why is how its feed ended.
func early(o job.Outcome, why error) job.Outcome {
	var died *pipeline.DiedError
	if !errors.As(why, &died) {
		o.State, o.Class, o.Message = job.RunCancelled, job.CancelledClass, why.Error() // the stream was cut short
		return o
	}
	o.State, o.Class, o.Message = job.RunFailed, job.Unknown, "the worker ended before the stream did: "+why.Error()
	o.Hint = "acknowledge the end line before the result, see docs/pipelines.md"
	return o
}

// blamesEvents reports whether a worker that ends so may have died of the event
// that it had. NoError is that of one that ended before the stream did.
func blamesEvents(c job.ErrorClass) bool {
	switch c {
	case job.CancelledClass, job.RateLimit, job.Server, job.Network, job.Auth, job.Config, job.Budget, job.ConflictClass, job.HumanRejected, job.SandboxClass:
		return false
	}
	return true
}

// judge says what the end of a stage's worker means for its job. What events
// are to blame for is counted there, and an attempt that has come further is not
// the same again: both are forgiven, so they do not count as attempts of the job.
func (st *streaming) judge(c *schedule.Closed) {
	o := &c.Outcome
	var died *pipeline.DiedError
	switch {
	case st.err == nil && o.Succeeded():
	case st.err == nil:
		// All of the stage's work is in the log. If the worker only did not end
		// well, nothing is left to do; else nothing can be done better.
		c.Forgiven = o.Class == job.Crash || o.Class == job.Timeout || o.Class == job.CancelledClass
		c.Final = !c.Forgiven
	case o.Class == job.Timeout && errors.As(st.err, &died) && len(died.Events) == 0 && !st.ending.Load():
		c.Forgiven = true // its time ran out while there was nothing to do
	default:
		stood, err := stageStatus(context.WithoutCancel(st.ctx), st.log, st.names.Stage)
		c.Forgiven = errors.As(st.err, &died) && len(died.Events) > 0 || err == nil && place(&stood) != st.from || errors.Is(st.err, pipeline.ErrReplayed)
	}
}
