package api

import (
	"time"

	"github.com/agentsched/agentsched/job"
)

// SubjectKind is what sort of thing has a reputation.
type SubjectKind string

// The kinds of subjects.
const (
	WorkerSubject SubjectKind = "worker" // a kind of worker and, where the job named one, its model
	AgentSubject  SubjectKind = "agent"  // an agent of a tenant
	TenantSubject SubjectKind = "tenant" // whose jobs they were, over all domains
)

// Subject is who or what has a reputation.
type Subject struct {
	// Kind is what sort of thing it is.
	Kind SubjectKind `json:"kind"`
	// Name is its name: claude, claude:opus, website/reviewer, website.
	Name string `json:"name"`
}

// Vector is a judgement. Each value is from 0 to 1, of which 1 is best, or absent if
// nobody has said anything.
type Vector struct {
	// Quality is how good the work is, in somebody's judgement.
	Quality *float64 `json:"quality,omitempty"`
	// Adherence is how far it is what was asked for.
	Adherence *float64 `json:"adherence,omitempty"`
	// Speed is the time that it took against what it was to take.
	Speed *float64 `json:"speed,omitempty"`
	// Cost is what it cost against what it was to cost.
	Cost *float64 `json:"cost,omitempty"`
	// ErrorRate is the part of the attempts that did not fail.
	ErrorRate *float64 `json:"error_rate,omitempty"`
	// RevisionCount is how seldom it had to be done again.
	RevisionCount *float64 `json:"revision_count,omitempty"`
}

// Weights say how much each dimension of a judgement counts. They add up to 1.
type Weights struct {
	// Quality is the weight of quality.
	Quality float64 `json:"quality"`
	// Adherence is the weight of adherence.
	Adherence float64 `json:"adherence"`
	// Speed is the weight of speed.
	Speed float64 `json:"speed"`
	// Cost is the weight of cost.
	Cost float64 `json:"cost"`
	// ErrorRate is the weight of the error rate.
	ErrorRate float64 `json:"error_rate"`
	// RevisionCount is the weight of the revision count.
	RevisionCount float64 `json:"revision_count"`
}

// Judgement is what somebody says of a job that has ended: some dimensions and, if
// wanted, a comment.
type Judgement struct {
	// By is who says so.
	By string `json:"by"`
	Vector
	// Comment is for whoever reads the evaluation.
	Comment string `json:"comment,omitempty"`
}

// Evaluation is one judgement of one piece of work, as it was counted.
type Evaluation struct {
	// ID is unique.
	ID string `json:"id"`
	// Job is the job whose work it is.
	Job job.ID `json:"job"`
	// Name is the job's name.
	Name job.Name `json:"name"`
	// Attempt is the latest attempt of who is judged.
	Attempt int `json:"attempt"`
	// Source is who judges: scheduler, or by NAME.
	Source string `json:"source"`
	// Subjects are those whose reputation it moves.
	Subjects []Subject `json:"subjects"`
	// Domain is the field that the work is from.
	Domain string `json:"domain"`

	// Vector is the judgement.
	Vector Vector `json:"vector"`
	// Sources says of each dimension where its value is from: measured, command,
	// report, job NAME, by NAME.
	Sources map[string]string `json:"sources"`
	// Composite is the judgement in one number, from 0 to 1.
	Composite float64 `json:"composite"`
	// WeightsOf is whose weights these are: the domain, or default.
	WeightsOf string `json:"weights_of"`
	// Weights are those by which composite was computed.
	Weights Weights `json:"weights"`
	// Alpha is how much it counts in a reputation, from 0 to 1.
	Alpha float64 `json:"alpha"`
	// Comment is what was said beside it.
	Comment string `json:"comment,omitempty"`
	// Problems tell which reports could not be used, and why.
	Problems []string `json:"problems,omitempty"`
	// At is when it was counted.
	At time.Time `json:"at"`
}

