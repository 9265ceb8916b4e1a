// Command steps is an example of a worker with durable steps
// (docs/worker-protocol.md), with nothing but the standard library. Each line of
// its instructions is a command and a step: one that was done by an earlier
// attempt is not done again, however that attempt ended. Put your own work in
// place of the commands, and name the program in the settings of a worker of the
// adapter exec.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// task is the part of a task that this worker needs.
type task struct {
	Type         string          `json:"type"`
	Protocol     int             `json:"protocol"`
	Instructions string          `json:"instructions"`
	AnyCommand   bool            `json:"any_command"`
	Steps        map[string]step `json:"steps"`
	StepsFile    string          `json:"steps_file"`
}

// step is what is stored of a step. Text of more than 128 bytes comes back as its
// hash in Inputs; this worker leaves it to the scheduler to compare them.
type step struct {
	Inputs string `json:"inputs"`
	Result string `json:"result"`
}

// message is a line of either direction; which fields it has depends on Type.
type message struct {
	Type      string  `json:"type"`
	Protocol  int     `json:"protocol,omitempty"`
	Name      string  `json:"name,omitempty"`
	Step      string  `json:"step,omitempty"`
	Inputs    string  `json:"inputs,omitempty"`
	Result    *string `json:"result,omitempty"`
	FromStore bool    `json:"from_store,omitempty"`
	Status    string  `json:"status,omitempty"`
	Class     string  `json:"class,omitempty"`
	Message   string  `json:"message,omitempty"`
	Hint      string  `json:"hint,omitempty"`
	Reason    string  `json:"reason,omitempty"`
	Answer    string  `json:"answer,omitempty"`
}

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "steps worker:", err)
		os.Exit(1)
	}
}

// run does the one task that it is given on stdin. The error is about the
// protocol; a task that fails is a result like another.
func run(stdin io.Reader, stdout io.Writer) error {
	in := bufio.NewReader(stdin)
	t, err := readTask(in)
	if err != nil {
		return err
	}
	out := json.NewEncoder(stdout) // one line a value, and no buffer to flush
	if err := out.Encode(message{Type: "hello", Protocol: 1, Name: "steps"}); err != nil {
		return err
	}
	switch {
	case t.Type != "task" || t.Protocol != 1:
		return out.Encode(failure("CONFIG", "I speak version 1 of the worker protocol"))
	case !t.AnyCommand:
		m := failure("CONFIG", "this worker runs commands, which the job may not")
		m.Hint = "add run_commands to its capabilities"
		return out.Encode(m)
	}
	w := &work{out: out, answers: make(chan message), checkpoint: make(chan string, 1)}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	go w.listen(in, cancel) // until the process ends
	return out.Encode(w.all(ctx, t))
}

func readTask(in *bufio.Reader) (t task, err error) {
	line, err := in.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &t)
	}
	if err != nil {
		return t, fmt.Errorf("read the task: %w", err)
	}
	if t.StepsFile == "" {
		return t, nil
	}
	text, err := os.ReadFile(t.StepsFile)
	if err == nil {
		err = json.Unmarshal(text, &t.Steps)
	}
	if err != nil {
		return t, fmt.Errorf("read the stored steps: %w", err)
	}
	return t, nil
}

type work struct {
	out        *json.Encoder
	answers    chan message // to the step that was reported last
	checkpoint chan string  // why we are to stop at the next boundary
}

// listen sorts what the scheduler says while we work.
func (w *work) listen(in *bufio.Reader, cancel context.CancelCauseFunc) {
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			cancel(errors.New("the scheduler is gone"))
			return
		}
		var m message
		if json.Unmarshal(line, &m) != nil {
			continue
		}
		switch m.Type {
		case "cancel":
			cancel(errors.New("asked to stop"))
		case "checkpoint":
			select {
			case w.checkpoint <- m.Reason:
			default: // we know already
			}
		case "step_stored", "step_refused":
			w.answers <- m
		}
	}
}

// all does the steps that are not done and returns the result line.
func (w *work) all(ctx context.Context, t task) message {
	var last string
	for i, command := range strings.Split(strings.TrimSpace(t.Instructions), "\n") {
		select {
		case why := <-w.checkpoint:
			return message{Type: "result", Status: "checkpointed", Message: why}
		default:
		}
		id := strconv.Itoa(i + 1)
		if done, ok := t.Steps[id]; ok && (done.Inputs == command || len(command) > 128) {
			last = done.Result
			continue
		}
		output, err := exec.CommandContext(ctx, "/bin/sh", "-c", command).CombinedOutput()
		if err != nil {
			return failure("UNKNOWN", fmt.Sprintf("%s: %v: %s", command, err, output))
		}
		if last, err = w.store(ctx, id, command, strings.TrimSpace(string(output))); err != nil {
			return failure("UNKNOWN", err.Error())
		}
	}
	return message{Type: "result", Status: "completed", Answer: last}
}

// store reports a step and waits until it is on disk. It returns the result that
// holds: another one if the step was stored before.
func (w *work) store(ctx context.Context, id, inputs, result string) (string, error) {
	if err := w.out.Encode(message{Type: "step", Step: id, Inputs: inputs, Result: &result}); err != nil {
		return "", err
	}
	select {
	case m := <-w.answers:
		switch {
		case m.Type == "step_refused":
			return "", errors.New(m.Message)
		case m.FromStore && m.Result != nil:
			return *m.Result, nil
		}
		return result, nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

func failure(class, text string) message {
	return message{Type: "result", Status: "failed", Class: class, Message: text}
}
