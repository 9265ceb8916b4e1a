package agentcore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// examine looks at the work of a worker that says it is done: verify, which
// decides whether it is; the check of its loop, which decides whether there is
// another turn; and the report on its quality. The error wraps worker.ErrGhost.
func (e *execution) examine(ctx context.Context, runner *worker.Runner, task *worker.Task, done job.Outcome) (job.Outcome, error) {
	for _, look := range []func(context.Context, *examination) error{e.verify, e.check, e.evaluate} {
		x := &examination{runner: runner, task: task, outcome: &done}
		if err := look(ctx, x); err != nil || !done.Succeeded() {
			return done, err
		}
	}
	return done, nil
}

// examination is what is looked at, and by what means.
type examination struct {
	runner  *worker.Runner
	task    *worker.Task
	outcome *job.Outcome
}

// verify runs the job's verify command.
func (e *execution) verify(ctx context.Context, x *examination) error {
	command := e.submit.Spec.Verify
	if command == "" {
		return nil
	}
	checked, _, err := e.aside(ctx, x, "verify", command, 0)
	if o := x.outcome; !checked.Succeeded() {
		o.State, o.Class, o.Message, o.Hint = checked.State, checked.Class, checked.Message, checked.Hint
		o.StopMillis = checked.StopMillis
	}
	return err
}

// check makes the check of the job's loop. That it does not pass is no failure.
func (e *execution) check(ctx context.Context, x *examination) error {
	loop := e.submit.Spec.Flow.Loop
	switch {
	case loop == nil:
	case loop.Command != "":
		checked, _, err := e.aside(ctx, x, "check", loop.Command, 0)
		if !stopped(ctx, x.outcome, &checked) {
			x.outcome.Check = &job.Check{Passed: checked.Succeeded(), Text: said(&checked), Mute: strings.TrimSpace(checked.Answer) == ""}
		}
		return err
	case loop.File != "":
		x.outcome.Check = fileThere(x.task.Dir, loop.File)
	}
	return nil
}

// said is what a check has to say, never nothing of one that failed.
func said(checked *job.Outcome) string {
	text := strings.TrimSpace(checked.Answer)
	if text == "" && !checked.Succeeded() {
		text = checked.Message
	}
	return tailOf(text, job.MaxCheckText)
}

// fileThere looks for a file of the workspace.
func fileThere(dir, name string) *job.Check {
	root, err := os.OpenRoot(dir)
	if err == nil {
		defer root.Close()
		_, err = root.Stat(name)
	}
	switch {
	case err == nil:
		return &job.Check{Passed: true, Text: name + " exists"}
	case errors.Is(err, fs.ErrNotExist):
		return &job.Check{Text: name + " does not exist", Mute: true}
	}
	return &job.Check{Text: fmt.Sprintf("look for %s: %v", name, err)}
}

// evaluate gets the report on the job's work. One that cannot be had, or read,
// is a warning.
func (e *execution) evaluate(ctx context.Context, x *examination) error {
	v := e.submit.Spec.Flow.Evaluation
	if v == nil {
		return nil
	}
	var report map[string]float64
	var bad, ghost error
	switch {
	case v.Command != "":
		var checked job.Outcome
		var output []byte
		checked, output, ghost = e.aside(ctx, x, "evaluate", v.Command, maxReport)
		if stopped(ctx, x.outcome, &checked) {
			return ghost
		}
		if report, bad = parseReport(output); !checked.Succeeded() {
			report, bad = nil, errors.New(checked.Message)
		}
	case v.Report != "":
		report, bad = readReport(x.task.Dir, v.Report)
	}
	if bad != nil {
		text, _ := job.Cut(fmt.Sprintf("no report on this work: %v", bad), job.MaxEventText)
		e.emit(job.Event{Kind: job.EventWarning, Step: "evaluate", Text: text})
	}
	x.outcome.Report = report
	return ghost
}

