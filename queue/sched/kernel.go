package sched

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// Defaults and bounds of the calls.
const (
	DefaultLease = queue.SweepGrace // of a claim that asks for none
	MaxLease     = 24 * time.Hour   // of a claim
	MaxClaim     = 1000             // entries of one claim
	MaxList      = 1000             // entries of one list, also if it asks for no limit
	MaxPayload   = 512 << 10        // bytes of a payload
)

// Source is that of the batches of such entries, one for each tenant.
const Source = "kernel.sched"

// external stands for whoever outside has run an entry, where accounts are kept
// by worker.
const external job.WorkerKind = "external"

// Kernel is kernel.sched over a store. It is safe for concurrent use.
type Kernel struct {
	store queue.Store
	now   func() time.Time
	// changed, if not nil, hears of every entry that a call has changed.
	changed func(*queue.Entry)
}

// Options of a Kernel.
type Options struct {
	Now func() time.Time // nil: time.Now
	// Changed hears of every entry that a call has changed, as it is then. The call
	// waits for it. It must not keep the entry.
	Changed func(*queue.Entry)
}

// New returns kernel.sched over a store.
func New(store queue.Store, opts Options) *Kernel {
	k := &Kernel{store: store, now: opts.Now, changed: opts.Changed}
	if k.now == nil {
		k.now = time.Now
	}
	if k.changed == nil {
		k.changed = func(*queue.Entry) {}
	}
	return k
}

// moment is the time as it is stored.
func (k *Kernel) moment() time.Time { return utcOf(k.now()) }

func utcOf(t time.Time) time.Time { return t.UTC().Round(0) }

// EnqueueRequest asks for an entry.
type EnqueueRequest struct {
	SchedID    job.ID          `json:"sched_id,omitempty"` // "": a fresh one; the same one twice is refused
	Tenant     job.Tenant      `json:"tenant,omitempty"`   // "": job.DefaultTenant
	Agent      job.AgentID     `json:"agent,omitempty"`
	PID        *int64          `json:"pid,omitempty"` // the agent "pid:N"
	Priority   int             `json:"priority,omitempty"`
	RunnableAt *time.Time      `json:"runnable_at,omitempty"` // nil: now
	Deadline   *time.Time      `json:"deadline,omitempty"`
	Trigger    job.Trigger     `json:"trigger,omitempty"` // also a name of the program's own; "": manual
	Payload    json.RawMessage `json:"payload,omitempty"` // any JSON of at most MaxPayload bytes
	// DedupeBy makes it unique: if an unfinished entry of the tenant is equal in
	// all of these (of agent, also called pid, priority, trigger, payload), that one is
	// returned and none is made.
	DedupeBy []string `json:"dedupe_by,omitempty"`
	// Key does the same by a key of the program's own, e.g. "crawl:example.org".
	Key string `json:"key,omitempty"`
}

// Enqueue makes an entry; with DedupeBy it may return one that is there
// already, and created is false. When it returns without an error the entry is
// durable. Codes: InvalidPayload, AdmissionDenied.
func (k *Kernel) Enqueue(ctx context.Context, r EnqueueRequest) (_ Entry, created bool, err error) {
	b, e, err := k.entry(&r)
	if err != nil {
		return Entry{}, false, err
	}
	err = k.store.Enqueue(ctx, b, []queue.Entry{e})
	if twice, ok := errors.AsType[*queue.DuplicateError](err); ok && (len(r.DedupeBy) > 0 || r.Key != "") {
		there, err := k.Get(ctx, twice.Other)
		return there, false, err
	}
	if err != nil {
		return Entry{}, false, explain(err)
	}
	k.changed(&e)
	return entryOf(&e), true, nil
}

