package codex

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/workertest"
)

// talked gives inputs to a session and returns all that it does.
func talked(s *session, inputs ...worker.Input) (actions []worker.Action) {
	for _, in := range inputs {
		actions = append(actions, s.Step(workertest.Now, in)...)
	}
	return actions
}

// only returns the actions of one type.
func only[A worker.Action](actions []worker.Action) (of []A) {
	for _, a := range actions {
		if a, ok := a.(A); ok {
			of = append(of, a)
		}
	}
	return of
}

func out(line string) worker.Input { return worker.Output{Line: []byte(line)} }

func began(id string) worker.Input {
	return out(`{"method":"turn/started","params":{"threadId":"t","turn":{"id":"` + id + `"}}}`)
}

func ends(id, status string) worker.Input {
	return out(`{"method":"turn/completed","params":{"threadId":"t","turn":{"id":"` + id + `","status":"` + status + `","error":{"message":"boom"}}}}`)
}

func turnIs(id int, turn string) worker.Input {
	return out(fmt.Sprintf(`{"id":%d,"result":{"turn":{"id":%q}}}`, id, turn))
}

func refuses(id int) worker.Input {
	return out(fmt.Sprintf(`{"id":%d,"error":{"code":-32600,"message":"no active turn to steer"}}`, id))
}

func stands(message string) worker.Input {
	return out(`{"method":"item/completed","params":{"threadId":"t","item":{"type":"userMessage","clientId":"` + message + `"}}}`)
}

// opened returns a session whose first turn, 1, runs.
func opened(t *testing.T, tk *worker.Task) *session {
	t.Helper()
	tk.Dir = "/workspace"
	s := newSession(tk, grantOf(tk), func(string) bool { return true })
	talked(s, worker.Started{}, out(helloLine), out(`{"id":2,"result":{"thread":{"id":"t"}}}`), turnIs(3, "1"), began("1"))
	return s
}

// requests are the methods that a session calls, with the words that it says.
func requests(t *testing.T, actions []worker.Action) string {
	t.Helper()
	var all []string
	for _, w := range only[worker.Write](actions) {
		var r struct {
			Method string
			Params struct{ Input []inputText }
			Result json.RawMessage
		}
		if err := json.Unmarshal(w.Data, &r); err != nil {
			t.Fatal(err)
		}
		one := r.Method + string(r.Result)
		for _, i := range r.Params.Input {
			one += " " + i.Text
		}
		all = append(all, one)
	}
	return strings.Join(all, ", ")
}

// TestMessages: the run goes on until each message had its turn, in their order.
func TestMessages(t *testing.T) {
	tell := func(id string) worker.Input { return worker.Message{ID: id, Text: id} }
	const done, stopped = "completed", "interrupted"
	for _, c := range []struct {
		name    string
		inputs  []worker.Input
		settled string
		says    string
		ends    bool
	}{
		{"none", []worker.Input{ends("1", done)}, "", "", true},
		{"folded", []worker.Input{tell("a"), turnIs(4, "1"), stands("a"), ends("1", done)}, "a delivered, a folded", "turn/steer a", true},
		{"folded before the answer", []worker.Input{tell("a"), stands("a"), turnIs(4, "1"), ends("1", done)}, "a folded", "turn/steer a", true},
		{"one after the other", []worker.Input{tell("a"), tell("b"), turnIs(4, "1")}, "a delivered", "turn/steer a, turn/steer b", false},
		{"refused", []worker.Input{tell("a"), tell("b"), refuses(4), ends("1", done), turnIs(5, "2"), stands("a")}, "a delivered, a folded", "turn/steer a, turn/start a, turn/steer b", false},
		{"refused when the turn is over", []worker.Input{tell("a"), ends("1", done), refuses(4), turnIs(5, "2"), stands("a"), ends("2", done)}, "a delivered, a folded", "turn/steer a, turn/start a", true},
		{"the next turn takes words again", []worker.Input{tell("a"), tell("b"), ends("1", done), refuses(4), turnIs(5, "2"), turnIs(6, "2")}, "a delivered, b delivered", "turn/steer a, turn/start a, turn/steer b", false},
		{"accepted when the turn is over", []worker.Input{tell("a"), ends("1", done), turnIs(4, "1")}, "", "turn/steer a, turn/start a", false},
		{"dropped with its turn", []worker.Input{tell("a"), turnIs(4, "1"), worker.Interrupt{}, ends("1", stopped), turnIs(6, "2"), stands("a"), ends("2", done)},
			"a delivered, a delivered, a folded", "turn/steer a, turn/interrupt, turn/start a", true},
		{"while it stops", []worker.Input{worker.Interrupt{}, tell("a"), worker.Interrupt{}, ends("1", stopped), turnIs(5, "2")}, "a delivered", "turn/interrupt, turn/start a", false},
		{"the turn fails", []worker.Input{tell("a"), turnIs(4, "1"), tell("b"), ends("1", "failed")}, "a delivered, b refused, a refused", "turn/steer a, turn/steer b", true},
		{"not taken for a turn", []worker.Input{tell("a"), refuses(4), ends("1", done), refuses(5)}, "a refused", "turn/steer a, turn/start a", true},
		{"too late", []worker.Input{ends("1", done), tell("a")}, "a refused", "", true},
		{"cancelled", []worker.Input{tell("a"), worker.Cancel{}, tell("b"), ends("1", stopped)}, "b refused, a refused", "turn/steer a, turn/interrupt", true},
		{"the program dies", []worker.Input{tell("a"), turnIs(4, "1"), tell("b"), worker.Ended{Exit: worker.Exit{Code: 1}}}, "a delivered, a refused, b refused", "turn/steer a, turn/steer b", false},
		{"another thread's turn", []worker.Input{out(`{"method":"turn/completed","params":{"threadId":"sub","turn":{"id":"9","status":"failed"}}}`)}, "", "", false},
		{"too long", []worker.Input{worker.Message{ID: "a", Text: strings.Repeat("x", maxMessage)}}, "a refused", "", false},
	} {
		s := opened(t, &worker.Task{})
		actions := talked(s, c.inputs...)
		var settled []string
		for _, a := range only[worker.Settle](actions) {
			settled = append(settled, a.Message+" "+string(a.State))
			if a.State == worker.MessageRefused && a.Reason == "" {
				t.Errorf("%s: no reason", c.name)
			}
		}
		if got := strings.Join(settled, ", "); got != c.settled {
			t.Errorf("%s: settled %q, want %q", c.name, got, c.settled)
		}
		if got := requests(t, actions); got != c.says {
			t.Errorf("%s: said %q, want %q", c.name, got, c.says)
		}
		if (len(only[worker.CloseInput](actions)) == 1) != c.ends {
			t.Errorf("%s: it ends: %v, want %v", c.name, !c.ends, c.ends)
		}
	}
}

