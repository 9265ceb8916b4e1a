package exec_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/exec"
)

const converses = `{"type":"hello","protocol":1,"name":"w","converses":["messages","questions","interrupts"]}`

// line is the input of a line of output.
func line(format string, args ...any) worker.Input {
	return worker.Output{Line: fmt.Appendf(nil, format, args...)}
}

// did shows what a session does about inputs: "kind field…" of an event, "> line" for
// what it writes, and "ask", "withdraw" and "settle".
func did(s worker.Session, inputs ...worker.Input) (all []string) {
	for _, in := range inputs {
		for _, a := range steps(s, in) {
			switch a := a.(type) {
			case worker.Emit:
				all = append(all, show(a.Event))
			case worker.Write:
				all = append(all, "> "+strings.TrimSuffix(string(a.Data), "\n"))
			case worker.Ask:
				text, err := json.Marshal(a.Question)
				if err != nil {
					panic(err)
				}
				all = append(all, "ask "+string(text))
			case worker.Withdraw:
				all = append(all, "withdraw "+a.Question)
			case worker.Settle:
				all = append(all, strings.TrimSpace(fmt.Sprintf("settle %s %s %s", a.Message, a.State, a.Reason)))
			default:
				all = append(all, fmt.Sprintf("%T %+v", a, a))
			}
		}
	}
	return all
}

