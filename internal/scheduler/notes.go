package scheduler

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"

	"github.com/agentsched/agentsched/internal/supervisor"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// Bounds of the notes of a batch and tenant.
const (
	maxNotes = 100
	maxNote  = 4 << 10 // bytes
)

var noteKey = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/-]{0,99}$`)

// notes keeps a note for the jobs of a run's batch that are of its tenant, and returns what there is:
//
//	batch/ID/notes/TENANT  KEY  a note
func (s *Children) notes(ctx context.Context, c *supervisor.Core, r ipc.Notes) (out ipc.NotesResult, err error) {
	e, refused, err := s.leads(c, r.Job, r.Attempt)
	if err != nil || refused != "" {
		return ipc.NotesResult{Refused: refused}, err
	}
	space := queue.BatchSpace(e.Batch, "notes/"+string(cmp.Or(e.Spec.Tenant, job.DefaultTenant)))
	defer s.lock(job.ID(space))()
	list, err := records[ipc.Note](ctx, s.store, space)
	if err != nil {
		return out, err
	}
	if r.Key != "" {
		i := slices.IndexFunc(list, func(n ipc.Note) bool { return n.Key == r.Key })
		switch {
		case !noteKey.MatchString(r.Key):
			out.Refused = fmt.Sprintf("key is %.100q, want 1 to 100 of a-z A-Z 0-9 and, not first, . _ / -", r.Key)
		case len(r.Text) > maxNote:
			out.Refused = fmt.Sprintf("the note has %d bytes, at most %d are kept; put long material into a file", len(r.Text), maxNote)
		case i < 0 && len(list) >= maxNotes:
			out.Refused = fmt.Sprintf("there are %d notes, which is the maximum; write over one of them", len(list))
		}
		if out.Refused != "" {
			return out, nil
		}
		n := ipc.Note{Key: r.Key, Text: r.Text, By: string(e.Spec.Name)}
		value, err := json.Marshal(n)
		if err != nil {
			return out, err
		}
		if err := s.apply(ctx, under(&e), queue.Write{Record: queue.Record{Space: space, Key: r.Key, Value: value, At: now()}}); err != nil {
			return out, fmt.Errorf("store a note of job %s: %w", e.Spec.Name, err)
		}
		if i < 0 {
			list = append(list, n)
		} else {
			list[i] = n
		}
	}
	for _, n := range list {
		if n.Text != "" { // else it was taken away
			out.Notes = append(out.Notes, n)
		}
	}
	slices.SortFunc(out.Notes, func(a, b ipc.Note) int { return cmp.Compare(a.Key, b.Key) })
	return out, nil
}
