package worker_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// The sessions in this file are sketches of the programs' two-way protocols. They
// show that the interface holds them: a run that is steered and that asks.

// play plays a recorded conversation to a session: what it writes must be what was
// written then, in the same places. It returns what else the session did.
func play(t *testing.T, file string, s worker.Session) (did []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var written [][]byte
	var asked []worker.Question
	closed := false
	step := func(in worker.Input) {
		for _, a := range s.Step(time.Unix(0, 0), in) {
			switch a := a.(type) {
			case worker.Write:
				written = append(written, bytes.TrimSuffix(a.Data, []byte("\n")))
			case worker.CloseInput:
				closed = true
			case worker.Ask:
				asked = append(asked, a.Question)
				did = append(did, fmt.Sprintf("ask %s: %s %s", a.Question.ID, a.Question.Tool, a.Question.Command))
			case worker.Settle:
				did = append(did, fmt.Sprintf("settle %s: %s", a.Message, a.State))
			case worker.Emit:
				did = append(did, strings.TrimSpace(said(a.Event)))
			case worker.Finish:
				did = append(did, fmt.Sprintf("finish %q: %s", a.Result.Class, a.Result.Answer))
			default:
				t.Errorf("%T %+v", a, a)
			}
		}
	}
	step(worker.Started{})
	for n, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		kind, rest := line[:1], line[2:]
		switch {
		case kind == "<":
			step(worker.Output{Line: []byte(rest)})
		case kind == ">" && len(written) == 0:
			t.Fatalf("%s:%d: the session did not write %s", file, n+1, rest)
		case kind == ">":
			var got, want any
			if json.Unmarshal(written[0], &got) != nil || json.Unmarshal([]byte(rest), &want) != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%s:%d: the session wrote\n%s, want\n%s", file, n+1, written[0], rest)
			}
			written = written[1:]
		case rest == "allow":
			step(worker.Answer{Question: asked[0].ID, Decision: worker.Allow})
			asked = asked[1:]
		case strings.HasPrefix(rest, "message "):
			step(worker.Message{ID: "m", Text: strings.TrimPrefix(rest, "message ")})
		}
	}
	if len(written) > 0 || len(asked) > 0 || !closed {
		t.Errorf("not written then: %q; not answered: %+v; input closed: %t", written, asked, closed)
	}
	step(worker.Ended{})
	return did
}

func said(e job.Event) string {
	switch {
	case e.Kind == job.EventCommand && e.ExitCode == nil:
		return "command " + e.Command
	case e.Kind == job.EventCommand:
		return fmt.Sprintf("command ends with %d: %s", *e.ExitCode, strings.TrimSpace(e.Text))
	case e.Kind == job.EventUsage:
		return fmt.Sprintf("usage %d+%d", e.Usage.InputTokens, e.Usage.OutputTokens)
	}
	return fmt.Sprintf("%s %s%s", e.Kind, e.Session, e.Text)
}

