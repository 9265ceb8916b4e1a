package pgtest

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/agentsched/agentsched/internal/testrun"
)

// Start starts a server for a test and closes it after that.
func Start(t testing.TB, opts ...Option) *Server {
	t.Helper()
	s, err := New(opts...)
	if err != nil {
		lacks(t, err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// lacks ends a test that has no server: it is skipped where PostgreSQL may be missing.
func lacks(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, ErrMissing) && os.Getenv("CI") == "" && os.Getenv("AGENTSCHED_REQUIRE_POSTGRES") == "" {
		t.Skip(err)
	}
	t.Fatal(err)
}

// shared is the server of the test binary. A test binary is one program, so the server
// has no other place.
var shared struct {
	sync.Mutex
	main   bool // Main closes it
	server *Server
}

// Shared returns the server that the tests of this binary share, with NoFsync; the first
// that asks starts it. A test that stops it uses one of its own (Start).
func Shared(t testing.TB) *Server {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if !shared.main {
		t.Fatal("pgtest.Shared: TestMain is to call pgtest.Main, which closes the server")
	}
	if shared.server == nil {
		s, err := New(NoFsync)
		if err != nil {
			lacks(t, err)
		}
		shared.server = s
	}
	return shared.server
}

// Main runs the tests of a binary for its TestMain, closes the shared server, and then
// asks each check whether something is left, such as goroutines. It exits.
func Main(m *testing.M, checks ...func() error) {
	os.Exit(runTests(m, checks))
}

func runTests(m *testing.M, checks []func() error) int {
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	end, err := testrun.Keep()
	if err != nil {
		return fail(err)
	}
	defer end()
	// The server's user is another one.
	if err := os.Chmod(os.TempDir(), 0o711); err != nil && os.Geteuid() == 0 {
		return fail(err)
	}
	shared.main = true
	code := m.Run()
	if shared.server != nil {
		if err := shared.server.Close(); err != nil {
			code = max(code, fail(err))
		}
	}
	if code != 0 {
		return code // what failed may have left something
	}
	for _, check := range checks {
		if err := check(); err != nil {
			code = fail(err)
		}
	}
	return code
}
