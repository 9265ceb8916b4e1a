package sched

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/agentsched/agentsched/job"
)

// rfcEntry is an entry as RFC 0007 writes it: times are seconds since 1970, what is
// not there is null. The last fields are ours.
type rfcEntry struct {
	SchedID      job.ID          `json:"sched_id"`
	PID          *int64          `json:"pid"` // of an agent "pid:N"
	Priority     int             `json:"priority"`
	RunnableAt   *float64        `json:"runnable_at"`
	Deadline     *float64        `json:"deadline"`
	Trigger      job.Trigger     `json:"trigger"`
	Payload      json.RawMessage `json:"payload"`
	State        job.EntryState  `json:"state"`
	WorkerID     *string         `json:"worker_id"`
	CreatedAt    *float64        `json:"created_at"`
	DispatchedAt *float64        `json:"dispatched_at"`
	CompletedAt  *float64        `json:"completed_at"`
	ExitKind     *job.ExitKind   `json:"exit_kind"`

	Tenant     job.Tenant  `json:"tenant"`
	Agent      job.AgentID `json:"agent,omitempty"`
	LeaseUntil *float64    `json:"lease_until"`
	Fence      job.Fence   `json:"fence,omitempty"`
	Name       job.Name    `json:"name,omitempty"`

	PrevState job.EntryState `json:"prev_state,omitempty"` // of complete and cancel
	Created   *bool          `json:"created,omitempty"`    // of enqueue
}

// InRFC returns the result of a call as RFC 0007 writes it.
func InRFC(result any) any {
	switch r := result.(type) {
	case Entry:
		return inRFC(&r)
	case Enqueued:
		e := inRFC(&r.Entry)
		e.Created = &r.Created
		return e
	case Ended:
		e := inRFC(&r.Entry)
		e.PrevState = r.PrevState
		return e
	case Entries:
		list := make([]rfcEntry, len(r.Entries))
		for i := range r.Entries {
			list[i] = inRFC(&r.Entries[i])
		}
		return struct {
			Entries []rfcEntry `json:"entries"`
			Total   int        `json:"total"`
		}{list, r.Total}
	}
	return result
}

func inRFC(e *Entry) rfcEntry {
	out := rfcEntry{
		SchedID: e.SchedID, Priority: e.Priority, RunnableAt: epoch(&e.RunnableAt), Deadline: epoch(e.Deadline), Trigger: e.Trigger, Payload: e.Payload,
		State: e.State, CreatedAt: epoch(&e.CreatedAt), DispatchedAt: epoch(e.DispatchedAt), CompletedAt: epoch(e.CompletedAt),
		Tenant: e.Tenant, Agent: e.Agent, LeaseUntil: epoch(e.LeaseUntil), Fence: e.Fence, Name: e.Name,
	}
	if digits, of := strings.CutPrefix(string(e.Agent), "pid:"); of {
		if pid, err := strconv.ParseInt(digits, 10, 64); err == nil {
			out.PID = &pid
		}
	}
	if e.WorkerID != "" {
		out.WorkerID = &e.WorkerID
	}
	if len(e.Payload) == 0 {
		out.Payload = json.RawMessage("{}")
	}
	if kind := e.ExitKind; kind != "" {
		switch {
		case kind == job.ExitSucceeded:
			kind = ExitCompleted
		case e.ErrorClass == job.Crash:
			kind = ExitCrashed
		}
		out.ExitKind = &kind
	}
	return out
}

// epoch returns seconds since 1970, to the microsecond.
func epoch(t *time.Time) *float64 {
	if t == nil {
		return nil
	}
	return new(float64(t.UnixMicro()) / 1e6)
}
