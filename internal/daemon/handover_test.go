package daemon

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/agentsched/agentsched/client"
)

const (
	// helperVariable holds the directory of the helper that this program then is.
	helperVariable     = "AGENTSCHED_TEST_DAEMON"
	generationVariable = "AGENTSCHED_TEST_GENERATION"
	// generations is how many programs follow one another in the test.
	generations = 3
	// clients is how many call all the time, and calls how often each does in each
	// generation at least.
	clients, calls = 20, 10
)

func logger(t *testing.T) zerolog.Logger { return zerolog.New(zerolog.NewTestWriter(t)) }

// answer is what the helper says about itself.
type answer struct {
	PID, Generation int
	Failed          string // how the last handover failed
	Open            []int  // descriptors of sockets that a child would inherit
	Address         string
}

// helper is a server that hands itself over when it is asked to, until it is told
// to stop.
func helper(dir string) int {
	if err := serve(dir); err != nil {
		fmt.Fprintln(os.Stderr, "helper:", err)
		return 1
	}
	return 0
}

func serve(dir string) error {
	generation, _ := strconv.Atoi(cmp.Or(os.Getenv(generationVariable), "1"))
	inherited, err := Inherit(os.Environ())
	if err != nil {
		return err
	}
	if (generation > 1) != (len(inherited) == 2) {
		return fmt.Errorf("generation %d inherits %v", generation, inherited)
	}
	path, failed := filepath.Join(dir, "socket"), ""
	for {
		unixSocket, tcp, err := listeners(path, inherited)
		if err != nil {
			return err
		}
		programs, stop := make(chan string, 1), make(chan struct{}, 1)
		server := NewServer(&http.Server{Handler: handler(answer{os.Getpid(), generation, failed, openSockets(), tcp.Addr().String()}, programs, stop)})
		var serving sync.WaitGroup
		for _, l := range []net.Listener{unixSocket, tcp} {
			serving.Go(func() {
				if err := server.Serve(l); err != nil {
					fmt.Fprintln(os.Stderr, "helper:", err)
				}
			})
		}
		fmt.Println(tcp.Addr())
		var program string
		select {
		case program = <-programs:
		case <-stop:
			err := server.Finish(context.Background())
			serving.Wait()
			return err
		}
		h, err := Pass(map[string]net.Listener{Socket: unixSocket, API: tcp})
		if err != nil {
			return err
		}
		if err := server.Finish(context.Background()); err != nil {
			return err
		}
		serving.Wait()
		environ := slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, generationVariable+"=") })
		failed = h.Exec(program, os.Args, append(environ, fmt.Sprintf("%s=%d", generationVariable, generation+1))).Error()
		if inherited, err = h.Listeners(); err != nil {
			return err
		}
		h.Release()
	}
}

// listeners returns those that were inherited, or new ones.
func listeners(path string, inherited map[string]Inherited) (unixSocket, tcp net.Listener, err error) {
	if len(inherited) == 0 {
		if unixSocket, err = ListenSocket(path); err == nil {
			tcp, err = net.Listen("tcp", "127.0.0.1:0")
		}
		return unixSocket, tcp, err
	}
	unixSocket, err = AdoptSocket(inherited[Socket].Listener, path, inherited[Socket].Kept)
	return unixSocket, inherited[API].Listener, err
}

func handler(a answer, programs chan<- string, stop chan<- struct{}) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		json.NewEncoder(w).Encode(a)
	})
	mux.HandleFunc("/upgrade", func(w http.ResponseWriter, r *http.Request) { programs <- r.FormValue("program") })
	mux.HandleFunc("/stop", func(http.ResponseWriter, *http.Request) { stop <- struct{}{} })
	return mux
}

// openSockets returns the descriptors of sockets that a child would inherit.
func openSockets() []int {
	open := []int{}
	for fd := firstDescriptor; fd < 64; fd++ {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err != nil || flags&unix.FD_CLOEXEC != 0 {
			continue
		}
		if _, err := unix.Getsockname(fd); err == nil {
			open = append(open, fd)
		}
	}
	return open
}

