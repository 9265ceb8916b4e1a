package sched

import (
	"encoding/json"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// Entry is an entry of the queue in the words of kernel.sched. Times are UTC.
type Entry struct {
	SchedID      job.ID          `json:"sched_id"`
	Tenant       job.Tenant      `json:"tenant"`
	Agent        job.AgentID     `json:"agent,omitempty"`
	Priority     int             `json:"priority"` // higher is sooner
	RunnableAt   time.Time       `json:"runnable_at"`
	Deadline     *time.Time      `json:"deadline,omitempty"`
	Trigger      job.Trigger     `json:"trigger"`
	Key          string          `json:"key,omitempty"` // by which it is unique
	Payload      json.RawMessage `json:"payload,omitempty"`
	State        job.EntryState  `json:"state"`
	WorkerID     string          `json:"worker_id,omitempty"` // who holds it
	CreatedAt    time.Time       `json:"created_at"`
	DispatchedAt *time.Time      `json:"dispatched_at,omitempty"`
	CompletedAt  *time.Time      `json:"completed_at,omitempty"`
	ExitKind     job.ExitKind    `json:"exit_kind,omitempty"`
	ErrorClass   job.ErrorClass  `json:"error_class,omitempty"` // with the exit kind failed
	LeaseUntil   *time.Time      `json:"lease_until,omitempty"`
	Fence        job.Fence       `json:"fence,omitempty"` // of the latest claim
	// Name is the job's, of entries that are jobs of the scheduler itself.
	Name job.Name `json:"name,omitempty"`
}

func entryOf(e *queue.Entry) Entry {
	out := Entry{
		SchedID: e.ID, Tenant: e.Spec.Tenant, Agent: e.Spec.Agent, Priority: e.Spec.Priority, RunnableAt: e.RunnableAt, Deadline: e.Deadline,
		Trigger: e.Spec.Trigger.Or(), Key: e.Key, Payload: e.Spec.Payload, State: e.State, WorkerID: e.Holder, CreatedAt: e.CreatedAt,
		DispatchedAt: e.DispatchedAt, CompletedAt: e.CompletedAt, ExitKind: e.ExitKind, LeaseUntil: e.LeaseUntil, Fence: e.Fence,
	}
	if e.ExitKind == job.ExitFailed {
		out.ErrorClass = e.ErrorClass
	}
	if e.Spec.Type != job.External {
		out.Name = e.Spec.Name
	}
	return out
}

func entriesOf(list []queue.Entry) []Entry {
	out := make([]Entry, len(list))
	for i := range list {
		out[i] = entryOf(&list[i])
	}
	return out
}
