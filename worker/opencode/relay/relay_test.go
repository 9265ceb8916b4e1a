package relay

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

// fakeVariable makes this test program a server like the real one, and a word of it in which way.
const fakeVariable = "RELAY_TEST_SERVER"

func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 2 && os.Args[1] == Command:
		os.Exit(Main(os.Args[2:]))
	case os.Getenv(fakeVariable) != "":
		serve(os.Getenv(fakeVariable))
	default:
		goleak.VerifyTestMain(m)
	}
}

// serve is a server whose path /say/EVENT sends an event, /exit ends it, /kill kills it, /big answers with more than is read
// and any other says what it was asked. In the way "deaf" SIGTERM does not end it, "silent" it never listens, and "cut" it ends
// its events.
func serve(way string) {
	if way == "deaf" {
		signal.Ignore(syscall.SIGTERM)
	}
	if way == "silent" {
		fmt.Println("starts")
		_, _ = io.Copy(io.Discard, os.Stdin) // which is empty
		select {}
	}
	events := make(chan string, 10)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println("a warning that is no address: http://127.0.0.1:1")
	fmt.Printf("opencode server listening on http://%s\n", l.Addr())
	panic(http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, password, _ := r.BasicAuth()
		if name != user || password == "" || password != os.Getenv(passwordVariable) {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		switch path := r.URL.Path; {
		case path == "/event":
			fmt.Fprint(w, ": a comment\n\ndata: {\"type\":\"server.connected\"}\n\n")
			for w.(http.Flusher).Flush(); way != "cut"; w.(http.Flusher).Flush() {
				select {
				case e := <-events:
					fmt.Fprintf(w, "data: %s\n\n", e)
				case <-r.Context().Done():
					return
				}
			}
		case strings.HasPrefix(path, "/say/"):
			events <- `{"type":"server.heartbeat"}`
			events <- `{"type":"message.part.delta", "delta": "wor"}`
			events <- `no JSON`
			events <- `{"type":"` + strings.TrimPrefix(path, "/say/") + `", "text": "<&>"}`
		case path == "/huge":
			events <- `{"type":"session.idle","text":"` + strings.Repeat("x", maxAnswer) + `"}`
			events <- `{"type":"session.idle","text":"after it"}`
		case path == "/exit":
			os.Exit(7)
		case path == "/kill":
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		case path == "/big":
			_, _ = io.Copy(w, io.LimitReader(zeros{}, maxAnswer+1))
		case path == "/away":
			http.Redirect(w, r, "http://example.invalid/", http.StatusFound)
		default:
			body, _ := io.ReadAll(r.Body)
			w.WriteHeader(http.StatusTeapot)
			fmt.Fprintf(w, `{"asked": %q}`, r.Method+" "+r.URL.String()+" "+string(body))
		}
	})))
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// process is a relay and its server.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	errors strings.Builder
	said   chan string // the first line of standard error
}

// Write takes standard error.
func (p *process) Write(b []byte) (int, error) {
	if p.errors.Len() == 0 {
		p.said <- string(b)
	}
	return p.errors.Write(b)
}

func start(t *testing.T, way string) *process {
	t.Helper()
	self, err := Program()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, said: make(chan string, 1), cmd: exec.CommandContext(t.Context(), self, Command, self)}
	p.cmd.Env = append(os.Environ(), fakeVariable+"="+way, "HTTP_PROXY=http://127.0.0.1:1", "NO_PROXY=")
	p.cmd.Stderr = p
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.out = bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *process) write(line string) {
	p.t.Helper()
	if _, err := io.WriteString(p.in, line+"\n"); err != nil {
		p.t.Fatal(err)
	}
}

// read returns the next line.
func (p *process) read() string {
	p.t.Helper()
	line, err := p.out.ReadString('\n')
	if err != nil {
		p.t.Fatalf("%q, %v; stderr: %s", line, err, p.errors.String())
	}
	return strings.TrimSuffix(line, "\n")
}

// exit waits for the end, and returns the exit code. The server must have ended, too: it holds the standard error.
func (p *process) exit() int {
	p.t.Helper()
	_, _ = io.Copy(io.Discard, p.out)
	_ = p.cmd.Wait()
	return p.cmd.ProcessState.ExitCode()
}