// TestHandover lets three programs follow one another in one process, with a
// fourth that cannot be started in between, while clients call on both sockets:
// no request fails.
func TestHandover(t *testing.T) {
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	broken := filepath.Join(dir, "broken")
	if err := os.WriteFile(broken, []byte("no program\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), helperVariable+"="+dir)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := sync.OnceValue(cmd.Wait)
	defer ended() //nolint:errcheck // it was told of, or killed
	defer cmd.Process.Kill()
	lines := bufio.NewReader(stdout)
	// serving waits until a program serves, and returns where.
	serving := func() string {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatalf("the helper ended: %v, %s", err, complaints.String())
		}
		return strings.TrimSpace(line)
	}
	address := serving()
	local := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return client.DialSocket(ctx, filepath.Join(dir, "socket"))
	}}}
	remote := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	defer local.CloseIdleConnections()

	done := make(chan struct{})
	progress := make(chan answer)
	var calling sync.WaitGroup
	stopped := sync.OnceFunc(func() {
		close(done)
		calling.Wait()
	})
	defer stopped()
	for n := range clients {
		calling.Go(func() {
			client, url := local, "http://helper/"
			if n%2 == 1 {
				client, url = remote, "http://"+address+"/"
			}
			for turn := 0; ; turn++ {
				a, err := call(client, url, turn%2 == 1)
				if err != nil {
					t.Errorf("client %d, request %d: %v", n, turn, err)
				}
				select {
				case progress <- a:
				case <-done:
					return
				}
			}
		})
	}
	// answered waits until so many requests of a generation were, after the handover
	// that failed so.
	answered := func(generation int, failed string) (last answer) {
		for n, earlier := 0, 0; n < clients*calls; {
			// Of the one before there are those answers that were under way.
			if a := <-progress; a.Generation == generation && a.Failed == failed {
				n, last = n+1, a
			} else if earlier++; a.Generation > generation || earlier > clients {
				t.Fatalf("generation %d (%q) answers instead of %d (%q)", a.Generation, a.Failed, generation, failed)
			}
			if t.Failed() {
				return last
			}
		}
		return last
	}
	upgrade := func(program string) {
		resp, err := remote.PostForm("http://"+address+"/upgrade", map[string][]string{"program": {program}})
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if at := serving(); at != address {
			t.Errorf("now serves at %s instead of %s", at, address)
		}
	}
	for generation := 1; generation <= generations; generation++ {
		a := answered(generation, "")
		if a.PID != cmd.Process.Pid || a.Address != address || len(a.Open) != 0 {
			t.Errorf("generation %d: got %+v, want process %d and no open sockets", generation, a, cmd.Process.Pid)
		}
		if generation == 2 {
			upgrade(broken)
			a := answered(generation, "replace this program by "+broken+": exec format error")
			if a.PID != cmd.Process.Pid || len(a.Open) != 0 {
				t.Errorf("after a program that cannot run: got %+v", a)
			}
		}
		if generation < generations {
			upgrade(self)
		}
	}
	stopped()
	if resp, err := remote.Get("http://" + address + "/stop"); err != nil {
		t.Error(err)
	} else {
		resp.Body.Close()
	}
	if err := ended(); err != nil {
		t.Errorf("%v: %s", err, complaints.String())
	}
	if _, err := os.Lstat(filepath.Join(dir, "socket")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket's file is still there: %v", err)
	}
}

// call asks, or sends something that may be sent again, and returns the answer.
func call(client *http.Client, url string, post bool) (answer, error) {
	method, body := http.MethodGet, io.Reader(nil)
	if post {
		method, body = http.MethodPost, strings.NewReader("a job")
	}
	req, err := http.NewRequest(method, url, body)
	if err != nil {
		return answer{}, err
	}
	if post {
		req.Header.Set("Idempotency-Key", "1")
	}
	resp, err := client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return answer{}, errors.New(resp.Status)
	}
	var a answer
	return a, json.NewDecoder(resp.Body).Decode(&a)
}

func TestPassRefuses(t *testing.T) {
	l, err := ListenSocket(filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := Pass(map[string]net.Listener{"metrics": l}); err == nil || !strings.Contains(err.Error(), `"metrics" is unknown, want socket or api`) {
		t.Errorf("got %v", err)
	}
	if _, err := Pass(map[string]net.Listener{API: struct{ net.Listener }{l}}); err == nil || !strings.Contains(err.Error(), "has no descriptor") {
		t.Errorf("got %v", err)
	}
}

// TestGivenUpAfterClose: a handover that is given up when the listener is closed
// leaves no file behind.
func TestGivenUpAfterClose(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := ListenSocket(path)
	if err != nil {
		t.Fatal(err)
	}
	h, err := Pass(map[string]net.Listener{Socket: l})
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("the next program has lost its file: %v", err)
	}
	h.Release()
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file was left: %v", err)
	}
}

// TestGivenUp: a handover that is given up leaves everything as it was.
func TestGivenUp(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := ListenSocket(path)
	if err != nil {
		t.Fatal(err)
	}
	h, err := Pass(map[string]net.Listener{Socket: l})
	if err != nil {
		t.Fatal(err)
	}
	if !l.Kept() {
		t.Error("the file would go with the first program")
	}
	h.Release()
	h.Release()
	if l.Kept() {
		t.Error("the file would stay")
	}
	go func() {
		if c, err := client.DialSocket(context.Background(), path); err == nil {
			c.Close()
		}
	}()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	l.Close()
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket's file is still there: %v", err)
	}
}