// TestEarlyMessage: a message and an interrupt that come before there is a thread wait for it.
func TestEarlyMessage(t *testing.T) {
	s := newSession(&worker.Task{Instructions: "go"}, grant{}, nil)
	actions := talked(s, worker.Started{}, worker.Message{ID: "a", Text: "a"}, worker.Interrupt{}, out(helloLine), out(`{"id":2,"result":{"thread":{"id":"t"}}}`), turnIs(3, "1"), ends("1", "interrupted"))
	if got, want := requests(t, actions), "initialize, initialized, thread/start, turn/start go, turn/interrupt, turn/start a"; got != want {
		t.Errorf("said %q, want %q", got, want)
	}
}

// TestAgain: of messages that an earlier attempt passed on, those are said that the thread has not.
func TestAgain(t *testing.T) {
	page := func(id int, next string, messages ...string) worker.Input {
		var items []string
		for _, m := range messages {
			items = append(items, `{"turnId":"0","item":{"type":"userMessage","clientId":"`+m+`"}}`)
		}
		return out(fmt.Sprintf(`{"id":%d,"result":{"data":[%s],"nextCursor":%q}}`, id, strings.Join(items, ","), next))
	}
	again := func(id string) worker.Input { return worker.Message{ID: id, Text: id, Again: true} }
	for _, c := range []struct {
		name    string
		fork    bool
		inputs  []worker.Input
		settled int
		says    string
	}{
		{"it has one", false, []worker.Input{again("a"), worker.Message{ID: "b", Text: "b"}, page(4, "more", "x"), page(5, "", "a"), turnIs(6, "1")}, 2, "thread/items/list, thread/items/list, turn/steer b"},
		{"it has none", false, []worker.Input{again("a"), page(4, ""), turnIs(5, "1")}, 1, "thread/items/list, turn/steer a"},
		{"it cannot say", false, []worker.Input{again("a"), refuses(4), turnIs(5, "1")}, 1, "thread/items/list, turn/steer a"},
		{"the turn ends meanwhile", false, []worker.Input{again("a"), ends("1", "completed"), page(4, ""), turnIs(5, "2")}, 1, "thread/items/list, turn/start a"},
		{"a copy", true, []worker.Input{again("a"), turnIs(4, "1")}, 1, "turn/steer a"},
	} {
		s := opened(t, &worker.Task{Session: "t", Fork: c.fork})
		actions := talked(s, c.inputs...)
		if got := requests(t, actions); got != c.says || len(only[worker.Settle](actions)) != c.settled || len(only[worker.CloseInput](actions)) > 0 {
			t.Errorf("%s: said %q, want %q; settled %+v", c.name, got, c.says, only[worker.Settle](actions))
		}
	}
	s := opened(t, &worker.Task{Session: "t"})
	n := 0
	for actions := talked(s, again("a")); strings.Contains(requests(t, actions), "thread/items/list"); n++ {
		actions = talked(s, page(4+n, "more", "x"))
	}
	if n != maxPages {
		t.Errorf("looked through %d pages of a thread without end, want %d", n, maxPages)
	}
}

