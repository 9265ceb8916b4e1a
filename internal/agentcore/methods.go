package agentcore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/agentsched/agentsched/internal/workspace"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/permit"
	"github.com/agentsched/agentsched/worker"
)

// methods lists what HandleCall knows, for hello.
var methods = []string{
	ipc.MethodHello, ipc.MethodConfigure, ipc.MethodRequestPermit, ipc.MethodSubmitJob,
	ipc.MethodCancelJob, ipc.MethodHeartbeat, ipc.MethodShutdown, ipc.MethodReportQueueMetrics, ipc.MethodIsolate,
	ipc.MethodCheckpointJob, ipc.MethodStreamWrite, ipc.MethodSetGrants, ipc.MethodTellRun,
}

// HandleCall answers the scheduler's requests.
func (c *Core) HandleCall(ctx context.Context, method string, params json.RawMessage) (any, error) {
	switch method {
	case ipc.MethodHello:
		return handle(ctx, params, c.hello)
	case ipc.MethodConfigure:
		return handle(ctx, params, c.configure)
	case ipc.MethodRequestPermit:
		return handle(ctx, params, c.requestPermit)
	case ipc.MethodSubmitJob:
		// The scheduler waits for the run's end next: that of a short run is sent with this.
		r, err := handle(ctx, params, c.submitJob)
		return ipc.Unhurried{Result: r}, err
	case ipc.MethodCancelJob:
		return handle(ctx, params, c.cancelJob)
	case ipc.MethodHeartbeat:
		return handle(ctx, params, c.heartbeat)
	case ipc.MethodShutdown:
		return handle(ctx, params, c.shutdown)
	case ipc.MethodReportQueueMetrics:
		return handle(ctx, params, c.reportQueueMetrics)
	case ipc.MethodIsolate:
		return handle(ctx, params, c.isolate)
	case ipc.MethodCheckpointJob:
		return handle(ctx, params, c.checkpointJob)
	case ipc.MethodSetGrants:
		return handle(ctx, params, c.setGrants)
	case ipc.MethodTellRun:
		return handle(ctx, params, c.tellRun)
	case ipc.MethodStreamWrite:
		return handle(ctx, params, c.streamWrite)
	}
	return nil, ipc.MethodNotFound(method)
}

// HandleNotify: the scheduler has nothing to notify the core of.
func (c *Core) HandleNotify(_ context.Context, method string, _ json.RawMessage) {
	c.cfg.Log.Debug().Str("method", method).Msg("unknown notification ignored")
}

func handle[P, R any](ctx context.Context, params json.RawMessage, f func(context.Context, P) (R, error)) (any, error) {
	var p P
	if err := ipc.DecodeParams(params, &p); err != nil {
		return nil, err
	}
	return f(ctx, p)
}

func (c *Core) hello(_ context.Context, h ipc.Hello) (ipc.HelloResult, error) {
	if h.Protocol != ipc.ProtocolVersion {
		err := fmt.Errorf("%w: the scheduler (%s) speaks %d, this core (%s) speaks %d; install both from one release",
			ErrVersion, h.Version, h.Protocol, c.cfg.Version, ipc.ProtocolVersion)
		c.askForEnd(err)
		return ipc.HelloResult{}, &ipc.Error{Code: ipc.CodeVersion, Message: err.Error()}
	}
	s, err := c.open(h)
	if err != nil {
		return ipc.HelloResult{}, err
	}
	return ipc.HelloResult{
		Protocol: ipc.ProtocolVersion, Version: c.cfg.Version, PID: os.Getpid(), Methods: methods,
		Adapters: slices.Sorted(maps.Keys(c.cfg.Adapters)), Started: s.started.UTC(), PermitsLapse: true,
	}, nil
}

// ready returns what hello and configure have set.
func (c *Core) ready() (*session, *settings, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session == nil || c.settings == nil {
		return nil, nil, &ipc.Error{Code: ipc.CodeNotConfigured, Message: "hello and configure come first"}
	}
	return c.session, c.settings, nil
}

// isEnding reports whether no run starts any more.
func (c *Core) isEnding() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ending
}