// entry returns what is to be stored, in a batch of its own.
func (k *Kernel) entry(r *EnqueueRequest) (queue.Batch, queue.Entry, error) {
	now := k.moment()
	if err := ofPID(&r.Agent, r.PID); err != nil {
		return queue.Batch{}, queue.Entry{}, err
	}
	s := job.Spec{
		Tenant: r.Tenant, Type: job.External, Workspace: job.Workspace{Isolation: job.NoWorkspace},
		Agent: r.Agent, Trigger: r.Trigger, Payload: r.Payload, Priority: r.Priority, RunnableAt: r.RunnableAt, Deadline: r.Deadline,
	}
	if s.Tenant == "" {
		s.Tenant = job.DefaultTenant
	}
	id := r.SchedID
	if id == "" {
		id = job.NewID()
	}
	s.Name = job.Name(id)
	if len(r.Payload) > MaxPayload {
		return queue.Batch{}, queue.Entry{}, refuse(InvalidPayload, "payload has %d bytes, at most %d are allowed", len(r.Payload), MaxPayload)
	}
	switch {
	case len(r.DedupeBy) > 0 && r.Key != "":
		return queue.Batch{}, queue.Entry{}, refuse(InvalidPayload, "key: %q and dedupe_by both say what is the same; leave one of them out", r.Key)
	case r.Key != "":
		s.Key, s.OnDuplicate = r.Key, job.Reject
	case len(r.DedupeBy) > 0:
		key, err := dedupeKey(r)
		if err != nil {
			return queue.Batch{}, queue.Entry{}, err
		}
		s.Key, s.OnDuplicate = key, job.Reject
	}
	if errs := s.Validate(); len(errs) > 0 {
		texts := make([]string, len(errs))
		for i, e := range errs {
			texts[i] = e.Error()
		}
		return queue.Batch{}, queue.Entry{}, refuse(InvalidPayload, "%s", strings.Join(texts, "; "))
	}
	if r.Deadline != nil && !r.Deadline.After(now) {
		return queue.Batch{}, queue.Entry{}, refuse(InvalidPayload, "deadline: %s is past, it is %s now", r.Deadline.Format(time.RFC3339), now.Format(time.RFC3339))
	}
	e := queue.Entry{ID: id, Spec: s, State: job.Queued, CreatedAt: now, RunnableAt: now, Deadline: utc(r.Deadline)}
	_, e.Key = s.Duplicates()
	if r.RunnableAt != nil {
		e.RunnableAt = r.RunnableAt.UTC()
	}
	// All such entries of a tenant are of one batch: a batch for each would cost as much again.
	b := queue.Batch{ID: job.BatchID("kernel.sched/" + string(s.Tenant)), Source: Source, CreatedAt: now}
	e.Batch = b.ID
	return b, e, nil
}

func utc(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	u := t.UTC()
	return &u
}

// dedupeKey returns a key that is equal for requests that are equal in the fields.
func dedupeKey(r *EnqueueRequest) (string, error) {
	fields := slices.Clone(r.DedupeBy)
	for i, f := range fields {
		if f == "pid" {
			fields[i] = "agent"
		}
	}
	slices.Sort(fields)
	sum := sha256.New()
	for _, f := range slices.Compact(fields) {
		var value string
		switch f {
		case "agent":
			value = string(r.Agent)
		case "priority":
			value = fmt.Sprint(r.Priority)
		case "trigger":
			value = string(r.Trigger.Or())
		case "payload":
			text, err := canonical(r.Payload)
			if err != nil {
				return "", refuse(InvalidPayload, "payload: %v", err)
			}
			value = text
		default:
			return "", refuse(InvalidPayload, "dedupe_by: %q is unknown, want some of agent, priority, trigger, payload", f)
		}
		fmt.Fprintf(sum, "%s:%d:%s,", f, len(value), value)
	}
	return "kernel.sched:" + hex.EncodeToString(sum.Sum(nil)[:16]), nil
}

// canonical returns JSON without its blanks and with the members of objects in
// order, numbers as they are written.
func canonical(text json.RawMessage) (string, error) {
	if len(text) == 0 {
		return "", nil
	}
	dec := json.NewDecoder(strings.NewReader(string(text)))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return "", err
	}
	out, err := json.Marshal(v)
	return string(out), err
}

// ofPID sets an agent that is named by its process id.
func ofPID(agent *job.AgentID, pid *int64) error {
	if pid == nil {
		return nil
	}
	if *pid < 0 {
		return refuse(InvalidPayload, "pid: %d is negative, want 0 or more", *pid)
	}
	name := job.AgentID(fmt.Sprintf("pid:%d", *pid))
	if *agent != "" && *agent != name {
		return refuse(InvalidPayload, "pid: %d is the agent %s, and agent says %s; leave one of them out", *pid, name, *agent)
	}
	*agent = name
	return nil
}

