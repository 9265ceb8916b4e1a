package queue

import (
	"context"
	"time"

	"github.com/agentsched/agentsched/job"
)

// Store keeps the queue. Every method may be called by many goroutines at
// once; each error wraps a sentinel of this package where one fits. A write
// that returned nil is on disk; a write that returned an error changed
// nothing, unless the error is the context's, in which case it may have
// happened. Returned values belong to the caller.
type Store interface {
	// Enqueue stores a batch and its entries as Queued, all or none. A batch
	// that exists already is not stored again and its new entries join it.
	// ErrDuplicate if an entry's id exists, or if the batch has one of that
	// name and tenant already. ErrDeadOwner if an entry's tenant or agent is
	// dead. ErrTooManyJobs and ErrQueueFull if there are more than the store's
	// Bounds allow. An entry with RequeuedFrom does a dead letter again, which says so
	// from then on; ErrIllegalTransition if that is none, or was requeued or
	// dropped already. An entry may be Held from the start, but not for approval,
	// and Resolved.
	//
	// An entry with a key (job.Spec.Duplicates) meets, in the order of the
	// entries, the unfinished ones of its tenant with the same key, if there are
	// any. What its policy then says holds until it has ended, in the same
	// transaction with whatever changes it:
	//
	//   - Reject: nothing is stored; a *DuplicateError.
	//   - Coalesce: it waits for the last one that is not coalesced itself. When
	//     that is completed as succeeded or failed, so is it, with the same
	//     DeadLetter. When that ends otherwise, the first that waits so takes its
	//     place, and the others wait for this one.
	//   - LatestWins: queued ones are Cancelled, as at its CreatedAt; of a
	//     dispatched one CancelRequested is set, it does not go back to the queue
	//     any more, and the new entry waits until it has ended. Filter.SupersededBy
	//     finds them.
	//   - Serialize: it waits for the last one that is not coalesced.
	//
	// So at most one entry of a key is dispatched. One whose turn has come is
	// RunnableAt that moment, if not later. While it waits for the result of an
	// entry that is dispatched, or HeldForApproval, its deadline has no effect. An
	// entry that is held keeps its place.
	Enqueue(ctx context.Context, b Batch, entries []Entry) error

	// Claim moves entries from Queued to Dispatched, in the order of priority
	// (higher first), RunnableAt, ID, or as the ClaimSpec's Chooser says, and
	// gives each a fence of its own. What an owner that has used up its Grant has
	// queued is passed over.
	// Entries whose RunnableAt is after Now are invisible; those whose deadline
	// is not after Now become Expired. No entry is ever claimed twice at once,
	// and none that waits for another (Entry.WaitsFor) or is held (Entry.Held) is
	// claimed. What is held expires like all else, but not what is HeldForApproval.
	Claim(ctx context.Context, spec ClaimSpec) (Claims, error)

	// Extend moves the leases of claims to until. Fences that are no longer
	// held are returned; nothing changes for them.
	Extend(ctx context.Context, fences []job.Fence, until time.Time) (lost []job.Fence, err error)

	// Apply makes all ops durable in their order, in one transaction, or none.
	Apply(ctx context.Context, ops ...Op) error

	// Get returns an entry, or ErrNotFound.
	Get(ctx context.Context, id job.ID) (Entry, error)

	// List returns the entries that f selects and how many there are without
	// its Limit and Offset, in the order of submission.
	List(ctx context.Context, f Filter) (entries []Entry, total int, err error)

	// Attempts returns the attempts of a job, the first one first; of an entry
	// with CoalescedWith, those of that one.
	Attempts(ctx context.Context, id job.ID) ([]job.Attempt, error)

	// Events returns the events of a job whose cursor is larger than after, at
	// most limit of them, in the order in which they were stored.
	Events(ctx context.Context, id job.ID, after int64, limit int) ([]StoredEvent, error)

	// Batches returns the batches, the newest first; with a source, only those
	// that came from it.
	Batches(ctx context.Context, source string) ([]Batch, error)

	// Close waits for writes under way and closes the store.
	Close() error
}
