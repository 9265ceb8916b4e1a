package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"
)

// world is what lies outside of a hostile run, and a scheduler that starts such runs: files and sockets of a user, processes,
// and a network that is the test's own, where hosts of the internet and a cloud's metadata service are played.
type world struct {
	b *bench
	*surroundings
	names  *nameServer
	models provider
	run    *run
}

// surroundings are what testdata/hostile is told; see there.
type surroundings struct {
	Canary, Outside, Beside, Home, Public, State, Workspace, Job, Temporary, Cache string
	Daemon, Core, Sibling                                                          int
	Docker, Bus, Agent, Datagram, Abstract                                         string
	Loopback, Loopback6, Elsewhere, Meta, UDP, Resolver, Served                    string
	Shm, Terminal                                                                  string
	Segment                                                                        int
}

const (
	elsewhere = "11.1.1.1" // a public address, here of the test's network alone
	metadata  = "169.254.169.254"
	resolver  = "127.0.0.53"
	leaked    = "what-the-run-has-found.leak.test." // a question for it tells its server what the run has found
)

// newWorld makes one of a user's; 0 is root's. The test's goroutine moves into a network and a file tree of its own, which
// whatever it starts from then on shares, and which end with it.
func newWorld(t *testing.T, user int) *world {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can make the network and the users that this needs")
	}
	runtime.LockOSThread() // and never unlocks: the thread ends with the test
	if err := ownNetwork(); err != nil {
		t.Fatal(err)
	}
	b := newBench(t)
	w := &world{b: b, surroundings: &surroundings{
		Canary: "canary-" + filepath.Base(b.dir), Outside: b.dir + "/outside", Beside: b.dir + "/beside", Home: b.dir + "/home", Public: b.dir + "/public",
		State: b.state, Cache: b.state + "/cache/other", Served: "127.0.0.1:18080", Resolver: resolver + ":53",
		Docker: "/run/docker.sock", Bus: "/run/dbus/system_bus_socket", Agent: b.dir + "/agent.sock", Datagram: b.dir + "/log.sock", Abstract: "@" + filepath.Base(b.dir),
	}}
	// What is granted is the configuration's to say here.
	b.env = slices.DeleteFunc(b.env, func(kv string) bool { return strings.HasPrefix(kv, "AGENTSCHED_SANDBOX__WRITE=") })
	b.env = append(b.env, "AGENTSCHED_CANARY="+w.Canary, "SSH_AUTH_SOCK="+w.Agent, "DBUS_SESSION_BUS_ADDRESS=unix:path="+w.Bus, "DOCKER_HOST=unix://"+w.Docker)
	for _, dir := range []string{w.Public, w.Public + "/results", w.Outside, w.Beside, w.Cache, b.state, b.state + "/cache"} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{
		w.Home + "/.ssh/id_ed25519", w.Home + "/.aws/credentials", w.Home + "/.config/gh/hosts.yml", w.Home + "/.netrc",
		w.Home + "/.claude/.credentials.json", w.Home + "/.bash_history", w.Cache + "/canary",
	} {
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		b.write(file, w.Canary)
	}
	hostileProgram(t, w.Public+"/hostile")
	w.prepare()
	w.serve()
	w.share(user)
	if user != 0 {
		b.hand(user)
	}
	if out, err := exec.Command("cp", w.Public+"/hostile", w.Public+"/setuid").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := errors.Join(os.Chmod(w.Public+"/setuid", 0o755|fs.ModeSetuid), os.Chmod(b.dir, 0o711), os.Chmod(w.Public, 0o755)); err != nil {
		t.Fatal(err)
	}
	return w
}

// hostileProgram puts the program at a path.
func hostileProgram(t *testing.T, path string) {
	t.Helper()
	cmd := exec.Command("go", "build", "-o", path, "./testdata/hostile")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the hostile program: %v\n%s", err, out)
	}
}

// prepare puts what acts may have changed into its place again.
func (w *world) prepare() {
	w.b.t.Helper()
	for _, path := range []string{w.Public + "/program", w.Outside + "/secret", w.Beside + "/victim", w.Beside + "/removable"} {
		w.b.write(path, w.Canary)
	}
	for _, path := range []string{w.Beside + "/planted", w.Beside + "/moved", w.Home + "/.profile", w.Cache + "/planted", w.Workspace + "/planted"} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			w.b.t.Fatal(err)
		}
	}
}

// ownNetwork moves the calling thread into a network with the hosts that the test plays, and into a file tree with a /run
// and a resolv.conf of its own.
func ownNetwork() error {
	if err := unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make a network of its own: %w", err)
	}
	file, err := filepath.EvalSymlinks("/etc/resolv.conf")
	if err != nil {
		return err
	}
	own := filepath.Join("/run", "resolv.conf")
	err = errors.Join(
		unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("none", "/run", "tmpfs", 0, "mode=755"),
		os.MkdirAll("/run/dbus", 0o755),
		os.WriteFile(own, []byte("nameserver "+resolver+"\n"), 0o644),
		os.MkdirAll(filepath.Dir(file), 0o755),
	)
	if err != nil {
		return err
	}
	if strings.HasPrefix(file, "/run/") {
		err = os.Rename(own, file)
	} else {
		err = unix.Mount(own, file, "", unix.MS_BIND, "")
	}
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for name, address := range map[string]string{"lo": "127.0.0.1", "lo:1": elsewhere, "lo:2": metadata} {
		r, err := unix.NewIfreq(name)
		if err != nil {
			return err
		}
		ip := netip.MustParseAddr(address).As4()
		if err := errors.Join(r.SetInet4Addr(ip[:]), unix.IoctlIfreq(fd, unix.SIOCSIFADDR, r)); err != nil {
			return fmt.Errorf("address %s: %w", address, err)
		}
		r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
		if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, r); err != nil {
			return err
		}
	}
	return nil
}