// ClaimRequest asks for entries to work on.
type ClaimRequest struct {
	WorkerID string       `json:"worker_id"`       // who claims; Complete must say the same
	MaxN     int          `json:"max_n,omitempty"` // 1 to MaxClaim; 0: 1
	Lease    job.Duration `json:"lease,omitempty"` // from the call on, at most MaxLease; 0: DefaultLease
	// Now is the time by which entries are runnable or expire; nil: that of the call.
	Now *time.Time `json:"now,omitempty"`
	// AdmissionCheck is whether owners that have used up their grants are passed over;
	// nil: they are.
	AdmissionCheck *bool `json:"admission_check,omitempty"`
	// Admit, if not nil, is asked for each candidate in order; false passes it
	// over. It is called inside the store's transaction: it must be quick and must
	// not use the store. Owners that are over a limit are passed over in any case.
	Admit func(*queue.Entry) bool `json:"-"`
}

// Claim dispatches entries to a worker, in the order of priority (higher first),
// runnable_at and sched_id; none if there is nothing. Codes: InvalidParams,
// InvalidPayload.
func (k *Kernel) Claim(ctx context.Context, r ClaimRequest) ([]Entry, error) {
	n, lease := r.MaxN, r.Lease.Std()
	if n == 0 {
		n = 1
	}
	if lease == 0 {
		lease = DefaultLease
	}
	switch {
	case r.WorkerID == "":
		return nil, refuse(InvalidParams, "worker_id is missing, want the name of who claims")
	case strings.TrimSpace(r.WorkerID) == "" || len(r.WorkerID) > 256 || !job.OneLine(r.WorkerID):
		return nil, refuse(InvalidPayload, "worker_id: %q is not a name, want 1 to 256 characters on one line", r.WorkerID)
	case n < 1 || n > MaxClaim:
		return nil, refuse(InvalidPayload, "max_n: %d is not allowed, want 1 to %d", r.MaxN, MaxClaim)
	case lease < time.Second || lease > MaxLease:
		return nil, refuse(InvalidPayload, "lease: %s is not allowed, want 1s to %s", r.Lease, MaxLease)
	case r.Now != nil && (r.Now.Unix() < 0 || r.Now.Unix() > maxEpoch):
		return nil, refuse(InvalidPayload, "now: %s is out of range, want a time from 1970 to 2262", r.Now.Format(time.RFC3339))
	}
	at := k.moment()
	spec := queue.ClaimSpec{Holder: r.WorkerID, External: true, Max: n, Now: at, Lease: lease, Admit: r.Admit, OverGrants: r.AdmissionCheck != nil && !*r.AdmissionCheck}
	if r.Now != nil {
		spec.Now = utcOf(*r.Now)
		spec.Lease += at.Sub(spec.Now) // the lease is from the call on
	}
	claims, err := k.store.Claim(ctx, spec)
	if err != nil {
		return nil, explain(err)
	}
	k.tell(ctx, claims.Expired)
	for i := range claims.Entries {
		k.changed(&claims.Entries[i])
	}
	return entriesOf(claims.Entries), nil
}

// Keep enforces the leases and deadlines of the store until ctx ends, as
// queue.Store.Sweep does, and returns ctx's cause.
func (k *Kernel) Keep(ctx context.Context) error {
	return k.store.Sweep(ctx, func(ids []job.ID) { k.tell(ctx, ids) })
}

// Extend prolongs claims, by their fences, and returns those that are no longer
// held. Code: InvalidPayload.
func (k *Kernel) Extend(ctx context.Context, fences []job.Fence, lease time.Duration) (lost []job.Fence, err error) {
	if lease == 0 {
		lease = DefaultLease
	}
	if lease < time.Second || lease > MaxLease {
		return nil, refuse(InvalidPayload, "lease: %s is not allowed, want 1s to %s", lease, MaxLease)
	}
	lost, err = k.store.Extend(ctx, fences, k.moment().Add(lease))
	return lost, explain(err)
}

// CompleteRequest says how a claimed entry ended.
type CompleteRequest struct {
	SchedID  job.ID       `json:"sched_id"`
	WorkerID string       `json:"worker_id,omitempty"` // who claimed it; "": whoever holds it
	Fence    job.Fence    `json:"fence,omitempty"`     // of the claim; 0: the entry's latest, if the worker still holds it
	ExitKind job.ExitKind `json:"exit_kind,omitempty"` // also ExitCompleted and ExitCrashed; "": succeeded
	Message  string       `json:"message,omitempty"`   // why it failed
	Usage    job.Usage    `json:"usage,omitzero"`      // what it took: charged to its owner
}

