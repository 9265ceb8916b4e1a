package postgres

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/internal/pgtest"
	"github.com/agentsched/agentsched/queue"
)

// begin does what a scheduler does with the database when it starts.
func begin(ctx context.Context, cfg Config) error {
	d, err := Connect(ctx, cfg)
	if err != nil {
		return err
	}
	defer d.Close()
	c, err := d.OpenCopy(ctx)
	if err != nil {
		return err
	}
	return errors.Join(d.Join(ctx), c.Close())
}

// TestCutWhileBeginning: wherever a scheduler is in its start when its connection is cut, the error says that it can be
// tried again, and it can, with the same copy.
func TestCutWhileBeginning(t *testing.T) {
	relay := pgtest.NewRelay(t, pgtest.Shared(t).Address())
	cfg := config(t, relay.Through(pgtest.Plain(pgtest.Shared(t).Database(t))), "a")
	cuts := 0
	for n := 0; ; n += 397 {
		sprung := relay.CutAfter(n)
		if err := begin(t.Context(), cfg); err != nil {
			if !errors.Is(err, queue.ErrUnavailable) {
				t.Fatalf("cut after %d bytes: %v", n, err)
			}
			<-sprung
			cuts++
			continue
		}
		select {
		case <-sprung: // as it said good-bye
			continue
		default:
		}
		break
	}
	if cuts < 8 {
		t.Errorf("it was cut %d times", cuts)
	}
}

// TestUnavailable: what waiting mends is told from what it does not.
func TestUnavailable(t *testing.T) {
	server := pgtest.Start(t)
	name, err := server.NewDatabase(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	relay := pgtest.NewRelay(t, server.Address())
	good, file := server.TCP(name), filepath.Join(t.TempDir(), "address")
	try := func(address string) error { return begin(t.Context(), config(t, address, "a")) }
	for _, tt := range []struct{ what, address string }{
		{"a wrong password", strings.Replace(good, pgtest.Owner+"@", pgtest.Owner+":wrong@", 1)},
		{"no such database", strings.Replace(good, name, "nothing", 1)},
		{"no such role", strings.Replace(good, pgtest.Owner+"@", "nobody@", 1)},
		{"a certificate of another name", strings.Replace(good, "127.0.0.1", "localhost", 1)},
		{"a certificate of another authority", strings.Replace(good, "sslrootcert=", "sslrootcert=system&was=", 1)},
	} {
		if err := os.WriteFile(file, []byte(tt.address), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := try("file:" + file); err == nil || errors.Is(err, queue.ErrUnavailable) {
			t.Errorf("%s: %v", tt.what, err)
		}
	}
	if err := try(good); err != nil {
		t.Error(err)
	}
	relay.Cut()
	for _, tt := range []struct{ what, address string }{
		{"a network that is away", relay.Through(good)},
		{"a host that has no address yet", strings.Replace(good, "127.0.0.1", "db.invalid", 1)},
	} {
		if err := try(tt.address); !errors.Is(err, queue.ErrUnavailable) {
			t.Errorf("%s: %v", tt.what, err)
		}
	}
	if err := server.Stop(pgtest.Fast); err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{good, server.Socket(name)} {
		if err := try(address); !errors.Is(err, queue.ErrUnavailable) {
			t.Errorf("a server that does not run: %v", err)
		}
	}
}
