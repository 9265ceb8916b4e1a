package claude

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/agentcli"
)

var record = flag.Bool("record", false, "write the recordings anew, with the real program")

// reply is what the model of a recording answers: a text, a call, or a status.
type reply struct {
	text    string
	tool    string
	input   object
	status  int
	header  string // retry-after
	message string // of an error
	half    bool   // the stream breaks off
	hangs   bool   // no answer before the program goes away
}

func say(text string) reply               { return reply{text: text} }
func use(tool string, input object) reply { return reply{tool: tool, input: input} }
func bash(command string) reply {
	return use("Bash", object{"command": command, "description": "as told"})
}

// take is one recording.
type take struct {
	name    string
	task    func(*worker.Task)
	replies []reply                                     // to the requests of a conversation, in their order; the last one again and again
	url     string                                      // of the model; "" is the scripted one
	after   string                                      // the take whose session it resumes
	react   func(a worker.Action, n int) []worker.Input // to the nth action of a kind
	signal  syscall.Signal                              // sent at the first command
}

func kindOf(a worker.Action) string {
	if e, ok := a.(worker.Emit); ok {
		return string(e.Event.Kind)
	}
	return fmt.Sprintf("%T", a)
}

// on reacts to the first action of a kind.
func on(kind string, inputs ...worker.Input) func(worker.Action, int) []worker.Input {
	return func(a worker.Action, n int) []worker.Input {
		if n == 0 && kindOf(a) == kind {
			return inputs
		}
		return nil
	}
}

// answering answers each question in turn.
func answering(answers ...worker.Answer) func(worker.Action, int) []worker.Input {
	return func(a worker.Action, n int) []worker.Input {
		ask, ok := a.(worker.Ask)
		if !ok {
			return nil
		}
		in := answers[min(n, len(answers)-1)]
		in.Question = ask.Question.ID
		return []worker.Input{in}
	}
}

func asks(t *worker.Task) {
	t.Asked, t.Capabilities = true, []job.Capability{job.CanRead}
}

func runs(t *worker.Task) {
	t.Asked, t.Capabilities = true, []job.Capability{job.CanRead, job.CanEdit, job.CanRunCommands}
}

