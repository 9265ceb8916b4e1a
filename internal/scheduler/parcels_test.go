package scheduler

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/internal/supervisor"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// contents are parcels by their digests.
type contents map[string]string

func (c contents) ReadAt(_ context.Context, digest string, offset int64, n int) ([]byte, int64, error) {
	text := c[digest]
	from := min(offset, int64(len(text)))
	return []byte(text[from:min(from+int64(n), int64(len(text)))]), int64(len(text)), nil
}

// TestReadParcel: a core reads what a run of its own is made of, and nothing else.
func TestReadParcel(t *testing.T) {
	mine, other := new(supervisor.Core), new(supervisor.Core)
	over := errors.New("the attempt is over")
	large := strings.Repeat("x", ipc.MaxParcelPiece+3)
	p := &parcels{kept: contents{"thin": "abc", "whole": large, "secret": "of others"}, flying: func(c *supervisor.Core, id job.ID, attempt int) (queue.Entry, error) {
		if c != mine || id != "a" || attempt != 2 {
			return queue.Entry{}, over
		}
		return queue.Entry{ID: id, Spec: job.Spec{Workspace: job.Workspace{Parcel: job.Parcel{Digest: "thin", On: "whole"}}}}, nil
	}}
	ask := func(c *supervisor.Core, id job.ID, attempt int, digest string, offset int64) (string, int64, error) {
		r, err := p.read(t.Context(), c, ipc.ReadParcel{Job: id, Attempt: attempt, Digest: digest, Offset: offset})
		return string(r.Data), r.Size, err
	}
	for _, x := range []struct {
		digest string
		offset int64
		want   string
		size   int64
	}{{"thin", 0, "abc", 3}, {"thin", 1, "bc", 3}, {"thin", 3, "", 3}, {"whole", 0, large[3:], int64(len(large))}, {"whole", ipc.MaxParcelPiece, "xxx", int64(len(large))}} {
		if data, size, err := ask(mine, "a", 2, x.digest, x.offset); err != nil || data != x.want || size != x.size {
			t.Errorf("%s at %d: %d bytes of %d, %v", x.digest, x.offset, len(data), size, err)
		}
	}
	for name, err := range map[string]error{
		"another core":    third(ask(other, "a", 2, "thin", 0)),
		"another job":     third(ask(mine, "b", 2, "thin", 0)),
		"another attempt": third(ask(mine, "a", 1, "thin", 0)),
		"another parcel":  third(ask(mine, "a", 2, "secret", 0)),
		"no parcel":       third(ask(mine, "a", 2, "", 0)),
		"before it":       third(ask(mine, "a", 2, "thin", -1)),
	} {
		if err == nil {
			t.Errorf("%s is answered", name)
		}
	}
}

func third[A, B any](_ A, _ B, err error) error { return err }