// Evaluations are what was found of a job's work.
type Evaluations struct {
	// Evaluations are the judgements.
	Evaluations []Evaluation `json:"evaluations"`
	// Reputations are those that follow from a new one.
	Reputations []Reputation `json:"reputations,omitempty"`
	// Alerts are those that follow from a new one.
	Alerts []ReputationAlert `json:"alerts,omitempty"`
	// Measured is what can be measured of the work, as long as nobody has judged it. It
	// counts for nobody.
	Measured *Evaluation `json:"measured,omitempty"`
}

// Reputation is how good a subject was lately, in one domain: an average over its
// evaluations in which the latest counts most.
type Reputation struct {
	// Subject is whose it is.
	Subject Subject `json:"subject"`
	// Domain is the field, or all.
	Domain string `json:"domain"`

	// R is the reputation, from 0 to 1.
	R float64 `json:"r"`
	// N is how many evaluations are in it.
	N int `json:"n"`
	// Last is the composite of the latest evaluation.
	Last float64 `json:"last"`
	// LastJob is the name of the job that it was of.
	LastJob string `json:"last_job,omitempty"`
	// LastAt is when it was counted.
	LastAt time.Time `json:"last_at,omitzero"`
	// Average is the same average of each dimension by itself.
	Average Vector `json:"average"`
	// Drift is how far the latest work was from the average before it.
	Drift float64 `json:"drift"`
}

// Reputations is a list of reputations.
type Reputations struct {
	// Reputations are the best first, within a kind and a domain.
	Reputations []Reputation `json:"reputations"`
}

// ReputationAlert says that a subject's latest work was unlike what it did before.
type ReputationAlert struct {
	// Subject is who.
	Subject Subject `json:"subject"`
	// Domain is the field.
	Domain string `json:"domain"`
	// Job is the name of the job whose work it was.
	Job string `json:"job"`
	// Drift is how far it was from the average, beyond threshold.
	Drift float64 `json:"drift"`
	// Threshold is the distance from which on it is told.
	Threshold float64 `json:"threshold"`
	// Last is the composite of that work.
	Last float64 `json:"last"`
	// R is the reputation, that work included.
	R float64 `json:"r"`
}

// SimilarSubjects says who works like whom.
type SimilarSubjects struct {
	// Of is the subject that was asked about.
	Of Reputation `json:"of"`
	// Similar are the others, the nearest first.
	Similar []Similar `json:"similar"`
}

// Similar is a subject that works like another one.
type Similar struct {
	Reputation
	// Distance is the weighted distance of the averages, from 0 to 1.
	Distance float64 `json:"distance"`
	// Dimensions is over how many dimensions: those that both have.
	Dimensions int `json:"dimensions"`
}

// Agents are those that were declared.
type Agents struct {
	// Agents are ordered by tenant and name.
	Agents []Agent `json:"agents"`
}

// Agent is a declared agent and how it has done.
type Agent struct {
	// Tenant is whose agent it is.
	Tenant job.Tenant `json:"tenant"`
	// Profile is what was declared.
	Profile job.Profile `json:"profile"`
	// State is that of its newest job.
	State string `json:"state,omitempty"`
	// Jobs is how many it has had.
	Jobs int `json:"jobs"`
	// States is how many of them are in which state.
	States map[job.RunState]int `json:"states"`
	// Since is when it was declared.
	Since time.Time `json:"since"`
	// Reputations are its own, by domain.
	Reputations []Reputation `json:"reputations"`
}

// History is how the reputation of a subject in a domain has moved.
type History struct {
	// Points are the oldest first.
	Points []HistoryPoint `json:"points"`
}

// HistoryPoint is a reputation after one evaluation.
type HistoryPoint struct {
	// At is when the evaluation was counted.
	At time.Time `json:"at"`
	// Job is the job that was judged.
	Job job.ID `json:"job"`
	// Composite is that of the evaluation, from 0 to 1.
	Composite float64 `json:"composite"`
	// Score is the reputation after it, from 0 to 1.
	Score float64 `json:"score"`
}
