package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/agentsched/agentsched/job"
)

// What a Store's users may branch on.
var (
	// ErrIllegalTransition: the entry's or the run's table does not allow the move.
	ErrIllegalTransition = job.ErrIllegalTransition
	// ErrNotFound: no entry, attempt or batch has this id.
	ErrNotFound = errors.New("not found")
	// ErrFenced: the fence is not the entry's current one; somebody else holds
	// or has finished the job, and the caller's news about it is void.
	ErrFenced = errors.New("claim is no longer held")
	// ErrStandby: the store of a scheduler that stands by is written by the leader alone.
	ErrStandby = errors.New("this scheduler stands by, and another one leads")
	// ErrDeposed: the store was opened for writing again since; that handle writes now.
	ErrDeposed = errors.New("another scheduler has taken over the store")
	// ErrDuplicate: an entry or batch with this id exists, or the entry's key is
	// taken and its policy is to be rejected then (a *DuplicateError).
	ErrDuplicate = errors.New("already submitted")
	// ErrDeadOwner: the entry's agent, or its tenant, is dead (Grant.Dead).
	ErrDeadOwner = errors.New("its owner is dead")
	// ErrExists: a record is there already, with another value.
	ErrExists = errors.New("there is another record already")
	// ErrBadCursor: a page is asked for by a cursor that was not returned for
	// pages in this order.
	ErrBadCursor = errors.New("no cursor of these pages")
)

// ErrUnavailable: the database that schedulers share cannot be asked now, and can be later, as
// while it is started, or the network to it is away.
var ErrUnavailable = errors.New("the database cannot be asked now")

type patienceKey struct{}

// WithPatience returns a context with which what is read waits for the database that schedulers share for d
// at most, and fails with ErrUnavailable then. What is written waits for it as long as ctx lasts.
func WithPatience(ctx context.Context, d time.Duration) context.Context {
	return context.WithValue(ctx, patienceKey{}, d)
}

// Patience returns what WithPatience has set; 0: what is read waits as long as ctx lasts.
func Patience(ctx context.Context) time.Duration {
	d, _ := ctx.Value(patienceKey{}).(time.Duration)
	return d
}

// Refuse returns an error that wraps ErrIllegalTransition and has this text alone,
// for those who read it: the text says what stands in the way.
func Refuse(format string, args ...any) error {
	return &refusal{fmt.Sprintf(format, args...)}
}

type refusal struct{ text string }

func (e *refusal) Error() string { return e.text }
func (e *refusal) Unwrap() error { return ErrIllegalTransition }

// What opening a store can meet.
var (
	// ErrNewerVersion: the store was written by a newer version of this program.
	ErrNewerVersion = errors.New("written by a newer version")
	// ErrCorrupt: the store's file is damaged or no store at all.
	ErrCorrupt = errors.New("damaged")
)
