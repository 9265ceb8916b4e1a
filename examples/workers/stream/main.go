// Command stream is an example of a worker of a pipeline's stage that streams
// (docs/pipelines.md), with nothing but the standard library. Its instructions are
// a shell command, which is run once for each event: it finds the event's data on
// its standard input, the event's type in $EVENT, its number in $SEQ, and in $COUNT
// how many events the stage has had before it. Each line that it prints is a type
// and JSON, and is published:
//
//	page_tested {"ok": true}
//
// When no event follows, it is run once more, with "end" as the $EVENT. Put your
// own work in place of the command, and name the program in the settings of a
// worker of the adapter exec.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// task is the part of a task that this worker needs.
type task struct {
	Type         string `json:"type"`
	Protocol     int    `json:"protocol"`
	Instructions string `json:"instructions"`
	AnyCommand   bool   `json:"any_command"`
}

// heard is a line of the scheduler's; which fields it has depends on Type.
type heard struct {
	Type    string          `json:"type"`
	Seq     int64           `json:"seq"`
	Event   string          `json:"event"`
	Data    json.RawMessage `json:"data"`
	State   *state          `json:"state"`
	Message string          `json:"message"`
}

// state is what the next worker of the stage has to know when this one has died.
type state struct {
	Count int64 `json:"count"` // events that are done with
}

type publish struct {
	Type  string          `json:"type"` // "publish"
	Event string          `json:"event"`
	Data  json.RawMessage `json:"data,omitempty"`
	For   int64           `json:"for"`
}

type ack struct {
	Type  string `json:"type"` // "ack"
	Seq   int64  `json:"seq"`
	State *state `json:"state,omitempty"`
}

type result struct {
	Type    string `json:"type"` // "result"
	Status  string `json:"status"`
	Class   string `json:"class,omitempty"`
	Message string `json:"message,omitempty"`
	Hint    string `json:"hint,omitempty"`
	Answer  string `json:"answer,omitempty"`
}

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "stream worker:", err)
		os.Exit(1)
	}
}

// run does what comes on stdin until the stream has ended. With an error the event
// that it was at is given to the next worker, and in the end to the dead letters.
func run(stdin io.Reader, stdout io.Writer) error {
	in := bufio.NewReader(stdin)
	out := json.NewEncoder(stdout) // one line a value, and no buffer to flush
	var t task
	if err := read(in, &t); err != nil {
		return err
	}
	switch {
	case t.Type != "task" || t.Protocol != 1:
		return out.Encode(result{Type: "result", Status: "failed", Class: "CONFIG", Message: "I speak version 1 of the worker protocol"})
	case !t.AnyCommand:
		return out.Encode(result{
			Type: "result", Status: "failed", Class: "CONFIG", Message: "this worker runs commands, which the job may not",
			Hint: "add run_commands to its capabilities",
		})
	}
	var now state
	for {
		var h heard
		if err := read(in, &h); err != nil {
			return err
		}
		switch h.Type {
		case "open":
			if h.State != nil {
				now = *h.State // what an earlier worker has acknowledged
			}
		case "event":
			if err := handle(out, t.Instructions, h, now); err != nil {
				return err
			}
			now.Count++
			if err := out.Encode(ack{"ack", h.Seq, &now}); err != nil {
				return err
			}
		case "end":
			h.Event = "end"
			if err := handle(out, t.Instructions, h, now); err != nil {
				return err
			}
			if err := out.Encode(ack{"ack", 0, &now}); err != nil {
				return err
			}
			return out.Encode(result{Type: "result", Status: "completed", Answer: fmt.Sprintf("%d events", now.Count)})
		case "refused":
			return errors.New(h.Message)
		case "cancel":
			return errors.New("asked to stop")
		}
	}
}

func read(in *bufio.Reader, v any) error {
	line, err := in.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, v)
	}
	if err != nil {
		return fmt.Errorf("read a line of the scheduler's: %w", err)
	}
	return nil
}

// handle runs the command for one event and publishes what it prints. Nothing of
// that is in the pipeline before the event is acknowledged.
func handle(out *json.Encoder, command string, h heard, now state) error {
	cmd := exec.Command("/bin/sh", "-c", command)
	cmd.Env = append(os.Environ(), "EVENT="+h.Event, fmt.Sprintf("SEQ=%d", h.Seq), fmt.Sprintf("COUNT=%d", now.Count))
	cmd.Stdin = bytes.NewReader(append(h.Data, '\n'))
	cmd.Stderr = os.Stderr
	printed, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("event %d (%s): %w", h.Seq, h.Event, err)
	}
	for line := range strings.Lines(string(printed)) {
		event, data, _ := strings.Cut(strings.TrimSpace(line), " ")
		if event == "" {
			continue
		}
		if !json.Valid([]byte(data)) {
			return fmt.Errorf("event %d (%s): the command printed %q, want a type and JSON", h.Seq, h.Event, line)
		}
		if err := out.Encode(publish{"publish", event, json.RawMessage(data), h.Seq}); err != nil {
			return err
		}
	}
	return nil
}