func (c *Core) requestPermit(_ context.Context, r ipc.PermitRequest) (ipc.PermitAnswer, error) {
	s, settings, err := c.ready()
	if err != nil {
		return ipc.PermitAnswer{}, err
	}
	held := c.learn(settings, r.Elsewhere)
	folder, err := c.folders.Get(r.Workspace.Path)
	if err != nil {
		// To look further would hold up this call for as long, and the next ones.
		return ipc.PermitAnswer{Rejection: &ipc.Rejection{
			Reason: job.WorkspaceBusy, RetryAfterMS: hungRetry.Milliseconds(), Message: fmt.Sprintf("workspace %s: %v", r.Workspace.Path, err),
		}}, nil
	}
	if r.Deadline != nil && !r.Now.IsZero() {
		at := time.Now().Add(r.Deadline.Sub(r.Now))
		r.Deadline = &at
	}
	p, err := c.grant(permit.Request{
		Job: r.Job, Tenant: r.Tenant, Workspace: folder, Folder: r.Workspace, Attempt: r.Attempt, Counted: r.Counted,
		Choice: r.Choice, Model: settings.modelOf(r.Choice), Limits: r.Limits,
		Deadline: r.Deadline, Spent: r.Spent, Time: r.SpentTime.Std(),
		Ceded: permit.Budget{Tokens: r.Ceded.Tokens, CostUSD: r.Ceded.CostUSD},
		Class: r.Class, Smaller: r.Smaller, Degraded: r.Degraded, Elsewhere: held,
		Reserve: func() (func(), error) { return c.reserve(s, cmp.Or(r.Folder, r.Job), r.Workspace) },
	})
	var rejection *permit.Rejection
	switch {
	case err != nil && c.isEnding():
		return ipc.PermitAnswer{}, &ipc.Error{Code: ipc.CodeShuttingDown, Message: "the core is shutting down"}
	case errors.As(err, &rejection):
		return ipc.PermitAnswer{Rejection: &ipc.Rejection{
			Reason: rejection.Reason, RetryAfterMS: rejection.RetryAfter.Milliseconds(), Message: rejection.Message,
			Action: ipc.Action(rejection.Action), Waiting: rejection.Waiting,
		}}, nil
	case err != nil:
		return ipc.PermitAnswer{}, err
	}
	return ipc.PermitAnswer{Permit: &ipc.Permit{
		ID: p.ID, Job: p.Job, Attempt: p.Attempt, ExpiresAt: p.ExpiresAt.UTC(), Deadline: p.Deadline.UTC(),
		TokensGranted: p.Tokens, CostGrantedUSD: p.CostUSD, CircuitState: p.CircuitState,
	}}, nil
}

// hungRetry is when to ask again for a workspace on a file system that does not answer.
const hungRetry = 5 * time.Second

// grant asks the gate, and then looks once more at what is out of use: an isolation that
// began while the gate decided has revoked the unused permits, but not this one.
func (c *Core) grant(r permit.Request) (*permit.Permit, error) {
	p, err := c.gate.Request(c.life, r)
	if err != nil {
		return nil, err
	}
	if refused := c.guard.blocked(r); refused != nil {
		p.Revoke(refused)
		return nil, refused
	}
	return p, nil
}

// workspaceRetry is how soon to ask again for a workspace that is taken.
const workspaceRetry = 500 * time.Millisecond

// reserve takes the lock on the run's workspace, which is that of the job id.
func (c *Core) reserve(s *session, id job.ID, w job.Workspace) (func(), error) {
	if w.Isolation == job.Copy {
		// A copy takes the lock only while it is made, in the run. Asking now lets
		// a job wait for a folder that another works in, instead of failing.
		probe := job.Workspace{Path: w.Path, Isolation: job.Direct}
		release, err := c.reserve(s, id, probe)
		if err == nil {
			release()
		}
		return func() {}, err
	}
	lock, err := s.workspaces.Lock(c.life, w)
	if err == nil {
		if err = s.workspaces.InHands(id); err != nil {
			err = errors.Join(err, lock.Close())
		}
	}
	var busy *workspace.BusyError
	if errors.As(err, &busy) {
		return nil, &permit.Rejection{Reason: job.WorkspaceBusy, RetryAfter: workspaceRetry, Message: busy.Error()}
	}
	if err != nil {
		return nil, fmt.Errorf("lock workspace %s: %w", w.Path, err)
	}
	return func() {
		if err := lock.Close(); err != nil {
			c.cfg.Log.Warn().Err(err).Str("workspace", w.Path).Msg("unlock workspace")
		}
	}, nil
}

