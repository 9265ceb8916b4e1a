package api

import (
	"encoding/json"
	"time"

	"github.com/agentsched/agentsched/job"
)

// AuditRecord is one line of the audit log.
type AuditRecord struct {
	// Seq is 1, 2, 3, … over all files.
	Seq int64 `json:"seq"`
	// Time is when it happened.
	Time time.Time `json:"time"`
	// Prev is the hash of the record before. Of the first record it is all zeros.
	Prev string `json:"prev"`
	// Who did it.
	Who AuditWho `json:"who"`
	// Action is what was done, e.g. request or job.ended. docs/audit.md lists them.
	Action string `json:"action"`
	// Target is what it was done to.
	Target string `json:"target,omitempty"`
	// Job is the job that it is about.
	Job job.ID `json:"job,omitempty"`
	// Attempt is the attempt that it is about.
	Attempt int `json:"attempt,omitempty"`
	// Event is the number of the event within the attempt. With job and attempt it tells
	// a record that comes twice.
	Event int64 `json:"event,omitempty"`
	// Detail says more: one of the types below, by the action.
	Detail json.RawMessage `json:"detail,omitempty"`
	// Hash is the SHA-256, in hexadecimal, of prev and the line's bytes without it.
	Hash string `json:"hash,omitempty"`
}

// AuditWho is who did something, and through which door.
type AuditWho struct {
	// Name is a user, a token's name, a worker, or scheduler.
	Name string `json:"name"`
	// Role is read, submit, operate, agent or system.
	Role string `json:"role,omitempty"`
	// Door is where it came in, e.g. unix, tcp, browser, cli or core.
	Door string `json:"door,omitempty"`
}

// AuditRequest is the detail of request, which changed something or tried to, and of
// refused, whose sender may not do that.
type AuditRequest struct {
	// Method is that of HTTP.
	Method string `json:"method"`
	// Route is the pattern of the path, with the method.
	Route string `json:"route,omitempty"`
	// Status is that of the answer. 0: there was none.
	Status int `json:"status"`
	// Millis is how long it took, in milliseconds.
	Millis int64 `json:"ms"`
	// Query has the parameters behind the path, e.g. force=true, at most 2 KiB of them.
	Query string `json:"query,omitempty"`
	// Body is what was asked for, at most 2 KiB of it.
	Body string `json:"body,omitempty"`
	// From is the peer's address.
	From string `json:"from,omitempty"`
	// Why says why it was refused.
	Why string `json:"why,omitempty"`
	// LeftOut is how many refused requests before this one were too many to record.
	LeftOut int64 `json:"left_out,omitempty"`
}

// AuditSubmitted is the detail of job.submitted. Who asked for it is in the record of
// the request.
type AuditSubmitted struct {
	// Name is the job's.
	Name job.Name `json:"name"`
	// Tenant is whose job it is.
	Tenant job.Tenant `json:"tenant"`
	// Batch is what was submitted together with it.
	Batch job.BatchID `json:"batch,omitempty"`
	// Worker is the kind of worker that was asked for.
	Worker job.WorkerKind `json:"worker,omitempty"`
	// Trigger is what submitted it, if nobody did by hand.
	Trigger job.Trigger `json:"trigger,omitempty"`
	// Context is what the job belongs to.
	Context job.Context `json:"context,omitzero"`
}

// AuditCommand is the detail of agent.command: a command that an agent ran, when it
// has ended.
type AuditCommand struct {
	// Command is cut at 4 KiB.
	Command string `json:"command"`
	// ExitCode is the command's.
	ExitCode int `json:"exit_code"`
	// Millis is how long it took, in milliseconds.
	Millis int64 `json:"ms"`
	// Step is what it is for, if the scheduler ran it: verify, check or evaluate.
	Step string `json:"step,omitempty"`
}

// AuditFile is the detail of agent.file. Its path is the record's target.
type AuditFile struct {
	// Change is added, modified or deleted.
	Change string `json:"change"`
}

// AuditConnection is the detail of agent.network.
type AuditConnection struct {
	job.Connection
	Millis int64 `json:"ms,omitempty"` // how long it lasted
}

// AuditAttemptEnded is the detail of attempt.ended.
type AuditAttemptEnded struct {
	// State is the run's.
	State job.RunState `json:"state"`
	// Class is that of its failure.
	Class job.ErrorClass `json:"class,omitempty"`
	// Message says what happened. It is cut at 4 KiB.
	Message string `json:"message,omitempty"`
	// Worker is the kind of worker that it ran on.
	Worker job.WorkerKind `json:"worker,omitempty"`
	// Model is the model that the job named.
	Model string `json:"model,omitempty"`
	// ExitCode is that of the worker's process.
	ExitCode int `json:"exit_code"`
	// Files are those that were changed.
	Files []job.FileChange `json:"files,omitempty"`
	// DiffStat sums the changes up in a line.
	DiffStat string `json:"diff_stat,omitempty"`
	// PatchHash is the SHA-256 of the patch, in hexadecimal.
	PatchHash string `json:"patch_hash,omitempty"`
	// Denied are the tool calls that the agent asked for and that were refused.
	Denied []string `json:"denied,omitempty"`
	// Usage is what it has used.
	Usage job.Usage `json:"usage"`
}

// AuditJobEnded is the detail of job.ended.
type AuditJobEnded struct {
	// State is that of the job's entry in the queue.
	State job.EntryState `json:"state"`
	// Exit says how a completed job ended.
	Exit job.ExitKind `json:"exit,omitempty"`
	// DeadLetter says why it was given up.
	DeadLetter string `json:"dead_letter,omitempty"`
	// Attempts is how many have begun.
	Attempts int `json:"attempts"`
	// Spent is what they have used.
	Spent job.Usage `json:"spent"`
}

// AuditTimedOut is the detail of approval.timeout: nobody answered in time.
type AuditTimedOut struct {
	// Answer is the default that was taken, and until when was asked.
	Answer string `json:"answer"`
}

// AuditCoreChange is the detail of core.up and core.down.
type AuditCoreChange struct {
	// Core is its place: 1, 2, ….
	Core int `json:"core"`
	// Text says why.
	Text string `json:"text,omitempty"`
}
