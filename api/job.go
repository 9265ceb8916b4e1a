package api

import (
	"cmp"
	"encoding/json"
	"time"

	"github.com/agentsched/agentsched/job"
)

// Job is a job and how it stands.
type Job struct {
	// ID is the job's own, a UUID.
	ID job.ID `json:"id"`
	// Batch is what was submitted together with it.
	Batch job.BatchID `json:"batch"`
	// Spec is what was asked for.
	Spec job.Spec `json:"spec"`

	// State is that of the job's entry in the queue. What people are shown is status.
	State job.EntryState `json:"state"`
	// ExitKind says how a completed job ended.
	ExitKind job.ExitKind `json:"exit_kind,omitempty"`

	// CreatedAt is when the job was submitted.
	CreatedAt time.Time `json:"created_at"`
	// RunnableAt is when it may begin, or begin again.
	RunnableAt time.Time `json:"runnable_at"`
	// Deadline is when it expires if it has not begun.
	Deadline *time.Time `json:"deadline,omitempty"`
	// DispatchedAt is when it was last given to a core, or claimed by a program.
	DispatchedAt *time.Time `json:"dispatched_at,omitempty"`
	// CompletedAt is when it ended, however it did.
	CompletedAt *time.Time `json:"completed_at,omitempty"`

	// Holder is who has claimed it, while it is dispatched.
	Holder string `json:"holder,omitempty"`
	// Fence is the number of the latest claim. Each claim has a larger one.
	Fence job.Fence `json:"fence,omitempty"`
	// LeaseUntil is until when the claim holds without being extended.
	LeaseUntil *time.Time `json:"lease_until,omitempty"`

	// Key makes it a duplicate of the unfinished jobs of its tenant that have the same.
	Key string `json:"key,omitempty"`
	// WaitsFor is the job of the same key that must end first.
	WaitsFor job.ID `json:"waits_for,omitempty"`
	// CoalescedWith is the job whose result is, or will be, this one's.
	CoalescedWith job.ID `json:"coalesced_with,omitempty"`
	// SupersededBy is the newer job of the same key for which it is, or was, stopped.
	SupersededBy job.ID `json:"superseded_by,omitempty"`

	// Choice is which worker is tried next: 0 is spec.worker, 1 the first of spec.fallback.
	Choice int `json:"choice,omitempty"`
	// Attempts is how many attempts have begun.
	Attempts int `json:"attempts,omitempty"`
	// Counted is how many of them count towards limits.max_attempts.
	Counted int `json:"counted,omitempty"`
	// Spent is what all ended attempts have used.
	Spent job.Usage `json:"spent,omitzero"`
	// SpentTime is how long all ended attempts have run.
	SpentTime job.Duration `json:"spent_time,omitempty"`

	// Session is the agent's session that the next attempt resumes.
	Session string `json:"session,omitempty"`
	// SessionWorker is the kind of worker that the session is of.
	SessionWorker job.WorkerKind `json:"session_worker,omitempty"`
	// SessionNode is the node on which the session lies; "" is the scheduler's own host.
	SessionNode string `json:"session_node,omitempty"`
	// Feedback is added to the next attempt's instructions: why the last one was not
	// good enough.
	Feedback string `json:"feedback,omitempty"`

	// Waiting says in one sentence why a queued job does not run, or how its last
	// attempt ended, as it was stored. status knows more.
	Waiting string `json:"waiting,omitempty"`
	// DeadLetter says why a failed job was given up.
	DeadLetter string `json:"dead_letter,omitempty"`
	// ErrorClass is the class of the failure that ended the latest attempt.
	ErrorClass job.ErrorClass `json:"error_class,omitempty"`
	// RequeuedFrom is the dead letter that this job does again.
	RequeuedFrom job.ID `json:"requeued_from,omitempty"`
	// RequeuedAs is the job that does this dead letter again.
	RequeuedAs job.ID `json:"requeued_as,omitempty"`
	// DroppedAt is when somebody said that nothing more is to be done about it.
	DroppedAt *time.Time `json:"dropped_at,omitempty"`
	// Continues is the ended job that this one goes on from: with its agent's session, in its folder.
	Continues job.ID `json:"continues,omitempty"`
	// ContinuedAs is the job that goes on from this one.
	ContinuedAs job.ID `json:"continued_as,omitempty"`
	// Folder is the job in whose folder this one works. Absent: its own.
	Folder job.ID `json:"folder,omitempty"`
	// ForkedFrom is the job with copies of whose work and session this one began.
	ForkedFrom job.ID `json:"forked_from,omitempty"`
	// Held says what keeps a queued job from being claimed.
	Held job.Hold `json:"held,omitempty"`
	// Resolved is what the job runs with in place of its spec's own words, after
	// those of the jobs before it were filled in.
	Resolved *job.Resolved `json:"resolved,omitempty"`
	// Skipped says why a cancelled job was not to run: its condition did not hold, or a
	// job that it needs has failed.
	Skipped string `json:"skipped,omitempty"`
	// Result is the answer of a job that was concluded without an attempt.
	Result json.RawMessage `json:"result,omitempty"`
	// Approval is what a person is asked about the job, or was asked last.
	Approval *Approval `json:"approval,omitempty"`
	// Rejections is how often a person has rejected the work.
	Rejections int `json:"rejections,omitempty"`

	// Status is how the job stands, in the words of every view.
	Status *job.Status `json:"status,omitempty"`

	// CancelRequested is set when somebody asked to cancel a job that is dispatched.
	CancelRequested bool `json:"cancel_requested,omitempty"`
}

