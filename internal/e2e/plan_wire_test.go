package e2e

// A scheduler written by hand: it speaks to a real agentcore, one JSON object a
// line, and knows neither our types nor our manners. The tests of the plan use
// it to try what a real scheduler would never do.

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agentsched/agentsched/internal/testrun"
	"github.com/agentsched/agentsched/job"
)

// Codes that the core refuses with, as docs/protocol.md lists them.
const (
	codePermitUnknown = -32152
	codeNotConfigured = -32153
	codeShuttingDown  = -32155
)

// wire is the conversation with a core.
type wire struct {
	b      *bench
	cmd    *exec.Cmd
	in     io.WriteCloser
	frames chan frame // what the core says; closed at the end of its stream
	stderr lockedBuffer
	calls  int
	told   []frame // notifications that were read while an answer was waited for
	ended  bool
}

// frame is a line of the core.
type frame struct {
	ID     int             `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

// newWire starts a core. Nothing has been said to it yet.
func newWire(t *testing.T) *wire {
	t.Helper()
	b := newBench(t)
	w := &wire{b: b, frames: make(chan frame, 1000)}
	if err := os.Mkdir(b.state, 0o700); err != nil {
		t.Fatal(err)
	}
	b.write(filepath.Join(b.state, "instance.json"), asJSON(t, obj{"version": 1, "instance": job.NewInstanceID()})) // so that the bench finds the core's processes
	w.cmd = exec.Command(coreProgram())
	w.cmd.Env, w.cmd.Dir, w.cmd.Stderr = b.env, b.dir, &w.stderr
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	var out io.ReadCloser
	var err error
	if w.in, err = w.cmd.StdinPipe(); err == nil {
		if out, err = w.cmd.StdoutPipe(); err == nil {
			err = w.cmd.Start()
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.close) // before the bench's
	go func() {
		defer close(w.frames)
		lines := bufio.NewReader(out)
		for {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				return
			}
			var f frame
			if err := json.Unmarshal(line, &f); err != nil {
				t.Errorf("the core said %.300q: %v", line, err)
			}
			w.frames <- f
		}
	}()
	return w
}

func (w *wire) fatalf(format string, args ...any) {
	w.b.t.Helper()
	w.b.t.Fatalf(format+"\nthe core's log:\n%s", append(args, w.stderr.String())...)
}

// close kills a core that is still there.
func (w *wire) close() {
	if w.ended {
		return
	}
	if !w.b.t.Failed() {
		w.b.t.Error("the test left its core running")
	}
	_ = w.cmd.Process.Kill()
	for range w.frames {
	}
	_ = w.cmd.Wait()
}

// next returns what the core says next; false at the end of its stream.
func (w *wire) next(what string) (frame, bool) {
	w.b.t.Helper()
	select {
	case f, ok := <-w.frames:
		return f, ok
	case <-testrun.After(w.b.t):
		w.fatalf("the core did not say: %s", what)
		panic("unreachable")
	}
}

// call asks the core, and returns its result or the code of its refusal.
func (w *wire) call(method string, params obj) (result json.RawMessage, code int) {
	w.b.t.Helper()
	w.calls++
	w.say(asLine(w.b.t, obj{"jsonrpc": "2.0", "id": w.calls, "method": method, "params": params}))
	return w.answer(method)
}

func (w *wire) say(line string) {
	w.b.t.Helper()
	if _, err := io.WriteString(w.in, line); err != nil {
		w.fatalf("say %s: %v", line, err)
	}
}

// answer reads until the answer to the last call.
func (w *wire) answer(method string) (result json.RawMessage, code int) {
	w.b.t.Helper()
	for {
		f, ok := w.next("the answer to " + method)
		switch {
		case !ok:
			w.fatalf("the core's stream ended before the answer to %s", method)
		case f.Method != "":
			w.told = append(w.told, f)
		case f.ID != w.calls:
			w.fatalf("an answer to call %d, the last one is %d", f.ID, w.calls)
		case f.Error != nil:
			return nil, f.Error.Code
		default:
			return f.Result, 0
		}
	}
}

// must asks the core and wants no refusal.
func (w *wire) must(method string, params obj) json.RawMessage {
	w.b.t.Helper()
	result, code := w.call(method, params)
	if code != 0 {
		w.fatalf("%s is refused with %d", method, code)
	}
	return result
}

// refused asks the core and wants it refused with one of the codes.
func (w *wire) refused(what, method string, params obj, codes ...int) {
	w.b.t.Helper()
	if result, code := w.call(method, params); !slices.Contains(codes, code) {
		w.fatalf("%s: %s gave code %d and result %s, want one of %v", what, method, code, result, codes)
	}
}

func (w *wire) hello() {
	w.b.t.Helper()
	w.must("hello", obj{"protocol": 1, "version": "by hand", "instance": w.b.instance(), "state_dir": w.b.state, "methods": []string{}})
}

// configure sets the core up for four runs at once, with changes. Permits do not
// expire while a test looks.
func (w *wire) configure(changes obj) {
	w.b.t.Helper()
	settings := obj{"max_concurrent": 4, "permit_ttl": "10m", "workers": w.b.config["workers"], "stop": w.b.config["stop"]}
	for k, v := range changes {
		settings[k] = v
	}
	w.must("configure", settings)
}

// rejection is the core's answer that it gives no permit.
type rejection struct {
	Reason  string `json:"reason"`
	RetryMS int64  `json:"retry_after_ms"`
	Message string `json:"message"`
}

type grant struct {
	ID      string    `json:"permit_id"`
	Expires time.Time `json:"expires_at"`
	Tokens  int64     `json:"tokens_granted"`
	USD     float64   `json:"cost_granted_usd"`
}

// ask asks for a permit for a shell job without a workspace, with changes: one
// of the two is nil.
func (w *wire) ask(id string, attempt int, changes obj) (*grant, *rejection) {
	w.b.t.Helper()
	var answer struct {
		Permit    *grant
		Rejection *rejection
	}
	if err := json.Unmarshal(w.must("request_permit", permitRequest(id, attempt, changes)), &answer); err != nil || (answer.Permit == nil) == (answer.Rejection == nil) {
		w.fatalf("answer %+v, %v", answer, err)
	}
	return answer.Permit, answer.Rejection
}

func permitRequest(id string, attempt int, changes obj) obj {
	r := obj{
		"job": id, "tenant": "t", "attempt": attempt, "counted": 0, "choice": obj{"worker": "shell"},
		"workspace": obj{"isolation": "none"}, "limits": obj{"max_attempts": 3, "timeout": "1m"},
	}
	for k, v := range changes {
		r[k] = v
	}
	return r
}

// permit wants a permit.
func (w *wire) permit(id string, attempt int, changes obj) *grant {
	w.b.t.Helper()
	p, refused := w.ask(id, attempt, changes)
	if p == nil {
		w.fatalf("no permit for attempt %d of %s: %+v", attempt, id, refused)
	}
	return p
}

// wantRejected wants none, for one of the reasons (parted by spaces): with a time to ask again, unless
// it will never heal.
func (w *wire) wantRejected(what string, reasons string, id string, attempt int, changes obj) {
	w.b.t.Helper()
	p, refused := w.ask(id, attempt, changes)
	if p != nil {
		w.fatalf("%s: attempt %d of %s got permit %s", what, attempt, id, p.ID)
	}
	if terminal := refused.Reason == "LIMIT_EXCEEDED"; !slices.Contains(strings.Fields(reasons), refused.Reason) || (refused.RetryMS > 0) == terminal || refused.Message == "" {
		w.fatalf("%s: rejected with %+v, want %s", what, *refused, reasons)
	}
}

// submission is the run that the permit of a request is for.
func submission(permit, id string, attempt int, script string, changes obj) obj {
	request := permitRequest(id, attempt, changes)
	worker := request["choice"].(obj)["worker"]
	return obj{
		"permit_id": permit, "job": id, "attempt": attempt, "choice": request["choice"],
		"spec": obj{
			"id": id, "tenant": request["tenant"], "type": "WORKER_TASK", "worker": worker, "instructions": script,
			"workspace": request["workspace"], "capabilities": []string{"read", "edit", "run_commands"}, "limits": request["limits"],
		},
	}
}

// run asks for a permit and runs the script.
func (w *wire) run(id string, attempt int, script string, changes obj) {
	w.b.t.Helper()
	w.must("submit_job", submission(w.permit(id, attempt, changes).ID, id, attempt, script, changes))
}

// outcome waits for the end of a run.
func (w *wire) outcome(id string, attempt int) job.Outcome {
	w.b.t.Helper()
	var end struct {
		Job     string
		Attempt int
		Outcome job.Outcome
	}
	w.await(fmt.Sprintf("the end of attempt %d of %s", attempt, id), func(f frame) bool {
		return f.Method == "on_job_completed" && json.Unmarshal(f.Params, &end) == nil && end.Job == id && end.Attempt == attempt
	})
	return end.Outcome
}

// says waits for a line that a run prints.
func (w *wire) says(id, text string) {
	w.b.t.Helper()
	w.await(fmt.Sprintf("%q of %s", text, id), func(f frame) bool {
		var e job.Event
		return f.Method == "on_worker_event" && json.Unmarshal(f.Params, &e) == nil && string(e.Job) == id && e.Text == text
	})
}

// await waits for a notification, among those that came before too.
func (w *wire) await(what string, match func(frame) bool) {
	w.b.t.Helper()
	for n := 0; ; n++ {
		if n == len(w.told) {
			f, ok := w.next(what)
			if !ok {
				w.fatalf("the core's stream ended before %s", what)
			}
			w.told = append(w.told, f)
		}
		if match(w.told[n]) {
			return
		}
	}
}

// beats waits until the core says, in its heartbeats, that it has so many
// permits unused and so many runs.
func (w *wire) beats(unused, running int) {
	w.b.t.Helper()
	w.b.eventually(fmt.Sprintf("%d unused permits and %d runs", unused, running), func() bool {
		var beat struct {
			Permits int `json:"permits_unused"`
			Running int `json:"worker_inflight_count"`
		}
		if err := json.Unmarshal(w.must("heartbeat", obj{"seq": 1}), &beat); err != nil {
			w.fatalf("heartbeat: %v", err)
		}
		return beat.Permits == unused && beat.Running == running
	})
}

// end shuts the core down; nothing may be left of it.
func (w *wire) end() {
	w.b.t.Helper()
	w.must("shutdown", obj{"reason": "the test is over"})
	w.bye()
}

// bye waits for the end of a core that was told to shut down.
func (w *wire) bye() {
	w.b.t.Helper()
	for ok := true; ok; {
		_, ok = w.next("nothing more")
	}
	w.in.Close()
	w.ended = true
	if err := w.cmd.Wait(); err != nil {
		w.fatalf("the core ended with %v", err)
	}
	w.b.noProcess()
}

func asLine(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text) + "\n"
}
