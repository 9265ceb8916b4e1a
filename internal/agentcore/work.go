package agentcore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/agentsched/agentsched/internal/proc"
	"github.com/agentsched/agentsched/internal/workspace"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// work runs the worker in the prepared workspace, then checks its answer and
// its work. The error wraps worker.ErrGhost; the outcome is valid with it.
func (e *execution) work(ctx context.Context, ws *workspace.Workspace, dir string) (job.Outcome, error) {
	adapter, err := e.adapter()
	if err != nil {
		return failed(time.Now(), job.Config, err), nil
	}
	if e.reports() {
		e.observed, err = e.observe(ws, dir)
	} else {
		e.held, err = e.confine(ctx, ws, dir, adapter)
	}
	if err != nil {
		return failed(time.Now(), job.Config, err), nil
	}
	if e.held == nil {
		e.grants.serve(nil, nil)
		if err := e.lead.serve(ctx, adapter); err != nil {
			return failed(time.Now(), job.ResourceExhausted, err), nil
		}
	}
	e.tellUnheld()
	outcome, err := e.workHeld(ctx, ws, dir, adapter)
	e.held.explain(&outcome)
	if err := errors.Join(e.held.Close(), e.lead.close()); err != nil {
		e.log.Warn().Err(err).Msg("close what served the run")
	}
	outcome.Sandbox = e.holding()
	return outcome, err
}

// workHeld is work for an attempt whose processes are held as e.held says.
func (e *execution) workHeld(ctx context.Context, ws *workspace.Workspace, dir string, adapter worker.Adapter) (job.Outcome, error) {
	task, err := e.task(ws, dir, adapter)
	if err != nil {
		return failed(time.Now(), job.ResourceExhausted, err), nil
	}
	if e.submit.HasSteps {
		if task.Steps, err = e.steps.load(ctx); err != nil {
			return failed(time.Now(), job.Unknown, err), nil
		}
	}
	if e.stream != nil && !worker.TraitsOf(adapter).Streams {
		return failed(time.Now(), job.Config, cannotStream(e.submit)), nil
	}
	given, spoken := e.talk.divide(adapter, e.submit.Messages)
	if !worker.TraitsOf(adapter).Script {
		task.Instructions += answeredBlock(e.submit.Answered) + saidBlock(spoken)
	}
	session, err := adapter.Start(task)
	if err != nil {
		return failed(time.Now(), job.Config, fmt.Errorf("start worker %s: %w", task.Kind, err)), nil
	}
	limits := e.submit.Spec.Limits
	runner := &worker.Runner{Host: e.session.host, Stages: e.stages(), Log: e.log}
	e.steps.begin(adapter, task.Steps)
	e.talk.begin(adapter, string(task.Kind), ws.Dir, e.waitForPerson, given, spoken)
	if e.stream != nil {
		e.steps.end() // it keeps its place in the stream, and can be stopped at any time
	}
	outcome, err := runner.Run(ctx, session, worker.Run{
		Tag: e.tag, Model: task.Model, LogDir: dir,
		Tokens: e.permit.Tokens, CostUSD: e.permit.CostUSD, MaxSteps: limits.MaxSteps, MaxCommandTime: limits.MaxCommandTime.Std(),
		Prices: e.settings.Prices, Hurry: e.hurry, Redact: e.secrets, Sink: e.send, Limits: e.limits(),
		Watch: func(tree *proc.Tree) func() {
			e.talk.settleWords(spoken)
			return e.watchTree(tree)
		},
		StoreStep: e.steps.store, Inputs: e.talk.inputs.out, Tell: e.talk.tell, Stream: e.stream.join(), Sandbox: e.sandbox(), Meter: e.held.meter(),
	})
	e.steps.end()
	e.talk.end()
	outcome.Interrupted = outcome.State == job.Checkpointed && e.talk.wasInterrupted()
	if err == nil && outcome.Succeeded() && e.talk.unread() {
		outcome.State, outcome.Message = job.Checkpointed, "it was told something that it has not read"
	}
	if err != nil || !outcome.Succeeded() {
		return outcome, err
	}
	if err := checkOutput(e.submit.Spec.Output, outcome.Answer); err != nil {
		outcome.State, outcome.Class = job.RunFailed, job.InvalidOutput
		outcome.Message = fmt.Sprintf("the answer does not satisfy the job's output schema: %v", err)
		return outcome, nil
	}
	if left, err := e.workspaces.Unresolved(ws); err != nil || len(left) > 0 {
		return marksLeft(outcome, left, err), nil
	}
	return e.examine(ctx, runner, task, outcome)
}

// waitForPerson stops the clock of the run while it waits for a person.
func (e *execution) waitForPerson(waits bool) {
	e.clock.wait(waits)
	e.stall.Output(time.Now())
}

// limits returns what the run may use of the host: what its job says, else what
// the configuration does.
func (e *execution) limits() proc.Limits {
	own, each := &e.submit.Spec.Limits, &e.settings.RunLimits.Each
	return proc.Limits{
		Memory: cmp.Or(int64(own.Memory), each.Memory), Processes: cmp.Or(own.Processes, each.Processes), CPU: cmp.Or(own.CPU, each.CPU),
	}
}

