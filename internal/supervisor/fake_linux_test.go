package supervisor

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/agentsched/agentsched/internal/proc"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
)

// fakeEnv makes the test binary be a core: its value is the path of a fakeMode
// as JSON, which is read at each start.
const fakeEnv = "SUPERVISOR_TEST_CORE"

func TestMain(m *testing.M) {
	if path := os.Getenv(fakeEnv); path != "" {
		os.Exit(fakeMain(path))
	}
	os.Exit(m.Run())
}

// fakeMode is how a fake core behaves from its start on. The zero value is a
// good core.
type fakeMode struct {
	Protocol   int    // instead of the right one
	Refuse     bool   // the scheduler's version
	Say        string // print this and exit 3 before hello
	Silent     bool   // never answer hello
	Early      bool   // send a notification before configure is answered
	Stubborn   bool   // end only when asked to at once
	Cgroup     string // of its workers
	RSS        int64
	CPUPerBeat time.Duration
}

// Methods of fake cores that no real core has.
const (
	fakeStart = "test_start" // startParams → []int: start a worker that prints so many pids
	fakePanic = "test_panic"
	fakeHang  = "test_hang"   // answer nothing from now on
	fakeSlow  = "test_slow"   // change.Wait: before each further heartbeat
	fakeGrow  = "test_grow"   // change.RSS: resident memory from now on
	fakeGet   = "test_get"    // → ipc.Configure, as configured last
	fakeBeat  = "test_beat"   // → ipc.Heartbeat, the last one
	fakeFlood = "test_babble" // print what is no JSON
)

type startParams struct {
	Run, Script string
	Pids        int
}

type change struct {
	Wait time.Duration
	RSS  int64
}

// fake is a core that starts real workers with a real host, but has no gate.
type fake struct {
	fakeMode
	peer *ipc.Peer
	out  io.Writer
	end  chan struct{}
	once sync.Once
	hung chan struct{} // closed: nothing is answered any more

	mu       sync.Mutex
	host     *proc.Host
	settings ipc.Configure
	cpu      time.Duration
	slow     time.Duration
	beat     ipc.Heartbeat // the last one
}

func fakeMain(path string) int {
	text, err := os.ReadFile(path)
	f := &fake{end: make(chan struct{}), hung: make(chan struct{})}
	if err == nil {
		err = json.Unmarshal(text, &f.fakeMode)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if f.Say != "" {
		fmt.Fprintln(os.Stderr, f.Say)
		return 3
	}
	var files [2]*os.File
	for fd := range files {
		moved, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
		// Descriptor 0 and 1 must not keep the wire open.
		if err != nil || unix.SetNonblock(moved, true) != nil || unix.Dup3(2, fd, 0) != nil {
			return 1
		}
		files[fd] = os.NewFile(uintptr(moved), "wire")
	}
	f.out = files[1]
	f.peer = ipc.NewPeer(files[0], files[1], ipc.Config{Name: "scheduler", Handler: f, HangLimit: time.Hour})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.peer.Run(context.Background())
	}()
	code := 0
	select {
	case <-f.end:
	case <-f.peer.ReadDone():
		if code = 1; f.Silent {
			return code
		}
	}
	if f.host != nil {
		f.host.Close()
	}
	f.peer.CloseSend()
	<-ended
	return code
}

func (f *fake) HandleNotify(context.Context, string, json.RawMessage) {}

func (f *fake) HandleCall(_ context.Context, method string, params json.RawMessage) (any, error) {
	f.mu.Lock()
	slow := f.slow
	f.mu.Unlock()
	select {
	case <-f.hung:
		hangHere(nil)
	default:
	}
	switch method {
	case ipc.MethodHello:
		return f.hello(params)
	case ipc.MethodConfigure:
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.Early {
			f.peer.Notify(context.Background(), ipc.NotifyCircuits, ipc.Circuits{})
		}
		f.settings = ipc.Configure{}
		return ipc.Empty{}, json.Unmarshal(params, &f.settings)
	case ipc.MethodHeartbeat:
		if slow > 0 {
			select {
			case <-time.After(slow):
			case <-f.end:
			}
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.cpu += f.CPUPerBeat
		f.beat = ipc.Heartbeat{}
		if err := json.Unmarshal(params, &f.beat); err != nil {
			return nil, err
		}
		return ipc.HeartbeatResult{RSSBytes: f.RSS, CPUMS: f.cpu.Milliseconds()}, nil
	case ipc.MethodShutdown:
		var s ipc.Shutdown
		if err := json.Unmarshal(params, &s); err != nil {
			return nil, err
		}
		if f.peer.ExpectEOF(); s.Now || !f.Stubborn {
			f.once.Do(func() { close(f.end) })
		}
		return ipc.Empty{}, nil
	}
	return f.test(method, params)
}

func (f *fake) hello(params json.RawMessage) (any, error) {
	var h ipc.Hello
	if err := json.Unmarshal(params, &h); err != nil {
		return nil, err
	}
	if f.Silent {
		hangHere(nil)
	}
	if f.Refuse {
		return nil, &ipc.Error{Code: ipc.CodeVersion, Message: "the scheduler is too new"}
	}
	host, err := proc.NewHost(proc.Config{Cgroup: f.Cgroup, Log: zerolog.Nop()})
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	f.host = host
	f.mu.Unlock()
	protocol := ipc.ProtocolVersion
	if f.Protocol != 0 {
		protocol = f.Protocol
	}
	return ipc.HelloResult{Protocol: protocol, Version: "fake", PID: os.Getpid()}, nil
}

func (f *fake) test(method string, params json.RawMessage) (any, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch method {
	case fakeStart:
		var p startParams
		if err := json.Unmarshal(params, &p); err != nil {
			return nil, err
		}
		return f.start(p)
	case fakePanic:
		fmt.Fprintln(os.Stderr, `{"level":"info","message":"about to panic"}`)
		go panicHere("the gate is gone")
		select {}
	case fakeHang:
		close(f.hung)
	case fakeSlow:
		var c change
		err := json.Unmarshal(params, &c)
		f.slow = c.Wait
		return ipc.Empty{}, err
	case fakeGrow:
		var c change
		err := json.Unmarshal(params, &c)
		f.RSS = c.RSS
		return ipc.Empty{}, err
	case fakeBeat:
		return f.beat, nil
	case fakeGet:
		return f.settings, nil
	case fakeFlood:
		fmt.Fprint(f.out, strings.Repeat("no JSON\n", 20))
	default:
		return nil, ipc.MethodNotFound(method)
	}
	return ipc.Empty{}, nil
}

// start starts a worker as a core does, and reads the pids that it prints.
func (f *fake) start(p startParams) (any, error) {
	tree, err := f.host.Start(proc.Spec{
		Run: p.Run, Path: "/bin/sh", Args: []string{"-c", p.Script}, Env: os.Environ(), PipeStdout: true, Stderr: os.Stderr,
		NewSession: true, PdeathSignal: syscall.SIGKILL,
	})
	if err != nil {
		return nil, err
	}
	pids := []int{tree.Pid()}
	out := bufio.NewReader(tree.Stdout())
	for range p.Pids {
		var pid int
		if _, err := fmt.Fscanln(out, &pid); err != nil {
			return nil, err
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

//go:noinline
func panicHere(why string) { panic(why) }

//go:noinline
func hangHere(c chan int) { <-c }

// settings of a fake core's scheduler.
func testSettings(max int) ipc.Configure {
	return ipc.Configure{MaxConcurrent: max, Stop: ipc.Stages{Kill: job.Duration(time.Second)}}
}
