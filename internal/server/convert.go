package server

import (
	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/eval"
	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/policy"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/workflow/pipeline"
)

// What is stored, and what the parts of the process say to each other, changes when
// they do. What is answered does not, so each shape is copied here, in one place:
// a field of the store is in an answer only because a line here puts it there.

// JobOf returns an entry of the queue as the API has it.
func JobOf(e *queue.Entry) api.Job {
	return api.Job{
		ID: e.ID, Batch: e.Batch, Spec: e.Spec, State: e.State, ExitKind: e.ExitKind,
		CreatedAt: e.CreatedAt, RunnableAt: e.RunnableAt, Deadline: e.Deadline, DispatchedAt: e.DispatchedAt, CompletedAt: e.CompletedAt,
		Holder: e.Holder, Fence: e.Fence, LeaseUntil: e.LeaseUntil,
		Key: e.Key, WaitsFor: e.WaitsFor, CoalescedWith: e.CoalescedWith, SupersededBy: e.SupersededBy,
		Choice: e.Choice, Attempts: e.Attempts, Counted: e.Counted, Spent: e.Spent, SpentTime: e.SpentTime,
		Session: e.Session, SessionWorker: e.SessionWorker, SessionNode: e.SessionNode, Feedback: e.Feedback,
		Waiting: e.Waiting, DeadLetter: e.DeadLetter, ErrorClass: e.ErrorClass, RequeuedFrom: e.RequeuedFrom, RequeuedAs: e.RequeuedAs, DroppedAt: e.DroppedAt,
		Continues: e.Continues, ContinuedAs: e.ContinuedAs, Folder: e.Folder, ForkedFrom: e.ForkedFrom,
		Held: e.Held, Resolved: e.Resolved, Skipped: e.Skipped, Result: e.Result, Approval: (*api.Approval)(e.Approval), Rejections: e.Rejections,
		Status: e.Status, CancelRequested: e.CancelRequested,
	}
}

// JobsOf returns entries of the queue as the API has them.
func JobsOf(entries []queue.Entry) []api.Job { return each(entries, JobOf) }

// EventsOf returns stored events as the API has them.
func EventsOf(events []queue.StoredEvent) []api.Event {
	return each(events, func(e *queue.StoredEvent) api.Event { return api.Event(*e) })
}

// AccountOf returns an account as the API has it.
func AccountOf(a *queue.Account) api.Account { return api.Account(*a) }

// GrantOf returns a grant as the API has it.
func GrantOf(g *queue.Grant) api.Grant {
	return api.Grant{Tenant: g.Tenant, Agent: g.Agent, Dead: g.Dead, Tokens: g.Tokens, CostUSD: g.CostUSD, Wall: g.Wall, Window: g.Window}
}

// grantOf returns a grant of the API as the store has it.
func grantOf(g *api.Grant) queue.Grant {
	return queue.Grant{Owner: queue.Owner{Tenant: g.Tenant, Agent: g.Agent}, Dead: g.Dead, Tokens: g.Tokens, CostUSD: g.CostUSD, Wall: g.Wall, Window: g.Window}
}

func balanceOf(b *queue.Balance) api.Balance {
	return api.Balance{Tenant: b.Tenant, Left: b.Left(), Added: b.Added, Taken: b.Taken}
}

func creditOf(c *queue.Credit) api.Credit { return api.Credit(*c) }

// IsolationOf returns an isolation as the API has it.
func IsolationOf(i *isolation.Isolation) api.Isolation {
	return api.Isolation{Scope: string(i.Scope), Cause: string(i.Cause), Message: i.Message, Action: string(i.Action), Since: i.Since, Until: i.Until}
}

// IsolationsOf returns isolations as the API has them.
func IsolationsOf(list []isolation.Isolation) []api.Isolation { return each(list, IsolationOf) }

func circuitOf(c *ipc.Circuit) api.Circuit { return api.Circuit(*c) }

// CircuitsOf returns how circuit breakers stand as the API has it.
func CircuitsOf(list []ipc.Circuit) []api.Circuit { return each(list, circuitOf) }

func shareOf(s *policy.Share) api.Share {
	return api.Share{Tenant: s.Tenant, Target: s.Target, Actual: s.Actual, InFlight: s.InFlight, Used: api.Demand(s.Used), Waiting: s.Waiting, Held: s.Held, Contracted: s.Contracted}
}

func coreOf(c *scheduler.CoreStatus) api.Core {
	return api.Core{
		Index: c.Index, Node: c.Node, Place: c.Place, PID: c.PID, State: string(c.State), Version: c.Version, Protocol: c.Protocol, Since: c.Since, Restarts: c.Restarts,
		IsolatedUntil: c.IsolatedUntil, RSSBytes: c.RSSBytes, CPURatio: c.CPURatio, Heartbeat: c.Heartbeat, Cause: c.Cause,
		Inflight: c.Inflight, Stage: c.Stage, Concurrency: c.Concurrency, Evidence: c.Evidence, Metrics: c.Metrics,
	}
}

