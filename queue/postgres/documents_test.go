package postgres

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/agentsched/agentsched/internal/parcel"
	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/internal/statedir/statedirtest"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/queue/sqlite"
)

func TestDocuments(t *testing.T) {
	shared := newDatabase(t)
	statedirtest.Documents(t, func(t *testing.T, dir string) statedir.Documents {
		schema := "s" + fmt.Sprint(hash(dir))
		conn, err := pgx.Connect(context.Background(), shared)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.Background())
		if _, err := conn.Exec(context.Background(), "CREATE SCHEMA IF NOT EXISTS "+schema); err != nil {
			t.Fatal(err)
		}
		d, err := Connect(context.Background(), config(t, shared+"&search_path="+schema, "a"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(d.Close)
		return d.Documents()
	})
}

// TestMove: a queue goes into a database and back, row by row, and nowhere else.
func TestMove(t *testing.T) {
	ctx := t.Context()
	dir := t.TempDir()
	file, err := sqlite.Open(ctx, filepath.Join(dir, "queue.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	batch := queue.Batch{ID: "b", Source: "x", CreatedAt: at}
	for _, name := range []string{"one", "two", "three"} {
		if err := file.Enqueue(ctx, batch, []queue.Entry{newEntry(name)}); err != nil {
			t.Fatal(err)
		}
	}
	travels := newEntry("travels")
	travels.Spec.Workspace = job.Workspace{Isolation: job.Worktree, Parcel: job.Parcel{Digest: strings.Repeat("a", 64), Repository: strings.Repeat("b", 64), Commit: strings.Repeat("c", 40)}}
	if err := file.Enqueue(ctx, batch, []queue.Entry{travels}); err != nil {
		t.Fatal(err)
	}
	through(t, file)
	docs := statedir.Files(dir)
	if _, err := docs.Write(ctx, statedir.TokensFile, []byte("tokens"), ""); err != nil {
		t.Fatal(err)
	}
	d, err := Connect(ctx, config(t, newDatabase(t), "mover"))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	folder := parcel.NewFolder(filepath.Join(dir, "parcels"))
	if err := folder.Put(ctx, parcel.Kept{Parcel: travels.Spec.Workspace.Parcel, Size: 7}, strings.NewReader("content")); err != nil {
		t.Fatal(err)
	}
	m, err := d.Import(ctx, file, docs, folder)
	if err != nil || m.Jobs != 4 || m.Parcels != 1 || m.Batches != 1 || m.Documents != 1 {
		t.Fatalf("moved %+v, %v", m, err)
	}
	if _, err := d.Import(ctx, file, docs, folder); !errors.Is(err, ErrNotEmpty) {
		t.Errorf("moved into a database that has a queue: %v", err)
	}
	back := t.TempDir()
	path := filepath.Join(back, "queue.db")
	into := parcel.NewFolder(filepath.Join(back, "parcels"))
	if m, err = d.Export(ctx, path, statedir.Files(back), into); err != nil || m.Jobs != 4 || m.Parcels != 1 || m.Documents != 1 {
		t.Fatalf("moved back %+v, %v", m, err)
	}
	if data, _, err := into.ReadAt(ctx, travels.Spec.Workspace.Parcel.Digest, 0, 100); err != nil || string(data) != "content" {
		t.Errorf("the parcel is %q, %v", data, err)
	}
	again, err := sqlite.Open(ctx, path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	through(t, again)
	if events, err := again.Census(ctx); err != nil {
		t.Errorf("census %+v, %v", events, err)
	}
	if _, err := d.Export(ctx, path, docs, folder); !errors.Is(err, ErrNotEmpty) {
		t.Errorf("moved over a store: %v", err)
	}
	leader := join(t, config(t, d.cfg.Where.String(), "leader"))
	l, term := leader.lead(t)
	defer leader.resign(t, l, term)
	if _, err := d.Export(ctx, filepath.Join(t.TempDir(), "queue.db"), docs, folder); !errors.Is(err, ErrInUse) {
		t.Errorf("moved while a scheduler leads: %v", err)
	}
}
