package e2e

// A core that is broken, in each way that one can be: this test binary, run
// again with fakeVariable set, stands between the scheduler and the real core
// and does one thing wrong. See TestMain.

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"

	"github.com/agentsched/agentsched/ipc"
)

const (
	fakeVariable = "AGENTSCHED_FAKE_CORE" // which fault
	markVariable = "AGENTSCHED_FAKE_MARK" // file that says that it was shown; "": show it always
	realVariable = "AGENTSCHED_REAL_CORE" // the real core's program
)

// faults of a core. A tap sees a line of the real core's conversation and may
// change it; those without one do all their harm at once.
var faults = map[string]func(c *fakeCore){
	"exits at once":        func(*fakeCore) { os.Exit(3) },
	"never says anything":  func(*fakeCore) { forever() },
	"closes stdout":        func(*fakeCore) { os.Stdout.Close(); forever() },
	"floods with garbage":  func(*fakeCore) { flood() },
	"speaks protocol 99":   (*fakeCore).otherProtocol,
	"refuses the protocol": (*fakeCore).refuseProtocol,
	"stops reading": func(c *fakeCore) {
		c.toCore = func(line []byte) []byte {
			if isCall(line, ipc.MethodSubmitJob) {
				forever()
			}
			return line
		}
		c.relay()
	},
	"tears a frame": func(c *fakeCore) {
		c.toScheduler = func(line []byte) []byte {
			if isCall(line, ipc.NotifyWorkerEvent) {
				os.Stdout.Write(line[:len(line)/2])
				syscall.Kill(os.Getpid(), syscall.SIGKILL)
			}
			return line
		}
		c.relay()
	},
	"babbles amid its work": func(c *fakeCore) {
		c.toScheduler = func(line []byte) []byte {
			if isCall(line, ipc.NotifyWorkerEvent) {
				flood()
			}
			return line
		}
		c.relay()
	},
	"completes what is not its own": func(c *fakeCore) {
		c.toCore = func(line []byte) []byte {
			var m struct{ Params ipc.SubmitJob }
			if isCall(line, ipc.MethodSubmitJob) && json.Unmarshal(line, &m) == nil {
				outcome := `"outcome":{"state":"completed","class":"","exit_code":0,"answer":"a lie","started_at":"2026-01-01T00:00:00Z","ended_at":"2026-01-01T00:00:01Z"}`
				const form = `{"jsonrpc":"2.0","method":"on_job_completed","params":{"job":%q,"attempt":%d,%s}}` + "\n"
				fmt.Fprintf(os.Stdout, form, "00000000-0000-7000-8000-000000000000", 1, outcome)
				fmt.Fprintf(os.Stdout, form, m.Params.Job, m.Params.Attempt+1, outcome)
				fmt.Fprintf(os.Stdout, form, m.Params.Job, 0, outcome)
			}
			return line
		}
		c.relay()
	},
	"does not hear that nothing is isolated": func(c *fakeCore) {
		lost := false
		c.toCore = func(line []byte) []byte {
			if !lost && isCall(line, ipc.MethodIsolate) && bytes.Contains(line, []byte(`"isolations":[]`)) {
				lost = true
				return bytes.Replace(line, []byte(`"isolate"`), []byte(`"lost"`), 1)
			}
			return line
		}
		c.relay()
	},
	"sends frames of 2 MiB": func(c *fakeCore) {
		c.toScheduler = func(line []byte) []byte {
			if isCall(line, ipc.NotifyWorkerEvent) {
				big := `{"jsonrpc":"2.0","method":"on_worker_event","params":{"text":"` + strings.Repeat("x", 2<<20) + `"}}` + "\n"
				return append([]byte(big), line...)
			}
			return line
		}
		c.relay()
	},
}

func isCall(line []byte, method string) bool {
	return bytes.Contains(line, []byte(`"method":"`+method+`"`))
}

// forever blocks until this process is killed, whatever its streams do.
func forever() {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGUSR1) // which nobody sends
	for range stop {
	}
}

func flood() {
	line := []byte(strings.Repeat("this is no JSON at all ", 40) + "\n")
	for {
		if _, err := os.Stdout.Write(line); err != nil {
			forever()
		}
	}
}

type fakeCore struct {
	program             string
	toCore, toScheduler func(line []byte) []byte
}

// fakeCoreMain is the life of a broken core. The second time, with the mark
// set, it is the real one.
func fakeCoreMain() {
	program := os.Getenv(realVariable)
	if mark := os.Getenv(markVariable); mark != "" {
		f, err := os.OpenFile(mark, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			err = syscall.Exec(program, []string{program}, os.Environ())
			fmt.Fprintln(os.Stderr, "become the real core:", err)
			os.Exit(1)
		}
		f.Close()
	}
	same := func(line []byte) []byte { return line }
	fault := faults[os.Getenv(fakeVariable)]
	fault(&fakeCore{program: program, toCore: same, toScheduler: same})
}

// relay runs the real core behind the two taps.
func (c *fakeCore) relay() {
	cmd := exec.Command(c.program)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err == nil {
		var out io.ReadCloser
		if out, err = cmd.StdoutPipe(); err == nil {
			if err = cmd.Start(); err == nil {
				go func() {
					pass(in, os.Stdin, c.toCore)
					in.Close()
				}()
				pass(os.Stdout, out, c.toScheduler)
				os.Stdout.Close() // or the scheduler would wait for our end, and the core for the scheduler's
				err = cmd.Wait()
			}
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "the real core:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func pass(w io.Writer, r io.Reader, tap func([]byte) []byte) {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			if _, err := w.Write(tap(line)); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// answerHello answers the first call, which is hello.
func answerHello(rest string) {
	line, err := bufio.NewReader(os.Stdin).ReadBytes('\n')
	var call struct{ ID json.RawMessage }
	if err != nil || json.Unmarshal(line, &call) != nil {
		os.Exit(1)
	}
	fmt.Fprintf(os.Stdout, `{"jsonrpc":"2.0","id":%s,%s}`+"\n", call.ID, rest)
	forever()
}

func (c *fakeCore) otherProtocol() {
	answerHello(`"result":{"protocol":99,"version":"9.9","pid":1,"methods":[],"adapters":[],"started":"2026-01-01T00:00:00Z"}`)
}

func (c *fakeCore) refuseProtocol() {
	answerHello(fmt.Sprintf(`"error":{"code":%d,"message":"this core speaks 99"}`, ipc.CodeVersion))
}