// statusOf returns how the scheduler fares as the API has it.
func statusOf(st *scheduler.Status) api.Status {
	out := api.Status{
		PID: st.PID, Started: st.Started, Cores: each(st.Cores, coreOf), Isolations: IsolationsOf(st.Isolations), Circuits: CircuitsOf(st.Circuits),
		Running: st.Running, Policy: st.Policy, Shares: each(st.Shares, shareOf), Stopping: st.Stopping, PermitValidity: st.PermitValidity,
	}
	for class, r := range st.Ready {
		if out.Ready == nil {
			out.Ready = map[job.Class]api.ClassReady{}
		}
		out.Ready[class] = api.ClassReady(r)
	}
	for _, t := range st.FailedTeams {
		out.FailedTeams = append(out.FailedTeams, api.FailedTeam(t))
	}
	return out
}

func censusOf(c *queue.Census) api.Census {
	return api.Census{
		Queued: c.Queued, Held: c.Held, Approval: c.Approval, Dispatched: c.Dispatched, DeadLetters: c.DeadLetters,
		Tenants: each(c.Tenants, func(t *queue.TenantCensus) api.TenantCensus { return api.TenantCensus(*t) }),
	}
}

func subjectOf(s *eval.Subject) api.Subject {
	return api.Subject{Kind: api.SubjectKind(s.Kind), Name: s.Name}
}

// EvaluationOf returns an evaluation as the API has it.
func EvaluationOf(e *eval.Evaluation) api.Evaluation {
	out := api.Evaluation{
		ID: e.ID, Job: e.Job, Name: e.Name, Attempt: e.Attempt, Source: e.Source, Domain: e.Domain, Vector: api.Vector(e.Vector),
		Composite: e.Composite, WeightsOf: e.WeightsOf, Weights: api.Weights(e.Weights), Alpha: e.Alpha, Comment: e.Comment, Problems: e.Problems, At: e.At,
	}
	if e.Subjects != nil {
		out.Subjects = each(e.Subjects, subjectOf)
	}
	if e.Sources != nil {
		out.Sources = map[string]string{}
	}
	for d, from := range e.Sources {
		out.Sources[string(d)] = from
	}
	return out
}

// ReputationOf returns a reputation as the API has it.
func ReputationOf(r *eval.Reputation) api.Reputation {
	return api.Reputation{
		Subject: subjectOf(&r.Subject), Domain: r.Domain, R: r.R, N: r.N, Last: r.Last, LastJob: r.LastJob, LastAt: r.LastAt,
		Average: api.Vector(r.Average), Drift: r.Drift,
	}
}

// ReputationsOf returns reputations as the API has them.
func ReputationsOf(list []eval.Reputation) []api.Reputation { return each(list, ReputationOf) }

// EvaluationsOf returns evaluations, and what follows from new ones, as the API has it.
func EvaluationsOf(v *eval.Verdict) api.Evaluations {
	out := api.Evaluations{Evaluations: each(v.Evaluations, EvaluationOf), Reputations: ReputationsOf(v.Reputations)}
	for _, a := range v.Alerts {
		out.Alerts = append(out.Alerts, api.ReputationAlert{Subject: subjectOf(&a.Subject), Domain: a.Domain, Job: a.Job, Drift: a.Drift, Threshold: a.Threshold, Last: a.Last, R: a.R})
	}
	return out
}

// SimilarOf returns similar subjects as the API has them.
func SimilarOf(of *eval.Reputation, list []eval.Similar) api.SimilarSubjects {
	return api.SimilarSubjects{Of: ReputationOf(of), Similar: each(list, func(s *eval.Similar) api.Similar {
		return api.Similar{Reputation: ReputationOf(&s.Reputation), Distance: s.Distance, Dimensions: s.Dimensions}
	})}
}

// PipelinesOf returns pipelines as the API has them.
func PipelinesOf(list []scheduler.Pipeline) []api.Pipeline {
	return each(list, func(p *scheduler.Pipeline) api.Pipeline {
		out := api.Pipeline{ID: p.ID, Batch: p.Batch, Created: p.Created, Replays: p.Replays, Stages: each(p.Stages, stageOf)}
		for i := range p.Letters {
			d := &p.Letters[i]
			out.Letters = append(out.Letters, api.PipelineLetter{
				Stage: d.Stage, Event: api.PipelineEvent(d.Event), Class: d.Class, Message: d.Message, Job: d.Job, Attempts: d.Attempts, At: d.At, MendedAt: d.MendedAt,
			})
		}
		return out
	})
}

func stageOf(s *scheduler.PipelineStage) api.PipelineStage {
	out := api.PipelineStage{
		Stage: s.Stage, Acked: s.Acked, Beyond: s.Beyond, Answered: s.Answered, AnsweredBeyond: s.AnsweredBeyond, Partial: (*api.PipelinePartial)(s.Partial),
		Alone: s.Alone, Tries: s.Tries, Given: s.Given, Stale: s.Stale, Published: s.Published, EndAcked: s.EndAcked, Ended: s.Ended, Failed: s.Failed,
		Backlog: s.Backlog, Dead: s.Dead, Subscribes: s.Subscribes, Publishes: s.Publishes,
	}
	for _, u := range s.Units {
		out.Units = append(out.Units, api.PipelineUnit(u))
	}
	return out
}

// PipelineEventsOf returns events of a pipeline as the API has them.
func PipelineEventsOf(events []pipeline.Event) []api.PipelineEvent {
	return each(events, func(e *pipeline.Event) api.PipelineEvent { return api.PipelineEvent(*e) })
}

// each converts a list, an empty or missing one to an empty one.
func each[From, To any](list []From, convert func(*From) To) []To {
	out := make([]To, len(list))
	for i := range list {
		out[i] = convert(&list[i])
	}
	return out
}
