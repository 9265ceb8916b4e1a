package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/google/uuid"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// maxKey is the length of the longest idempotency key.
const maxKey = 255

// maxKeyed is how many jobs a submission with a key may have: as many as their ids
// have room to number.
const maxKeyed = 1 << 24

// key makes a submission collide in the store with itself. The ids of its batch and
// its jobs follow from who sends it and the key that it carries, so that whichever
// of two comes second is refused, atomically. The zero value is no key.
type key struct {
	sum   [sha256.Size]byte
	given bool
}

// checkKey refuses what is no key; "" is none.
func checkKey(text string) error {
	if len(text) > maxKey || slices.ContainsFunc([]byte(text), func(c byte) bool { return c < ' ' || c > '~' }) {
		return badField("header.Idempotency-Key", "want 1 to %d printable ASCII characters", maxKey)
	}
	return nil
}

// senderKey returns what stands for the key of a sender in the store, for requests of a
// kind: those of two senders, as of two kinds, are independent.
func senderKey(ctx context.Context, principal func(context.Context) string, kind, text string) [sha256.Size]byte {
	who := principal(ctx)
	return sha256.Sum256([]byte("agentsched " + kind + "\x00" + strconv.Itoa(len(who)) + ":" + who + text))
}

// newKey reads the key of a submission, and sees to its digest.
func (s submissions) newKey(ctx context.Context, text string, in *api.Submission) (key, error) {
	if err := checkKey(text); err != nil || text == "" {
		return key{}, err
	}
	if len(in.Jobs) > maxKeyed {
		return key{}, badField("body.jobs", "has %d jobs, want at most %d with an Idempotency-Key", len(in.Jobs), maxKeyed)
	}
	if in.Digest == "" {
		text, err := json.Marshal([]any{in.Jobs, in.Workflow})
		if err != nil {
			return key{}, fmt.Errorf("hash the jobs: %w", err)
		}
		sum := sha256.Sum256(text)
		in.Digest = hex.EncodeToString(sum[:])
	}
	return key{sum: senderKey(ctx, s.principal, "submission", text), given: true}, nil
}

// id returns the id of job n of the submission, and of its batch with -1: a UUIDv8
// (RFC 9562) that begins alike for all, goes on with n, so that jobs keep their
// order, and ends with what is only this one's.
//
//	48 bits of the key │ version, 12 bits of n │ variant, 12 bits of n │ 50 bits of key and n
func (k key) id(n int) string {
	own := sha256.Sum256(append(k.sum[:], strconv.Itoa(n)...))
	var id uuid.UUID
	copy(id[:6], k.sum[:6])
	copy(id[6:], own[:10])
	number := uint32(n) % maxKeyed
	id[6] = 0x80 | byte(number>>20)
	id[7] = byte(number >> 12)
	id[8] = 0x80 | byte(number>>6)&0x3f
	id[9] = byte(number<<2) | own[3]&3
	return id.String()
}

// name gives a batch and its entries the ids that follow from the key, if there is
// one. Nothing refers to the ids yet: jobs of a batch name each other.
func (k key) name(b *queue.Batch, entries []queue.Entry) {
	if !k.given {
		return
	}
	b.ID = job.BatchID(k.id(-1))
	for i := range entries {
		entries[i].ID, entries[i].Batch = job.ID(k.id(i)), b.ID
	}
}

// replay answers a submission that was stored before.
func (s submissions) replay(ctx context.Context, k key, in *api.Submission) (out reply[api.Jobs], found bool, err error) {
	if !k.given {
		return out, false, nil
	}
	b := job.BatchID(k.id(-1))
	if jobs, err := s.entries.batch(ctx, b, 1); err != nil || len(jobs.Jobs) == 0 {
		return out, false, err
	}
	batches, err := s.entries.store.Batches(ctx, in.Source)
	if err != nil {
		return out, false, err
	}
	i := slices.IndexFunc(batches, func(have queue.Batch) bool { return have.ID == b })
	if i < 0 || batches[i].Digest != in.Digest {
		return out, false, newProblem("idempotency_key_reused", http.StatusUnprocessableEntity,
			"this Idempotency-Key was used for another submission, batch %s: want a key of its own for each", b).
			about("header.Idempotency-Key", "was used for other jobs", nil)
	}
	out = reply[api.Jobs]{status: http.StatusOK, header: http.Header{replayedHeader: {"true"}}}
	out.body, err = s.entries.batch(ctx, b, len(in.Jobs))
	return out, true, err
}