// What complete takes for an exit kind, too.
const (
	ExitCompleted job.ExitKind = "completed" // succeeded
	ExitCrashed   job.ExitKind = "crashed"   // failed, of the class CRASH
)

// Complete records how an entry ended. Codes: IllegalTransition, also if another
// worker holds it now; UnknownID; InvalidPayload.
func (k *Kernel) Complete(ctx context.Context, r CompleteRequest) (Entry, error) {
	e, err := k.store.Get(ctx, r.SchedID)
	if err != nil {
		return Entry{}, explain(err)
	}
	class := job.Unknown
	switch r.ExitKind {
	case "", ExitCompleted:
		r.ExitKind = job.ExitSucceeded
	case ExitCrashed:
		r.ExitKind, class = job.ExitFailed, job.Crash
	}
	if err := r.Usage.Validate(); err != nil {
		return Entry{}, refuse(InvalidPayload, "usage.%v", err)
	}
	fence := r.Fence
	switch {
	case e.Spec.Type != job.External:
		return Entry{}, refuse(IllegalTransition, "entry %s is a job that the scheduler itself runs", r.SchedID)
	case !slices.Contains([]job.ExitKind{job.ExitSucceeded, job.ExitFailed, job.ExitCancelled}, r.ExitKind):
		return Entry{}, refuse(InvalidPayload, "exit_kind: %q is unknown, want succeeded (or completed), failed, crashed or cancelled", r.ExitKind)
	case e.State != job.Dispatched:
		return Entry{}, refuse(IllegalTransition, "entry %s is %s, only a dispatched one is completed", r.SchedID, e.State)
	case r.WorkerID != "" && e.Holder != r.WorkerID:
		return Entry{}, refuse(IllegalTransition, "entry %s is held by %q, not by %q", r.SchedID, e.Holder, r.WorkerID)
	case fence == 0:
		fence = e.Fence
	}
	if err := k.store.Apply(ctx, k.ending(&e, fence, r, class)...); err != nil {
		return Entry{}, explain(err)
	}
	now := k.moment()
	e.State, e.ExitKind, e.ErrorClass, e.CompletedAt, e.Holder, e.LeaseUntil = job.Completed, r.ExitKind, class, &now, "", nil
	k.changed(&e)
	return entryOf(&e), nil
}

// tell reads entries to tell that they have changed.
func (k *Kernel) tell(ctx context.Context, ids []job.ID) {
	for _, id := range ids {
		if e, err := k.store.Get(ctx, id); err == nil {
			k.changed(&e)
		}
	}
}

// ending returns the ops that complete an entry. An attempt is recorded only
// where there is something to say of it.
func (k *Kernel) ending(e *queue.Entry, fence job.Fence, r CompleteRequest, class job.ErrorClass) []queue.Op {
	now, n := k.moment(), e.Attempts+1
	began := now
	if e.DispatchedAt != nil {
		began = *e.DispatchedAt
	}
	o := job.Outcome{State: job.RunCompleted, Message: r.Message, Usage: r.Usage, StartedAt: began, EndedAt: now}
	end := queue.Finish{ID: e.ID, Fence: fence, Now: now, Exit: r.ExitKind}
	switch r.ExitKind {
	case job.ExitFailed:
		o.State, o.Class, o.ExitCode = job.RunFailed, class, -1
		if end.DeadLetter = r.Message; r.Message == "" {
			end.DeadLetter = fmt.Sprintf("worker %s reported a failure without a message", e.Holder)
		}
	case job.ExitCancelled:
		o.State, o.Class = job.RunCancelled, job.CancelledClass
	}
	end.Outcome = o
	if r.ExitKind == job.ExitSucceeded && r.Usage == (job.Usage{}) && r.Message == "" {
		return []queue.Op{end}
	}
	end.Attempt = n
	return []queue.Op{
		queue.Begin{ID: e.ID, Fence: fence, Attempt: job.Attempt{Job: e.ID, Number: n, Fence: fence, Choice: job.Choice{Worker: external}, State: job.Pending, Started: began}},
		queue.Move{ID: e.ID, Fence: fence, Attempt: n, To: job.Running},
		end,
	}
}

