package agentcore

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

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
	task, err := e.task(ws, dir, adapter)
	if err != nil {
		return failed(time.Now(), job.ResourceExhausted, err), nil
	}
	session, err := adapter.Start(task)
	if err != nil {
		return failed(time.Now(), job.Config, fmt.Errorf("start worker %s: %w", task.Kind, err)), nil
	}
	limits := e.submit.Spec.Limits
	runner := &worker.Runner{Host: e.session.host, Stages: e.stages(), Log: e.log}
	outcome, err := runner.Run(ctx, session, worker.Run{
		Tag: e.tag, Model: task.Model, LogDir: dir,
		Tokens: e.permit.Tokens, CostUSD: e.permit.CostUSD, MaxSteps: limits.MaxSteps, MaxCommandTime: limits.MaxCommandTime.Std(),
		Prices: e.settings.Prices, Hurry: e.hurry, Sink: e.emit, Watch: e.watchTree,
	})
	if err != nil || !outcome.Succeeded() {
		return outcome, err
	}
	if err := checkOutput(e.submit.Spec.Output, outcome.Answer); err != nil {
		outcome.State, outcome.Class = job.RunFailed, job.InvalidOutput
		outcome.Message = fmt.Sprintf("the answer does not satisfy the job's output schema: %v", err)
		return outcome, nil
	}
	if e.submit.Spec.Verify != "" {
		return e.verify(ctx, runner, task, outcome)
	}
	return outcome, nil
}

// adapter returns the adapter of the run's kind of worker.
func (e *execution) adapter() (worker.Adapter, error) {
	kind := e.submit.Choice.Worker
	name := e.settings.Workers[kind].Adapter
	if name == "" {
		name = string(kind)
	}
	if a := e.core.cfg.Adapters[name]; a != nil {
		return a, nil
	}
	return nil, &worker.Failure{Class: job.Config, Message: fmt.Sprintf("no such worker: %s (adapter %q is unknown to this core)", kind, name)}
}

// task builds the worker's task and the folders that it needs.
func (e *execution) task(ws *workspace.Workspace, dir string, a worker.Adapter) (*worker.Task, error) {
	spec, choice := &e.submit.Spec, e.submit.Choice
	settings := e.settings.Workers[choice.Worker]
	model := choice.Model
	if model == "" {
		model = settings.Model
	}
	home := e.session.dir.Home(e.submit.Job, choice.Worker)
	if e.submit.Session == "" {
		if err := os.RemoveAll(home); err != nil {
			return nil, fmt.Errorf("empty the worker's private folder: %w", err)
		}
	}
	names := append(append([]string{}, spec.Env...), settings.Env...)
	if settings.KeyEnv != "" {
		names = append(names, settings.KeyEnv)
	}
	t := &worker.Task{
		Job: e.submit.Job, Name: spec.Name, Attempt: e.submit.Attempt, Kind: choice.Worker, Model: model,
		Instructions: instructions(spec.Instructions, e.submit.Session, e.submit.Feedback), SystemPrompt: spec.SystemPrompt,
		Dir: ws.Dir, Home: home, Scratch: filepath.Join(dir, "scratch"), Session: e.submit.Session,
		Capabilities: spec.Capabilities, AllowCommands: spec.AllowCommands, Output: spec.Output, Limits: e.remaining(),
		Environ: worker.SetEnv(append(worker.BaseEnv(e.core.cfg.Environ, names...), ws.Env...), "TMPDIR", e.temp), Lookup: e.core.cfg.Lookup, Settings: settings,
	}
	if f, ok := a.(worker.Folderless); ok && f.Folderless(t) {
		return t, nil
	}
	for _, d := range []string{t.Home, t.Scratch} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, fmt.Errorf("make the worker's private folder: %w", err)
		}
	}
	return t, nil
}

// instructions returns what the worker is told: the job's own words, with why
// the last attempt was not good enough, or that it was interrupted.
func instructions(text, session, feedback string) string {
	switch {
	case feedback != "":
		return text + "\n\nYour previous attempt was not accepted:\n" + feedback
	case session != "":
		return "You were interrupted before this task was done. Look at what is there already and finish it. The task:\n\n" + text
	default:
		return text
	}
}