// tellUnheld warns of what the job says for a sandbox where there is none.
func (e *execution) tellUnheld() {
	if e.held != nil {
		return
	}
	var void []string
	spec := &e.submit.Spec
	for _, f := range []struct {
		name  string
		given bool
	}{
		{"network", len(spec.Network) > 0 && !spec.HasFullNetwork()}, {"git", len(spec.Git) > 0},
		{"sandbox.read", len(spec.Sandbox.Read) > 0}, {"sandbox.write", len(spec.Sandbox.Write) > 0}, {"sandbox.hide", len(spec.Sandbox.Hide) > 0},
	} {
		if f.given {
			void = append(void, f.name)
		}
	}
	if len(void) > 0 {
		e.emit(job.Event{Kind: job.EventWarning, Text: fmt.Sprintf("no sandbox holds this run, so %s of the job has no effect: set sandbox in the job, or sandbox.level in the configuration", strings.Join(void, ", "))})
	}
}

// tellUnlimited warns of limits of the job that are not enforced on this host.
func (e *execution) tellUnlimited(tree *proc.Tree) {
	own := &e.submit.Spec.Limits
	asked := proc.Limits{Memory: int64(own.Memory), Processes: own.Processes, CPU: own.CPU}
	if err := tree.Unlimited(asked); err != nil {
		e.emit(job.Event{Kind: job.EventWarning, Text: fmt.Sprintf("the limits of the job on memory, processes or CPU are not enforced: %v", err)})
	}
}

// adapter returns the adapter of the run's kind of worker.
func (e *execution) adapter() (worker.Adapter, error) {
	name := e.adapterName()
	if a := e.core.cfg.Adapters[name]; a != nil {
		return a, nil
	}
	return nil, &worker.Failure{Class: job.Config, Message: fmt.Sprintf("no such worker: %s (adapter %q is unknown to this core)", e.submit.Choice.Worker, name)}
}

func (e *execution) adapterName() string {
	kind := e.submit.Choice.Worker
	return cmp.Or(e.settings.Workers[kind].Adapter, string(kind))
}

// said returns the class of an outcome as far as it tells of the kind of worker.
func (e *execution) said(o *job.Outcome) job.ErrorClass {
	if o.Class == job.Crash {
		if a, err := e.adapter(); err == nil {
			if worker.TraitsOf(a).Script {
				return job.Unknown
			}
		}
	}
	return o.Class
}

// task builds the worker's task and the folders that it needs.
func (e *execution) task(ws *workspace.Workspace, dir string, a worker.Adapter) (*worker.Task, error) {
	spec, choice := &e.submit.Spec, e.submit.Choice
	settings := e.settings.Workers[choice.Worker]
	model := choice.Model
	if model == "" {
		model = settings.Model
	}
	home := e.home()
	if e.submit.Session == "" && !e.submit.HasSteps {
		if err := os.RemoveAll(home); err != nil {
			return nil, fmt.Errorf("empty the worker's private folder: %w", err)
		}
	}
	names := slices.Clone(settings.Env)
	if e.submit.Environ == nil {
		names = append(names, spec.Env...)
	}
	if settings.KeyEnv != "" && e.held.modelEndpoint() == nil {
		names = append(names, settings.KeyEnv)
	}
	words, more, err := e.words(ws)
	if err != nil {
		return nil, err
	}
	env := e.callersEnv(append(worker.BaseEnv(e.core.cfg.Environ, names...), ws.Env...))
	if parent := job.TraceParent(spec.Trace, e.submit.Job, e.submit.Attempt); parent != "" {
		env = worker.SetEnv(env, "TRACEPARENT", parent)
	}
	t := &worker.Task{
		Job: e.submit.Job, Name: spec.Name, Attempt: e.submit.Attempt, Kind: choice.Worker, Model: model,
		Instructions: words, SystemPrompt: spec.SystemPrompt,
		Dir: ws.Dir, Home: home, Scratch: filepath.Join(dir, "scratch"), Session: e.submit.Session, Fork: e.submit.Fork != "" && e.submit.Session != "", Moved: e.moved(ws),
		Asked: spec.Ask.Asks(), Capabilities: spec.Capabilities, AllowCommands: spec.AllowCommands, Output: spec.Output, Limits: e.remaining(),
		Environ: e.held.Environ(worker.SetEnv(append(env, more...), "TMPDIR", e.temp)), Confined: e.held != nil, Models: e.held.modelEndpoint(), Tools: e.lead.tools(), Lookup: e.core.cfg.Lookup, Settings: settings, Streams: e.stream != nil,
	}
	if t.Tools != nil {
		t.Environ = worker.SetEnv(worker.SetEnv(t.Environ, worker.ToolURLVariable, t.Tools.URL), worker.ToolKeyVariable, t.Tools.Key)
	}
	if f, ok := a.(worker.Folderless); ok && f.Folderless(t) && e.held == nil {
		return t, nil
	}
	for _, d := range []string{t.Home, t.Scratch} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, fmt.Errorf("make the worker's private folder: %w", err)
		}
	}
	if e.held != nil {
		if err := e.held.MakeFolders(t.Environ); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// home is the worker's private folder.
func (e *execution) home() string { return e.session.dir.Home(e.folder(), e.submit.Choice.Worker) }

// callersEnv gives the variables that the job names the values of the process that
// handed the job over, if there is one.
func (e *execution) callersEnv(env []string) []string {
	if e.submit.Environ == nil {
		return env
	}
	for _, name := range e.submit.Spec.Env {
		env = slices.DeleteFunc(env, func(kv string) bool { return strings.HasPrefix(kv, name+"=") })
		if value, ok := e.submit.Environ[name]; ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// remaining returns the job's limits as far as they are not used up, for
// programs that can keep to a limit of their own.
func (e *execution) remaining() job.Limits {
	l := e.submit.Spec.Limits
	if e.permit.CostUSD > 0 {
		l.MaxCostUSD = e.permit.CostUSD
	}
	if e.permit.Tokens > 0 {
		l.MaxTokens = e.permit.Tokens
	}
	return l
}