// Cancel withdraws a queued entry. Codes: IllegalTransition if it is not queued,
// UnknownID.
func (k *Kernel) Cancel(ctx context.Context, id job.ID) (Entry, error) {
	e, err := k.store.Get(ctx, id)
	if err != nil {
		return Entry{}, explain(err)
	}
	if err := e.State.CheckMove(job.Cancelled); err != nil {
		return Entry{}, explain(fmt.Errorf("entry %s: %w", id, err))
	}
	if err := k.store.Apply(ctx, queue.Cancel{ID: id, Now: k.moment()}); err != nil {
		return Entry{}, explain(err)
	}
	if e, err = k.store.Get(ctx, id); err != nil {
		return Entry{}, explain(err)
	}
	k.changed(&e)
	if e.State != job.Cancelled {
		// It was claimed between the look and the write: its worker is asked to stop.
		return entryOf(&e), refuse(IllegalTransition, "entry %s is %s by now", id, e.State)
	}
	return entryOf(&e), nil
}

// CancelRequest says what to withdraw: an entry, or the queued ones of a tenant that
// have a key.
type CancelRequest struct {
	SchedID job.ID     `json:"sched_id,omitempty"`
	Key     string     `json:"key,omitempty"`
	Tenant  job.Tenant `json:"tenant,omitempty"` // with Key; "": job.DefaultTenant
}

// CancelKey withdraws the queued entries of a tenant that have a key, all or none.
// Codes: InvalidParams, InvalidPayload; UnknownID if no unfinished entry has it;
// IllegalTransition if those that have it are dispatched.
func (k *Kernel) CancelKey(ctx context.Context, r CancelRequest) ([]Entry, error) {
	tenant := cmp.Or(r.Tenant, job.DefaultTenant)
	switch err := job.ValidTenant(tenant); {
	case r.Key == "":
		return nil, refuse(InvalidParams, "sched_id is missing, want that of the entry to cancel, or a key")
	case r.SchedID != "":
		return nil, refuse(InvalidParams, "sched_id and key both say what to cancel; leave one of them out")
	case err != nil:
		return nil, refuse(InvalidPayload, "tenant: %v", err)
	}
	list, total, err := k.store.List(ctx, queue.Filter{Tenant: tenant, Key: r.Key, Newest: true, Limit: 1 << 30})
	if err != nil {
		return nil, explain(err)
	}
	list = slices.DeleteFunc(list, func(e queue.Entry) bool { return e.State != job.Queued })
	switch {
	case total == 0:
		return nil, refuse(UnknownID, "tenant %s has no unfinished entry of the key %q", tenant, r.Key)
	case len(list) == 0:
		return nil, refuse(IllegalTransition, "the entry of tenant %s that has the key %q is dispatched, only a queued one is cancelled", tenant, r.Key)
	}
	ops := make([]queue.Op, len(list))
	for i := range list {
		ops[i] = queue.Cancel{ID: list[i].ID, Now: k.moment()}
	}
	if err := k.store.Apply(ctx, ops...); err != nil {
		return nil, explain(err)
	}
	out := make([]Entry, 0, len(list))
	for i := range list {
		e, err := k.store.Get(ctx, list[i].ID)
		if err != nil {
			return nil, explain(err)
		}
		k.changed(&e)
		out = append(out, entryOf(&e))
	}
	return out, nil
}

// Get returns an entry, also of a job of the scheduler. Code: UnknownID.
func (k *Kernel) Get(ctx context.Context, id job.ID) (Entry, error) {
	e, err := k.store.Get(ctx, id)
	if err != nil {
		return Entry{}, explain(err)
	}
	return entryOf(&e), nil
}

// ListRequest selects entries; what is not given selects everything.
type ListRequest struct {
	States []job.EntryState `json:"state,omitempty"`
	Tenant job.Tenant       `json:"tenant,omitempty"`
	Agent  job.AgentID      `json:"agent,omitempty"`
	PID    *int64           `json:"pid,omitempty"`   // the agent "pid:N"
	Limit  int              `json:"limit,omitempty"` // 1 to MaxList; 0: MaxList
	Offset int              `json:"offset,omitempty"`
}

