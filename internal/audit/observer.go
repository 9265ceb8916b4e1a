package audit

import (
	"github.com/agentsched/agentsched/api"
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
	ActionNetwork      = "agent.network"
	ActionAttemptEnded = "attempt.ended"
	ActionJobEnded     = "job.ended"
	ActionTimedOut     = "approval.timeout"
	ActionCoreUp       = "core.up"
	ActionCoreDown     = "core.down"
)

// Observe records what the moment says.
func (o *Observer) Observe(m scheduler.Moment) {
	switch m.Kind {
	case scheduler.MomentSubmitted:
		o.note(&m, ActionSubmitted, SubmittedOf(&m.Entry.Spec, m.Entry.Batch))
	case scheduler.MomentAnswered:
		o.note(&m, ActionTimedOut, api.AuditTimedOut{Answer: short(m.Text)})
	case scheduler.MomentEvents:
		for i := range m.Events {
			o.event(&m, &m.Events[i])
		}
	case scheduler.MomentAttemptEnded:
		if r := m.Outcome; r != nil {
			o.note(&m, ActionAttemptEnded, api.AuditAttemptEnded{
				State: r.State, Class: r.Class, Message: short(r.Message), Worker: m.Choice.Worker, Model: m.Choice.Model, ExitCode: r.ExitCode,
				Files: append([]job.FileChange(nil), r.Files...), DiffStat: r.DiffStat, PatchHash: r.PatchHash, Denied: append([]string(nil), r.Denied...), Usage: r.Usage,
			})
		}
	case scheduler.MomentEnded:
		e := m.Entry
		o.note(&m, ActionJobEnded, api.AuditJobEnded{State: e.State, Exit: e.ExitKind, DeadLetter: short(e.DeadLetter), Attempts: e.Attempts, Spent: e.Spent})
	case scheduler.MomentCoreUp:
		o.note(&m, ActionCoreUp, api.AuditCoreChange{Core: m.Core, Text: short(m.Text)})
	case scheduler.MomentCoreDown:
		o.note(&m, ActionCoreDown, api.AuditCoreChange{Core: m.Core, Text: short(m.Text)})
	}
}

// SubmittedOf is what is recorded of a job that was submitted.
func SubmittedOf(s *job.Spec, b job.BatchID) api.AuditSubmitted {
	return api.AuditSubmitted{Name: s.Name, Tenant: s.Tenant, Batch: b, Worker: s.Worker, Trigger: s.Trigger, Context: s.Context}
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
	e := Entry{Time: ev.Time, Who: api.AuditWho{Name: agentName(m), Role: RoleAgent, Door: "core"}, Job: ev.Job, Attempt: ev.Attempt, Event: ev.Seq}
	switch {
	case ev.Kind == job.EventCommand && ev.ExitCode != nil:
		e.Action, e.Detail = ActionCommand, api.AuditCommand{Command: short(ev.Command), ExitCode: *ev.ExitCode, Millis: ev.Millis, Step: ev.Step}
	case ev.Kind == job.EventFile:
		e.Action, e.Target, e.Detail = ActionFile, ev.Path, api.AuditFile{Change: ev.Change}
	case ev.Kind == job.EventNetwork && ev.Connection != nil:
		e.Action, e.Target, e.Detail = ActionNetwork, ev.Connection.Host, api.AuditConnection{Connection: *ev.Connection, Millis: ev.Millis}
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