func TestRelay(t *testing.T) {
	p := start(t, "as ever")
	p.write(`{"id":1,"method":"POST","path":"/session?a=b","body":{"text":"<&>\n"}}`)
	if got, want := p.read(), `{"id":1,"status":418,"body":{"asked":"POST /session?a=b {\"text\":\"<&>\\n\"}"}}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for _, c := range []struct{ request, want string }{
		{`{"id":2,"method":"GET","path":"/x","body":null}`, `{"id":2,"status":418,"body":{"asked":"GET /x null"}}`},
		{`{"id":3,"method":"GET","path":"example.invalid/"}`, `{"id":3,"status":0,"error":"the path does not begin with a slash"}`},
		{`{"id":4,"method":"GET","path":"/away"}`, `"status":302`}, // it is not followed
		{`{"id":5,"method":"GET","path":"/big"}`, `"error":"an answer of more than`},
		{`{"id":6,"method":"\n","path":"/x"}`, `"status":0,"error"`},
	} {
		p.write("no request")
		p.write(c.request)
		if got := p.read(); !strings.Contains(got, c.want) {
			t.Errorf("%s: %s", c.request, got)
		}
	}
	p.write(`{"id":7,"method":"GET","path":"/say/session.idle"}`)
	got := []string{p.read(), p.read()} // in either order
	slices.Sort(got)
	if want := []string{`{"event":{"type":"session.idle","text":"<&>"}}`, `{"id":7,"status":200}`}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	p.in.Close()
	if code := p.exit(); code != 0 {
		t.Errorf("exit code %d, stderr %s", code, p.errors.String())
	}
	for _, want := range []string{"a warning that is no address", "is no request", "is no event"} {
		if !strings.Contains(p.errors.String(), want) {
			t.Errorf("standard error does not say %q: %s", want, p.errors.String())
		}
	}
}

// TestLongPrompt passes on a request of megabytes, and an answer as long.
func TestLongPrompt(t *testing.T) {
	p := start(t, "as ever")
	text := strings.Repeat("x", 3<<20)
	p.write(`{"id":1,"method":"POST","path":"/x","body":"` + text + `"}`)
	var l struct{ Body struct{ Asked string } }
	if err := json.Unmarshal([]byte(p.read()), &l); err != nil || !strings.Contains(l.Body.Asked, text) {
		t.Errorf("%d bytes, %v", len(l.Body.Asked), err)
	}
	p.in.Close()
	p.exit()
}

// TestHugeEvent skips an event that is too long, and goes on.
func TestHugeEvent(t *testing.T) {
	p := start(t, "as ever")
	p.write(`{"id":1,"method":"GET","path":"/huge"}`)
	got := []string{p.read(), p.read()}
	slices.Sort(got)
	if want := `{"event":{"type":"session.idle","text":"after it"}}`; got[0] != want {
		t.Errorf("got %.100q, want %q", got, want)
	}
	p.in.Close()
	p.exit()
}

// TestEnds has each way in which a relay ends: its server never outlives it.
func TestEnds(t *testing.T) {
	closeInput := func(p *process) { p.in.Close() }
	signalled := func(s os.Signal) func(*process) { return func(p *process) { _ = p.cmd.Process.Signal(s) } }
	asks := func(path string) func(*process) {
		return func(p *process) { p.write(`{"id":9,"method":"GET","path":"` + path + `"}`) }
	}
	for _, c := range []struct {
		name, way string
		do        func(*process)
		code      int
	}{
		{"end of input", "as ever", closeInput, 0},
		{"end of input, SIGTERM is ignored", "deaf", closeInput, 0},
		{"SIGINT", "as ever", signalled(syscall.SIGINT), 0},
		{"SIGTERM before it listens", "silent", signalled(syscall.SIGTERM), 0},
		{"the server ends", "as ever", asks("/exit"), 7},
		{"the server is killed", "as ever", asks("/kill"), 128 + 9},
		{"the server's events end", "cut", func(*process) {}, exitFailure},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel() // two of them wait for a second
			p := start(t, c.way)
			switch c.way {
			case "silent":
				<-p.said
			case "cut":
			default:
				p.write(`{"id":1,"method":"GET","path":"/x"}`)
				p.read()
			}
			c.do(p)
			if code := p.exit(); code != c.code {
				t.Errorf("exit code %d, want %d; stderr: %s", code, c.code, p.errors.String())
			}
		})
	}
}

// TestUnaware: a program that does not call Main first would be started again and again.
func TestUnaware(t *testing.T) {
	args := os.Args
	defer func() { os.Args = args }()
	os.Args = []string{args[0], Command, "opencode"}
	if path, err := Program(); err == nil {
		t.Errorf("it would start %s", path)
	}
	if code := Main(nil); code != exitFailure {
		t.Errorf("exit code %d without a program", code)
	}
	if code := Main([]string{"/nowhere"}); code != exitFailure {
		t.Errorf("exit code %d with a program that is not there", code)
	}
}