// TestConversation holds what follows from each line of a conversation.
func TestConversation(t *testing.T) {
	m1 := worker.Message{ID: "m1", From: "ann", Text: "skip <the> docs"}
	const told = `> {"type":"message","id":"m1","from":"ann","text":"skip \u003cthe\u003e docs"}`
	const question = `{"type":"question","id":"q1","kind":"command","command":"make"}`
	const asked = `ask {"ID":"q1","Kind":"command","Text":"command make","Tool":"","Command":"make","Path":"","Host":"","Diff":"","Input":null,"Decisions":["allow","deny"],"Schema":null}`
	hello := line(converses)
	tests := []struct {
		name   string
		inputs []worker.Input
		want   []string
	}{
		{"a message", []worker.Input{hello, m1}, []string{"log worker w", told}},
		{"again, from nobody", []worker.Input{hello, worker.Message{ID: "m", Text: "x", Again: true}},
			[]string{"log worker w", `> {"type":"message","id":"m","text":"x","again":true}`}},
		{"a message before hello", []worker.Input{worker.Started{}, m1, line("Compiling…"), line(""), hello}, []string{"log Compiling…", "log worker w", told}},
		{"before a hello that takes none", []worker.Input{m1, line(`{"type":"hello","protocol":1}`)}, []string{"log worker", "settle m1 refused this worker takes no messages"}},
		{"before another line", []worker.Input{m1, line(`{"type":"text","text":"x"}`)}, []string{"text x", "settle m1 refused this worker takes no messages"}},
		{"before a hello that is not readable", []worker.Input{m1, line(`{"type":"hello","protocol":1,"converses":"messages"}`)},
			[]string{"warning …", "settle m1 refused this worker takes no messages"}},
		{"after a hello that takes none", []worker.Input{line(`{"type":"hello","protocol":1,"converses":["questions"]}`), m1}, []string{"log worker", "settle m1 refused this worker takes no messages"}},
		{"a late hello", []worker.Input{line(`{"type":"text","text":"x"}`), hello, m1},
			[]string{"text x", "log worker w", "warning what a hello says that the worker converses by was ignored: it is not the first line", "settle m1 refused this worker takes no messages"}},
		{"it converses by something else", []worker.Input{line(`{"type":"hello","protocol":1,"converses":["smoke","messages","smoke"]}`), m1},
			[]string{"log worker", `warning the hello says that the worker converses by "smoke", which is not known`, told}},
		{"after the result", []worker.Input{hello, line(`{"type":"result","status":"completed"}`), m1}, []string{"log worker w", "settle m1 refused the worker has said its result"}},
		{"after cancel", []worker.Input{hello, worker.Cancel{}, m1}, []string{"log worker w", `> {"type":"cancel","reason":"the scheduler stops this run"}`, "settle m1 refused the run is being stopped"}},

		{"settled", []worker.Input{hello, m1, line(`{"type":"settle","message":"m1","state":"delivered","reason":"-"}`), line(`{"type":"settle","message":"m1","state":"delivered"}`), line(`{"type":"settle","message":"m1","state":"folded"}`)},
			[]string{"log worker w", told, "settle m1 delivered", "settle m1 folded"}},
		{"settled after it was folded", []worker.Input{hello, m1, line(`{"type":"settle","message":"m1","state":"folded"}`), line(`{"type":"settle","message":"m1","state":"refused"}`)},
			[]string{"log worker w", told, "settle m1 folded", `warning a settle line was ignored: the worker has no message "m1", or has settled it`}},
		{"refused", []worker.Input{hello, m1, line(`{"type":"settle","message":"m1","state":"refused","reason":"busy"}`)}, []string{"log worker w", told, "settle m1 refused busy"}},
		{"refused without a reason", []worker.Input{hello, m1, line(`{"type":"settle","message":"m1","state":"refused"}`)}, []string{"log worker w", told, "settle m1 refused the worker refused it and did not say why"}},
		{"an odd state", []worker.Input{hello, m1, line(`{"type":"settle","message":"m1","state":"eaten"}`)}, []string{"log worker w", told, `warning a settle line was ignored: state "eaten", want delivered, folded or refused`}},
		{"not the worker's", []worker.Input{hello, line(`{"type":"settle","message":"m9","state":"folded"}`)}, []string{"log worker w", `warning a settle line was ignored: the worker has no message "m9", or has settled it`}},

		{"an interrupt", []worker.Input{hello, worker.Interrupt{Reason: "ann did"}}, []string{"log worker w", `> {"type":"interrupt","reason":"ann did"}`}},
		{"an interrupt before hello", []worker.Input{worker.Interrupt{Reason: "a"}, m1, worker.Interrupt{}, hello}, []string{"log worker w", told, `> {"type":"interrupt"}`}},
		{"an interrupt of one that takes none", []worker.Input{worker.Interrupt{}, line(`{"type":"hello","protocol":1,"converses":["messages"]}`), worker.Interrupt{}}, []string{"log worker"}},
		{"an interrupt after the result", []worker.Input{hello, line(`{"type":"result","status":"completed"}`), worker.Interrupt{}}, []string{"log worker w"}},

		{"a question", []worker.Input{hello, line(question), worker.Answer{Question: "q1", Decision: worker.Deny, Text: "no", Value: json.RawMessage(`[1]`)}},
			[]string{"log worker w", asked, `> {"type":"answer","question":"q1","decision":"deny","text":"no","value":[1]}`}},
		{"nobody answers", []worker.Input{hello, line(question), worker.Answer{Question: "q1"}}, []string{"log worker w", asked, `> {"type":"answer","question":"q1","decision":""}`}},
		{"answered twice", []worker.Input{hello, line(question), worker.Answer{Question: "q1"}, worker.Answer{Question: "q1"}, worker.Answer{Question: "q2"}}, []string{"log worker w", asked, `> {"type":"answer","question":"q1","decision":""}`}},
		{"asked twice", []worker.Input{hello, line(question), line(question)}, []string{"log worker w", asked, `warning a question line was ignored: the question "q1" is open`}},
		{"withdrawn", []worker.Input{hello, line(question), line(`{"type":"withdraw","question":"q1"}`), worker.Answer{Question: "q1"}, line(`{"type":"withdraw","question":"q1"}`)},
			[]string{"log worker w", asked, "withdraw q1", `warning a withdraw line was ignored: the question "q1" is not open`}},
		{"without a word about it in hello", []worker.Input{line(question)}, []string{"warning the worker asks, but its hello does not say that it converses by questions", asked}},
		{"all fields", []worker.Input{hello, line(`{"type":"question","id":"q","kind":"write","text":"x?","tool":"t","command":"c","path":"p","host":"h","diff":"d","input":{"b": 1, "a":"<"},"decisions":["deny_and_stop","allow","allow"],"schema":{"type": "string"}}`)},
			[]string{"log worker w", `ask {"ID":"q","Kind":"write","Text":"x?","Tool":"t","Command":"c","Path":"p","Host":"h","Diff":"d","Input":{"b":1,"a":"\u003c"},"Decisions":["deny_and_stop","allow"],"Schema":{"type":"string"}}`}},
		{"an unknown decision", []worker.Input{hello, line(`{"type":"question","id":"q1","kind":"command","command":"make","decisions":["maybe","perhaps"]}`)},
			[]string{"log worker w", `warning a question takes the unknown decision "maybe"`, asked}},
		{"words", []worker.Input{hello, line(`{"type":"question","id":"q","kind":"words","text":"why?","input":null}`)},
			[]string{"log worker w", `ask {"ID":"q","Kind":"words","Text":"why?","Tool":"","Command":"","Path":"","Host":"","Diff":"","Input":null,"Decisions":null,"Schema":null}`}},
		{"an unknown kind, twice", []worker.Input{hello, line(`{"type":"question","id":"a","kind":"deed"}`), line(`{"type":"question","id":"b","kind":"deed"}`)}, []string{"log worker w",
			`warning a question was not asked: its kind "deed" is not known`, `> {"type":"answer","question":"a","decision":"","text":"the question was not asked: its kind \"deed\" is not known"}`,
			`> {"type":"answer","question":"b","decision":"","text":"the question was not asked: its kind \"deed\" is not known"}`}},
		{"nothing that decides", []worker.Input{hello, line(`{"type":"question","id":"a","kind":"host","text":"may I?","command":"x"}`)}, []string{"log worker w",
			"warning a question was not asked: it is of the kind host and has no host", `> {"type":"answer","question":"a","decision":"","text":"the question was not asked: it is of the kind host and has no host"}`}},
		{"wrong types", []worker.Input{hello, line(`{"type":"question","id":"a","kind":7}`), line(`{"type":"settle","message":[]}`), line(`{"type":"withdraw","question":{}}`)},
			[]string{"log worker w", "warning …", "warning …", "warning …"}},
		{"ids", []worker.Input{hello, line(`{"type":"question","kind":"tool","tool":"t"}`), line(`{"type":"question","id":"a\nb","kind":"tool","tool":"t"}`), line(`{"type":"question","id":"%s","kind":"tool","tool":"t"}`, strings.Repeat("x", 201))},
			[]string{"log worker w", `warning a question line was ignored: its id is "", want 1 to 200 bytes of printable text`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := did(start(t, newTask(t, "/bin/sh")), tt.inputs...)
			for i, w := range got { // what is wrong with a type is encoding/json's to say
				if strings.HasPrefix(w, "warning ") && strings.Contains(w, "json: ") {
					got[i] = "warning …"
				}
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
			}
		})
	}
}

