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
//
// Opening a store for writing deposes the handles that were opened before: from
// then on each of their writes is refused with ErrDeposed, in the transaction that
// would have changed something. Their reads may be refused so, too.
type Store interface {
	Writer
	Claimer
	Reader
	Journal
	Ledger
	Keeper

	// Close waits for writes under way and closes the store.
	Close() error
}

// Writer takes what is submitted and what was decided.
type Writer interface {
	// Enqueue stores a batch and its entries as Queued, all or none. A batch
	// that exists already is not stored again and its new entries join it.
	// ErrDuplicate if an entry's id exists, or if the batch has one of that
	// name and tenant already. ErrDeadOwner if an entry's tenant or agent is
	// dead. ErrTooManyJobs and ErrQueueFull if there are more than the store's
	// Bounds allow. An entry with RequeuedFrom does a dead letter again, which says so
	// from then on; ErrIllegalTransition if that is none, or was requeued or
	// dropped already. An entry with Continues goes on from one that has ended, which
	// says so from then on, and is requeued as it if it was a dead letter that waits;
	// ErrIllegalTransition if that has not ended, or another entry goes on from it
	// already. An entry may be Held from the start, but not for approval,
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

	// Apply makes all ops durable in their order, in one transaction, or none.
	Apply(ctx context.Context, ops ...Op) error
}

// SweepGrace is how long a claim holds at least that is older than Store.Sweep.
const SweepGrace = time.Minute

// Claimer gives out what waits.
type Claimer interface {
	// Claim moves entries from Queued to Dispatched, in the order of priority
	// (higher first), RunnableAt, ID, and gives each a fence of its own. What an owner that has used up its Grant has
	// queued is passed over, and what its tenant's Balance is too small for.
	// Entries whose RunnableAt is after Now are invisible; those whose deadline
	// is not after Now become Expired. No entry is ever claimed twice at once,
	// and none that waits for another (Entry.WaitsFor) or is held (Entry.Held) is
	// claimed. What is held expires like all else, but not what is HeldForApproval.
	Claim(ctx context.Context, spec ClaimSpec) (Claims, error)

	// Heads reads what stands first in the lanes of what is shared, or of a private
	// batch: queued entries, runnable or not, that are neither held nor waiting for
	// another (Entry.WaitsFor), and not of type job.External. A private batch also has
	// lanes of a single entry each, one for each queued entry of another batch that its
	// own wait for. Heads first lets expire what is past its deadline, as Claim does.
	//
	// A lane has changed when an entry has come into it or has been changed in it, and
	// when one has left it because it was cancelled, superseded or held, or has expired.
	// It has not when one was claimed: who claims knows that. Everything has changed
	// after SetPrivate, Adopt, SetGrant, TopUp and DropBalance, and when a balance is given
	// back what it was too small without.
	Heads(ctx context.Context, spec HeadsSpec) (Heads, error)

	// Watch returns a channel that receives after each write that changed a lane (see
	// Heads), until ctx ends. It holds one value: a receiver that is late finds one for
	// all of the changes meanwhile. It is never closed.
	Watch(ctx context.Context) <-chan struct{}

	// Extend moves the leases of claims to until. Fences that are no longer
	// held are returned; nothing changes for them.
	Extend(ctx context.Context, fences []job.Fence, until time.Time) (lost []job.Fence, err error)

	// Sweep enforces leases until ctx ends, and returns ctx's cause: an entry whose lease
	// has ended is taken back from whoever claimed it, as Reclaim does. It lets entries of
	// type job.External expire too, which only their own claims would. Both happen at most
	// a second late. changed is called with the entries.
	//
	// Time in which the process stood still does not count, nor does a wall clock that was
	// set. A claim that is older than Sweep holds for at least SweepGrace, since its holder
	// could not extend it, and one whose extension could not be written as if it had been.
	// At most one Sweep runs.
	Sweep(ctx context.Context, changed func([]job.ID)) error
}

// Reader tells what there is, cheaply enough for a page that many have open: with a
// million entries Page, Census, Throughput and Runs do not look at each, but for
// Filter.Search, and the total of a Filter by what few entries have in common.
type Reader interface {
	// Get returns an entry, or ErrNotFound.
	Get(ctx context.Context, id job.ID) (Entry, error)

	// List returns the entries that f selects and how many there are without
	// its Limit and Offset, in the order of submission.
	List(ctx context.Context, f Filter) (entries []Entry, total int, err error)

	// Page is List by cursor: the entries that f selects after the one that cursor
	// was returned with ("" begins), in its order, and the cursor for the next page,
	// "" after the last. An entry that is added or ends meanwhile neither repeats
	// nor hides another, and one that is forgotten leaves its cursor valid. f.Offset
	// must be 0. total is counted with cursor "" alone, else -1. ErrBadCursor if the
	// cursor was not returned by Page, or for the other order.
	Page(ctx context.Context, f Filter, cursor string) (entries []Entry, next string, total int, err error)

	// BatchSince returns what has changed in a batch since an earlier call returned a
	// mark; 0 is before everything. Applied to what was known then, it gives all that
	// the batch has at one moment, as List would return it: with every write that had
	// returned before the call.
	BatchSince(ctx context.Context, id job.BatchID, since Mark) (Changes, error)

	// Attempts returns the attempts of a job, the first one first; of an entry
	// with CoalescedWith, those of that one.
	Attempts(ctx context.Context, id job.ID) ([]job.Attempt, error)

	// Events returns the events of a job whose cursor is larger than after, at
	// most limit of them, in the order in which they were stored.
	Events(ctx context.Context, id job.ID, after int64, limit int) ([]StoredEvent, error)

	// LastEvents returns the last n events of a job, in the order in which they were stored.
	LastEvents(ctx context.Context, id job.ID, n int) ([]StoredEvent, error)

	// Batches returns the batches, the newest first; with a source, only those
	// that came from it.
	Batches(ctx context.Context, source string) ([]Batch, error)

	// Census counts what has not ended, and the dead letters.
	Census(ctx context.Context) (Census, error)

	// Throughput counts what ended before until, in steps of a length that are
	// counted from 1970 in UTC: the one that since lies in is the first, and whole,
	// and none is left out. At most MaxSteps.
	Throughput(ctx context.Context, since, until time.Time, step time.Duration) ([]Throughput, error)

	// Runs returns the attempts that began by until and had not ended before since,
	// at most limit of them (0: 1000): the latest to begin first and, of those that
	// began at once, the last submitted. A zero time is no bound.
	Runs(ctx context.Context, since, until time.Time, limit int) ([]Running, error)
}
