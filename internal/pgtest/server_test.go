package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { Main(m, func() error { return goleak.Find() }) }

// TestServer: what was committed is there after each kind of end, and nothing of the
// server lives on.
func TestServer(t *testing.T) {
	s := Start(t, Options{})
	db := s.Database(t)
	if err := s.Exec(db, "CREATE TABLE x (n int)"); err != nil {
		t.Fatal(err)
	}
	for i, end := range []func() error{s.Kill, func() error { return s.Stop(syscall.SIGINT) }, func() error { return s.Stop(syscall.SIGQUIT) }} {
		if err := s.Exec(db, "INSERT INTO x VALUES (1)"); err != nil {
			t.Fatal(err)
		}
		pids, err := s.processes()
		if err != nil || len(pids) < 3 {
			t.Fatalf("processes %v, %v", pids, err)
		}
		if err := end(); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pids[0], 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("process %d: %v", pids[0], err)
		}
		if err := s.Exec(db, "SELECT 1"); err == nil {
			t.Error("a server that has ended answers")
		}
		if err := s.Restart(); err != nil {
			t.Fatal(err)
		}
		conn, err := pgx.Connect(t.Context(), s.TCP(db, s.Port))
		if err != nil {
			t.Fatal(err)
		}
		var n int
		if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM x").Scan(&n); err != nil || n != i+1 {
			t.Errorf("%d rows, %v, want %d", n, err, i+1)
		}
		conn.Close(context.Background())
	}
	if err := os.Remove(s.PasswordFile()); err != nil {
		t.Fatal(err)
	}
	if conn, err := pgx.Connect(t.Context(), s.TCP(db, s.Port)); err == nil {
		conn.Close(context.Background())
		t.Error("connected over TCP without a password")
	}
}

// TestRelay: a connection is lost when it is told to, and comes through again after that.
func TestRelay(t *testing.T) {
	s := Shared(t)
	db := s.Database(t)
	r := NewRelay(t, fmt.Sprint("127.0.0.1:", s.Port))
	ctx := t.Context()
	conn, err := pgx.Connect(ctx, s.TCP(db, r.Port))
	if err != nil {
		t.Fatal(err)
	}
	r.Cut()
	if _, err := conn.Exec(ctx, "SELECT 1"); err == nil {
		t.Error("a connection that was cut answers")
	}
	conn.Close(ctx)
	if conn, err := pgx.Connect(ctx, s.TCP(db, r.Port)); err == nil {
		conn.Close(ctx)
		t.Error("connected through a relay that is cut")
	}
	r.Mend()
	if conn, err = pgx.Connect(ctx, s.TCP(db, r.Port)); err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	// The answer to a commit is lost, the commit is not.
	sent := make(chan struct{}, 1)
	r.Watch(func(fromClient bool, data []byte) bool {
		select {
		case sent <- struct{}{}:
			return false
		default:
			return !fromClient
		}
	})
	if _, err := conn.Exec(ctx, "CREATE TABLE y ()"); err == nil {
		t.Error("an answer that was cut came")
	}
	r.Watch(nil)
	if err := s.Exec(db, "DROP TABLE y"); err != nil {
		t.Error(err)
	}
}