// TestBoundsOfQuestions: what is only shown is cut, what decides is not asked about.
func TestBoundsOfQuestions(t *testing.T) {
	asks := func(field string, value string) (worker.Question, string) {
		t.Helper()
		s := start(t, newTask(t, "/bin/sh"))
		m := map[string]any{"type": "question", "id": strings.Repeat("q", 200), "kind": "tool", "tool": "t", field: value}
		text, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		steps(s, line(converses))
		var q worker.Question
		var answer exec.Answer
		for _, a := range steps(s, worker.Output{Line: text}) {
			switch a := a.(type) {
			case worker.Ask:
				q = a.Question
			case worker.Write:
				if err := json.Unmarshal(a.Data, &answer); err != nil {
					t.Fatal(err)
				}
			}
		}
		if (q.ID == "") == (answer.Question == "") {
			t.Errorf("%s: asked %.100q, answered %+v", field, q.ID, answer)
		}
		return q, answer.Text
	}
	for field, most := range map[string]int{"command": 64 << 10, "path": 4 << 10, "host": 1 << 10, "tool": 1 << 10, "input": 256<<10 - 2, "schema": 64<<10 - 2} {
		if q, why := asks(field, strings.Repeat("x", most)); q.ID == "" {
			t.Errorf("%s of %d bytes: %s", field, most, why)
		}
		if q, why := asks(field, strings.Repeat("x", most+1)); q.ID != "" || !strings.Contains(why, "its "+field+" has more than") {
			t.Errorf("%s of %d bytes was asked about: %q", field, most+1, why)
		}
	}
	if q, _ := asks("text", strings.Repeat("é", 1<<20)); len(q.Text) > job.MaxEventText || len(q.Text) < job.MaxEventText-10 {
		t.Errorf("text of %d bytes", len(q.Text))
	}
	if q, _ := asks("diff", strings.Repeat("+\n", 1<<20)); len(q.Diff) > 256<<10 || !strings.Contains(q.Diff, "cut") {
		t.Errorf("diff of %d bytes", len(q.Diff))
	}
	// An input may hold bytes that are no text; they become longer and still count.
	s := start(t, newTask(t, "/bin/sh"))
	got := did(s, line(converses), line(`{"type":"question","id":"q","kind":"tool","tool":"t","input":"%s"}`, strings.Repeat("a\xff", 100<<10)))
	if len(got) != 3 || !strings.Contains(got[2], "its input has more than") {
		t.Errorf("did %.200q", got)
	}
}

