package exec_test

import (
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/workertest"
)

// people is a session with people: what they do about an action is told to the session
// right after it.
type people struct {
	worker.Session
	do   func(what string) []worker.Input
	said []string // what the session did, see did
	kill string   // the program is killed after this
	pid  int
}

func (p *people) Command() worker.Command {
	c := p.Session.Command()
	// The program's own process id comes first, as a stray print.
	c.Path, c.Args = "/bin/sh", append([]string{"-c", `echo "pid $$"; exec "$0"`, c.Path}, c.Args...)
	return c
}

func (p *people) Step(now time.Time, in worker.Input) (actions []worker.Action) {
	for _, a := range p.Session.Step(now, in) {
		actions = append(actions, a)
		what := ""
		switch a := a.(type) {
		case worker.Emit:
			what = show(a.Event)
			if pid, ok := strings.CutPrefix(what, "log pid "); ok {
				p.pid, _ = strconv.Atoi(pid)
				continue
			}
		case worker.Ask:
			what = fmt.Sprintf("ask %s %s %q %s %v", a.Question.ID, a.Question.Kind, a.Question.Text, a.Question.Input, a.Question.Decisions)
		case worker.Withdraw:
			what = "withdraw " + a.Question
		case worker.Settle:
			what = fmt.Sprintf("settle %s %s", a.Message, a.State)
		default:
			continue
		}
		p.said = append(p.said, what)
		if what == p.kill {
			syscall.Kill(p.pid, syscall.SIGKILL)
		}
		if p.do == nil {
			continue
		}
		for _, next := range p.do(what) {
			actions = append(actions, p.Step(now, next)...)
		}
	}
	return actions
}

// chats returns a task of the example worker.
func chats(t *testing.T, script ...string) *worker.Task {
	t.Helper()
	program := filepath.Join(t.TempDir(), "chat")
	build := osexec.CommandContext(t.Context(), "go", "build", "-o", program, "../../examples/workers/chat")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the example: %v\n%s", err, out)
	}
	task := newTask(t, program)
	task.Job = "j"
	task.Instructions = strings.Join(script, "\n")
	return task
}

// chat runs an attempt of a task with people who do something. What it did must be want.
func chat(t *testing.T, task *worker.Task, kill string, do map[string][]worker.Input, want ...string) worker.Result {
	t.Helper()
	p := &people{Session: start(t, task), kill: kill, do: func(what string) []worker.Input { return do[what] }}
	_, r := workertest.Drive(t, p, nil)
	want = append([]string{"log worker chat"}, want...)
	if task.Session == "" || task.Fork {
		task.Session, task.Fork = "chat-"+string(task.Job), false
	}
	if kill != "" { // more may have been printed by then
		p.said = p.said[:min(len(p.said), len(want))]
	}
	if !slices.Equal(p.said, want) {
		t.Errorf("did\n%s\nwant\n%s", strings.Join(p.said, "\n"), strings.Join(want, "\n"))
	}
	task.Attempt++
	return r
}

func inputs(in ...worker.Input) []worker.Input { return in }

const all = "[allow allow_in_run deny deny_and_stop]"

func TestChatExample(t *testing.T) {
	task := chats(t, "# a script", "say hello", "", "ask run make deploy", "ask host example.org", "ask tool Web", "ask words which way?", "choose red blue", "wait", "usage 12", "write a/b.txt one two", "say bye")
	r := chat(t, task, "", map[string][]worker.Input{
		`ask q4 command "run make deploy?" {"command":"make deploy"} ` + all: inputs(worker.Answer{Question: "q4", Decision: worker.AllowInRun}),
		`ask q5 host "host example.org?" {"host":"example.org"} ` + all:      inputs(worker.Answer{Question: "q5", Decision: worker.Deny, Text: "not there"}),
		`ask q6 tool "use Web?" {"tool":"Web"} ` + all:                       inputs(worker.Answer{Question: "q6", Text: "nobody is here"}),
		`ask q7 words "which way?"  []`:                                      inputs(worker.Answer{Question: "q7", Decision: worker.Allow, Text: "left"}),
		`ask q8 words "red or blue?"  []`:                                    inputs(worker.Answer{Question: "q8", Decision: worker.Allow, Value: []byte(`"red"`)}, worker.Message{ID: "m1", From: "ann", Text: "hurry"}),
	},
		"session chat-j", "text hello",
		`ask q4 command "run make deploy?" {"command":"make deploy"} `+all, "text ask run make deploy: allow_in_run",
		`ask q5 host "host example.org?" {"host":"example.org"} `+all, "text ask host example.org: deny: not there",
		`ask q6 tool "use Web?" {"tool":"Web"} `+all, "text ask tool Web: unanswered: nobody is here",
		`ask q7 words "which way?"  []`, "text ask words which way?: allow: left",
		`ask q8 words "red or blue?"  []`, `text choose red blue: allow: "red"`,
		"settle m1 delivered", "text told: hurry (from ann)", "settle m1 folded",
		"usage 12+0 0 false", "file a/b.txt added", "text bye")
	if r.Class != job.NoError || r.Answer != "bye" {
		t.Errorf("result %+v", r)
	}
	if text, err := os.ReadFile(filepath.Join(task.Dir, "a/b.txt")); err != nil || string(text) != "one two\n" {
		t.Errorf("wrote %q, %v", text, err)
	}
}

