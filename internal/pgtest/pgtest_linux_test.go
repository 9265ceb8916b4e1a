package pgtest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/agentsched/agentsched/internal/testrun"
)

// serveVariable makes the test binary a program that starts a server and waits.
const serveVariable = "PGTEST_SERVE"

func TestMain(m *testing.M) {
	if os.Getenv(serveVariable) != "" {
		os.Exit(serve())
	}
	Main(m, func() error { return goleak.Find() })
}

// serve prints the server's folder, and ends only if it is killed.
func serve() int {
	s, err := New(NoFsync)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(s.folder)
	select {}
}

func connect(t *testing.T, address string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

func exec1(t *testing.T, conn *pgx.Conn, statement string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// count returns how many rows table x of a database has.
func count(t *testing.T, address string) (n int) {
	t.Helper()
	if err := connect(t, address).QueryRow(t.Context(), "SELECT count(*) FROM x").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// left lists the server's processes that are there.
func left(t *testing.T, s *Server) (pids []int) {
	t.Helper()
	if err := s.processes(func(pid, _ int) error { pids = append(pids, pid); return nil }); err != nil {
		t.Fatal(err)
	}
	return pids
}

// sharedMemory lists the System V shared memory that was made by any of these processes. Other tests of this machine start
// and end servers, too, meanwhile.
func sharedMemory(t *testing.T, pids ...int) (list []string) {
	t.Helper()
	text, err := os.ReadFile("/proc/sysvipc/shm")
	if err != nil {
		t.Skip(err)
	}
	for line := range strings.Lines(string(text)) {
		// proc_sysvipc(5): key, shmid, perms, size, cpid.
		if f := strings.Fields(line); len(f) > 4 && slices.ContainsFunc(pids, func(pid int) bool { return f[4] == strconv.Itoa(pid) }) {
			list = append(list, line)
		}
	}
	return list
}

// TestEnds: what was committed is there after each kind of end, no process lives on, and
// the address stays.
func TestEnds(t *testing.T) {
	s := Start(t)
	address := s.Database(t)
	exec1(t, connect(t, address), "CREATE TABLE x (n int)")
	if text := s.Log(); !strings.Contains(text, "ready to accept connections") {
		t.Errorf("the log is %q", text)
	}
	stop := func(mode Mode) func() error { return func() error { return s.Stop(mode) } }
	ends := []func() error{s.Kill, stop(Fast), s.Kill, stop(Immediate), func() error { return errors.Join(s.Freeze(), s.Kill()) }, func() error { return errors.Join(s.Freeze(), s.Stop(Fast)) }}
	for i, end := range ends {
		conn := connect(t, address)
		exec1(t, conn, "INSERT INTO x VALUES (1)")
		exec1(t, conn, "BEGIN")
		exec1(t, conn, "INSERT INTO x VALUES (2)")
		if pids := left(t, s); len(pids) < 5 {
			t.Fatalf("processes %v", pids)
		}
		if err := end(); err != nil {
			t.Fatal(err)
		}
		if pids := left(t, s); len(pids) > 0 {
			t.Errorf("end %d: the server has processes %v", i, pids)
		}
		if conn, err := pgx.Connect(t.Context(), address); err == nil {
			conn.Close(t.Context())
			t.Errorf("end %d: the server answers", i)
		}
		if err := s.Restart(); err != nil {
			t.Fatal(err)
		}
		if n := count(t, address); n != i+1 {
			t.Errorf("end %d: %d rows, want %d", i, n, i+1)
		}
	}
	if err := s.Restart(); err == nil {
		t.Error("started twice")
	}
}

// TestSmart: a server that stops in that way waits for its clients.
func TestSmart(t *testing.T) {
	s := Start(t, NoFsync)
	conn := connect(t, s.Socket("postgres"))
	stopped := make(chan error, 1)
	go func() { stopped <- s.Stop(Smart) }()
	if !testrun.Until(t, func() bool { // it says so to new ones
		other, err := pgx.Connect(t.Context(), s.Socket("postgres"))
		if err == nil {
			other.Close(t.Context())
		}
		return err != nil
	}) {
		t.Fatal("connections are still taken")
	}
	exec1(t, conn, "SELECT 1")
	conn.Close(t.Context())
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
}

// TestAddresses: over TCP the password is asked for, TLS is there and checked, and the
// database's owner is no superuser.
func TestAddresses(t *testing.T) {
	s := Start(t, NoFsync, Conf("work_mem = 1234kB"), Env("TZ=Asia/Tokyo"))
	address := s.Database(t)
	conn := connect(t, address)
	var encrypted, super bool
	var owner, memory string
	err := conn.QueryRow(t.Context(), `SELECT ssl, rolsuper, pg_get_userbyid(datdba), current_setting('work_mem')
		FROM pg_stat_ssl, pg_roles, pg_database WHERE pid = pg_backend_pid() AND rolname = current_user AND datname = current_database()`).Scan(&encrypted, &super, &owner, &memory)
	if err != nil || !encrypted || super || owner != Owner || memory != "1234kB" {
		t.Errorf("TLS %v, superuser %v, owner %s, work_mem %s, %v", encrypted, super, owner, memory, err)
	}
	if err := connect(t, Plain(address)).QueryRow(t.Context(), "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()").Scan(&encrypted); err != nil || encrypted {
		t.Errorf("Plain: TLS %v, %v", encrypted, err)
	}
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", s.run.process.Pid))
	if err != nil || !bytes.Contains(env, []byte("TZ=Asia/Tokyo")) {
		t.Errorf("the environment is %q, %v", env, err)
	}
	if err := os.Remove(s.PasswordFile()); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", t.TempDir())
	if conn, err := pgx.Connect(t.Context(), address); err == nil {
		conn.Close(t.Context())
		t.Error("connected over TCP without a password")
	}
}

// TestDatabase: each is empty, and gone after its test, with a connection to it as well.
func TestDatabase(t *testing.T) {
	s := Shared(t)
	names := func() (list string) {
		if err := connect(t, s.Socket("postgres")).QueryRow(t.Context(), "SELECT string_agg(datname, ' ') FROM pg_database WHERE datname LIKE 't_'").Scan(&list); err != nil {
			return ""
		}
		return list
	}
	before := names()
	t.Run("two", func(t *testing.T) {
		a, b := s.Database(t), s.Database(t)
		exec1(t, connect(t, a), "CREATE TABLE x ()")
		exec1(t, connect(t, b), "CREATE TABLE x ()")
		_, err := pgx.Connect(context.Background(), a) // not closed
		if err != nil {
			t.Fatal(err)
		}
	})
	if now := names(); now != before {
		t.Errorf("databases %q, before %q", now, before)
	}
}

// TestFreeze: a server that is frozen keeps connections and answers nobody.
func TestFreeze(t *testing.T) {
	s := Start(t, NoFsync)
	address := s.Database(t)
	conn := connect(t, address)
	if err := s.Freeze(); err != nil {
		t.Fatal(err)
	}
	for _, pid := range left(t, s) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || !bytes.Contains(stat, []byte(") T ")) {
			t.Errorf("process %d runs: %s %v", pid, stat, err)
		}
	}
	answered := make(chan error, 1)
	go func() { _, err := conn.Exec(t.Context(), "SELECT 1"); answered <- err }()
	select {
	case err := <-answered:
		t.Fatalf("answered while frozen: %v", err)
	case <-time.After(50 * time.Millisecond): // what must not happen has no signal
	}
	if err := s.Thaw(); err != nil {
		t.Fatal(err)
	}
	if err := <-answered; err != nil {
		t.Fatal(err)
	}
}

// TestKilled: nothing of a server is left when the program that started it was killed,
// not even shared memory.
func TestKilled(t *testing.T) {
	Shared(t) // PostgreSQL is there
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), serveVariable+"=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	folder, err := bufio.NewReader(out).ReadString('\n')
	folder = strings.TrimSpace(folder)
	if err != nil || !filepath.IsAbs(folder) {
		t.Fatalf("folder %q, %v", folder, err)
	}
	s := &Server{folder: folder}
	pids := left(t, s)
	if len(pids) < 5 {
		t.Errorf("processes %v", pids)
	}
	if len(sharedMemory(t, pids...)) == 0 {
		t.Error("the server has no shared memory")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait() //nolint:errcheck // it was killed
	if !testrun.Until(t, func() bool { return len(left(t, s)) == 0 }) {
		t.Errorf("processes %v are left", left(t, s))
	}
	if err := os.RemoveAll(folder); err != nil {
		t.Error(err)
	}
	if now := sharedMemory(t, pids...); len(now) > 0 {
		t.Errorf("shared memory: %q", now)
	}
}

// TestClose: its folder is gone too.
func TestClose(t *testing.T) {
	parent, err := os.MkdirTemp("", "in")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(parent, 0o711); err != nil {
		t.Fatal(err)
	}
	var pids []int
	t.Run("server", func(t *testing.T) {
		s := Start(t, NoFsync, In(parent))
		if pids = left(t, s); len(sharedMemory(t, pids...)) == 0 {
			t.Error("the server has no shared memory")
		}
		if filepath.Dir(s.folder) != parent {
			t.Errorf("folder %s", s.folder)
		}
	})
	if list, err := os.ReadDir(parent); err != nil || len(list) > 0 {
		t.Errorf("left: %v, %v", list, err)
	}
	if now := sharedMemory(t, pids...); len(now) > 0 {
		t.Errorf("shared memory: %q", now)
	}
	if os.Geteuid() != 0 {
		return
	}
	if err := os.Chmod(parent, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := New(In(parent)); err == nil || !strings.Contains(err.Error(), "cannot enter "+parent) {
		t.Errorf("in a folder of mode 0700: %v", err)
	}
}

// TestMissing: a folder that has no PostgreSQL is told of.
func TestMissing(t *testing.T) {
	t.Setenv("AGENTSCHED_TEST_POSTGRES", t.TempDir())
	if _, err := New(); !errors.Is(err, ErrMissing) || !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

func TestCut(t *testing.T) {
	s := Shared(t)
	r := NewRelay(t, s.Address())
	address := r.Through(s.Database(t)) // with TLS
	conn := connect(t, address)
	r.Cut()
	if _, err := conn.Exec(t.Context(), "SELECT 1"); err == nil {
		t.Error("a connection that was cut answers")
	}
	if conn, err := pgx.Connect(t.Context(), address); err == nil {
		conn.Close(t.Context())
		t.Error("connected through a relay that is cut")
	}
	r.Mend()
	exec1(t, connect(t, address), "SELECT 1")
}

func TestHold(t *testing.T) {
	s := Shared(t)
	r := NewRelay(t, s.Address())
	address := r.Through(s.Database(t))
	conn := connect(t, address)
	r.Hold()
	answered := make(chan error, 2)
	go func() { _, err := conn.Exec(t.Context(), "SELECT 1"); answered <- err }()
	go func() {
		conn, err := pgx.Connect(t.Context(), address)
		if err == nil {
			err = conn.Close(t.Context())
		}
		answered <- err
	}()
	select {
	case err := <-answered:
		t.Fatalf("answered while held: %v", err)
	case <-time.After(50 * time.Millisecond): // what must not happen has no signal
	}
	r.Mend()
	for range 2 {
		if err := <-answered; err != nil {
			t.Fatal(err)
		}
	}
}

// TestCutAt: the answer to a commit is lost, and the commit is not.
func TestCutAt(t *testing.T) {
	s := Shared(t)
	r := NewRelay(t, s.Address())
	address := Plain(r.Through(s.Database(t)))
	conn, other := connect(t, address), connect(t, address)
	exec1(t, conn, "CREATE TABLE x (n int)")
	for i, statement := range []string{"COMMIT", "ROLLBACK; SELECT 'COMMIT'"} {
		conn := connect(t, address)
		exec1(t, conn, "BEGIN")
		exec1(t, conn, "INSERT INTO x SELECT 1 FROM generate_series(1, 1000)")
		cut := r.CutAt(func(said []byte) bool { return bytes.Contains(said, []byte("COMMIT")) })
		exec1(t, other, "SELECT 1")
		if _, err := conn.Exec(t.Context(), statement); err == nil {
			t.Errorf("%s: an answer that was cut came", statement)
		}
		<-cut
		if n := count(t, address); n != 1000 {
			t.Errorf("%d: %d rows after %s", i, n, statement)
		}
		exec1(t, other, "SELECT 1")
	}
}

// TestCutAfter: the server gets a part of a statement, and does nothing of it.
func TestCutAfter(t *testing.T) {
	s := Shared(t)
	r := NewRelay(t, s.Address())
	address := Plain(r.Through(s.Database(t)))
	conn := connect(t, address)
	exec1(t, conn, "CREATE TABLE x (n text)")
	insert := func(n int) error {
		_, err := conn.Exec(t.Context(), "INSERT INTO x VALUES ('"+strings.Repeat("x", n)+"')")
		return err
	}
	cut := r.CutAfter(100_000)
	if err := insert(40_000); err != nil {
		t.Fatal(err)
	}
	if err := insert(70_000); err == nil {
		t.Error("an answer that was cut came")
	}
	<-cut
	if n := count(t, address); n != 1 {
		t.Errorf("%d rows", n)
	}
}

func TestDelay(t *testing.T) {
	s := Shared(t)
	r := NewRelay(t, s.Address())
	conn := connect(t, r.Through(s.Database(t)))
	r.Delay(20 * time.Millisecond)
	began := time.Now()
	exec1(t, conn, "SELECT 1")
	if took := time.Since(began); took < 40*time.Millisecond {
		t.Errorf("there and back took %s", took)
	}
	r.Delay(0)
}

// TestClock: the wall clock of a server goes faster than the true one, and jumps there and back, also for connections that
// are there; what it measures is not changed by that.
func TestClock(t *testing.T) {
	if !CanClock() {
		if os.Getenv("CI") != "" {
			t.Fatal("libfaketime must be installed")
		}
		t.Skip("libfaketime is not installed")
	}
	s := Start(t, NoFsync, Clock(2))
	conn := connect(t, s.Database(t))
	stands := func() time.Duration {
		var at time.Time
		if err := conn.QueryRow(t.Context(), "SELECT clock_timestamp()").Scan(&at); err != nil {
			t.Fatal(err)
		}
		return time.Until(at)
	}
	before := stands()
	for _, by := range []time.Duration{time.Hour, -time.Hour, 0} {
		if err := s.Jump(by); err != nil {
			t.Fatal(err)
		}
		if !testrun.Until(t, func() bool { return (stands() - by).Abs() < 30*time.Minute }) {
			t.Errorf("after a jump of %s it stands at %s", by, stands())
		}
	}
	began := time.Now()
	exec1(t, conn, "SELECT pg_sleep(0.2)")
	if took := time.Since(began); took < 100*time.Millisecond {
		t.Errorf("200 ms took %s", took)
	}
	if gained := stands() - before; gained < 200*time.Millisecond {
		t.Errorf("it has gained %s", gained)
	}
}