// TestCount: what is counted of threads that begin in this process, and of those that do not.
func TestCount(t *testing.T) {
	usage := func(thread, turn string, total, last int) worker.Input {
		return out(fmt.Sprintf(`{"method":"thread/tokenUsage/updated","params":{"threadId":%q,"turnId":%q,"tokenUsage":{"total":{"inputTokens":%d},"last":{"inputTokens":%d}}}}`, thread, turn, total, last))
	}
	sub := out(`{"method":"turn/started","params":{"threadId":"sub","turn":{"id":"s1"}}}`)
	for name, c := range map[string]struct {
		inputs []worker.Input
		want   []int64
	}{
		"a new thread":            {[]worker.Input{usage("t", "1", 100, 100), usage("t", "1", 250, 150)}, []int64{100, 150}},
		"a resumed one":           {[]worker.Input{usage("t", "0", 500, 100), usage("t", "1", 650, 150)}, []int64{150}},
		"a copy":                  {[]worker.Input{usage("t", "1", 650, 150)}, []int64{150}},
		"a total that falls":      {[]worker.Input{usage("t", "1", 100, 100), usage("t", "1", 40, 40)}, []int64{100, 40}},
		"told twice":              {[]worker.Input{usage("t", "1", 100, 100), usage("t", "1", 100, 100)}, []int64{100}},
		"a subagent":              {[]worker.Input{sub, usage("sub", "s1", 70, 70), usage("t", "1", 100, 100)}, []int64{70, 100}},
		"less than none":          {[]worker.Input{usage("t", "1", -100, 5)}, nil},
		"a subagent that resumes": {[]worker.Input{usage("sub", "s0", 70, 70), sub, usage("sub", "s1", 90, 20)}, []int64{20}},
	} {
		var got []int64
		for _, e := range only[worker.Emit](talked(opened(t, &worker.Task{}), c.inputs...)) {
			if e.Event.Kind == job.EventUsage {
				got = append(got, e.Event.Usage.InputTokens)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: counted %d, want %d", name, got, c.want)
		}
	}
}

func asks(id int, method, params string) worker.Input {
	return out(fmt.Sprintf(`{"id":%d,"method":%q,"params":{"threadId":"t","itemId":"i",%s}}`, id, method, params))
}

// TestQuestions: what the program is told for each answer.
func TestQuestions(t *testing.T) {
	const command = `"command":"/bin/bash -lc 'make'","cwd":"/workspace"`
	files := out(`{"method":"item/started","params":{"threadId":"t","item":{"type":"fileChange","id":"i","changes":[{"path":"/workspace/a","kind":{"type":"update","move_path":"/etc/b"},"diff":"d"}]}}}`)
	for _, c := range []struct {
		name   string
		in     worker.Input
		answer []worker.Answer
		about  string
		says   string
	}{
		{"yes", asks(7, askCommand, command), []worker.Answer{{Question: "7", Decision: worker.Allow}}, "command /bin/bash -lc 'make'", `{"decision":"accept"}`},
		{"yes, in this run", asks(7, askCommand, command), []worker.Answer{{Question: "7", Decision: worker.AllowInRun}}, "command /bin/bash -lc 'make'", `{"decision":"acceptForSession"}`},
		{"no", asks(7, askCommand, command), []worker.Answer{{Question: "7", Decision: worker.Deny}}, "command /bin/bash -lc 'make'", `{"decision":"decline"}`},
		{"nobody", asks(7, askCommand, command), []worker.Answer{{Question: "7"}}, "command /bin/bash -lc 'make'", `{"decision":"decline"}`},
		{"another's", asks(7, askCommand, command), []worker.Answer{{Question: "8", Decision: worker.Allow}}, "command /bin/bash -lc 'make'", ""},
		{"words for a running command", asks(7, askCommand, `"kind":"writeStdin",`+command), []worker.Answer{{Question: "7", Decision: worker.AllowInRun}}, "command /bin/bash -lc 'make'", `{"decision":"accept"}`},
		{"no command", asks(7, askCommand, `"reason":"x"`), []worker.Answer{{Question: "7"}}, "command ", `{"decision":"decline"}`},
		{"a host", asks(7, askCommand, `"networkApprovalContext":{"host":"example.org","protocol":"https"}`), []worker.Answer{{Question: "7", Decision: worker.Allow}}, "host example.org", `{"decision":"accept"}`},
		{"a file is moved", asks(7, askChange, `"reason":null`), []worker.Answer{{Question: "7/1", Decision: worker.Allow}, {Question: "7/2", Decision: worker.AllowInRun}}, "write a, write /etc/b", `{"decision":"accept"}`},
		{"one of them not", asks(7, askChange, `"reason":null`), []worker.Answer{{Question: "7/2"}, {Question: "7/1", Decision: worker.Allow}}, "write a, write /etc/b", `{"decision":"decline"}`},
		{"all below a folder", asks(7, askChange, `"grantRoot":"/etc"`), []worker.Answer{{Question: "7/1", Decision: worker.Allow}}, "write a, write /etc/b, write /etc", ""},
		{"an unknown change", asks(7, askChange, `"itemId":"other"`), []worker.Answer{{Question: "7"}}, "write /", `{"decision":"decline"}`},
		{"permissions", asks(7, askPermissions, `"permissions":{"network":{"enabled":true}}`), []worker.Answer{{Question: "7", Decision: worker.Allow}}, "tool permissions", `{"permissions":{"network":{"enabled":true}},"scope":"turn"}`},
		{"no permissions", asks(7, askPermissions, `"permissions":{"network":{"enabled":true}}`), []worker.Answer{{Question: "7"}}, "tool permissions", `{"permissions":{},"scope":"turn"}`},
		{"words", asks(7, askWords, `"questions":[{"id":"q","header":"h","question":"Which?"}]`), []worker.Answer{{Question: "7", Text: "this"}}, "words ", `{"answers":{"q":{"answers":["this"]}}}`},
		{"no words", asks(7, askWords, `"questions":[{"id":"q","header":"h","question":"Which?"}]`), []worker.Answer{{Question: "7"}}, "words ", `{"answers":{"q":{"answers":["nobody has answered: decide it yourself"]}}}`},
	} {
		s := opened(t, &worker.Task{Asked: true})
		talked(s, files)
		actions := talked(s, c.in)
		for _, a := range c.answer {
			actions = append(actions, talked(s, a)...)
		}
		var about []string
		for _, a := range only[worker.Ask](actions) {
			about = append(about, fmt.Sprintf("%s %s", a.Question.Kind, a.Question.Command+a.Question.Path+a.Question.Host+map[bool]string{true: a.Question.Tool}[a.Question.Kind == worker.AboutTool]))
			if a.Question.Text == "" && c.name != "no command" {
				t.Errorf("%s: no text", c.name)
			}
		}
		if got := strings.Join(about, ", "); got != c.about || requests(t, actions) != c.says {
			t.Errorf("%s: asked about %q, want %q; said %s, want %s", c.name, got, c.about, requests(t, actions), c.says)
		}
	}
	for _, method := range []string{"mcpServer/elicitation/request", "item/tool/call", "execCommandApproval"} {
		s := opened(t, &worker.Task{})
		w := only[worker.Write](talked(s, asks(7, method, `"x":1`)))
		if len(w) != 1 || !strings.Contains(string(w[0].Data), `"error"`) {
			t.Errorf("%s: %s", method, w)
		}
	}
}

// TestResolved: a question that the program does not wait for is taken back, and no answer of its is told.
func TestResolved(t *testing.T) {
	s := opened(t, &worker.Task{Asked: true})
	actions := talked(s, asks(7, askCommand, `"command":"make"`), out(`{"method":"serverRequest/resolved","params":{"threadId":"t","requestId":7}}`), worker.Answer{Question: "7", Decision: worker.Allow})
	if w := only[worker.Withdraw](actions); len(w) != 1 || w[0].Question != "7" || len(only[worker.Write](actions)) > 0 {
		t.Errorf("%+v", actions)
	}
}

// TestHeldCommand: how long an answer takes is no time of the command.
func TestHeldCommand(t *testing.T) {
	started := out(itemLine("started", `{"type":"commandExecution","id":"i","command":"make","processId":null}`))
	s := opened(t, &worker.Task{Asked: true})
	if e := only[worker.Emit](talked(s, started, asks(7, askCommand, `"command":"make"`))); len(e) > 0 {
		t.Errorf("told before it may run: %+v", e)
	}
	if e := only[worker.Emit](talked(s, worker.Answer{Question: "7", Decision: worker.Allow})); len(e) != 1 || !running(e[0].Event) {
		t.Errorf("it may run: %+v", e)
	}
	if e := only[worker.Emit](talked(opened(t, &worker.Task{}), started)); len(e) != 1 {
		t.Errorf("nobody is asked: %+v", e)
	}
}