// List returns entries, those of the scheduler's jobs too, in the order of their
// submission, and how many there are without limit and offset. Codes:
// InvalidStateFilter, InvalidPayload.
func (k *Kernel) List(ctx context.Context, r ListRequest) (entries []Entry, total int, err error) {
	if err := ofPID(&r.Agent, r.PID); err != nil {
		return nil, 0, err
	}
	for _, s := range r.States {
		if !slices.Contains(job.EntryStates(), s) {
			return nil, 0, refuse(InvalidStateFilter, "state: %q is unknown, want some of queued, dispatched, completed, expired, cancelled", s)
		}
	}
	if r.Limit < 0 || r.Limit > MaxList || r.Offset < 0 {
		return nil, 0, refuse(InvalidPayload, "limit %d, offset %d: want a limit of 1 to %d and an offset of 0 or more", r.Limit, r.Offset, MaxList)
	}
	if r.Limit == 0 {
		r.Limit = MaxList
	}
	list, total, err := k.store.List(ctx, queue.Filter{States: r.States, Tenant: r.Tenant, Agent: r.Agent, Limit: r.Limit, Offset: r.Offset})
	if err != nil {
		return nil, 0, explain(err)
	}
	return entriesOf(list), total, nil
}

// GCExpired moves queued entries whose deadline has passed, by now or by a time of
// the caller's, to expired, and returns which those were.
func (k *Kernel) GCExpired(ctx context.Context, by *time.Time) ([]job.ID, error) {
	at := k.moment()
	if by != nil {
		at = utcOf(*by)
	}
	claims, err := k.store.Claim(ctx, queue.ClaimSpec{Holder: Source, External: true, Now: at})
	if err != nil {
		return nil, explain(err)
	}
	k.tell(ctx, claims.Expired)
	return claims.Expired, nil
}

// GCDispatched takes entries back from workers that have given no sign of life
// for stale, so that others can claim them, and returns which those were. The
// claim is one; a longer lease than DefaultLease, and extending it, is as good as
// one a DefaultLease before its end. Code: InvalidPayload.
func (k *Kernel) GCDispatched(ctx context.Context, stale time.Duration) ([]job.ID, error) {
	if stale < 0 {
		return nil, refuse(InvalidPayload, "stale_seconds: %g is negative, want 0 or more", stale.Seconds())
	}
	now := k.moment()
	list, _, err := k.store.List(ctx, queue.Filter{States: []job.EntryState{job.Dispatched}, External: true, Limit: 1 << 30})
	if err != nil {
		return nil, explain(err)
	}
	reclaim := queue.Reclaim{Now: now, Message: "its worker did not come back"}
	var stuck []queue.Entry
	for _, e := range list {
		if now.Sub(lastSign(&e)) >= stale {
			reclaim.Fences = append(reclaim.Fences, e.Fence)
			stuck = append(stuck, e)
		}
	}
	if len(stuck) == 0 {
		return nil, nil
	}
	if err := k.store.Apply(ctx, reclaim); err != nil {
		return nil, explain(err)
	}
	var back []job.ID
	for _, e := range stuck {
		after, err := k.store.Get(ctx, e.ID)
		if err != nil {
			return back, explain(err)
		}
		if after.State != job.Dispatched || after.Fence != e.Fence {
			back = append(back, e.ID)
			k.changed(&after)
		}
	}
	return back, nil
}

// lastSign is when the worker of a dispatched entry was alive for certain.
func lastSign(e *queue.Entry) (at time.Time) {
	if e.DispatchedAt != nil {
		at = *e.DispatchedAt
	}
	if e.LeaseUntil != nil && e.LeaseUntil.Add(-DefaultLease).After(at) {
		at = e.LeaseUntil.Add(-DefaultLease)
	}
	return at
}

// UpdateGrant replaces what an owner may use: its hard limits, and whether it is
// alive. Codes: InvalidParams, InvalidPayload.
func (k *Kernel) UpdateGrant(ctx context.Context, g queue.Grant) error {
	if g.Tenant == "" {
		return refuse(InvalidParams, "tenant is missing, want the tenant that the grant bounds")
	}
	if err := g.Validate(); err != nil {
		return refuse(InvalidPayload, "%v", err)
	}
	return explain(k.store.Apply(ctx, queue.SetGrant{Grant: g}))
}
