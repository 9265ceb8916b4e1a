// Package pgtest runs real PostgreSQL servers for tests, and a relay before them that
// loses connections. Only tests and benchmarks import it.
//
// A server lies in a temporary folder of its own. Nothing of it is left when the test
// binary has ended: a TestMain calls Main, whose keeper ends what a test that was cut
// off has left.
package pgtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sys/unix"

	"github.com/agentsched/agentsched/internal/testrun"
)

// Server is a PostgreSQL server.
type Server struct {
	Port int // on 127.0.0.1, with a password, and of the socket in Folder, without
	// Folder has the socket, the password file (mode 0600) and the server's certificate.
	Folder string

	bin       string
	as        *syscall.Credential // nil: who runs the tests
	fsync     bool
	databases atomic.Int64

	mu    sync.Mutex // guards what follows
	cmd   *exec.Cmd  // nil: it does not run
	ended chan error // closed when it has ended
	log   *tail
}

// User is the superuser of every server.
const User = "postgres"

// Options of a server.
type Options struct {
	NoFsync  bool     // it need not survive a crash of the host, as a test that is not about that
	Settings []string // lines of postgresql.conf
	// Env is added to the server's environment.
	Env []string
}

var errMissing = errors.New("PostgreSQL is not installed: no initdb in /usr/lib/postgresql/*/bin or PATH")

// Start starts a server for a test, and stops it after it. Without PostgreSQL the test is
// skipped, or fails if AGENTSCHED_REQUIRE_POSTGRES is set.
func Start(t testing.TB, opts Options) *Server {
	t.Helper()
	s, err := New(opts)
	if errors.Is(err, errMissing) && os.Getenv("AGENTSCHED_REQUIRE_POSTGRES") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Remove)
	return s
}

var shared struct {
	sync.Mutex
	server *Server
}

// Shared returns one server for all tests of the binary, started by the first that asks,
// which does not wait for its disk.
func Shared(t testing.TB) *Server {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.server != nil {
		return shared.server
	}
	s, err := New(Options{NoFsync: true})
	if errors.Is(err, errMissing) && os.Getenv("AGENTSCHED_REQUIRE_POSTGRES") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	shared.server = s
	return s
}

// Main runs the tests of a binary, and looks in the end whether something is left.
func Main(m interface{ Run() int }, leaks func() error) {
	end, err := testrun.Keep()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if shared.server != nil {
		shared.server.Remove()
	}
	if err := leaks(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	end()
	os.Exit(code)
}

// New starts a server, which Remove stops.
func New(opts Options) (_ *Server, err error) {
	s := &Server{fsync: !opts.NoFsync}
	if s.bin, err = find(); err != nil {
		return nil, err
	}
	if s.Folder, err = os.MkdirTemp("", "pg"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.Remove()
		}
	}()
	if err := s.account(); err != nil {
		return nil, err
	}
	if err := s.init(opts.Settings); err != nil {
		return nil, err
	}
	return s, s.start(opts.Env)
}

// find returns the folder of the newest server's programs.
func find() (string, error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil {
		return "", err
	}
	slices.SortFunc(found, func(a, b string) int { return version(b) - version(a) })
	if len(found) > 0 {
		return filepath.Dir(found[0]), nil
	}
	if path, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(path), nil
	}
	return "", errMissing
}

func version(path string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
	return n
}

// account finds whom the server runs as: it refuses to be root.
func (s *Server) account() error {
	if os.Geteuid() != 0 {
		return nil
	}
	who, err := user.Lookup(User)
	if err != nil {
		return err
	}
	uid, _ := strconv.Atoi(who.Uid)
	gid, _ := strconv.Atoi(who.Gid)
	s.as = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	if err := os.Chown(s.Folder, uid, gid); err != nil {
		return err
	}
	for dir := filepath.Dir(s.Folder); dir != "/"; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return err
		}
		if mode := info.Mode().Perm(); mode&0o1 == 0 { // it must reach its folder
			if err := os.Chmod(dir, mode|0o11); err != nil {
				return err
			}
		}
	}
	return nil
}

// Password is the superuser's.
const Password = "only for tests"

func (s *Server) init(settings []string) error {
	pwfile := filepath.Join(s.Folder, "password")
	if err := s.write(pwfile, Password+"\n"); err != nil {
		return err
	}
	out, err := s.command("initdb", "--pgdata", s.data(), "--username", User, "--encoding", "UTF8", "--locale", "C", "--auth-local", "trust",
		"--auth-host", "scram-sha-256", "--pwfile", pwfile, "--no-sync").CombinedOutput()
	if err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s.Port = l.Addr().(*net.TCPAddr).Port
	l.Close()
	fsync := "on"
	if !s.fsync {
		fsync = "off"
	}
	conf := append([]string{
		"listen_addresses = '127.0.0.1'", "port = " + strconv.Itoa(s.Port), "unix_socket_directories = '" + s.Folder + "'", "max_connections = 300",
		"fsync = " + fsync, "logging_collector = off", "autovacuum_naptime = 5", "max_prepared_transactions = 0",
	}, settings...)
	f, err := os.OpenFile(filepath.Join(s.data(), "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = io.WriteString(f, strings.Join(conf, "\n")+"\n")
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return s.write(s.PasswordFile(), fmt.Sprintf("127.0.0.1:*:*:%s:%s\n", User, Password))
}

// PasswordFile has the password of the superuser, as libpq reads it. It is the tests'.
func (s *Server) PasswordFile() string { return filepath.Join(s.Folder, "pgpass") }

func (s *Server) data() string { return filepath.Join(s.Folder, "data") }

// write writes a file that only its owner may read.
func (s *Server) write(path, text string) error {
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return err
	}
	if s.as != nil && filepath.Base(path) == "password" {
		return os.Chown(path, int(s.as.Uid), int(s.as.Gid))
	}
	return nil
}

func (s *Server) command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.bin, program), args...)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC", "HOME=" + s.Folder, "TMPDIR=" + os.Getenv("TMPDIR")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.as, Setsid: true}
	return cmd
}

