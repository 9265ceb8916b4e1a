package claude

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/workertest"
)

// told are the inputs that a recording may hold besides output.
var told = map[string]func() worker.Input{
	"Message": func() worker.Input { return &worker.Message{} }, "Answer": func() worker.Input { return &worker.Answer{} },
	"Interrupt": func() worker.Input { return &worker.Interrupt{} }, "Cancel": func() worker.Input { return &worker.Cancel{} },
}

// script reads a recorded conversation: "< LINE" is output, "! KIND JSON" another input.
func script(t *testing.T, file string) (inputs []worker.Input) {
	t.Helper()
	for l := range bytes.Lines(workertest.Read(t, file)) {
		l = bytes.TrimSuffix(l, []byte("\n"))
		if rest, ok := bytes.CutPrefix(l, []byte("< ")); ok {
			inputs = append(inputs, worker.Output{Line: rest})
			continue
		}
		kind, data, _ := strings.Cut(strings.TrimPrefix(string(l), "! "), " ")
		in := told[kind]
		if in == nil {
			t.Fatalf("%s: %.100s", file, l)
		}
		v := in()
		if err := json.Unmarshal([]byte(data), v); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		inputs = append(inputs, reflect.ValueOf(v).Elem().Interface().(worker.Input))
	}
	return inputs
}