// TestLiveProtocols: a session in which the program asks for a permission and is told
// something while its command runs, with each of the three.
func TestLiveProtocols(t *testing.T) {
	for _, c := range []struct {
		name string
		s    worker.Session
		want []string
	}{
		{"codex", &liveCodex{}, []string{
			"session 01a209c0-9bd1-7b12-87b2-5e5335bf1489",
			"command /bin/bash -lc 'sleep 4; echo one'", "ask 0: command /bin/bash -lc 'sleep 4; echo one'",
			"settle m: delivered", "command ends with 0: one", "usage 100+20", "settle m: folded", "text All done. steer=True", "usage 100+20",
			`finish "": All done. steer=True`,
		}},
		{"claude", &liveClaude{}, []string{
			"session eabf7b81-6014-4f43-bb18-903a6e5ed277",
			"command sleep 4; echo one > made.txt", "ask a16a5d7c-2089-4a42-b854-0fef7f752144: Bash sleep 4; echo one > made.txt",
			"settle m: delivered", "command ends with 0: (Bash completed with no output)", "settle m: folded", "text All done. steer=True", "usage 200+40",
			`finish "": All done. steer=True`,
		}},
		{"opencode", &liveOpenCode{}, []string{
			"session ses_df63f2211ffeELRBvZZKIj4kTr",
			"command sleep 4; echo one", "ask per_209c0ecc700171M2yT3r65er2E: bash sleep 4; echo one",
			"settle m: delivered", "command ends with 0: one", "usage 100+20", "settle m: folded", "text All done. steer=True", "usage 100+20",
			`finish "": All done. steer=True`,
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			did := play(t, "testdata/live/"+c.name+".txt", c.s)
			if !reflect.DeepEqual(did, c.want) {
				t.Errorf("the session did\n%s\nwant\n%s", strings.Join(did, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

type object = map[string]any

// frame is the action that writes one JSON value a line.
func frame(v any) worker.Action {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return worker.Write{Data: append(data, '\n')}
}

func finished(done bool, answer string) []worker.Action {
	if !done {
		return []worker.Action{worker.Finish{Result: worker.Result{Class: job.Crash, Message: "it ended before its turn"}}}
	}
	return []worker.Action{worker.Finish{Result: worker.Result{Answer: answer}}}
}

// liveCodex talks with `codex app-server`: JSON-RPC without the member jsonrpc.
type liveCodex struct {
	thread, turn, answer string
	steering             string // the message that turn/steer was sent for
	told                 string // its text
	done                 bool
}

func (c *liveCodex) Command() worker.Command { return worker.Command{KeepStdin: true} }

func (c *liveCodex) Step(_ time.Time, in worker.Input) []worker.Action {
	switch in := in.(type) {
	case worker.Started:
		client := object{"name": "agentsched", "title": "agentsched", "version": "0"}
		return []worker.Action{frame(object{"id": 1, "method": "initialize", "params": object{"clientInfo": client, "capabilities": object{"experimentalApi": true}}})}
	case worker.Output:
		return c.line(in.Line)
	case worker.Answer:
		decision := map[worker.Decision]string{worker.Allow: "accept", worker.AllowInRun: "acceptForSession", worker.DenyAndStop: "cancel"}[in.Decision]
		if decision == "" {
			decision = "decline"
		}
		return []worker.Action{frame(object{"id": json.RawMessage(in.Question), "result": object{"decision": decision}})}
	case worker.Message:
		c.steering, c.told = in.ID, in.Text
		return []worker.Action{frame(object{"id": 4, "method": "turn/steer", "params": object{
			"threadId": c.thread, "input": []object{{"type": "text", "text": in.Text}}, "expectedTurnId": c.turn}})}
	case worker.Cancel:
		return []worker.Action{frame(object{"id": 5, "method": "turn/interrupt", "params": object{"threadId": c.thread, "turnId": c.turn}})}
	case worker.Ended:
		return finished(c.done, c.answer)
	}
	return nil
}

func (c *liveCodex) line(line []byte) []worker.Action {
	var l struct {
		ID     json.RawMessage
		Method string
		Result struct{ Thread, Turn struct{ ID string } }
		Error  *struct{ Message string }
		Params struct {
			Command    string
			TokenUsage struct {
				Last struct{ InputTokens, OutputTokens int64 }
			}
			Item struct {
				ID, Type, Text, Command, AggregatedOutput string
				ExitCode                                  *int
				Content                                   []struct{ Text string }
			}
		}
	}
	if json.Unmarshal(line, &l) != nil {
		return worker.Log(line)
	}
	i := l.Params.Item
	switch {
	case l.Method == "" && string(l.ID) == "1":
		return []worker.Action{frame(object{"method": "initialized"}), frame(object{"id": 2, "method": "thread/start", "params": object{
			"cwd": "/workspace", "approvalPolicy": "on-request", "sandbox": "workspace-write", "ephemeral": false}})}
	case l.Method == "" && string(l.ID) == "2":
		c.thread = l.Result.Thread.ID
		return append(worker.Events(job.Event{Kind: job.EventSession, Session: c.thread}), frame(object{"id": 3, "method": "turn/start", "params": object{
			"threadId": c.thread, "input": []object{{"type": "text", "text": "CASE=go please"}}}}))
	case l.Method == "" && string(l.ID) == "3":
		c.turn = l.Result.Turn.ID
	case l.Method == "" && string(l.ID) == "4" && l.Error != nil:
		return []worker.Action{worker.Settle{Message: c.steering, State: worker.MessageRefused, Reason: l.Error.Message}}
	case l.Method == "" && string(l.ID) == "4":
		return []worker.Action{worker.Settle{Message: c.steering, State: worker.MessageDelivered}}
	case l.Method == "item/commandExecution/requestApproval":
		return []worker.Action{worker.Ask{Question: worker.Question{ID: string(l.ID), Text: "run it?", Tool: "command", Command: l.Params.Command,
			Decisions: []worker.Decision{worker.Allow, worker.AllowInRun, worker.Deny, worker.DenyAndStop}}}}
	case l.Method == "thread/tokenUsage/updated":
		u := l.Params.TokenUsage.Last
		return worker.Events(job.Event{Kind: job.EventUsage, Usage: &job.Usage{InputTokens: u.InputTokens, OutputTokens: u.OutputTokens}})
	case l.Method == "item/started" && i.Type == "commandExecution":
		return worker.Events(job.Event{Kind: job.EventCommand, CallID: i.ID, Command: i.Command})
	case l.Method == "item/completed" && i.Type == "commandExecution":
		return worker.Events(job.Event{Kind: job.EventCommand, CallID: i.ID, Command: i.Command, ExitCode: i.ExitCode, Text: i.AggregatedOutput})
	case l.Method == "item/completed" && i.Type == "userMessage" && c.steering != "" && i.Content[0].Text == c.told:
		return []worker.Action{worker.Settle{Message: c.steering, State: worker.MessageFolded}}
	case l.Method == "item/completed" && i.Type == "agentMessage":
		c.answer = i.Text
		return worker.Events(job.Event{Kind: job.EventText, Text: i.Text})
	case l.Method == "turn/completed":
		c.done = true
		return []worker.Action{worker.CloseInput{}}
	}
	return nil
}

// liveClaude talks with `claude --input-format stream-json --permission-prompt-tool stdio`.
type liveClaude struct {
	inputs        map[string]json.RawMessage // of the tools that it asks for, by request
	answer        string
	message, told string
	done          bool
}

func (c *liveClaude) Command() worker.Command { return worker.Command{KeepStdin: true} }

func (c *liveClaude) user(text string) worker.Action {
	return frame(object{"type": "user", "message": object{"role": "user", "content": []object{{"type": "text", "text": text}}}})
}

func (c *liveClaude) Step(_ time.Time, in worker.Input) []worker.Action {
	switch in := in.(type) {
	case worker.Started:
		return []worker.Action{frame(object{"type": "control_request", "request_id": "init1", "request": object{"subtype": "initialize", "hooks": nil}}), c.user("CASE=go please")}
	case worker.Output:
		return c.line(in.Line)
	case worker.Answer:
		response := object{"behavior": "deny", "message": in.Text}
		if in.Decision.Allows() {
			response = object{"behavior": "allow", "updatedInput": c.inputs[in.Question]}
		}
		return []worker.Action{frame(object{"type": "control_response", "response": object{"subtype": "success", "request_id": in.Question, "response": response}})}
	case worker.Message:
		c.message, c.told = in.ID, in.Text
		return []worker.Action{c.user(in.Text), worker.Settle{Message: in.ID, State: worker.MessageDelivered}}
	case worker.Cancel:
		return []worker.Action{frame(object{"type": "control_request", "request_id": "stop1", "request": object{"subtype": "interrupt"}})}
	case worker.Ended:
		return finished(c.done, c.answer)
	}
	return nil
}

func (c *liveClaude) line(line []byte) []worker.Action {
	type block struct {
		Type, Text, ID, Name string
		Content              json.RawMessage
		CallID               string `json:"tool_use_id"`
		Input                struct{ Command string }
	}
	var l struct {
		Type, Subtype, Result string
		Session               string `json:"session_id"`
		Request               string `json:"request_id"`
		Replay                bool   `json:"isReplay"`
		Message               struct{ Content []block }
		Control               struct {
			Subtype string
			Tool    string `json:"tool_name"`
			Input   json.RawMessage
		} `json:"request"`
		Usage struct {
			Input  int64 `json:"input_tokens"`
			Output int64 `json:"output_tokens"`
		}
	}
	if json.Unmarshal(line, &l) != nil {
		return worker.Log(line)
	}
	switch {
	case l.Type == "system" && l.Subtype == "init":
		return worker.Events(job.Event{Kind: job.EventSession, Session: l.Session})
	case l.Type == "control_request" && l.Control.Subtype == "can_use_tool":
		c.inputs = map[string]json.RawMessage{l.Request: l.Control.Input}
		var input struct{ Command string }
		_ = json.Unmarshal(l.Control.Input, &input) // of another tool: it has none
		return []worker.Action{worker.Ask{Question: worker.Question{ID: l.Request, Text: "use " + l.Control.Tool + "?", Tool: l.Control.Tool, Command: input.Command,
			Decisions: []worker.Decision{worker.Allow, worker.Deny}}}}
	case l.Type == "control_cancel_request":
		return []worker.Action{worker.Withdraw{Question: l.Request}}
	case l.Type == "result":
		c.done, c.answer = true, l.Result
		return append(worker.Events(job.Event{Kind: job.EventUsage, Usage: &job.Usage{InputTokens: l.Usage.Input, OutputTokens: l.Usage.Output}}), worker.CloseInput{})
	}
	var actions []worker.Action
	for _, b := range l.Message.Content {
		switch {
		case l.Replay && c.message != "" && b.Text == c.told:
			actions = append(actions, worker.Settle{Message: c.message, State: worker.MessageFolded})
		case l.Type == "assistant" && b.Type == "text":
			actions = append(actions, worker.Events(job.Event{Kind: job.EventText, Text: b.Text})...)
		case b.Type == "tool_use":
			actions = append(actions, worker.Events(job.Event{Kind: job.EventCommand, CallID: b.ID, Command: b.Input.Command})...)
		case b.Type == "tool_result":
			zero, text := 0, ""
			_ = json.Unmarshal(b.Content, &text) // blocks: no text here
			actions = append(actions, worker.Events(job.Event{Kind: job.EventCommand, CallID: b.CallID, ExitCode: &zero, Text: text})...)
		}
	}
	return actions
}

// liveOpenCode talks with `opencode serve` through a relay that runs beside it, in the
// run's own process tree: a line to it is a request, a line of it an answer or an event.
type liveOpenCode struct {
	session, answer string
	requests        int
	sent            map[int]string // the message that a request brings
	message, told   string
	theirs          string // their id of that message
	running         bool
	done            bool
}

func (c *liveOpenCode) Command() worker.Command { return worker.Command{KeepStdin: true} }

func (c *liveOpenCode) post(path string, body any) worker.Action {
	c.requests++
	return frame(object{"id": c.requests, "method": "POST", "path": path, "body": body})
}

func (c *liveOpenCode) prompt(text string) worker.Action {
	return c.post("/session/"+c.session+"/prompt_async", object{"parts": []object{{"type": "text", "text": text}}, "model": object{"providerID": "fake", "modelID": "m"}})
}

func (c *liveOpenCode) Step(_ time.Time, in worker.Input) []worker.Action {
	switch in := in.(type) {
	case worker.Started:
		return []worker.Action{c.post("/session", object{"title": "x"})}
	case worker.Output:
		return c.line(in.Line)
	case worker.Answer:
		reply := object{"reply": "reject", "message": in.Text}
		if in.Decision.Allows() {
			reply = object{"reply": map[worker.Decision]string{worker.Allow: "once", worker.AllowInRun: "always"}[in.Decision]}
		}
		return []worker.Action{c.post("/permission/"+in.Question+"/reply", reply)}
	case worker.Message:
		c.message, c.told = in.ID, in.Text
		prompt := c.prompt(in.Text)
		c.sent = map[int]string{c.requests: in.ID}
		return []worker.Action{prompt}
	case worker.Cancel:
		return []worker.Action{c.post("/session/"+c.session+"/abort", object{})}
	case worker.Ended:
		return finished(c.done, c.answer)
	}
	return nil
}

func (c *liveOpenCode) line(line []byte) []worker.Action {
	var l struct {
		ID     int
		Status int
		Body   json.RawMessage
		Event  struct {
			Type       string
			Properties struct {
				ID, Permission string
				Metadata       struct{ Command string }
				Info           struct{ ParentID string }
				Part           struct {
					Type, Text, Tool, CallID, MessageID string
					Tokens                              struct{ Input, Output int64 }
					Time                                struct{ End int64 }
					State                               struct {
						Status, Output string
						Input          struct{ Command string }
						Metadata       struct{ Exit *int }
					}
				}
			}
		}
	}
	if json.Unmarshal(line, &l) != nil {
		return worker.Log(line)
	}
	p := l.Event.Properties
	part := p.Part
	switch {
	case l.ID == 1:
		var created struct{ ID string }
		_ = json.Unmarshal(l.Body, &created) // no id: the next request fails
		c.session = created.ID
		return append(worker.Events(job.Event{Kind: job.EventSession, Session: c.session}), c.prompt("CASE=go please"))
	case l.ID > 0 && c.sent[l.ID] != "" && l.Status >= 300:
		return []worker.Action{worker.Settle{Message: c.sent[l.ID], State: worker.MessageRefused, Reason: fmt.Sprintf("status %d", l.Status)}}
	case l.ID > 0 && c.sent[l.ID] != "":
		return []worker.Action{worker.Settle{Message: c.sent[l.ID], State: worker.MessageDelivered}}
	case l.Event.Type == "permission.asked":
		return []worker.Action{worker.Ask{Question: worker.Question{ID: p.ID, Text: "use " + p.Permission + "?", Tool: p.Permission, Command: p.Metadata.Command,
			Decisions: []worker.Decision{worker.Allow, worker.AllowInRun, worker.Deny}}}}
	case l.Event.Type == "message.updated" && c.theirs != "" && p.Info.ParentID == c.theirs:
		c.theirs = "" // the agent answers it
		return []worker.Action{worker.Settle{Message: c.message, State: worker.MessageFolded}}
	case l.Event.Type == "session.idle":
		c.done = true
		return []worker.Action{worker.CloseInput{}}
	case l.Event.Type != "message.part.updated":
		return nil
	}
	switch {
	case part.Type == "text" && c.told != "" && part.Text == c.told:
		c.theirs = part.MessageID
	case part.Type == "text" && part.Time.End > 0:
		c.answer = part.Text
		return worker.Events(job.Event{Kind: job.EventText, Text: part.Text})
	case part.Type == "tool" && part.State.Status == "running" && !c.running:
		c.running = true
		return worker.Events(job.Event{Kind: job.EventCommand, CallID: part.CallID, Command: part.State.Input.Command})
	case part.Type == "tool" && part.State.Status == "completed":
		c.running = false
		return worker.Events(job.Event{Kind: job.EventCommand, CallID: part.CallID, ExitCode: part.State.Metadata.Exit, Text: part.State.Output})
	case part.Type == "step-finish":
		return worker.Events(job.Event{Kind: job.EventUsage, Usage: &job.Usage{InputTokens: part.Tokens.Input, OutputTokens: part.Tokens.Output}})
	}
	return nil
}