// TestChatInterrupted: an interrupt ends the run, and the session goes on behind what
// waited for it, or with the line that it cut.
func TestChatInterrupted(t *testing.T) {
	task := chats(t, "sleep-until-interrupt", "say awake", "ask run make", "say bye")
	stop := worker.Interrupt{Reason: "ann did"}
	question := `ask q3 command "run make?" {"command":"make"} ` + all
	r := chat(t, task, "", map[string][]worker.Input{"session chat-j": inputs(stop)}, "session chat-j", "text interrupted: ann did")
	if r.Class != job.NoError || !r.Checkpointed || r.Message != "interrupted" {
		t.Errorf("result %+v", r)
	}
	r = chat(t, task, "", map[string][]worker.Input{question: inputs(stop)},
		"session chat-j", "text awake", question, "withdraw q3", "text interrupted: ann did")
	if !r.Checkpointed {
		t.Errorf("result %+v", r)
	}
	r = chat(t, task, "", map[string][]worker.Input{
		question: inputs(worker.Message{ID: "m1", Text: "not yet"}, stop),
		strings.Replace(question, "q3", "q3.2", 1): inputs(worker.Answer{Question: "q3.2", Decision: worker.Allow}),
	},
		"session chat-j", question, "settle m1 delivered", "withdraw q3", "text interrupted: ann did",
		"text told: not yet", "settle m1 folded", strings.Replace(question, "q3", "q3.2", 1), "text ask run make: allow", "text bye")
	if r.Class != job.NoError || r.Checkpointed {
		t.Errorf("result %+v", r)
	}
}

// TestChatInterruptedWithMessages: the run goes on with messages that wait.
func TestChatInterruptedWithMessages(t *testing.T) {
	task := chats(t, "sleep-until-interrupt", "say awake")
	chat(t, task, "", map[string][]worker.Input{
		"session chat-j": inputs(worker.Message{ID: "m1", Text: "one"}, worker.Message{ID: "m2", Text: "two"}, worker.Interrupt{}),
	},
		"session chat-j", "settle m1 delivered", "settle m2 delivered", "text interrupted",
		"text told: one", "settle m1 folded", "text told: two", "settle m2 folded", "text awake")
}

// TestChatKilled: whenever the program is killed, nothing is said twice, messages that
// come again included, and an open question is asked again.
func TestChatKilled(t *testing.T) {
	task := chats(t, "say one", "wait", "ask run make", "say two")
	question := `ask q3 command "run make?" {"command":"make"} ` + all
	m1 := worker.Message{ID: "m1", Text: "hi"}
	r := chat(t, task, "text one", nil, "session chat-j", "text one")
	if r.Class != job.Crash {
		t.Errorf("result %+v", r)
	}
	chat(t, task, "text told: hi", map[string][]worker.Input{"session chat-j": inputs(m1)}, "session chat-j", "settle m1 delivered", "text told: hi")
	m1.Again = true
	// The message comes while the question is open, so that the order is the same each time.
	chat(t, task, "settle m1 delivered", map[string][]worker.Input{question: inputs(m1)}, "session chat-j", question, "settle m1 delivered")
	r = chat(t, task, "", map[string][]worker.Input{question: inputs(m1), "settle m1 delivered": inputs(worker.Answer{Question: "q3", Decision: worker.Allow})},
		"session chat-j", question, "settle m1 delivered", "text ask run make: allow", "settle m1 folded", "text two")
	if r.Class != job.NoError || r.Answer != "two" {
		t.Errorf("result %+v", r)
	}
}