func TestInherit(t *testing.T) {
	pid := strconv.Itoa(os.Getpid())
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	number := func() string {
		fd, err := duplicate(tcp)
		if err != nil {
			t.Fatal(err)
		}
		return strconv.Itoa(fd)
	}
	pipe := func() string {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		defer w.Close()
		fd, err := unix.FcntlInt(r.Fd(), unix.F_DUPFD_CLOEXEC, firstDescriptor)
		if err != nil {
			t.Fatal(err)
		}
		return strconv.Itoa(fd)
	}
	for _, tt := range []struct {
		environ []string
		names   string
		err     string
	}{
		{nil, "", ""},
		{[]string{"AGENTSCHED_LISTENERS=api=7", "AGENTSCHED_LISTENERS_PID=1"}, "", ""},
		{[]string{"LISTEN_FDS=1", "LISTEN_PID=1"}, "", ""},
		{[]string{"LISTEN_FDS=0", "LISTEN_PID=" + pid}, "", ""},
		{[]string{"AGENTSCHED_LISTENERS=api=" + number(), "AGENTSCHED_LISTENERS_PID=" + pid}, "api", ""},
		{[]string{"AGENTSCHED_LISTENERS=socket=" + number() + ":kept,api=" + number(), "AGENTSCHED_LISTENERS_PID=" + pid}, "api,socket kept", ""},
		{[]string{"AGENTSCHED_LISTENERS=api=2", "AGENTSCHED_LISTENERS_PID=" + pid}, "", `AGENTSCHED_LISTENERS holds "api=2", want a name and a descriptor such as api=7`},
		{[]string{"AGENTSCHED_LISTENERS=api", "AGENTSCHED_LISTENERS_PID=" + pid}, "", `AGENTSCHED_LISTENERS holds "api", want`},
		{[]string{"AGENTSCHED_LISTENERS=api=" + number() + ",api=" + number(), "AGENTSCHED_LISTENERS_PID=" + pid}, "", "api is there twice"},
		{[]string{"AGENTSCHED_LISTENERS=api=4000", "AGENTSCHED_LISTENERS_PID=" + pid}, "", `descriptor 4000 of "api" is`},
		{[]string{"AGENTSCHED_LISTENERS=api=" + pipe(), "AGENTSCHED_LISTENERS_PID=" + pid}, "", "is no listening stream socket"},
		{[]string{"AGENTSCHED_LISTENERS=agentsched.socket=" + number(), "AGENTSCHED_LISTENERS_PID=" + pid}, "", `has the name "agentsched.socket", want socket or api`},
		{[]string{"LISTEN_FDS=many", "LISTEN_PID=" + pid}, "", `LISTEN_FDS is "many", want a number`},
	} {
		got, err := Inherit(tt.environ)
		var names []string
		for _, name := range []string{API, Socket} {
			if in, ok := got[name]; ok {
				if in.Kept {
					name += " kept"
				}
				names = append(names, name)
				in.Close()
			}
		}
		if strings.Join(names, ",") != tt.names || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%q: got %q, %v, want %q, %q", tt.environ, names, err, tt.names, tt.err)
		}
	}
	clean := WithoutSockets([]string{"A=1", "LISTEN_PID=1", "LISTEN_FDS=2", "LISTEN_FDNAMES=a", "AGENTSCHED_LISTENERS=x", "AGENTSCHED_LISTENERS_PID=3", "AGENTSCHED_LOG__LEVEL=debug"})
	if strings.Join(clean, " ") != "A=1 AGENTSCHED_LOG__LEVEL=debug" {
		t.Errorf("got %q", clean)
	}
}

// TestActivation passes descriptors from 3 on, as systemd does.
func TestActivation(t *testing.T) {
	pid := strconv.Itoa(os.Getpid())
	list, err := activated([]string{"LISTEN_FDS=2", "LISTEN_PID=" + pid, "LISTEN_FDNAMES=api:socket"})
	want := []descriptor{{"api", 3, true}, {"socket", 4, true}}
	if err != nil || len(list) != 2 || list[0] != want[0] || list[1] != want[1] {
		t.Errorf("got %+v, %v, want %+v", list, err, want)
	}
}

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	program := func(name string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := program("scheduler", 0o700)
	says := func(text string, err error) Run {
		return func(ctx context.Context, argv []string, _ []byte) ([]byte, error) {
			if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) > checkTime || argv[1] != "version" {
				t.Errorf("%q until %s", argv, deadline)
			}
			return []byte(text), err
		}
	}
	for _, tt := range []struct {
		path    string
		run     Run
		version string
		err     string
	}{
		{good, says("scheduler v1.2.3\n", nil), "v1.2.3", ""},
		{good, says("scheduler devel go1.26\nmore", nil), "devel", ""},
		{good, says("agentcore v1.2.3\n", nil), "", `it is no scheduler: ` + "`version`" + ` answered "agentcore v1.2.3\n", want "scheduler VERSION"`},
		{good, says("", nil), "", `answered ""`},
		{good, says("", errors.New("exit status 1")), "", "run `version`: exit status 1"},
		{program("text", 0o600), nil, "", "permission denied"},
		{filepath.Join(dir, "gone"), nil, "", "no such file"},
	} {
		version, err := Check(t.Context(), tt.path, tt.run)
		if version != tt.version || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: got %q, %v, want %q, %q", tt.path, version, err, tt.version, tt.err)
		}
	}
}

func TestProgram(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.WriteFile("scheduler", nil, 0o700); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	for arg0, want := range map[string]string{"./scheduler": filepath.Join(dir, "scheduler"), "scheduler": filepath.Join(dir, "scheduler"), "gone": self, "": self} {
		if got, err := Program(arg0); err != nil || got != want {
			t.Errorf("%q: got %s, %v, want %s", arg0, got, err, want)
		}
	}
}