// checkOutput returns why the answer does not satisfy the schema; nil without one.
func checkOutput(schema json.RawMessage, answer string) error {
	if len(schema) == 0 {
		return nil
	}
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(schema)))
	if err != nil {
		return fmt.Errorf("read the schema: %w", err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("output.json", doc); err != nil {
		return fmt.Errorf("read the schema: %w", err)
	}
	compiled, err := compiler.Compile("output.json")
	if err != nil {
		return fmt.Errorf("compile the schema: %w", err)
	}
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(bareJSON(answer)))
	if err != nil {
		return fmt.Errorf("the answer is not JSON: %w", err)
	}
	return compiled.Validate(value)
}

// bareJSON strips the Markdown fence that models like to put around JSON.
func bareJSON(answer string) string {
	text := strings.TrimSpace(answer)
	body, fenced := strings.CutPrefix(text, "```")
	if !fenced {
		return text
	}
	_, body, _ = strings.Cut(body, "\n")
	return strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(body), "```"))
}

// verify runs the job's verify command in the workspace, in a process tree of
// its own under the same tag, and within the attempt's own time.
func (e *execution) verify(ctx context.Context, runner *worker.Runner, task *worker.Task, done job.Outcome) (job.Outcome, error) {
	command := e.submit.Spec.Verify
	e.emit(job.Event{Kind: job.EventCommand, Command: command, CallID: "verify", Step: "verify"})
	checked, err := runner.Run(ctx, &verifySession{task: task, command: command}, worker.Run{
		Tag: e.tag, LogDir: filepath.Dir(task.Scratch), LogName: "verify-", Hurry: e.hurry,
		Sink: func(job.Event) {}, // its output is in its log
	})
	code := checked.ExitCode
	end := job.Event{Kind: job.EventCommand, Command: command, CallID: "verify", Step: "verify", ExitCode: &code, Millis: checked.EndedAt.Sub(checked.StartedAt).Milliseconds(), Text: checked.Answer}
	e.emit(end)
	done.Artifacts = append(done.Artifacts, checked.Artifacts...)
	done.Commands = append(done.Commands, job.CommandRun{Command: command, ExitCode: code, Millis: end.Millis})
	done.LeftBehind = append(done.LeftBehind, checked.LeftBehind...)
	if checked.Succeeded() {
		return done, err
	}
	done.State, done.Class, done.Message, done.Hint = checked.State, checked.Class, checked.Message, checked.Hint
	done.StopMillis = checked.StopMillis
	return done, err
}

// verifySession runs a shell command as a worker.Session: what it prints is
// kept for the feedback, its exit code decides.
type verifySession struct {
	task    *worker.Task
	command string
	output  []byte // the tail of its output
}

// verifyTail is how much of a verify command's output goes into the feedback.
const verifyTail = 8 << 10

func (v *verifySession) Command() worker.Command {
	return worker.Command{Path: "/bin/sh", Args: []string{"-c", "exec 2>&1; " + v.command}, Env: v.task.Environ, Dir: v.task.Dir}
}

func (v *verifySession) Event(line []byte) []job.Event {
	v.output = append(append(v.output, line...), '\n')
	if extra := len(v.output) - verifyTail; extra > 0 {
		v.output = append(v.output[:0], v.output[extra:]...)
	}
	return nil
}

func (v *verifySession) Cancel(io.Writer) error { return nil }

func (v *verifySession) Result(x worker.Exit) worker.Result {
	output := strings.ToValidUTF8(string(v.output), "\uFFFD")
	if x.Code == 0 {
		return worker.Result{Answer: output}
	}
	return worker.Result{
		Class:   job.VerifyFailed,
		Message: fmt.Sprintf("the verify command %q ended with exit code %d:\n%s", v.command, x.Code, strings.TrimSpace(output)),
		Answer:  output,
	}
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