func takes() []take {
	told := func(id, text string) worker.Message { return worker.Message{ID: id, Text: text} }
	colour := object{"questions": []object{
		{"question": "Which colour?", "header": "Colour", "multiSelect": false, "options": []object{{"label": "Red", "description": "warm"}, {"label": "Blue", "description": "cold"}}},
		{"question": "Which sizes?", "header": "Sizes", "multiSelect": true, "options": []object{{"label": "S", "description": "small"}, {"label": "L", "description": "large"}}},
	}}
	return []take{
		{name: "text", replies: []reply{say("Hello.")}},
		{name: "edit", task: runs, replies: []reply{use("Write", object{"file_path": "DIR/new.txt", "content": "one"}), use("Edit", object{"file_path": "DIR/new.txt", "old_string": "one", "new_string": "two"}), bash("exit 3"), say("Done.")}},
		{name: "denied", task: func(t *worker.Task) {
			t.Capabilities, t.AllowCommands = []job.Capability{job.CanRead, job.CanRunCommands}, []string{"echo *"}
		}, replies: []reply{bash("echo one"), bash("touch denied.txt"), use("Read", object{"file_path": "/etc/hostname"}), use("WebFetch", object{"url": "http://127.0.0.1:1/", "prompt": "x"}), say("Done.")},
			react: answering(worker.Answer{Text: "nobody may answer"})},
		{name: "ask-yes", task: asks, replies: []reply{bash("echo one > made.txt"), use("Write", object{"file_path": "/tmp/agentsched-no-such-folder/x", "content": "a\nb\n"}), say("Done.")},
			react: answering(worker.Answer{Decision: worker.Allow}, worker.Answer{Decision: worker.Deny, Text: "not there"})},
		{name: "ask-no", task: asks, replies: []reply{bash("make deploy"), use("WebFetch", object{"url": "https://Example.com/x", "prompt": "x"}), use("Glob", object{"pattern": "*", "path": "/etc"}), say("Then not.")},
			react: answering(worker.Answer{Decision: worker.Deny, Text: "not on a Friday"}, worker.Answer{Decision: worker.Deny})},
		{name: "ask-stop", task: asks, replies: []reply{bash("make deploy"), say("Never said.")}, react: answering(worker.Answer{Decision: worker.DenyAndStop, Text: "stop it"})},
		{name: "ask-words", task: asks, replies: []reply{use("AskUserQuestion", colour), use("AskUserQuestion", colour), use("AskUserQuestion", colour), say("Thanks.")},
			react: answering(worker.Answer{Decision: worker.Allow, Value: json.RawMessage(`{"Which colour?":"Blue","Which sizes?":["S","L"]}`)},
				worker.Answer{Decision: worker.Allow, Text: "green, and any size"}, worker.Answer{Text: "nobody is there"})},
		{name: "ask-cancelled", task: asks, replies: []reply{bash("make deploy"), say("Never said.")}, react: on("worker.Ask", worker.Interrupt{Reason: "ann"})},
		{name: "steer", task: runs, replies: []reply{bash("sleep 2; echo one"), say("All done.")}, react: on("command", told("m1", "skip the docs"), told("m2", "/compact please"))},
		{name: "later", task: runs, replies: []reply{{text: "First.", hangs: true}, say("Second.")}, react: on("session", told("m1", "and then"), told("m2", "and more"), told("m3", "and the rest"))},
		{name: "interrupt", task: runs, replies: []reply{bash("sleep 300"), say("Never said.")}, react: on("command", worker.Interrupt{Reason: "ann"})},
		{name: "interrupt-message", task: runs, replies: []reply{bash("sleep 300"), say("As you say.")}, react: on("command", told("m1", "do this instead"), worker.Interrupt{Reason: "ann"})},
		{name: "cancel", task: runs, replies: []reply{bash("sleep 300"), say("Never said.")}, react: on("command", worker.Cancel{})},
		{name: "sigint", task: runs, replies: []reply{bash("sleep 300"), say("Never said.")}, signal: syscall.SIGINT},
		{name: "sigterm", task: runs, replies: []reply{bash("sleep 300"), say("Never said.")}, signal: syscall.SIGTERM},
		{name: "sigkill", task: runs, replies: []reply{bash("sleep 300"), say("Resumed."), say("Heard.")}, signal: syscall.SIGKILL},
		{name: "resume", after: "sigkill", task: runs, react: on("step", told("m1", "something new"))},
		{name: "resume-again", after: "steer", task: runs, react: on("step", worker.Message{ID: "m2", Text: "/compact please", Again: true}, worker.Message{ID: "m9", Text: "lost", Again: true})},
		{name: "fork", after: "steer", task: func(t *worker.Task) { t.Fork = true }},
		{name: "schema", task: func(t *worker.Task) {
			t.Output = json.RawMessage(`{"type":"object","properties":{"answer":{"type":"string"}},"required":["answer"]}`)
		}, replies: []reply{use("StructuredOutput", object{"answer": "forty-two"}), say("Done.")}},
		{name: "budget", task: func(t *worker.Task) { t.Limits.MaxCostUSD = 0.0001 }, replies: []reply{use("Glob", object{"pattern": "*"}), say("Never said.")}},
		{name: "retry401", replies: []reply{{status: 401, message: "invalid x-api-key"}}},
		{name: "retry429", replies: []reply{{status: 429, header: "7", message: "slow down"}}},
		{name: "retry429-mid", task: runs, replies: []reply{bash("echo one"), {status: 429, header: "7", message: "slow down"}}},
		{name: "r429-hour", replies: []reply{{status: 429, header: "3600", message: "slow down"}}},
		{name: "retry500", replies: []reply{{status: 500, message: "internal"}}},
		{name: "retry-refused", url: "http://127.0.0.1:1"},
		{name: "context", replies: []reply{{status: 400, message: "prompt is too long: 250000 tokens > 200000 maximum"}}},
		{name: "credit", replies: []reply{{status: 400, message: "Your credit balance is too low to access the Anthropic API."}}},
		{name: "model", replies: []reply{{status: 404, message: "model: nosuch"}}},
		{name: "malformed", replies: []reply{{text: "I am cut", half: true}}},
	}
}