func (c *Core) submitJob(_ context.Context, r ipc.SubmitJob) (ipc.Empty, error) {
	s, settings, err := c.ready()
	if err != nil {
		return ipc.Empty{}, err
	}
	p, err := c.gate.Use(r.Permit, r.Job, r.Attempt)
	if err != nil {
		return ipc.Empty{}, &ipc.Error{Code: ipc.CodePermitUnknown, Message: err.Error()}
	}
	if err := covers(p, &r); err != nil {
		p.Settle(job.Usage{}, true)
		return ipc.Empty{}, &ipc.Error{Code: ipc.CodePermitUnknown, Message: err.Error()}
	}
	if !c.startRun(s, settings, p, r) {
		p.Settle(job.Usage{}, true)
		return ipc.Empty{}, &ipc.Error{Code: ipc.CodeShuttingDown, Message: "the core is shutting down"}
	}
	return ipc.Empty{}, nil
}

// covers returns why the permit is not one for what is submitted: the limits
// that it was checked against, and the lock that it holds, are of what it was
// asked for.
func covers(p *permit.Permit, r *ipc.SubmitJob) error {
	for _, part := range []struct {
		name         string
		granted, ask any
	}{
		{"choice", p.Choice, r.Choice},
		{"tenant", p.Tenant, cmp.Or(r.Spec.Tenant, job.DefaultTenant)},
		{"workspace", p.Folder, r.Spec.Workspace},
	} {
		if part.granted != part.ask {
			return fmt.Errorf("permit %s is for %s %v, but %v was submitted", p.ID, part.name, part.granted, part.ask)
		}
	}
	return nil
}

func (c *Core) cancelJob(_ context.Context, r ipc.CancelJob) (ipc.Empty, error) {
	s, _, err := c.ready()
	if err != nil {
		return ipc.Empty{}, err
	}
	class := r.Class
	if class == job.NoError {
		class = job.CancelledClass
	}
	stop := &worker.Stop{Class: class, Message: r.Reason, Now: r.Now, Lost: r.Lost}
	c.mu.Lock()
	e := c.live[job.RunTag(s.instance, r.Job, r.Attempt)]
	c.mu.Unlock()
	if r.Lost { // also if it has ended by itself, and that was heard too late
		c.gate.Uncount(r.Job, r.Attempt)
	}
	switch {
	case e != nil:
		e.stop(stop)
	default:
		if p := c.gate.Live(r.Job, r.Attempt); p != nil {
			p.Revoke(stop)
		}
	}
	return ipc.Empty{}, nil
}

func (c *Core) heartbeat(_ context.Context, h ipc.Heartbeat) (ipc.HeartbeatResult, error) {
	switch {
	case h.Lapse:
		c.lapse()
	case h.Renew:
		c.renew(h.Sent.Std())
	}
	unused, running := c.gate.Counts()
	use := c.monitor.lastUse()
	cpu := int64(-1)
	if use.CPU >= 0 {
		cpu = use.CPU.Milliseconds()
	}
	return ipc.HeartbeatResult{
		Seq: h.Seq, Running: running, Permits: unused, Goroutines: runtime.NumGoroutine(), RSSBytes: use.RSSBytes, CPUMS: cpu,
	}, nil
}

func (c *Core) shutdown(_ context.Context, r ipc.Shutdown) (ipc.Empty, error) {
	if r.Now {
		c.hurryNow()
	}
	c.peer.ExpectEOF()
	c.askForEnd(fmt.Errorf("%w: %s", errShutdown, r.Reason))
	return ipc.Empty{}, nil
}
