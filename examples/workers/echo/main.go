// Command echo is an example of a worker that speaks the worker protocol
// (docs/worker-protocol.md), with nothing but the standard library. It runs
// each line of its instructions as a command, which makes it a small shell
// worker; put your own agent in place of that. Name it in the settings of a
// worker of the adapter exec.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// task is the part of a task that this worker needs.
type task struct {
	Type         string `json:"type"`
	Protocol     int    `json:"protocol"`
	Instructions string `json:"instructions"`
	AnyCommand   bool   `json:"any_command"`
}

// message is a line of either direction; which fields it has depends on Type.
type message struct {
	Type     string `json:"type"`
	Protocol int    `json:"protocol,omitempty"`
	Name     string `json:"name,omitempty"`
	Text     string `json:"text,omitempty"`
	Phase    string `json:"phase,omitempty"`
	ID       string `json:"id,omitempty"`
	Command  string `json:"command,omitempty"`
	ExitCode *int   `json:"exit_code,omitempty"`
	Millis   int64  `json:"ms,omitempty"`
	Output   string `json:"output,omitempty"`
	Step     string `json:"step,omitempty"`
	Status   string `json:"status,omitempty"`
	Class    string `json:"class,omitempty"`
	Message  string `json:"message,omitempty"`
	Hint     string `json:"hint,omitempty"`
	Answer   string `json:"answer,omitempty"`
}

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "echo worker:", err)
		os.Exit(1)
	}
}

// run does the one task that it is given on stdin. The error is about the
// protocol; a task that fails is a result like another.
func run(stdin io.Reader, stdout io.Writer) error {
	in := bufio.NewReader(stdin)
	line, err := in.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("read the task: %w", err)
	}
	var t task
	if err := json.Unmarshal(line, &t); err != nil {
		return fmt.Errorf("read the task: %w", err)
	}
	out := json.NewEncoder(stdout) // one line a value, and no buffer to flush
	if err := out.Encode(message{Type: "hello", Protocol: 1, Name: "echo"}); err != nil {
		return err
	}
	if t.Type != "task" || t.Protocol != 1 {
		return out.Encode(message{Type: "result", Status: "failed", Class: "CONFIG", Message: "I speak version 1 of the worker protocol"})
	}
	if !t.AnyCommand {
		return out.Encode(message{
			Type: "result", Status: "failed", Class: "CONFIG", Message: "this worker runs commands, which the job may not",
			Hint: "add run_commands to its capabilities",
		})
	}

	// Standard input stays open for a cancel line, so the work does not wait
	// for its end; reading ends with the process.
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	go func() {
		for {
			line, err := in.ReadBytes('\n')
			var m message
			if json.Unmarshal(line, &m) == nil && m.Type == "cancel" {
				cancel(fmt.Errorf("asked to stop"))
			}
			if err != nil {
				return
			}
		}
	}()
	return out.Encode(work(ctx, t, out))
}

// work runs the task's commands until one fails and returns the result line.
func work(ctx context.Context, t task, out *json.Encoder) message {
	var output string
	for i, line := range strings.Split(strings.TrimSpace(t.Instructions), "\n") {
		id := fmt.Sprint(i + 1)
		if err := out.Encode(message{Type: "command", Phase: "start", ID: id, Command: line}); err != nil {
			return message{Type: "result", Status: "failed", Message: err.Error()}
		}
		started := time.Now()
		code, text, err := runCommand(ctx, line)
		output = text
		out.Encode(message{Type: "command", Phase: "end", ID: id, ExitCode: &code, Millis: time.Since(started).Milliseconds(), Output: text})
		if err != nil {
			return message{Type: "result", Status: "failed", Class: "UNKNOWN", Message: fmt.Sprintf("%s: %v", line, err)}
		}
		out.Encode(message{Type: "step", Step: id})
	}
	return message{Type: "result", Status: "completed", Answer: output}
}

// runCommand returns the exit code of a shell command and what it printed. The
// error says why it does not count as done.
func runCommand(ctx context.Context, line string) (code int, output string, err error) {
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", line)
	var text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &text, &text
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = time.Second
	err = cmd.Run()
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return cmd.ProcessState.ExitCode(), strings.TrimSpace(text.String()), err
}