// TestRecord writes the recordings of testdata: what the real program prints when a
// session drives it, and what the session is told.
func TestRecord(t *testing.T) {
	if !*record {
		t.Skip("without -record")
	}
	dir, err := filepath.Abs("../../.cache/workers")
	if err != nil {
		t.Fatal(err)
	}
	path := agentcli.CatalogOf(map[string]worker.Adapter{string(Kind): Adapter{}}).Find(dir, []job.WorkerKind{Kind})[Kind]
	if path == "" {
		t.Fatalf("claude is not in %s: `go run ./cmd/scheduler install-workers --dir .cache/workers` installs it", dir)
	}
	homes := map[string]*worker.Task{}
	replies := map[string][]reply{}
	for _, k := range takes() {
		t.Run(k.name, func(t *testing.T) {
			tk := &worker.Task{Job: "job", Instructions: "Do " + k.name, Environ: []string{"PATH=" + os.Getenv("PATH")}, Lookup: func(string) (string, bool) { return "", false }}
			root, err := os.MkdirTemp("", "claude-record-")
			if err != nil {
				t.Fatal(err)
			}
			tk.Dir, tk.Home, tk.Scratch = root+"/workspace", root+"/home", root+"/scratch"
			if was := homes[k.after]; was != nil {
				tk.Dir, tk.Home, tk.Session, k.replies = was.Dir, was.Home, was.Session, replies[k.after]
			}
			for _, d := range []string{tk.Dir, tk.Home, tk.Scratch, root + "/user"} {
				if err := os.MkdirAll(d, 0o700); err != nil {
					t.Fatal(err)
				}
			}
			tk.Environ = append(tk.Environ, "HOME="+root+"/user")
			if k.task != nil {
				k.task(tk)
			}
			model := httptest.NewServer(model(k.replies, tk.Dir))
			defer model.Close()
			tk.Settings = job.WorkerSettings{Command: []string{path}, BaseURL: model.URL, KeyEnv: "KEY"}
			if k.url != "" {
				tk.Settings.BaseURL = k.url
			}
			tk.Environ = append(tk.Environ, "KEY=k")
			k.play(t, tk)
			homes[k.name], replies[k.name] = tk, k.replies
		})
	}
}

// model plays replies: the nth is the answer to a conversation of which the model has
// said n messages.
func model(replies []reply, dir string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q struct {
			Model    string
			Messages []struct{ Role string }
		}
		if !strings.HasSuffix(r.URL.Path, "/messages") || json.NewDecoder(r.Body).Decode(&q) != nil || len(replies) == 0 {
			http.NotFound(w, r)
			return
		}
		n := 0
		for _, m := range q.Messages {
			if m.Role == "assistant" {
				n++
			}
		}
		a := replies[min(n, len(replies)-1)]
		if a.hangs {
			time.Sleep(2 * time.Second) // the program is told something meanwhile
		}
		if a.status != 0 {
			if a.header != "" {
				w.Header().Set("Retry-After", a.header)
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(a.status)
			kind := map[int]string{400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}[a.status]
			json.NewEncoder(w).Encode(object{"type": "error", "error": object{"type": kind, "message": a.message}})
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		emit := func(kind string, fields object) {
			fields["type"] = kind
			data, _ := json.Marshal(fields)
			fmt.Fprintf(w, "event: %s\ndata: %s\n\n", kind, bytes.ReplaceAll(data, []byte("DIR"), []byte(dir)))
		}
		emit("message_start", object{"message": object{"id": fmt.Sprintf("msg_%d", n), "type": "message", "role": "assistant", "model": q.Model, "content": []any{},
			"usage": object{"input_tokens": 100, "cache_read_input_tokens": 10, "output_tokens": 1}}})
		block, delta, stop := object{"type": "text", "text": ""}, object{"type": "text_delta", "text": a.text}, "end_turn"
		if a.tool != "" {
			input, _ := json.Marshal(a.input)
			block, delta, stop = object{"type": "tool_use", "id": fmt.Sprintf("toolu_%d", n), "name": a.tool, "input": object{}}, object{"type": "input_json_delta", "partial_json": string(input)}, "tool_use"
		}
		emit("content_block_start", object{"index": 0, "content_block": block})
		emit("content_block_delta", object{"index": 0, "delta": delta})
		if a.half {
			return
		}
		emit("content_block_stop", object{"index": 0})
		emit("message_delta", object{"delta": object{"stop_reason": stop}, "usage": object{"output_tokens": 20}})
		emit("message_stop", object{})
	})
}