// WorksIn is the job in whose folder the job works.
func (j *Job) WorksIn() job.ID { return cmp.Or(j.Folder, j.ID) }

// Approval is a question about the work of a job, and its answer.
type Approval struct {
	// Attempt is the attempt whose work it is.
	Attempt int `json:"attempt"`
	// Why says why somebody is asked.
	Why string `json:"why"`
	// AskedAt is since when the question is open.
	AskedAt time.Time `json:"asked_at"`
	// Until is when default is taken for the answer. Absent: it waits for ever.
	Until *time.Time `json:"until,omitempty"`
	// Default is the answer if nobody gives one in time: approve or reject.
	Default string `json:"default,omitempty"`
	// Draw is the number, from 0 up to 1, that a spot check drew.
	Draw *float64 `json:"draw,omitempty"`

	// Approved is the answer.
	Approved bool `json:"approved,omitempty"`
	// DecidedAt is when it was given. Absent: it was not.
	DecidedAt *time.Time `json:"decided_at,omitempty"`
	// By is who gave it, or timeout.
	By string `json:"by,omitempty"`
	// Comment is what was said to it.
	Comment string `json:"comment,omitempty"`
}

// Jobs is a list of jobs, or a page of one.
type Jobs struct {
	// Jobs are those of this page.
	Jobs []Job `json:"jobs"`
	// Total is how many there are without a limit. It is -1 on a page that is not the
	// first, where they are not counted.
	Total int `json:"total"`
	// Next is the cursor of the next page. Absent after the last.
	Next string `json:"next,omitempty"`
}

// JobDetail is a job and its attempts.
type JobDetail struct {
	// Job is the job.
	Job Job `json:"job"`
	// Attempts are all that have begun, the first first.
	Attempts []job.Attempt `json:"attempts"`
}

// Event is an event of a job with its place in the log.
type Event struct {
	// Cursor grows with each event that is stored. It is a place to go on from.
	Cursor int64 `json:"cursor"`
	job.Event
}

// Events is a part of a job's log.
type Events struct {
	// Events are in the order in which they were stored.
	Events []Event `json:"events"`
}

// Submission is jobs that stand or fall together.
type Submission struct {
	// Source is where they come from, e.g. the path of a job file.
	Source string `json:"source"`
	// Digest is a hash over the jobs.
	Digest string `json:"digest"`
	// Jobs are what to do.
	Jobs []job.Spec `json:"jobs"`
	// Workflow is what the jobs have in common.
	Workflow job.Workflow `json:"workflow,omitzero"`
}

