package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/agentsched/agentsched/internal/pgtest"
	"github.com/agentsched/agentsched/internal/testrun"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/queue/queuetest"
)

func TestMain(m *testing.M) {
	if code, is := queuetest.Child(openPlace); is {
		os.Exit(code)
	}
	pgtest.Main(m, func() error { return goleak.Find() })
}

// openPlace opens the store at an address, by force, with a copy in a folder of its own.
func openPlace(ctx context.Context, address string) (queue.Store, error) {
	where, err := ParseWhere(address, os.Getenv)
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "copy")
	if err != nil {
		return nil, err
	}
	for {
		l, err := Open(ctx, Config{Where: where, Folder: folder, Log: zerolog.Nop(), Self: Member{Instance: folder}})
		if errors.Is(err, queue.ErrDeposed) {
			continue // another process was faster
		}
		if err != nil {
			return nil, errors.Join(err, os.RemoveAll(folder))
		}
		l.after = append(l.after, func() error { return os.RemoveAll(folder) })
		return l, nil
	}
}

func TestCrash(t *testing.T) {
	rounds := 5 // a sample
	if testrun.Soaking() {
		rounds = 100
	}
	queuetest.Crash(t, testrun.Seed(t), rounds, func() string { return newDatabase(t) }, openPlace)
}

func TestLinearizable(t *testing.T) {
	rounds := 2 // a sample
	if testrun.Soaking() {
		rounds = 12
	}
	queuetest.Linearizable(t, testrun.Seed(t), rounds, func() string { return newDatabase(t) }, openPlace)
}

// newDatabase makes an empty database and returns its address.
func newDatabase(t testing.TB) string {
	t.Helper()
	server := pgtest.Shared(t)
	return server.Socket(databaseOf(t, server))
}

// databaseOf makes an empty database and returns its name.
func databaseOf(t testing.TB, server *pgtest.Server) string {
	t.Helper()
	name, err := server.NewDatabase(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return name
}

func config(t testing.TB, address, instance string) Config {
	t.Helper()
	where, err := ParseWhere(address, os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	return Config{Where: where, Folder: t.TempDir(), Log: zerolog.Nop(), Self: Member{Instance: instance}}
}

// TestPromises: a store in the database keeps what every store promises. A sample of them
// is asked here, and each by the long suites.
func TestPromises(t *testing.T) {
	shared := newDatabase(t)
	open := func(t *testing.T, dir string) queue.Store {
		schema := "s" + fmt.Sprint(hash(dir))
		conn, err := pgx.Connect(context.Background(), shared)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.Background())
		if _, err := conn.Exec(context.Background(), "CREATE SCHEMA IF NOT EXISTS "+schema); err != nil {
			t.Fatal(err)
		}
		l, err := Open(context.Background(), config(t, shared+"&search_path="+schema, filepath.Base(dir)))
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	if testrun.Soaking() {
		queuetest.Run(t, open)
		return
	}
	// What is about more than one process, or callers at once.
	queuetest.Sample(t, 5, []string{"Epoch", "ClaimNever", "EnqueueConcurrently", "FinishConcurrently", "JournalConcurrently", "SweepDeposed", "Closed", "Reopen"}, open)
}

func hash(s string) uint64 {
	h := uint64(14695981039346656037)
	for _, b := range []byte(s) {
		h = (h ^ uint64(b)) * 1099511628211
	}
	return h
}