// play runs the program once and writes down what the session was told.
func (k *take) play(t *testing.T, tk *worker.Task) {
	s, err := Adapter{}.Start(tk)
	if err != nil {
		t.Fatal(err)
	}
	c := s.Command()
	cmd := exec.CommandContext(t.Context(), c.Path, c.Args...)
	cmd.Env, cmd.Dir = c.Env, c.Dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	stdin.Write(c.Stdin)

	var script bytes.Buffer
	counts := map[string]int{}
	stopped := false
	var mu sync.Mutex
	var step func(in worker.Input)
	step = func(in worker.Input) {
		if !stopped {
			script.WriteString(scribe(in))
		} else if _, ok := in.(worker.Output); ok {
			script.WriteString(scribe(in)) // what follows a verdict is the driver's
		}
		var next []worker.Input
		for _, a := range s.Step(time.Now(), in) {
			if k.react != nil {
				next = append(next, k.react(a, counts[kindOf(a)])...)
			}
			counts[kindOf(a)]++
			switch a := a.(type) {
			case worker.Write:
				stdin.Write(a.Data)
			case worker.CloseInput:
				stdin.Close()
			case worker.Finish:
				if !stopped {
					stopped = true
					next = append(next, worker.Cancel{})
				}
			case worker.Emit:
				if a.Event.Kind == job.EventSession {
					tk.Session = a.Event.Session
				}
				if a.Event.Kind == job.EventCommand && k.signal != 0 && counts["command"] == 1 {
					time.AfterFunc(time.Second, func() { cmd.Process.Signal(k.signal) })
				}
			}
		}
		for _, in := range next {
			if _, ok := in.(worker.Interrupt); ok && counts["command"] > 0 {
				time.AfterFunc(time.Second, func() { mu.Lock(); defer mu.Unlock(); step(in) })
				continue
			}
			step(in)
		}
	}
	lines := bufio.NewReader(stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if line = bytes.TrimSpace(line); len(line) > 0 {
			mu.Lock()
			step(worker.Output{Line: line})
			mu.Unlock()
		}
		if err != nil {
			break
		}
	}
	cmd.Wait()
	exit := object{"exit": cmd.ProcessState.ExitCode(), "signal": nil}
	if ws := cmd.ProcessState.Sys().(syscall.WaitStatus); ws.Signaled() {
		exit["signal"] = ws.Signal().String()
	}
	if k.signal != 0 {
		exit["signal"] = k.signal.String()
	}
	end, err := json.Marshal(exit)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer(tk.Dir, "/workspace", filepath.Dir(tk.Home), "/private", filepath.Dir(tk.Scratch), "/private").Replace(script.String())
	files := map[string]string{".talk": text}
	if !strings.Contains("\n"+text, "\n! ") { // nothing but output
		text = strings.ReplaceAll("\n"+text, "\n< ", "\n")[1:]
		files = map[string]string{".jsonl": text, ".stderr": stderr.String()}
	}
	files[".meta.json"] = string(end) + "\n"
	for ext, text := range files {
		if text == "" {
			continue
		}
		if err := os.WriteFile("testdata/"+k.name+ext, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// scribe writes an input down.
func scribe(in worker.Input) string {
	if out, ok := in.(worker.Output); ok {
		var l line
		if agentcli.Decode(out.Line, &l) && l.Type == "control_response" && len(out.Line) > 2000 {
			return `< {"type":"control_response","response":{"subtype":"success","request_id":"initialize","response":{}}}` + "\n"
		}
		return "< " + string(out.Line) + "\n"
	}
	data, err := json.Marshal(in)
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf("! %s %s\n", strings.TrimPrefix(fmt.Sprintf("%T", in), "worker."), data)
}
