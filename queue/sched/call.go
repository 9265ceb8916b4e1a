package sched

import (
	"context"
	"encoding/json"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// The names of the calls.
const (
	MethodEnqueue       = "kernel.sched.enqueue"
	MethodEnqueueUnique = "kernel.sched.enqueue_unique"
	MethodClaim         = "kernel.sched.claim"
	MethodExtend        = "kernel.sched.extend"
	MethodComplete      = "kernel.sched.complete"
	MethodCancel        = "kernel.sched.cancel"
	MethodGet           = "kernel.sched.get"
	MethodList          = "kernel.sched.list"
	MethodGCExpired     = "kernel.sched.gc_expired"
	MethodGCDispatched  = "kernel.sched.gc_dispatched"
	MethodUpdateGrant   = "kernel.sched.update_grant"
)

// Parameters and results of the calls that have no type of their own.
type (
	// ByID are the parameters of get.
	ByID struct {
		SchedID job.ID `json:"sched_id"`
	}
	// Enqueued is the result of enqueue and enqueue_unique.
	Enqueued struct {
		Entry
		Created bool `json:"created"`
	}
	// ExtendRequest are the parameters of extend.
	ExtendRequest struct {
		Fences []job.Fence  `json:"fences"`
		Lease  job.Duration `json:"lease,omitempty"` // 0: DefaultLease
	}
	// Lost is the result of extend.
	Lost struct {
		Lost []job.Fence `json:"lost"`
	}
	// Ended is the result of complete and cancel: the entry, and the state that it
	// was in.
	Ended struct {
		Entry
		PrevState job.EntryState `json:"prev_state"`
	}
	// Entries is the result of claim and list.
	Entries struct {
		Entries []Entry `json:"entries"`
		Total   int     `json:"total"`
	}
	// StaleRequest are the parameters of gc_dispatched.
	StaleRequest struct {
		StaleSeconds float64 `json:"stale_seconds"`
	}
	// ExpireRequest are the parameters of gc_expired.
	ExpireRequest struct {
		Now *time.Time `json:"now,omitempty"` // nil: the time of the call
	}
	// IDs is the result of gc_expired and gc_dispatched.
	IDs struct {
		SchedIDs []job.ID `json:"sched_ids"`
		Count    int      `json:"count"`
		Swept    int      `json:"swept"` // the same
	}
	// GrantRequest are the parameters of update_grant.
	GrantRequest struct {
		queue.Grant
		PID *int64 `json:"pid,omitempty"` // the agent "pid:N"
	}
)

// Call makes the call of that name with its parameters, an object, and returns
// its result. Every error is an *Error; unknown parameters are InvalidParams. What a
// parameter may be called, and its value, stands in docs/queue.md.
func (k *Kernel) Call(ctx context.Context, method string, params json.RawMessage) (any, error) {
	switch method {
	case MethodEnqueue:
		return with(params, func(r EnqueueRequest) (any, error) {
			if len(r.DedupeBy) > 0 || r.Key != "" {
				return nil, refuse(InvalidParams, "dedupe_by and key are for %s", MethodEnqueueUnique)
			}
			e, created, err := k.Enqueue(ctx, r)
			return Enqueued{e, created}, err
		})
	case MethodEnqueueUnique:
		return with(params, func(r EnqueueRequest) (any, error) {
			if len(r.DedupeBy) == 0 && r.Key == "" {
				return nil, refuse(InvalidParams, "dedupe_by is missing, want some of agent, priority, trigger, payload, or a key")
			}
			e, created, err := k.Enqueue(ctx, r)
			return Enqueued{e, created}, err
		})
	case MethodClaim:
		return with(params, func(r ClaimRequest) (any, error) {
			list, err := k.Claim(ctx, r)
			return Entries{list, len(list)}, err
		})
	case MethodExtend:
		return with(params, func(r ExtendRequest) (any, error) {
			lost, err := k.Extend(ctx, r.Fences, r.Lease.Std())
			return Lost{append([]job.Fence{}, lost...)}, err
		})
	case MethodComplete:
		return with(params, func(r CompleteRequest) (any, error) {
			e, err := k.Complete(ctx, r)
			return Ended{e, job.Dispatched}, err
		})
	case MethodCancel:
		return with(params, func(r CancelRequest) (any, error) {
			if r.Key != "" || r.SchedID == "" {
				list, err := k.CancelKey(ctx, r)
				return Entries{list, len(list)}, err
			}
			if r.Tenant != "" {
				return nil, refuse(InvalidParams, "tenant is for a key, not for a sched_id")
			}
			e, err := k.Cancel(ctx, r.SchedID)
			return Ended{e, job.Queued}, err
		})
	case MethodGet:
		return with(params, func(r ByID) (any, error) { return k.Get(ctx, r.SchedID) })
	case MethodList:
		return with(params, func(r ListRequest) (any, error) {
			list, total, err := k.List(ctx, r)
			return Entries{list, total}, err
		})
	case MethodGCExpired:
		return with(params, func(r ExpireRequest) (any, error) {
			ids, err := k.GCExpired(ctx, r.Now)
			return idsOf(ids), err
		})
	case MethodGCDispatched:
		return with(params, func(r StaleRequest) (any, error) {
			if !(r.StaleSeconds >= 0) || r.StaleSeconds > MaxLease.Seconds()*365 {
				return nil, refuse(InvalidPayload, "stale_seconds: %g is not allowed, want 0 or more, at most a year", r.StaleSeconds)
			}
			ids, err := k.GCDispatched(ctx, time.Duration(r.StaleSeconds*float64(time.Second)))
			return idsOf(ids), err
		})
	case MethodUpdateGrant:
		return with(params, func(r GrantRequest) (any, error) {
			if err := ofPID(&r.Agent, r.PID); err != nil {
				return nil, err
			}
			return r.Grant, k.UpdateGrant(ctx, r.Grant)
		})
	}
	return nil, refuse(MethodNotFound, "%q is unknown; the calls are kernel.sched.enqueue, enqueue_unique, claim, extend, complete, cancel, get, list, gc_expired, gc_dispatched and update_grant", method)
}

func idsOf(ids []job.ID) IDs { return IDs{append([]job.ID{}, ids...), len(ids), len(ids)} }

// with decodes the parameters and makes the call.
func with[R any](params json.RawMessage, call func(R) (any, error)) (any, error) {
	var r R
	if err := decode(params, &r); err != nil {
		return nil, err
	}
	out, err := call(r)
	if err != nil {
		return nil, explain(err)
	}
	return out, nil
}