// serve plays the hosts and the services of the user.
func (w *world) serve() {
	t := w.b.t
	listen := func(network, address string) string {
		l, err := net.Listen(network, address)
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{Handler: w}
		done := make(chan struct{})
		go func() { defer close(done); _ = server.Serve(l) }()
		t.Cleanup(func() { server.Close(); <-done })
		return l.Addr().String()
	}
	w.Loopback, w.Loopback6 = listen("tcp", "127.0.0.1:0"), listen("tcp", "[::1]:0")
	w.Elsewhere, w.Meta = listen("tcp", elsewhere+":8080"), listen("tcp", metadata+":80")
	listen("tcp", elsewhere+":8081")
	listen("tcp", "127.0.0.1:8080")
	listen("tcp", metadata+":8080")
	for _, path := range []string{w.Docker, w.Bus, w.Agent, w.Abstract} {
		listen("unix", path)
		if strings.HasPrefix(path, "/") {
			if err := os.Chmod(path, 0o666); err != nil {
				t.Fatal(err)
			}
		}
	}
	datagrams, err := net.ListenPacket("unixgram", w.Datagram)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { datagrams.Close() })
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.UDP = udp.LocalAddr().String()
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		buf := make([]byte, 512)
		for {
			_, from, err := udp.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = udp.WriteTo([]byte(w.Canary), from)
		}
	}()
	t.Cleanup(func() { udp.Close(); <-answered })
	w.names = newNameServer(t, w.Resolver, w.Canary)
}

// ServeHTTP is every host: it tells the canary, and what it was asked.
func (w *world) ServeHTTP(to http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost && r.URL.Path == "/v1/messages" {
		w.models.ServeHTTP(to, r)
		return
	}
	if target := r.URL.Query().Get("redirect"); target != "" {
		http.Redirect(to, r, target, http.StatusFound)
		return
	}
	fmt.Fprintf(to, "%s for %s at %s\n", w.Canary, r.Host, r.Context().Value(http.LocalAddrContextKey))
}

// share makes what programs of one user share: memory, a terminal, files in /dev/shm.
func (w *world) share(user int) {
	t := w.b.t
	f, err := os.CreateTemp("/dev/shm", "e2e")
	if err != nil {
		t.Fatal(err)
	}
	w.Shm = f.Name()
	t.Cleanup(func() { os.Remove(w.Shm) })
	if _, err := f.WriteString(w.Canary); err != nil {
		t.Fatal(err)
	}
	if w.Segment, err = unix.SysvShmGet(unix.IPC_PRIVATE, 4096, unix.IPC_CREAT|0o666); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = unix.SysvShmCtl(w.Segment, unix.IPC_RMID, nil) })
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	w.Terminal = fmt.Sprintf("/dev/pts/%d", n)
	if err := errors.Join(err, f.Chown(user, user), f.Close(), os.Chown(w.Terminal, user, user)); err != nil {
		t.Fatal(err)
	}
}

// nameServer answers questions for addresses, and remembers them.
type nameServer struct {
	mu     sync.Mutex
	asked  map[string]int      // how often, by name
	hosts  map[string][]string // addresses, one after the other; the last stays
	canary string
}

func newNameServer(t *testing.T, address, canary string) *nameServer {
	t.Helper()
	conn, err := net.ListenPacket("udp", address)
	if err != nil {
		t.Fatal(err)
	}
	s := &nameServer{asked: make(map[string]int), canary: canary, hosts: map[string][]string{
		"allowed.test.": {elsewhere}, "refused.test.": {elsewhere}, "x.allowed.test.": {elsewhere}, leaked: {elsewhere}, "inward.test.": {"127.0.0.1"}, "meta.test.": {metadata},
		"rebind.test.": {elsewhere, "127.0.0.1"},
	}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 512)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			if answer := s.answer(buf[:n]); answer != nil {
				_, _ = conn.WriteTo(answer, from)
			}
		}
	}()
	t.Cleanup(func() { conn.Close(); <-done })
	return s
}

// times returns how often a name was asked for.
func (s *nameServer) times(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[name]
}

// forget has a name's addresses begin anew.
func (s *nameServer) forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.asked, name)
}

func (s *nameServer) answer(packet []byte) []byte {
	var m dnsmessage.Message
	if m.Unpack(packet) != nil || len(m.Questions) != 1 {
		return nil
	}
	m.Header.Response, m.Additionals = true, nil
	q := m.Questions[0]
	name := strings.ToLower(q.Name.String())
	if q.Type == dnsmessage.TypeA {
		s.mu.Lock()
		at := s.asked[name]
		s.asked[name]++
		hosts := s.hosts[name]
		s.mu.Unlock()
		header := dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 0}
		if len(hosts) > 0 {
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AResource{A: netip.MustParseAddr(hosts[min(at, len(hosts)-1)]).As4()}})
		} else {
			m.Header.RCode = dnsmessage.RCodeNameError
			m.Additionals = append(m.Additionals, dnsmessage.Resource{Header: header, Body: &dnsmessage.TXTResource{TXT: []string{s.canary}}})
		}
	}
	packed, err := m.Pack()
	if err != nil {
		return nil
	}
	return packed
}