// stopped reports whether a look at the work was cut short by the end of the
// attempt, which then has ended like that.
func stopped(ctx context.Context, o, look *job.Outcome) bool {
	if ctx.Err() == nil || look.Succeeded() {
		return false
	}
	o.State, o.Class, o.Message, o.Hint = look.State, look.Class, look.Message, look.Hint
	o.StopMillis = look.StopMillis
	return true
}

// aside runs a shell command in the workspace, in a process tree of its own
// under the attempt's tag, and within the attempt's own time. name is what it is
// for. With keep > 0 its standard output is returned, too; if that is longer than
// keep, not all of it, but more than keep bytes.
func (e *execution) aside(ctx context.Context, x *examination, name, command string, keep int) (job.Outcome, []byte, error) {
	e.emit(job.Event{Kind: job.EventCommand, Command: command, CallID: name, Step: name})
	s := &lookSession{task: x.task, name: name, command: command, keep: keep, redact: e.secrets.Lines()}
	checked, err := x.runner.Run(ctx, s, worker.Run{
		Tag: e.tag, LogDir: filepath.Dir(x.task.Scratch), LogName: name + "-", Limits: e.limits(), Hurry: e.hurry, Redact: e.secrets, Sandbox: e.sandbox(), Watch: e.spareTree,
		Sink: func(job.Event) {}, // its output is in its log
	})
	code := checked.ExitCode
	end := job.Event{Kind: job.EventCommand, Command: command, CallID: name, Step: name, ExitCode: &code, Millis: checked.EndedAt.Sub(checked.StartedAt).Milliseconds(), Text: checked.Answer}
	e.emit(end)
	o := x.outcome
	o.Artifacts = append(o.Artifacts, checked.Artifacts...)
	o.Commands = append(o.Commands, job.CommandRun{Command: command, ExitCode: code, Millis: end.Millis})
	o.LeftBehind = append(o.LeftBehind, checked.LeftBehind...)
	return checked, bytes.TrimSuffix(s.kept, []byte("\n")), err
}

// lookSession runs a shell command as a worker.Session: what it prints is kept
// for the feedback, its exit code decides.
type lookSession struct {
	task          *worker.Task
	name, command string
	keep          int
	redact        func(line []byte) []byte
	output        []byte // the tail of its output, without secrets
	kept          []byte // the head of its standard output alone
}

// outputTail is how much of a command's output goes into the feedback.
const outputTail = 8 << 10

func (v *lookSession) Command() worker.Command {
	script := v.command
	if v.keep == 0 {
		script = "exec 2>&1; " + script
	}
	return worker.Command{Path: "/bin/sh", Args: []string{"-c", script}, Env: v.task.Environ, Dir: v.task.Dir}
}

func (v *lookSession) Step(_ time.Time, in worker.Input) []worker.Action {
	switch in := in.(type) {
	case worker.Output:
		v.keepLine(in.Line)
	case worker.Ended:
		return []worker.Action{worker.Finish{Result: v.result(in.Exit)}}
	}
	return nil
}

func (v *lookSession) keepLine(line []byte) {
	v.output = append(append(v.output, v.redact(line)...), '\n')
	if extra := len(v.output) - outputTail; extra > 0 {
		v.output = append(v.output[:0], v.output[extra:]...)
	}
	if room := v.keep + 2 - len(v.kept); v.keep > 0 && room > 0 { // a newline and one byte too many
		v.kept = append(append(v.kept, line[:min(len(line), room)]...), '\n')
	}
}

func (v *lookSession) result(x worker.Exit) worker.Result {
	output := strings.ToValidUTF8(string(v.output), "\uFFFD")
	if x.Code == 0 {
		return worker.Result{Answer: output}
	}
	how := fmt.Sprintf("ended with exit code %d", x.Code)
	if x.Signal != "" {
		how = "was ended by signal: " + x.Signal
	}
	return worker.Result{
		Class:   job.VerifyFailed,
		Message: strings.TrimSpace(fmt.Sprintf("the %s command %q %s:\n%s", v.name, v.command, how, strings.TrimSpace(output+x.Stderr))),
		Answer:  output,
	}
}

// tailOf returns the end of a text, at most n bytes, beginning with a whole rune.
func tailOf(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[len(text)-n:], "")
}
