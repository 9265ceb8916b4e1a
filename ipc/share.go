package ipc

import "github.com/agentsched/agentsched/job"

// Methods about what cores have in common: the rates and the cost windows, which the scheduler keeps for all
// of them. The core calls them on the scheduler if Limits.Shared is set. All of them may be called again
// without harm when there was no answer.
const (
	MethodSharePermit  = "share_permit"  // SharePermit → SharePermitResult
	MethodReturnPermit = "return_permit" // SharePermit → Empty: the permit was not used, what was taken for it is free again
	MethodReserve      = "reserve"       // Reserve → ReserveResult
	MethodRelease      = "release"       // Release → Empty
)

// SharePermit asks, before a permit is given out, for a token of each rate that counts it, and whether the
// cost windows of its tenant have room.
type SharePermit struct {
	Job     job.ID         `json:"job"`
	Attempt int            `json:"attempt"`
	Worker  job.WorkerKind `json:"worker"`
	Model   string         `json:"model,omitempty"` // as rates are by: "provider/model"
}

// SharePermitResult has a Rejection, or the permit may be given out.
type SharePermitResult struct {
	Rejection *Rejection `json:"rejection,omitempty"`
}

// Demand is what a request to a model may use: permit.Demand.
type Demand struct {
	Model    string     `json:"model,omitempty"` // as rates are by
	Input    int64      `json:"input"`           // tokens, at most
	Estimate int64      `json:"estimate"`        // of them, probably
	Output   int64      `json:"output"`          // tokens that it asks for
	Beside   int64      `json:"beside"`          // with which it begins beside others
	Least    int64      `json:"least"`           // below which it does not begin
	Price    *job.Price `json:"price,omitempty"` // absent: none is known
	Token    float64    `json:"token,omitempty"` // what one of input probably costs, in micro-dollars
}

// Reserve asks to begin a request to a model. ID is the request's, of those of the run.
type Reserve struct {
	Job     job.ID `json:"job"`
	Attempt int    `json:"attempt"`
	ID      int64  `json:"id"` // from 1
	Demand  Demand `json:"demand"`
	// Running says that another scheduler has allowed it already: it is only noted, with at most Demand.Output.
	Running bool `json:"running,omitempty"`
}

// ReserveResult is the answer: exactly one of Output, Pending, Stop and Refused. It is held back for some
// time while the request has to wait, and is Pending then: it keeps its place, and the core asks again.
type ReserveResult struct {
	// Ledger names who keeps the reservations. A core that hears of another one tells it, with Reserve.Running, of
	// what it was allowed before.
	// It hears of one by QueueMetrics, too.
	Ledger  string       `json:"ledger"`
	Output  int64        `json:"output,omitempty"` // tokens of output, at most Demand.Output
	Pending bool         `json:"pending,omitempty"`
	WaitMS  int64        `json:"wait_ms,omitempty"` // before the core asks again, with Pending
	Stop    *ReserveStop `json:"stop,omitempty"`    // the run is to be stopped
	Refused string       `json:"refused,omitempty"` // why there is nothing to reserve for: the attempt is over
}

// ReserveStop says which budget is used up: permit.Stop.
type ReserveStop struct {
	Limit        string `json:"limit"`
	RetryAfterMS int64  `json:"retry_after_ms,omitempty"` // when a cost window has room again
	Message      string `json:"message"`
}

// Release ends a request, or takes it back while it is Pending. What it has not used is free again.
type Release struct {
	Job     job.ID    `json:"job"`
	Attempt int       `json:"attempt"`
	ID      int64     `json:"id"`
	Spent   job.Usage `json:"spent,omitzero"`
}

// MaxReservations is how many requests of a run may be under way or wait at once.
const MaxReservations = 256