// JobFile is the text of a job file or of a single job, which the scheduler reads
// as `scheduler submit` would on its host.
type JobFile struct {
	// Name is what errors call the file. Absent: request.
	Name string `json:"name,omitempty"`
	// Dir is the absolute folder, on the scheduler's host, that relative paths start
	// from. Absent: there may be none.
	Dir string `json:"dir,omitempty"`
	// Text is the file's text, YAML or JSON.
	Text string `json:"text"`
	// Files are the texts of the files that the job file names in instructions.file and
	// agents_file, by the path as it stands there. The scheduler reads no others but
	// below the folder api.files of its configuration.
	Files map[string]string `json:"files,omitempty"`
	// Parcels are folders that were brought along from the sender's host (PUT /v1/parcels/{digest}), by
	// their absolute paths there: digest and sub are needed of each. A workspace.path that is one of them is
	// that folder, of which the job has a worktree. Others are folders of the scheduler's host.
	Parcels map[string]job.Parcel `json:"parcels,omitempty"`
}

// Parcel is a folder of a submitter that is kept for its jobs.
type Parcel struct {
	// Digest is its name: the SHA-256 of what was sent, 64 hexadecimal digits.
	Digest string `json:"digest"`
	// On is the digest of the one that it builds on. Absent: it has the whole history.
	On string `json:"on,omitempty"`
	// Repository names the repository, whichever clone of it the folder is in.
	Repository string `json:"repository"`
	// Base is the commit that was checked out. Absent: the repository had none.
	Base string `json:"base,omitempty"`
	// Commit is the same with what was not committed.
	Commit string `json:"commit"`
	// Size is of what was sent, in bytes.
	Size int64 `json:"size"`
}

// Parcels are some of them.
type Parcels struct {
	// Parcels has one of them, or none.
	Parcels []Parcel `json:"parcels"`
}

// Checkpoint asks a job to stop at the boundary of its next step.
type Checkpoint struct {
	// Reason is told to the worker and in the log.
	Reason string `json:"reason,omitempty"`
}

// Answer is what a person says to the work of a job.
type Answer struct {
	// Approved says whether the work is good.
	Approved bool `json:"approved"`
	// By is who says so. Who is known to have asked stands in its place.
	By string `json:"by,omitempty"`
	// Comment says what is to be done better. A rejection needs one.
	Comment string `json:"comment,omitempty"`
}

// CancelKey names the unfinished jobs of a tenant that have a key.
type CancelKey struct {
	// Key is the jobs' key.
	Key string `json:"key"`
	// Tenant is whose jobs they are. Absent: the default tenant's.
	Tenant job.Tenant `json:"tenant,omitempty"`
}

// Requeue says which dead letters are done again, each by itself.
type Requeue struct {
	// Letters are the dead letters, at least one.
	Letters []RequeueLetter `json:"letters"`
	// ResetSession lets the agents begin without their sessions.
	ResetSession bool `json:"reset_session,omitempty"`
}

// RequeueLetter is a dead letter to do again.
type RequeueLetter struct {
	// ID is the dead letter's.
	ID job.ID `json:"id"`
	// Spec is what is to be done in its place. Absent: what the letter says.
	Spec *job.Spec `json:"spec,omitempty"`
}

// Requeued is what became of dead letters that were to be done again.
type Requeued struct {
	// Jobs are the new jobs.
	Jobs []Job `json:"jobs"`
	// Refused has a sentence for each dead letter that was not requeued.
	Refused []string `json:"refused,omitempty"`
}

// Drop names dead letters about which nothing more is to be done.
type Drop struct {
	// IDs are the dead letters', at least one.
	IDs []job.ID `json:"ids"`
}

// Steps are the durable steps of a job.
type Steps struct {
	// Steps are in the order in which they were stored.
	Steps []Step `json:"steps"`
}

// Step is a durable step that a job's worker has reported.
type Step struct {
	// ID is the step's name, unique within its job.
	ID string `json:"id"`
	// Inputs is what it was computed from, as the worker calls it.
	Inputs string `json:"inputs,omitempty"`
	// StoredAt is when its result was stored. Absent: it is not stored, or no longer.
	StoredAt *time.Time `json:"stored_at,omitempty"`
	// Attempt is the attempt that computed what is stored.
	Attempt int `json:"attempt,omitempty"`
	// Uses are what attempts did with it, the first attempt first.
	Uses []StepUse `json:"uses"`
}

// StepUse is what one attempt did with a step.
type StepUse struct {
	// Attempt is its number, from 1.
	Attempt int `json:"attempt"`
	// Kept says whether it was computed (fresh), taken from the store, or refused.
	Kept job.Kept `json:"kept"`
	// Why says why it was refused.
	Why string `json:"why,omitempty"`
}
