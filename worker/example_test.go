package worker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// lint is a kind of worker that runs "mylint", which prints one finding a line
// as "path: text" and, last, "checked N files".
type lint struct{}

func (lint) Locate(s job.WorkerSettings) (string, error) {
	program := "mylint"
	if len(s.Command) > 0 {
		program = s.Command[0]
	}
	path, err := exec.LookPath(program)
	if err != nil {
		return "", &worker.NotInstalledError{Kind: "lint", Program: program, Hint: "go install example.com/mylint@latest"}
	}
	return path, nil
}

func (lint) Version(context.Context, string) (string, error) { return "", nil }

func (a lint) Start(t *worker.Task) (worker.Session, error) {
	path, err := a.Locate(t.Settings)
	if err != nil {
		return nil, err
	}
	return &lintRun{command: worker.Command{Path: path, Args: []string{"./..."}, Env: t.Environ, Dir: t.Dir}}, nil
}

type lintRun struct {
	command  worker.Command
	findings int
	summary  string // "" until the program said that it is done
}

func (r *lintRun) Command() worker.Command { return r.command }

func (r *lintRun) Step(_ time.Time, in worker.Input) []worker.Action {
	switch in := in.(type) {
	case worker.Output:
		if path, text, ok := bytes.Cut(in.Line, []byte(": ")); ok {
			r.findings++
			return worker.Events(job.Event{Kind: job.EventWarning, Path: string(path), Text: string(text)})
		}
		if bytes.HasPrefix(in.Line, []byte("checked ")) {
			r.summary = string(in.Line)
		}
	case worker.ErrorOutput:
		return worker.Log(in.Line)
	case worker.Ended:
		return []worker.Action{worker.Finish{Result: r.result(in.Exit)}}
	}
	return nil
}

func (r *lintRun) result(e worker.Exit) worker.Result {
	switch {
	case e.Code != 0 || r.summary == "": // how it ended is one witness, what it said the other
		return worker.Result{Class: job.Crash, Message: fmt.Sprintf("mylint ended early, with status %d %s", e.Code, e.Stderr)}
	case r.findings > 0:
		return worker.Result{Class: job.Unknown, Message: fmt.Sprintf("%d findings", r.findings), Answer: r.summary}
	}
	return worker.Result{Answer: r.summary}
}

// A kind of worker of your own. Here its output is told by hand, as the Runner
// does with that of the real program; test yours with the package workertest.
func ExampleAdapter() {
	var adapter worker.Adapter = lint{}
	task := &worker.Task{Dir: "/srv/work", Settings: job.WorkerSettings{Command: []string{"/bin/sh"}}}
	for _, output := range []string{
		"checked 12 files",
		"main.go: unused variable x\nchecked 12 files",
		"main.go: unused var",
	} {
		session, err := adapter.Start(task)
		if err != nil {
			fmt.Println(err)
			return
		}
		inputs := []worker.Input{worker.Started{}}
		for line := range bytes.SplitSeq([]byte(output), []byte("\n")) {
			inputs = append(inputs, worker.Output{Line: line})
		}
		for _, in := range append(inputs, worker.Ended{}) {
			for _, a := range session.Step(time.Now(), in) {
				switch a := a.(type) {
				case worker.Emit:
					fmt.Printf("%s %s %s\n", a.Event.Kind, a.Event.Path, a.Event.Text)
				case worker.Finish:
					fmt.Printf("class %q, message %q, answer %q\n", a.Result.Class, a.Result.Message, a.Result.Answer)
				}
			}
		}
	}

	_, err := adapter.Locate(job.WorkerSettings{Command: []string{"/no/such/mylint"}})
	fmt.Println(errors.Is(err, worker.ErrNotInstalled), err)

	// Output:
	// class "", message "", answer "checked 12 files"
	// warning main.go unused variable x
	// class "UNKNOWN", message "1 findings", answer "checked 12 files"
	// warning main.go unused var
	// class "CRASH", message "mylint ended early, with status 0 ", answer ""
	// true worker lint: program "/no/such/mylint" not found; to get it: go install example.com/mylint@latest
}
