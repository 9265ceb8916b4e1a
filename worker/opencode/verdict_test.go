package opencode

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/workertest"
)

// TestVerdict covers when a run is given up, and as what.
func TestVerdict(t *testing.T) {
	text, brokeOff, done := partOf(`"type":"text","text":"half an","time":{"end":1}`), stepFinish("unknown"), stepFinish("tool-calls")
	overflow := sessionError("ContextOverflowError", `"message":"too long"`)
	const refused = "Cannot connect to API: Unable to connect. Is the computer able to access the url?"
	for _, c := range []struct {
		name  string
		lines []string
		class job.ErrorClass // "": the run goes on
		says  string
		at    time.Duration // when to come back, from now on
	}{
		{name: "steps that end", lines: []string{stepStart, done, stepStart, done, stepStart, done, stepStart}},
		{name: "a step that was repeated", lines: []string{stepStart, stepStart, text, done, stepStart}},
		{name: "a step that is repeated", lines: []string{stepStart, stepStart, stepStart}, class: job.Server, says: "same step 3 times"},
		{name: "a step that is repeated later", lines: []string{stepStart, done, stepStart, stepStart, stepStart}, class: job.Server, says: "3 times"},
		{name: "half an answer each time", lines: []string{stepStart, text, stepStart, text, stepStart}, class: job.Server, says: "3 times"},
		{name: "an end that is none", lines: []string{stepStart, brokeOff, stepStart, brokeOff, stepStart}, class: job.Server, says: "3 times"},
		{name: "two failures", lines: []string{retry(1, "oh", 2*time.Second), retry(2, "oh", 4*time.Second)}},
		{name: "three failures", lines: []string{retry(1, "oh", 2*time.Second), retry(2, "oh", 4*time.Second), retry(3, "oh", 8*time.Second)}, class: job.Server, says: "3 requests"},
		{name: "no network", lines: []string{retry(3, refused, 8*time.Second)}, class: job.Network, says: "Unable to connect"},
		{name: "a lost connection", lines: []string{retry(3, "Cannot connect to API: The socket connection was closed unexpectedly.", time.Second)}, class: job.Server, says: "closed"},
		{name: "odd words", lines: []string{retry(3, "odd \"words\"", time.Second)}, class: job.Server, says: `"words"`},
		{name: "a rate limit that is soon over", lines: []string{retry(1, "Too Many Requests", 2*time.Second), retry(2, "Too Many Requests", 4*time.Second)}},
		{name: "a rate limit that is not", lines: []string{retry(1, "Too Many Requests", time.Minute)}, class: job.RateLimit, says: "Too Many", at: time.Minute},
		{name: "a rate limit again and again", lines: []string{retry(3, "Too Many Requests", 2*time.Second)}, class: job.RateLimit, says: "Too Many", at: 2 * time.Second},
		{name: "a rate limit in other words", lines: []string{retry(1, "no", 2*time.Hour)}, class: job.RateLimit, says: "no", at: 2 * time.Hour},
		{name: "no credit", lines: []string{retry(1, "You exceeded your current quota", time.Second)}, class: job.ResourceExhausted, says: "quota"},
		{name: "too long a context, which it may shorten", lines: []string{overflow, overflow}},
		{name: "too long a context, shortened in vain", lines: []string{overflow, overflow, overflow}, class: job.ResourceExhausted, says: "too long"},
		{name: "too long a context, twice", lines: []string{overflow, overflow, stepStart, done, overflow}},
	} {
		s := workertest.Play(testSession(t))
		for i, l := range c.lines {
			if _, decided := s.Verdict(); decided {
				t.Errorf("%s: decided after %d lines", c.name, i)
			}
			s.Event([]byte(l))
		}
		r, decided := s.Verdict()
		if r.Class != c.class || decided != (c.class != job.NoError) || !strings.Contains(r.Message, c.says) {
			t.Errorf("%s: %v, %+v", c.name, decided, r)
		}
		var at time.Time
		if c.at > 0 {
			at = workertest.Now.Add(c.at)
		}
		workertest.CheckRetry(t, c.name, r.RetryAt, 0, at)
	}
}

// TestErrorLine covers what becomes of standard error.
func TestErrorLine(t *testing.T) {
	s := workertest.Play(testSession(t))
	for line, want := range map[string]string{
		"":    "",
		" \t": "",
		"\x1b[91mError: \x1b[0mSession not found": "Error: Session not found",
		"no UTF-8: \xff": "no UTF-8: \uFFFD",
		"opencode server listening on http://127.0.0.1:4096": "",
	} {
		var got string
		for _, e := range s.ErrorLine([]byte(line)) {
			got += e.Text
		}
		if got != want {
			t.Errorf("%q: %q", line, got)
		}
	}
	if e := workertest.Play(testSession(t)).ErrorLine([]byte(strings.Repeat("x", 1<<20)))[0]; len(e.Text) > job.MaxEventText || e.Truncated == 0 {
		t.Errorf("a long line: %d bytes", len(e.Text))
	}
}