func TestManyQuestions(t *testing.T) {
	s := start(t, newTask(t, "/bin/sh"))
	steps(s, line(converses))
	ask := func(n int) string {
		return strings.Join(did(s, line(`{"type":"question","id":"q%d","kind":"tool","tool":"t"}`, n)), "|")
	}
	for n := range 64 {
		if got := ask(n); !strings.HasPrefix(got, "ask ") {
			t.Fatalf("question %d: %s", n, got)
		}
	}
	if got := ask(64); !strings.HasPrefix(got, "warning a question was not asked: 64 questions are open|> ") {
		t.Errorf("one more: %s", got)
	}
	did(s, worker.Answer{Question: "q3", Decision: worker.Allow})
	if got := ask(65); !strings.HasPrefix(got, "ask ") {
		t.Errorf("after an answer: %s", got)
	}
}

func TestManyMessages(t *testing.T) {
	s := start(t, newTask(t, "/bin/sh"))
	for n := range 257 {
		got := did(s, worker.Message{ID: fmt.Sprint(n)})
		if refused := len(got) == 1 && strings.HasPrefix(got[0], "settle 256 refused the worker has not said hello yet"); len(got) > 0 && !refused || refused != (n == 256) {
			t.Fatalf("message %d before hello: %q", n, got)
		}
	}
	got := did(s, line(converses))
	if len(got) != 257 || !strings.Contains(got[1], `"id":"0"`) || !strings.Contains(got[256], `"id":"255"`) {
		t.Fatalf("after hello: %d actions", len(got))
	}
	for n := 256; n <= 1000; n++ {
		got := did(s, worker.Message{ID: fmt.Sprint(n)})
		if refused := strings.HasPrefix(got[0], "settle 1000 refused the worker has 1000 messages"); refused != (n == 1000) {
			t.Fatalf("message %d: %q", n, got)
		}
	}
	did(s, line(`{"type":"settle","message":"7","state":"folded"}`))
	if got := did(s, worker.Message{ID: "more"}); !strings.HasPrefix(got[0], "> ") {
		t.Errorf("after one was folded: %q", got)
	}
}

// TestInterruptedResult: an interrupt asks for the result that a checkpoint asks for.
func TestInterruptedResult(t *testing.T) {
	for _, tt := range []struct {
		hello, result string
		in            worker.Interrupt
		class         job.ErrorClass
		message       string
	}{
		{converses, `{"type":"result","status":"checkpointed"}`, worker.Interrupt{Reason: "ann did"}, job.NoError, "ann did"},
		{converses, `{"type":"result","status":"checkpointed"}`, worker.Interrupt{}, job.NoError, "interrupted"},
		{converses, `{"type":"result","status":"checkpointed","message":"in a test"}`, worker.Interrupt{}, job.NoError, "in a test"},
		{`{"type":"hello","protocol":1}`, `{"type":"result","status":"checkpointed"}`, worker.Interrupt{}, job.Unknown, "the worker reported checkpointed, but nobody had asked for a checkpoint or interrupted it"},
		{converses, `{"type":"result","status":"completed"}`, worker.Interrupt{}, job.NoError, ""},
	} {
		s := start(t, newTask(t, "/bin/sh"))
		did(s, line("%s", tt.hello), tt.in, line("%s", tt.result))
		if r := end(s, worker.Exit{}); r.Class != tt.class || r.Message != tt.message || r.Checkpointed != (tt.class == job.NoError && tt.message != "") {
			t.Errorf("%s after %+v: %+v", tt.result, tt.in, r)
		}
	}
}

// TestUnsettledMessages: what the program leaves open is not the session's to settle.
func TestUnsettledMessages(t *testing.T) {
	s := start(t, newTask(t, "/bin/sh"))
	steps(s, worker.Message{ID: "m1"})
	if got := steps(s, worker.Ended{}); len(got) != 1 {
		t.Errorf("before hello: %+v", got)
	}
	s = start(t, newTask(t, "/bin/sh"))
	did(s, line(converses), worker.Message{ID: "m1"}, line(`{"type":"question","id":"q1","kind":"tool","tool":"t"}`))
	if got := steps(s, worker.Ended{}); len(got) != 1 {
		t.Errorf("after hello: %+v", got)
	}
}
