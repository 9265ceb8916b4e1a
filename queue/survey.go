package queue

import (
	"time"

	"github.com/agentsched/agentsched/job"
)

// MaxSteps is how many steps Reader.Throughput counts in at most.
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
