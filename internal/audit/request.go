package audit

import (
	"context"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
)

// Request is a request that changed something, or was refused.
type Request struct {
	Who    api.AuditWho
	Method string
	Route  string // its pattern, e.g. "POST /v1/jobs/{job}/cancel"
	Target string // its path
	Query  string // what follows the path, as it was sent; not of one that is refused
	Job    job.ID // that the path names; "" none
	Status int    // of the answer; 0 if there was none
	Took   time.Duration
	Body   string // what was asked for, at most 2 KiB of it are kept
	From   string // the peer's address, if there is one
	Why    string // it was refused
}

// Actions of requests.
const (
	ActionRequest = "request" // it changed something, or tried to
	ActionRefused = "refused" // whoever asked may not: 401 or 403
)

// Bounds of what is recorded of requests.
const (
	maxBody         = 2 << 10
	refusedEach     = time.Second / 10 // further refused requests are only counted
	refusedAtOnce   = 10
	requestTime     = 5 * time.Second // for a record to be on disk
	capturedOfABody = 8 << 10
)

// Refused reports whether whoever asked may not do that.
func (d *Request) Refused() bool {
	return d.Status == http.StatusUnauthorized || d.Status == http.StatusForbidden
}

// RecordRequest records a request that changed something. It returns when the record is on
// disk, or why it is not.
func (l *Log) RecordRequest(ctx context.Context, d Request) error {
	return l.Record(ctx, l.entryOf(ActionRequest, d, 0))
}

// RecordRefused records a request that was refused. It does not wait, so that nobody can
// keep the disk busy with what he may not do: at most ten in a second are recorded,
// and the next one says how many before it were not. unreported are further ones
// before it, which the caller has left out himself.
func (l *Log) RecordRefused(d Request, unreported int64) {
	if leftOut, ok := l.refused.take(l.o.Now(), unreported); ok {
		l.Note(l.entryOf(ActionRefused, d, leftOut))
	}
}

func (l *Log) entryOf(action string, d Request, leftOut int64) Entry {
	// Redacted before it is cut: a half of a secret is not found any more.
	body, _ := job.Cut(l.o.Redact.String(d.Body), maxBody)
	query := ""
	if action == ActionRequest { // who is refused may have sent what proves who he is
		query, _ = job.Cut(l.o.Redact.String(d.Query), maxBody)
	}
	return Entry{
		Who: d.Who, Action: action, Target: d.Target, Job: d.Job,
		Detail: api.AuditRequest{
			Method: d.Method, Route: d.Route, Status: d.Status, Millis: d.Took.Milliseconds(), Query: query, Body: body, From: d.From, Why: short(d.Why), LeftOut: leftOut,
		},
	}
}

// refusals bounds how many refused requests are recorded.
type refusals struct {
	mu      sync.Mutex
	limit   *rate.Limiter
	leftOut int64
}

func newRefusals() *refusals {
	return &refusals{limit: rate.NewLimiter(rate.Every(refusedEach), refusedAtOnce)}
}

// take reports whether one is to be recorded, and how many before it were not.
func (r *refusals) take(now time.Time, more int64) (leftOut int64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leftOut += more
	if !r.limit.AllowN(now, 1) {
		r.leftOut++
		return 0, false
	}
	leftOut, r.leftOut = r.leftOut, 0
	return leftOut, true
}