// start starts the server and returns when it takes connections.
func (s *Server) start(env []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	cmd := s.command("postgres", "-D", s.data())
	cmd.Env = append(cmd.Env, env...)
	log := &tail{ready: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return err
	}
	gone := make(chan error, 1)
	go func() { gone <- cmd.Wait(); close(gone) }()
	select {
	case <-log.ready:
	case err := <-gone:
		return fmt.Errorf("the server has ended: %w\n%s", err, log)
	}
	s.cmd, s.log = cmd, log
	s.ended = gone
	return nil
}

// Log returns the end of what the server has written since it was started.
func (s *Server) Log() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.String()
}

// tail keeps the end of a log, and tells when the server is ready.
type tail struct {
	ready chan struct{}
	mu    sync.Mutex
	text  []byte
	told  bool
}

func (l *tail) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, p...)
	if !l.told && bytes.Contains(l.text, []byte("database system is ready to accept connections")) {
		l.told = true
		close(l.ready)
	}
	if len(l.text) > 1<<20 {
		l.text = slices.Clone(l.text[len(l.text)-1<<19:])
	}
	return len(p), nil
}

func (l *tail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text)
}

// Stop stops the server: SIGTERM waits for its clients, SIGINT does not, SIGQUIT is like
// a crash of it alone.
func (s *Server) Stop(sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		return nil
	}
	if err := s.cmd.Process.Signal(sig); err != nil {
		return err
	}
	<-s.ended
	s.cmd = nil
	return nil
}

// Restart starts the server again after Stop or Kill.
func (s *Server) Restart() error { return s.start(nil) }

// processes returns the server's, the first one first.
func (s *Server) processes() ([]int, error) {
	first := s.cmd.Process.Pid
	list := []int{first}
	names, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := strings.Cut(string(text), ") ")
		if f := strings.Fields(rest); len(f) > 1 && f[1] == strconv.Itoa(first) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			if err != nil {
				return nil, err
			}
			list = append(list, pid)
		}
	}
	return list, nil
}

// Kill kills all processes of the server at once, and returns when they are gone.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		return nil
	}
	if err := s.cmd.Process.Signal(syscall.SIGSTOP); err != nil { // it starts no others
		return err
	}
	list, err := s.processes()
	if err != nil {
		return err
	}
	var fds []int
	for _, pid := range list {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue
		}
		fds = append(fds, fd)
		unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) //nolint:errcheck // it has ended
	}
	for _, fd := range fds {
		for {
			_, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
			if !errors.Is(err, unix.EINTR) {
				break
			}
		}
		unix.Close(fd) //nolint:errcheck // nothing was written
	}
	<-s.ended
	s.cmd = nil
	return nil
}

// Freeze stops all processes of the server where they are, Thaw lets them go on.
func (s *Server) Freeze() error { return s.signal(syscall.SIGSTOP) }

// Thaw ends Freeze.
func (s *Server) Thaw() error { return s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	list, err := s.processes()
	if err != nil {
		return err
	}
	for _, pid := range list {
		if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return nil
}

// Remove kills the server and removes its folder.
func (s *Server) Remove() {
	if err := s.Kill(); err != nil {
		fmt.Fprintln(os.Stderr, "pgtest:", err)
	}
	if err := os.RemoveAll(s.Folder); err != nil && !errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintln(os.Stderr, "pgtest:", err)
	}
}

// Socket returns the address of a database by the socket, for which nobody is asked for
// a password.
func (s *Server) Socket(database string) string {
	return fmt.Sprintf("postgres://%s@/%s?host=%s&port=%d", User, database, url.QueryEscape(s.Folder), s.Port)
}

// TCP returns the address of a database by a port of this host, the server's own or a
// relay's, with the password in PasswordFile.
func (s *Server) TCP(database string, port int) string {
	return fmt.Sprintf("postgres://%s@127.0.0.1:%d/%s?sslmode=disable&passfile=%s", User, port, database, url.QueryEscape(s.PasswordFile()))
}

// Database makes an empty database for a test and returns its name.
func (s *Server) Database(t testing.TB) string {
	t.Helper()
	name := "t" + strconv.FormatInt(s.databases.Add(1), 10)
	if err := s.Exec("postgres", "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.mu.Lock()
		runs := s.cmd != nil
		s.mu.Unlock()
		if !runs {
			return
		}
		if err := s.Exec("postgres", "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Error(err)
		}
	})
	return name
}

// Exec executes statements in a database.
func (s *Server) Exec(database string, statements ...string) error {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, s.Socket(database))
	if err != nil {
		return err
	}
	defer conn.Close(ctx) //nolint:errcheck // nothing is under way
	for _, x := range statements {
		if _, err := conn.Exec(ctx, x); err != nil {
			return fmt.Errorf("%s: %w", x, err)
		}
	}
	return nil
}
