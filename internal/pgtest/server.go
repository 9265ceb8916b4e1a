package pgtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
)

const (
	// Superuser is asked for no password by the socket.
	Superuser = "postgres"
	// Owner owns the databases of Database, and may do nothing else.
	Owner = "agentsched"
)

// Server is a PostgreSQL server. Its methods may be called by several goroutines.
type Server struct {
	bin, folder, password string
	port                  int
	as                    *syscall.Credential // nil: who runs the tests
	env                   []string
	rate                  float64      // see Clock
	enter                 func() error // nil: nothing is to be done
	databases             atomic.Int64

	mu     sync.Mutex // guards what follows
	run    *run       // nil: it does not run
	frozen bool
	owner  bool // there is the role Owner
}

// run is a server from its start to its end.
type run struct {
	process *os.Process // the first of its processes, whose children are the others
	log     tail
	exited  chan struct{} // closed when the first process was reaped
	gone    chan struct{} // closed after that, when no process of it has its log open
}

// Address returns the server's host and port.
func (s *Server) Address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// PasswordFile has the passwords of Superuser and Owner, as libpq reads them.
func (s *Server) PasswordFile() string { return filepath.Join(s.folder, "pgpass") }

func (s *Server) certificate() string { return filepath.Join(s.folder, "certificate.pem") }

func (s *Server) data() string { return filepath.Join(s.folder, "data") }

// Socket returns the address of a database by the socket, as Superuser.
func (s *Server) Socket(database string) string {
	return fmt.Sprintf("postgres://%s@/%s?host=%s&port=%d", Superuser, database, url.QueryEscape(s.folder), s.port)
}

// TCP returns the address of a database by the port, as Owner: with TLS, and the password
// in a file. More parameters may be appended, each after a &.
func (s *Server) TCP(database string) string {
	return fmt.Sprintf("postgres://%s@%s/%s?sslmode=verify-full&sslrootcert=%s&passfile=%s",
		Owner, s.Address(), database, url.QueryEscape(s.certificate()), url.QueryEscape(s.PasswordFile()))
}

// Plain returns an address of TCP without TLS.
func Plain(address string) string {
	return rewrite(address, func(u *url.URL, q url.Values) {
		q.Set("sslmode", "disable")
		q.Del("sslrootcert")
	})
}

func rewrite(address string, change func(*url.URL, url.Values)) string {
	u, err := url.Parse(address)
	if err != nil {
		panic(err) // of a test: it is no address of ours
	}
	q := u.Query()
	change(u, q)
	u.RawQuery = q.Encode()
	return u.String()
}

// Database makes an empty database that Owner owns and returns its address (see TCP). It
// is dropped after the test.
func (s *Server) Database(t testing.TB) string {
	t.Helper()
	name, err := s.NewDatabase(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !s.running() {
			return
		}
		if err := s.Exec(context.Background(), "postgres", "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Error(err)
		}
	})
	return s.TCP(name)
}

// NewDatabase makes an empty database that Owner owns and returns its name.
func (s *Server) NewDatabase(ctx context.Context) (name string, err error) {
	if err := s.makeOwner(ctx); err != nil {
		return "", err
	}
	name = "t" + strconv.FormatInt(s.databases.Add(1), 10)
	return name, s.Exec(ctx, "postgres", "CREATE DATABASE "+name+" OWNER "+Owner)
}

func (s *Server) makeOwner(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owner {
		return nil
	}
	if err := s.Exec(ctx, "postgres", "CREATE ROLE "+Owner+" LOGIN PASSWORD '"+s.password+"'"); err != nil {
		return err
	}
	s.owner = true
	return nil
}

// running thaws the server, and reports whether it runs.
func (s *Server) running() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run == nil {
		return false
	}
	return s.thaw() == nil
}

// Exec executes statements in a database as Superuser, each in a transaction of its own.
func (s *Server) Exec(ctx context.Context, database string, statements ...string) error {
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

// command is a program of the server's.
func (s *Server) command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.bin, program), args...)
	cmd.Dir = s.folder
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC", "HOME=" + s.folder}, s.env...)
	cmd.SysProcAttr = attributes(s.as)
	return cmd
}

// start starts the server and returns when it takes connections.
func (s *Server) start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run != nil {
		return errors.New("the server runs already")
	}
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd := s.command("postgres", "-D", s.data())
	cmd.Stdout, cmd.Stderr = write, write
	r := &run{log: tail{ready: make(chan struct{})}, exited: make(chan struct{}), gone: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The kernel tells the server when the thread that started it ends, which is to
		// be when the process does.
		runtime.LockOSThread()
		var err error
		if s.enter == nil {
			defer runtime.UnlockOSThread()
		} else { // the thread is what it has become, and ends with this goroutine
			err = s.enter()
		}
		if err == nil {
			err = cmd.Start()
		}
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it has ended is in its log
			close(r.exited)
		}
	}()
	err = <-started
	write.Close()
	if err != nil {
		read.Close()
		return err
	}
	r.process = cmd.Process
	go func() {
		_, _ = io.Copy(&r.log, read)
		read.Close()
		<-r.exited
		close(r.gone)
	}()
	select {
	case <-r.log.ready:
	case <-r.gone:
		return fmt.Errorf("the server has ended:\n%s", &r.log)
	}
	s.run, s.frozen = r, false
	return s.forgetMemory()
}

// Log returns the end of what the server has written since it was started last.
func (s *Server) Log() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run == nil {
		return ""
	}
	return s.run.log.String()
}

// Mode is a way to stop a server.
type Mode = syscall.Signal

const (
	Smart     Mode = syscall.SIGTERM // waits for its clients
	Fast      Mode = syscall.SIGINT  // rolls back what they do
	Immediate Mode = syscall.SIGQUIT // like a crash: the next start recovers
)

// Stop stops the server and returns when all its processes are gone.
func (s *Server) Stop(mode Mode) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run == nil {
		return nil
	}
	if err := s.thaw(); err != nil {
		return err
	}
	if err := s.run.process.Signal(mode); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-s.run.gone
	s.run = nil
	return nil
}

// Kill kills all processes of the server and returns when they are gone.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run == nil {
		return nil
	}
	if err := s.run.process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-s.run.exited // it starts no others
	if err := s.signalAll(syscall.SIGKILL); err != nil {
		return err
	}
	<-s.run.gone
	s.run = nil
	return s.forgetMemory() // what it made after a crash of one of its processes
}

// Restart starts the server again after Stop or Kill, at the same address.
func (s *Server) Restart() error { return s.start() }

// Freeze stops all processes of the server where they are, until Thaw: connections stay
// open, and nobody is answered.
func (s *Server) Freeze() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run == nil {
		return errors.New("the server does not run")
	}
	s.frozen = true
	return s.freeze()
}

// Thaw ends Freeze.
func (s *Server) Thaw() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run == nil {
		return errors.New("the server does not run")
	}
	return s.thaw()
}

func (s *Server) thaw() error {
	if !s.frozen {
		return nil
	}
	s.frozen = false
	return s.signalAll(syscall.SIGCONT)
}

// Close kills the server and removes its folder.
func (s *Server) Close() error {
	return errors.Join(s.Kill(), os.RemoveAll(s.folder))
}

// tail keeps the end of a log, and tells when the server is ready.
type tail struct {
	ready chan struct{}

	mu   sync.Mutex // guards what follows
	text []byte
	told bool
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
