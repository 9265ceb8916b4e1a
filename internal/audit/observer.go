package audit

import (
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/job"
)

// Observer records what the scheduler does by itself and what agents do. It is a
// scheduler.Observer and never waits. An event that comes again after a crash is
// recorded again, under the same job, attempt and event number.
type Observer struct{ log *Log }

// NewObserver returns an Observer that records in the log.
func NewObserver(l *Log) *Observer { return &Observer{l} }

var _ scheduler.Observer = (*Observer)(nil)

// Actions of the Observer.
const (
	ActionSubmitted    = "job.submitted"
	ActionCommand      = "agent.command"
	ActionFile         = "agent.file"
	ActionAttemptEnded = "attempt.ended"
	ActionJobEnded     = "job.ended"
	ActionTimedOut     = "approval.timeout"
	ActionCoreUp       = "core.up"
	ActionCoreDown     = "core.down"
)

// Details of the Observer's records.
type (
	// Submitted is of ActionSubmitted. Who asked for it is in the record of the door.
	Submitted struct {
		Name    job.Name       `json:"name"`
		Tenant  job.Tenant     `json:"tenant"`
		Batch   job.BatchID    `json:"batch,omitempty"`
		Worker  job.WorkerKind `json:"worker,omitempty"`
		Trigger job.Trigger    `json:"trigger,omitempty"` // what submitted it, if nobody did by hand
		Context job.Context    `json:"context,omitzero"`
	}
	// Command is of ActionCommand: a command that an agent ran, when it has ended.
	Command struct {
		Command  string `json:"command"` // cut at 4 KiB
		ExitCode int    `json:"exit_code"`
		Millis   int64  `json:"ms"`
		Step     string `json:"step,omitempty"` // what it is for, if the scheduler ran it: verify, check, evaluate
	}
	// File is of ActionFile; its path is the record's target.
	File struct {
		Change string `json:"change"`
	}
	// AttemptEnded is of ActionAttemptEnded.
	AttemptEnded struct {
		State     job.RunState     `json:"state"`
		Class     job.ErrorClass   `json:"class,omitempty"`
		Message   string           `json:"message,omitempty"` // cut at 4 KiB
		Worker    job.WorkerKind   `json:"worker,omitempty"`
		Model     string           `json:"model,omitempty"`
		ExitCode  int              `json:"exit_code"`
		Files     []job.FileChange `json:"files,omitempty"`
		DiffStat  string           `json:"diff_stat,omitempty"`
		PatchHash string           `json:"patch_hash,omitempty"`
		Denied    []string         `json:"denied,omitempty"`
		Usage     job.Usage        `json:"usage"`
	}
	// JobEnded is of ActionJobEnded.
	JobEnded struct {
		State      job.EntryState `json:"state"`
		Exit       job.ExitKind   `json:"exit,omitempty"`
		DeadLetter string         `json:"dead_letter,omitempty"`
		Attempts   int            `json:"attempts"`
		Spent      job.Usage      `json:"spent"`
	}
	// TimedOut is of ActionTimedOut: nobody answered in time.
	TimedOut struct {
		Answer string `json:"answer"` // the default that was taken, and until when was asked
	}
	// CoreChange is of ActionCoreUp and ActionCoreDown.
	CoreChange struct {
		Core int    `json:"core"`
		Text string `json:"text,omitempty"`
	}
)

// Observe records what the moment says.
func (o *Observer) Observe(m scheduler.Moment) {
	switch m.Kind {
	case scheduler.MomentSubmitted:
		o.note(&m, ActionSubmitted, SubmittedOf(&m.Entry.Spec, m.Entry.Batch))
	case scheduler.MomentAnswered:
		o.note(&m, ActionTimedOut, TimedOut{short(m.Text)})
	case scheduler.MomentEvents:
		for i := range m.Events {
			o.event(&m, &m.Events[i])
		}
	case scheduler.MomentAttemptEnded:
		if r := m.Outcome; r != nil {
			o.note(&m, ActionAttemptEnded, AttemptEnded{
				r.State, r.Class, short(r.Message), m.Choice.Worker, m.Choice.Model, r.ExitCode,
				append([]job.FileChange(nil), r.Files...), r.DiffStat, r.PatchHash, append([]string(nil), r.Denied...), r.Usage,
			})
		}
	case scheduler.MomentEnded:
		e := m.Entry
		o.note(&m, ActionJobEnded, JobEnded{e.State, e.ExitKind, short(e.DeadLetter), e.Attempts, e.Spent})
	case scheduler.MomentCoreUp:
		o.note(&m, ActionCoreUp, CoreChange{m.Core, short(m.Text)})
	case scheduler.MomentCoreDown:
		o.note(&m, ActionCoreDown, CoreChange{m.Core, short(m.Text)})
	}
}

// SubmittedOf is what is recorded of a job that was submitted.
func SubmittedOf(s *job.Spec, b job.BatchID) Submitted {
	return Submitted{s.Name, s.Tenant, b, s.Worker, s.Trigger, s.Context}
}

// note records what the scheduler did.
func (o *Observer) note(m *scheduler.Moment, action string, detail any) {
	e := system(action, detail)
	e.Time, e.Attempt = m.At, m.Attempt
	if m.Entry != nil {
		e.Job = m.Entry.ID
	}
	o.log.Note(e)
}

// event records what an agent did.
func (o *Observer) event(m *scheduler.Moment, ev *job.Event) {
	e := Entry{Time: ev.Time, Who: Who{Name: agentName(m), Role: RoleAgent, Door: "core"}, Job: ev.Job, Attempt: ev.Attempt, Event: ev.Seq}
	switch {
	case ev.Kind == job.EventCommand && ev.ExitCode != nil:
		e.Action, e.Detail = ActionCommand, Command{short(ev.Command), *ev.ExitCode, ev.Millis, ev.Step}
	case ev.Kind == job.EventFile:
		e.Action, e.Target, e.Detail = ActionFile, ev.Path, File{ev.Change}
	default:
		return
	}
	o.log.Note(e)
}

// agentName is the agent's id if the job names one, else its kind of worker.
func agentName(m *scheduler.Moment) string {
	if m.Entry != nil && m.Entry.Spec.Agent != "" {
		return string(m.Entry.Spec.Agent)
	}
	if m.Choice.Worker != "" {
		return string(m.Choice.Worker)
	}
	if m.Entry != nil {
		return string(m.Entry.Spec.Worker)
	}
	return "agent"
}

func short(text string) string {
	text, _ = job.Cut(text, maxText)
	return text
}