// TestRefusalsWait checks that a refusal is passed on when nothing else of the same session waits for an answer: the
// program takes it for all that it has asked.
func TestRefusalsWait(t *testing.T) {
	s := testSession(t)
	var wrote []string
	step := func(in worker.Input) {
		for _, a := range s.Step(workertest.Now, in) {
			if w, ok := a.(worker.Write); ok {
				wrote = append(wrote, string(w.Data))
			}
		}
	}
	asked := func(id, command string) {
		step(worker.Output{Line: []byte(event("permission.asked", `"id":"`+id+`","permission":"bash","metadata":{"command":"`+command+`"}`))})
	}
	asked("q1", "make deploy")
	asked("q2", "make")
	step(worker.Answer{Question: "q1", Text: "no"})
	step(worker.Timer{Name: rejecting})
	if len(wrote) > 0 {
		t.Errorf("wrote %q while a question was open", wrote)
	}
	step(worker.Answer{Question: "q2", Decision: worker.Allow})
	step(worker.Timer{Name: rejecting})
	if len(wrote) != 2 || !strings.Contains(wrote[0], "q2/reply") || !strings.Contains(wrote[1], "q1/reply") || !strings.Contains(wrote[1], `"message":"no"`) {
		t.Errorf("wrote %q", wrote)
	}
	wrote = nil
	step(worker.Output{Line: []byte(runningTool)})
	asked("q4", "make deploy")
	step(worker.Answer{Question: "q4", Text: "no"})
	step(worker.Timer{Name: rejecting})
	if len(wrote) > 0 {
		t.Errorf("wrote %q while a call may yet be asked about", wrote)
	}
	step(worker.Output{Line: []byte(partOf(`"type":"tool","tool":"bash","callID":"c","state":{"status":"completed","metadata":{"exit":0}}`))})
	step(worker.Timer{Name: rejecting})
	if len(wrote) != 1 || !strings.Contains(wrote[0], "q4/reply") {
		t.Errorf("wrote %q when the call had ended", wrote)
	}
	asked("q3", "make")
	withdrawn := s.Step(workertest.Now, worker.Output{Line: []byte(event("permission.replied", `"requestID":"q3","reply":"reject"`))})
	if !slices.Contains(withdrawn, worker.Action(worker.Withdraw{Question: "q3"})) {
		t.Errorf("did %+v where the program waits no more", withdrawn)
	}
}

// TestVersions checks that a version that is too old is refused, and that a newer one than was tested runs with a warning.
func TestVersions(t *testing.T) {
	for version, want := range map[string]string{"1.18.33": "", "1.18.3": "", "": "", "1.18.2": "too old", "1.19.0": "is newer than 1.18.33"} {
		s := workertest.Play(newSession(conversationTask(""), home{data: t.TempDir()}))
		s.Step(workertest.Now, worker.Started{})
		said := ""
		for _, e := range s.Event([]byte(`{"id":1,"status":200,"body":{"id":"s","version":"` + version + `"}}`)) {
			if e.Kind == job.EventWarning {
				said += e.Text
			}
		}
		r, refused := s.Verdict()
		if said += r.Message; !strings.Contains(said, want) || (said == "") != (want == "") || refused && (r.Class != job.Config || r.Hint == "") {
			t.Errorf("%q: %q, %+v", version, said, r)
		}
	}
}

// TestUnreadPrompt checks that a prompt of which the program makes nothing is sent again, with the same id, and that this
// has an end.
func TestUnreadPrompt(t *testing.T) {
	s := newSession(conversationTask(""), home{data: t.TempDir()})
	s.Step(workertest.Now, worker.Started{})
	var sent []string
	for n := range 6 {
		for _, in := range []worker.Input{
			worker.Output{Line: []byte(`{"id":1,"status":200,"body":{"id":"s"}}`)}, worker.Output{Line: []byte(idle)}, worker.Timer{Name: quiet},
		} {
			for _, a := range s.Step(workertest.Now.Add(time.Duration(n)*time.Second), in) {
				switch a := a.(type) {
				case worker.Write:
					_, body, _ := strings.Cut(string(a.Data), `"body":`)
					body, _, _ = strings.Cut(body, `,"id":`)
					sent = append(sent, body)
				case worker.CloseInput:
					sent = append(sent, "end")
				}
			}
		}
	}
	if len(sent) != 5 || sent[0] != sent[3] || sent[4] != "end" {
		t.Errorf("sent %q", sent)
	}
	if r := workertest.Play(s).Result(worker.Exit{}); r.Class != job.Crash {
		t.Errorf("result %+v", r)
	}
}

// TestSaidBefore checks that a message which an earlier attempt may have said is said only if the session does not have it.
func TestSaidBefore(t *testing.T) {
	for _, has := range []bool{true, false} {
		tk := conversationTask("resume")
		h := home{data: t.TempDir()}
		s := newSession(tk, h)
		s.Resume = "s"
		s.Step(workertest.Now, worker.Started{})
		s.Step(workertest.Now, worker.Message{ID: "m1", Text: "skip the docs", Again: true})
		s.Step(workertest.Now, worker.Message{ID: "m2", Text: "and hurry"})
		id := "msg_000000000000" + promptName("message m1")
		if !has {
			id = "msg_000000000000another"
		}
		var did []string
		for _, a := range s.Step(workertest.Now, worker.Output{Line: []byte(`{"id":2,"status":200,"body":[{"info":{"id":"` + id + `"}}]}`)}) {
			switch a := a.(type) {
			case worker.Settle:
				did = append(did, a.Message+" "+string(a.State))
			case worker.Write:
				for _, text := range []string{"skip the docs", "and hurry"} {
					if strings.Contains(string(a.Data), text) {
						did = append(did, text)
					}
				}
			}
		}
		want := []string{"skip the docs", "and hurry"}
		if has {
			want[0] = "m1 folded"
		}
		if !slices.Equal(did, want) {
			t.Errorf("has it: %v; did %q, want %q", has, did, want)
		}
	}
}