// did is what a session does, a line for each action.
func did(actions []worker.Action) string {
	var b strings.Builder
	for _, a := range actions {
		switch a := a.(type) {
		case worker.Write:
			fmt.Fprintf(&b, "write %s", a.Data)
		case worker.Emit:
			a.Event.Text, _, _ = strings.Cut(a.Event.Text, "\n")
			data, _ := json.Marshal(a.Event)
			_, rest, _ := strings.Cut(string(data), `"time":"0001-01-01T00:00:00Z",`)
			fmt.Fprintf(&b, "emit {%s\n", rest)
		default:
			data, _ := json.Marshal(a)
			fmt.Fprintf(&b, "%s %s\n", strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%T", a), "worker.")), data)
		}
	}
	return b.String()
}

// TestConversations plays recorded conversations with the real program: CASE.golden holds
// what the session does.
func TestConversations(t *testing.T) {
	files, err := filepath.Glob("testdata/*.talk")
	if err != nil || len(files) < 12 {
		t.Fatalf("%d recordings, %v", len(files), err)
	}
	for _, file := range files {
		base := strings.TrimSuffix(file, ".talk")
		t.Run(filepath.Base(base), func(t *testing.T) {
			s := testSession(t).(*session)
			if strings.HasSuffix(base, "-again") {
				s.has = map[string]bool{uuidOf("m1"): true, uuidOf("m2"): true}
			}
			var b strings.Builder
			stopped := false
			for _, in := range script(t, file) {
				_, cancel := in.(worker.Cancel)
				actions := s.Step(workertest.Now, in)
				stopped = stopped || cancel || len(only[worker.Finish](actions)) > 0
				b.WriteString(did(actions))
			}
			var meta struct{ Exit int }
			if err := json.Unmarshal(workertest.Read(t, base+".meta.json"), &meta); err != nil {
				t.Fatal(err)
			}
			b.WriteString(did(s.Step(workertest.Now, worker.Ended{Exit: worker.Exit{Code: meta.Exit, Stopped: stopped}})))
			if *update {
				if err := os.WriteFile(base+".golden", []byte(b.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if want := string(workertest.Read(t, base+".golden")); b.String() != want {
				t.Errorf("got:\n%s\nwant:\n%s", b.String(), want)
			}
		})
	}
}

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

const (
	begins  = `{"type":"system","subtype":"init","session_id":"s"}`
	success = `{"type":"result","subtype":"success","is_error":false,"result":"done","usage":{"input_tokens":10,"output_tokens":5},"total_cost_usd":0.1}`
	aborted = `{"type":"result","subtype":"error_during_execution","is_error":true,"terminal_reason":"aborted_tools"}`
)

func replay(message string) worker.Input {
	return out(`{"type":"user","isReplay":true,"uuid":"` + uuidOf(message) + `","message":{"content":"x"}}`)
}

// TestVersions: one that is too old is refused before the model has said a word, and one that is newer than what was tested
// runs with a warning, once.
func TestVersions(t *testing.T) {
	for version, want := range map[string]string{"2.1.197": "", "2.1.175": "", "": "", "2.1.174": "too old", "3.0.0": "is newer than 2.1.197"} {
		init := out(strings.Replace(begins, `"init"`, `"init","claude_code_version":"`+version+`"`, 1))
		actions := talked(testSession(t).(*session), init, init)
		said := ""
		for _, a := range only[worker.Emit](actions) {
			if a.Event.Kind == job.EventWarning {
				said += a.Event.Text
			}
		}
		for _, a := range only[worker.Finish](actions) {
			said += a.Result.Message
			if a.Result.Class != job.Config || a.Result.Hint == "" {
				t.Errorf("%s: %+v", version, a.Result)
			}
		}
		if !strings.Contains(said, want) || (said == "") != (want == "") || strings.Count(said, "newest") > 1 {
			t.Errorf("%q: %q, want %q", version, said, want)
		}
	}
}

// TestMessages: the run goes on until each message had its turn.
func TestMessages(t *testing.T) {
	say := func(id string) worker.Input { return worker.Message{ID: id, Text: "words"} }
	for _, c := range []struct {
		name    string
		inputs  []worker.Input
		settled string
		ends    bool
	}{
		{"none", []worker.Input{out(begins), out(success)}, "", true},
		{"folded", []worker.Input{out(begins), say("a"), replay("a"), out(success)}, "a delivered, a folded", true},
		{"kept for the next turn", []worker.Input{out(begins), say("a"), out(success), out(begins), replay("a"), out(success)}, "a delivered, a folded", true},
		{"not read yet", []worker.Input{out(begins), say("a"), out(success)}, "a delivered", false},
		{"not replayed each", []worker.Input{out(begins), say("a"), say("b"), say("c"), replay("b"), out(success)}, "a delivered, b delivered, c delivered, a folded, b folded", false},
		{"too late", []worker.Input{out(begins), out(success), say("a")}, "a refused", true},
		{"cancelled", []worker.Input{out(begins), worker.Cancel{}, say("a")}, "a refused", true},
		{"replayed by nobody", []worker.Input{out(begins), say("a"), out(success), worker.Timer{Name: turnTimer}, say("b")}, "a delivered, b refused", true},
		{"an old timer", []worker.Input{out(begins), say("a"), out(success), replay("a"), out(begins), say("b"), worker.Timer{Name: turnTimer}, worker.Timer{Name: stopTimer}},
			"a delivered, a folded, b delivered", false},
		{"too long", []worker.Input{out(begins), worker.Message{ID: "a", Text: strings.Repeat("x", maxMessage)}}, "a refused", false},
	} {
		s := testSession(t).(*session)
		actions := talked(s, c.inputs...)
		var settled []string
		for _, a := range only[worker.Settle](actions) {
			settled = append(settled, a.Message+" "+string(a.State))
			if a.State == worker.MessageRefused && a.Reason == "" {
				t.Errorf("%s: no reason", c.name)
			}
		}
		if got := strings.Join(settled, ", "); got != c.settled || (len(only[worker.CloseInput](actions)) == 1) != c.ends {
			t.Errorf("%s: settled %q, want %q; %d ends", c.name, got, c.settled, len(only[worker.CloseInput](actions)))
		}
	}
}

// TestSeveralTurns: what the turns used adds up, and the last result is the run's.
func TestSeveralTurns(t *testing.T) {
	s := testSession(t).(*session)
	var used job.Usage
	for _, e := range only[worker.Emit](talked(s, out(begins), worker.Message{ID: "a", Text: "x"}, out(success), out(begins), replay("a"), out(success))) {
		if e.Event.Usage != nil {
			used = used.Add(*e.Event.Usage)
		}
	}
	if used.InputTokens != 20 || used.OutputTokens != 10 {
		t.Errorf("used %+v", used)
	}
	s = testSession(t).(*session)
	talked(s, out(begins), worker.Message{ID: "a", Text: "x"}, out(success), out(begins), replay("a"), out(`{"type":"result","subtype":"success","is_error":true,"result":"API Error: 500"}`))
	if r := s.outcome(worker.Exit{}); r.Class != job.Server {
		t.Errorf("the last turn failed: %+v", r)
	}
}

// TestInterrupt: a turn that does not stop is ended by force.
func TestInterrupt(t *testing.T) {
	stop := worker.Interrupt{Reason: "ann"}
	for _, c := range []struct {
		name       string
		inputs     []worker.Input
		checkpoint bool
		requests   int
	}{
		{"it stops", []worker.Input{out(begins), stop, out(aborted)}, true, 1},
		{"it does not", []worker.Input{out(begins), stop, worker.Timer{Name: stopTimer}}, true, 1},
		{"it has just ended", []worker.Input{out(begins), stop, out(success)}, false, 1},
		{"it has ended", []worker.Input{out(begins), out(success), stop, worker.Timer{Name: stopTimer}}, false, 0},
		{"between two turns", []worker.Input{out(begins), worker.Message{ID: "a", Text: "x"}, out(success), stop, replay("a"), out(begins), out(aborted)}, true, 2},
		{"words wait", []worker.Input{out(begins), worker.Message{ID: "a", Text: "x"}, stop, out(aborted), worker.Timer{Name: stopTimer}, replay("a"), out(begins)}, false, 1},
		{"nobody asked for it", []worker.Input{out(begins), out(aborted)}, false, 0},
	} {
		s := testSession(t).(*session)
		actions := talked(s, c.inputs...)
		finished := only[worker.Finish](actions)
		if (len(finished) == 1) != c.checkpoint || c.checkpoint && (!finished[0].Result.Checkpointed || finished[0].Result.Message != "interrupted" || finished[0].Result.Class != job.NoError) {
			t.Errorf("%s: %+v", c.name, finished)
		}
		n := 0
		for _, w := range only[worker.Write](actions) {
			n += strings.Count(string(w.Data), `"subtype":"interrupt"`)
		}
		if n != c.requests {
			t.Errorf("%s: asked %d times to stop, want %d", c.name, n, c.requests)
		}
	}
	s := testSession(t).(*session)
	timers := only[worker.SetTimer](talked(s, out(begins), stop))
	if len(timers) != 1 || timers[0].After < time.Second || timers[0].After > time.Minute {
		t.Errorf("timers %+v", timers)
	}
}

func asking(id, tool, input, more string) worker.Input {
	return out(`{"type":"control_request","request_id":"` + id + `","request":{"subtype":"can_use_tool","tool_name":"` + tool + `","tool_use_id":"t-` + id + `","input":` + input + more + `}}`)
}

// TestQuestions checks what a call is said to be about.
func TestQuestions(t *testing.T) {
	for _, c := range []struct {
		tool, input, more string
		want              worker.Question // without the fields that all have
		same              string
	}{
		{"Bash", `{"command":"make deploy","description":"ships","timeout":7}`, `,"blocked_path":"/etc"`, worker.Question{Kind: worker.AboutCommand, Command: "make deploy", Path: "/etc", Text: "run make deploy?"}, `{"command":"make deploy","timeout":7}`},
		{"Edit", `{"file_path":"/w/a","old_string":"one\ntwo","new_string":"1\n"}`, "", worker.Question{Kind: worker.AboutWrite, Path: "/w/a", Diff: "-one\n-two\n+1\n", Text: "change /w/a?"}, ""},
		{"MultiEdit", `{"file_path":"/w/a","edits":[{"old_string":"a","new_string":"b"},{"old_string":"c","new_string":"d"}]}`, "", worker.Question{Kind: worker.AboutWrite, Path: "/w/a", Diff: "-a\n+b\n-c\n+d\n", Text: "change /w/a?"}, ""},
		{"Write", `{"file_path":"/w/a","content":"x\ny"}`, "", worker.Question{Kind: worker.AboutWrite, Path: "/w/a", Diff: "+x\n+y\n", Text: "change /w/a?"}, ""},
		{"Write", `{"file_path":"/w/.git/config","content":"x"}`, `,"decision_reason_type":"safetyCheck"`, worker.Question{Kind: worker.AboutTool, Path: "/w/.git/config", Diff: "+x\n", Text: "change /w/.git/config?"}, ""},
		{"NotebookEdit", `{"notebook_path":"/w/a.ipynb","new_source":"x"}`, "", worker.Question{Kind: worker.AboutWrite, Path: "/w/a.ipynb", Diff: "+x\n", Text: "change /w/a.ipynb?"}, ""},
		{"Read", `{"file_path":"/etc/hosts"}`, "", worker.Question{Kind: worker.AboutRead, Path: "/etc/hosts", Text: "read /etc/hosts?"}, ""},
		{"Glob", `{"pattern":"*"}`, "", worker.Question{Kind: worker.AboutRead, Path: "/workspace", Text: "read /workspace?"}, ""},
		{"Grep", `{"pattern":"x","path":"/etc"}`, "", worker.Question{Kind: worker.AboutRead, Path: "/etc", Text: "read /etc?"}, ""},
		{"WebFetch", `{"url":"https://u:p@Example.com:8/x","prompt":"x"}`, "", worker.Question{Kind: worker.AboutHost, Host: "example.com", Text: "fetch https://u:p@Example.com:8/x?"}, ""},
		{"WebFetch", `{"url":"://","prompt":"x"}`, "", worker.Question{Kind: worker.AboutTool, Text: "use WebFetch?"}, ""},
		{"WebSearch", `{"query":"cats"}`, "", worker.Question{Kind: worker.AboutTool, Text: "use WebSearch?"}, ""},
		{"ExitPlanMode", `{}`, "", worker.Question{Kind: worker.AboutTool, Text: "use ExitPlanMode?"}, ""},
	} {
		s := testSession(t).(*session)
		asks := only[worker.Ask](talked(s, asking("q", c.tool, c.input, c.more)))
		if len(asks) != 1 {
			t.Errorf("%s %s: asked %+v", c.tool, c.input, asks)
			continue
		}
		got := asks[0].Question
		if c.same != "" && string(got.Input) != c.same {
			t.Errorf("%s: input %s, want %s", c.tool, got.Input, c.same)
		}
		if len(got.Input) == 0 || got.ID != "q" || got.Tool != c.tool || !slices.Contains(got.Decisions, worker.DenyAndStop) {
			t.Errorf("%+v", got)
		}
		got.ID, got.Tool, got.Input, got.Decisions = "", "", nil, nil
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s %s: got %+v, want %+v", c.tool, c.input, got, c.want)
		}
		// What is allowed is the call as it was asked about, with all of its arguments.
		var answer struct {
			Response struct {
				Response struct{ UpdatedInput json.RawMessage }
			}
		}
		w := only[worker.Write](talked(s, worker.Answer{Question: "q", Decision: worker.AllowInRun}))
		if len(w) != 1 || json.Unmarshal(w[0].Data, &answer) != nil || string(answer.Response.Response.UpdatedInput) != c.input {
			t.Errorf("%s: answered %s", c.tool, w)
		}
		if again := talked(s, worker.Answer{Question: "q", Decision: worker.Allow}); len(again) > 0 {
			t.Errorf("%s: answered twice: %v", c.tool, again)
		}
	}
}

// TestOddQuestions: what cannot be judged is denied without a question.
func TestOddQuestions(t *testing.T) {
	long := strings.Repeat("x", maxField+1)
	for name, in := range map[string]worker.Input{
		"too long": asking("q", "Bash", `{"command":"`+long+`"}`, ""), "no arguments": asking("q", "Bash", `[]`, ""), "a long name": asking("q", long, `{}`, ""),
		"another request": out(`{"type":"control_request","request_id":"q","request":{"subtype":"hook_callback"}}`),
	} {
		actions := talked(testSession(t).(*session), in)
		w := only[worker.Write](actions)
		if len(only[worker.Ask](actions)) > 0 || len(w) != 1 || strings.Contains(string(w[0].Data), "allow\"") || !strings.Contains(string(w[0].Data), `"request_id":"q"`) {
			t.Errorf("%s: %v", name, did(actions))
		}
	}
	s := testSession(t).(*session)
	for i := range maxQuestions + 50 {
		talked(s, asking(fmt.Sprint(i), "Bash", `{"command":"x"}`, ""))
	}
	if len(s.asked) != maxQuestions {
		t.Errorf("%d questions wait", len(s.asked))
	}
	big := only[worker.Ask](talked(testSession(t).(*session), asking("q", "Write", `{"file_path":"/a","content":"`+strings.Repeat(`y\n`, 1<<20)+`"}`, "")))
	if len(big) != 1 || len(big[0].Question.Diff) > maxDiff || len(big[0].Question.Input) > maxField {
		t.Errorf("a large write: %d questions", len(big))
	}
	if twice := only[worker.Ask](talked(testSession(t).(*session), asking("q", "Bash", `{"command":"a"}`, ""), asking("q", "Bash", `{"command":"b"}`, ""))); len(twice) != 1 {
		t.Errorf("one request asked twice: %+v", twice)
	}
}

// TestWithdraw: a question that the program does not wait for any more is taken back, and
// its call was not denied.
func TestWithdraw(t *testing.T) {
	denials := `,"permission_denials":[{"tool_name":"Bash","tool_use_id":"t-q","tool_input":{"command":"a"}},{"tool_name":"Bash","tool_use_id":"t-r","tool_input":{"command":"b"}}]}`
	s := testSession(t).(*session)
	actions := talked(s, out(begins), asking("q", "Bash", `{"command":"a"}`, ""), asking("r", "Bash", `{"command":"b"}`, ""), asking("o", "Bash", `{"command":"c"}`, ""),
		worker.Answer{Question: "r", Decision: worker.Deny}, out(`{"type":"control_cancel_request","request_id":"q"}`), worker.Answer{Question: "q", Decision: worker.Allow},
		worker.Message{ID: "m", Text: "go on"}, out(strings.TrimSuffix(success, "}")+denials), out(begins), replay("m"), out(strings.TrimSuffix(success, "}")+denials))
	if w := only[worker.Withdraw](actions); len(w) != 2 || w[0].Question != "q" || w[1].Question != "o" {
		t.Errorf("withdrawn: %+v", w)
	}
	if r := s.outcome(worker.Exit{}); !slices.Equal(r.Denied, []string{"Bash(b)"}) {
		t.Errorf("denied %q", r.Denied)
	}
}

// TestRecorded: the messages that a session has are found in its record, also if it is
// larger than what is read.
func TestRecorded(t *testing.T) {
	h := home{dir: t.TempDir()}
	dir := filepath.Join(h.dir, "projects", "-w")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	line := func(format, id string) string { return fmt.Sprintf(format+"\n", uuidOf(id)) }
	text := line(`{"type":"user","uuid":"%s"}`, "old") + strings.Repeat("x", maxRecorded) + "\n" +
		line(`{"type":"user","message":{"content":"x"},"uuid":"%s"}`, "turn") + `{"type":"assistant","uuid":"0000"}` + "\n{\n" +
		line(`{"type":"attachment","attachment":{"type":"queued_command","source_uuid":"%s"},"uuid":"76540ba0-04da-4c85-9a0b-b9d0a2ba5ad6"}`, "folded")
	workertest.Write(t, filepath.Join(dir, "s.jsonl"), text)
	if has := h.recorded("s"); len(has) != 2 || !has[uuidOf("turn")] || !has[uuidOf("folded")] {
		t.Errorf("the session has %v", has)
	}
	if has := h.recorded("none"); len(has) > 0 {
		t.Errorf("no session has %v", has)
	}
}