func TestChatIsToldToStop(t *testing.T) {
	task := chats(t, "ask tool T", "say more")
	question := `ask q1 tool "use T?" {"tool":"T"} ` + all
	r := chat(t, task, "", map[string][]worker.Input{question: inputs(worker.Answer{Question: "q1", Decision: worker.DenyAndStop})},
		"session chat-j", question, "text ask tool T: deny_and_stop")
	if r.Class != job.NoError || r.Answer != "ask tool T: deny_and_stop" {
		t.Errorf("result %+v", r)
	}
}

// TestChatForked: a fork has a copy of the session, and does what it is told since.
func TestChatForked(t *testing.T) {
	task := chats(t, "wait")
	m1 := map[string][]worker.Input{"session chat-j": inputs(worker.Message{ID: "m1", Text: "hi"})}
	chat(t, task, "", m1, "session chat-j", "settle m1 delivered", "text told: hi", "settle m1 folded")
	before, err := os.ReadFile(filepath.Join(task.Home, "chat-j.json"))
	if err != nil {
		t.Fatal(err)
	}
	task.Fork, task.Job, task.Instructions = true, "k", "Since then you were told, in this order:\n\nwait\nsay forked"
	chat(t, task, "", map[string][]worker.Input{"session chat-k": inputs(worker.Message{ID: "m1", Text: "hi", Again: true})},
		"session chat-k", "settle m1 delivered", "settle m1 folded", "text forked")
	if after, err := os.ReadFile(filepath.Join(task.Home, "chat-j.json")); err != nil || string(after) != string(before) {
		t.Errorf("the session is %s, %v; it was %s", after, err, before)
	}
}

// TestChatWrites: it writes what it may, and asks otherwise if that is worth it.
func TestChatWrites(t *testing.T) {
	task := chats(t, "write a.txt x")
	task.Capabilities = []job.Capability{job.CanRead}
	chat(t, task, "", nil, "session chat-j", "text write a.txt: not granted")
	for decision, want := range map[worker.Decision]string{worker.Allow: "file a.txt added", worker.Unanswered: "text write a.txt: unanswered: why"} {
		task.Session, task.Asked = "", true
		question := `ask q1 write "write a.txt?" {"path":"a.txt","text":"x\n"} ` + all
		chat(t, task, "", map[string][]worker.Input{question: inputs(worker.Answer{Question: "q1", Decision: decision, Text: "why"})}, "session chat-j", question, want)
		os.Remove(filepath.Join(task.Dir, "a.txt"))
		os.Remove(filepath.Join(task.Home, "chat-j.json"))
	}
}

// TestChatStops: it can be stopped while it waits, and says what is wrong.
func TestChatStops(t *testing.T) {
	task := chats(t)
	for _, tt := range []struct {
		script  string
		in      worker.Input
		class   job.ErrorClass
		message string
	}{
		{"wait", worker.Cancel{}, job.Unknown, "asked to stop"},
		{"wait", worker.Checkpoint{Reason: "room"}, job.NoError, "room"},
		{"ask tool T", worker.Checkpoint{Reason: "room"}, job.NoError, "room"},
		{"dance", worker.Timer{}, job.Config, `line 1 of the script is "dance", which is no command`},
		{"ask mum", worker.Timer{}, job.Config, `"ask mum" asks nothing that is known`},
		{"write ../x y", worker.Timer{}, job.Config, `write "../x": want a file within the workspace`},
	} {
		task.Instructions = tt.script
		p := &people{Session: start(t, task), do: func(what string) []worker.Input {
			if what == "session chat-j" {
				return inputs(tt.in)
			}
			return nil
		}}
		if _, r := workertest.Drive(t, p, nil); r.Class != tt.class || r.Message != tt.message {
			t.Errorf("%s: %+v", tt.script, r)
		}
	}
	task.Session = "chat-gone"
	if _, r := workertest.Drive(t, &people{Session: start(t, task)}, nil); r.Class != job.Unknown || !strings.Contains(r.Message, "no session chat-gone") {
		t.Errorf("result %+v", r)
	}
}
