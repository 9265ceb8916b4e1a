package queue

import (
	"context"
	"time"

	"github.com/agentsched/agentsched/job"
)

// Surveyor is a Store that can be looked at as a whole, cheaply enough for a page
// that many have open: with a million entries none of it looks at each, but for
// Filter.Search, and the total of a Filter by what few entries have in common.
type Surveyor interface {
	// Page is List by cursor: the entries that f selects after the one that cursor
	// was returned with ("" begins), in its order, and the cursor for the next page,
	// "" after the last. An entry that is added or ends meanwhile neither repeats
	// nor hides another, and one that is forgotten leaves its cursor valid. f.Offset
	// must be 0. total is counted with cursor "" alone, else -1. ErrBadCursor if the
	// cursor was not returned by Page, or for the other order.
	Page(ctx context.Context, f Filter, cursor string) (entries []Entry, next string, total int, err error)
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

// MaxSteps is how many steps Surveyor.Throughput counts in at most.
const MaxSteps = 2_000

// Census is what there is in a queue.
type Census struct {
	Queued      int            `json:"queued"` // neither held nor waiting for another
	Held        int            `json:"held"`   // for other jobs, or waiting for one of the same key
	Approval    int            `json:"approval"`
	Dispatched  int            `json:"dispatched"`
	DeadLetters int            `json:"dead_letters"`
	Tenants     []TenantCensus `json:"tenants"` // that have something that has not ended, by name
}

// TenantCensus is a tenant's part of a Census.
type TenantCensus struct {
	Tenant     job.Tenant `json:"tenant"`
	Queued     int        `json:"queued"`
	Held       int        `json:"held"`
	Approval   int        `json:"approval"`
	Dispatched int        `json:"dispatched"`
	Oldest     time.Time  `json:"oldest,omitzero"` // the earliest RunnableAt of those queued
}

// Throughput is what ended within a step of time.
type Throughput struct {
	At        time.Time `json:"at"` // it begins
	Succeeded int       `json:"succeeded"`
	Failed    int       `json:"failed"` // expired ones too
	Cancelled int       `json:"cancelled"`
}

// Running is an attempt on a line of time.
type Running struct {
	Job     job.ID         `json:"job"`
	Name    job.Name       `json:"name"`
	Tenant  job.Tenant     `json:"tenant"`
	Worker  job.WorkerKind `json:"worker"`
	Attempt int            `json:"attempt"`
	State   job.RunState   `json:"state"`
	Class   job.ErrorClass `json:"class,omitempty"`
	Began   time.Time      `json:"began"`
	Ended   *time.Time     `json:"ended,omitempty"` // nil: it runs
}
