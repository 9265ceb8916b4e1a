package postgres

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/queue"
)

// TestArtifacts: a file comes back as it was kept, the last one kept counts, and what belongs to no job is forgotten.
func TestArtifacts(t *testing.T) {
	d, err := Connect(t.Context(), config(t, newDatabase(t), "a"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	x := d.Artifacts(nil)
	large := strings.Repeat("0123456789", 2*pieceSize/10+1)
	for _, content := range []string{"first", large, "", "last"} {
		if err := x.Keep(t.Context(), "j", 1, "patch", strings.NewReader(content)); err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		if err := x.Write(t.Context(), "j", 1, "patch", &got); err != nil || got.String() != content {
			t.Errorf("%d bytes were kept, and %d came back: %v", len(content), got.Len(), err)
		}
	}
	noise := make([]byte, pieceSize+100)
	rand.NewChaCha8([32]byte{}).Read(noise) //nolint:errcheck // it never fails
	for content, bounds := range map[string][2]int{large: {1, len(large) / 20}, string(noise): {len(noise), len(noise)}} {
		if err := x.Keep(t.Context(), "j", 1, "patch", strings.NewReader(content)); err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		if err := x.Write(t.Context(), "j", 1, "patch", &got); err != nil || got.String() != content {
			t.Errorf("%d bytes were kept, and %d came back: %v", len(content), got.Len(), err)
		}
		var stored int
		err := d.pool.QueryRow(t.Context(), `SELECT sum(length(data)) FROM artifact_pieces WHERE job = 'j'`).Scan(&stored)
		if err != nil || stored < bounds[0] || stored > bounds[1] {
			t.Errorf("%d bytes are stored as %d, want %d to %d: %v", len(content), stored, bounds[0], bounds[1], err)
		}
	}
	if err := x.Keep(t.Context(), "j", 1, "patch", strings.NewReader("last")); err != nil {
		t.Fatal(err)
	}
	failing := errors.New("the disk is gone")
	if err := x.Keep(t.Context(), "j", 1, "patch", &broken{strings.NewReader(large), failing}); !errors.Is(err, failing) {
		t.Errorf("a file that cannot be read: %v", err)
	}
	var got bytes.Buffer
	if err := x.Write(t.Context(), "j", 1, "patch", &got); err != nil || got.String() != "last" {
		t.Errorf("after that: %q, %v", got.String(), err)
	}
	for _, other := range []struct {
		attempt int
		name    string
	}{{2, "patch"}, {1, "stdout"}} {
		if err := x.Write(t.Context(), "j", other.attempt, other.name, &got); !errors.Is(err, queue.ErrNotFound) {
			t.Errorf("%s of attempt %d: %v", other.name, other.attempt, err)
		}
	}
	if err := x.Forget(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := x.Write(t.Context(), "j", 1, "patch", &got); !errors.Is(err, queue.ErrNotFound) {
		t.Errorf("a file of a job that is not there: %v", err)
	}
}

// broken ends with an error.
type broken struct {
	from *strings.Reader
	err  error
}

func (b *broken) Read(p []byte) (int, error) {
	n, err := b.from.Read(p)
	if err != nil {
		err = b.err
	}
	return n, err
}
