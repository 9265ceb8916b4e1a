package api

import (
	"encoding/json"
	"time"

	"github.com/agentsched/agentsched/job"
)

// Workflows are batches of jobs that hang together.
type Workflows struct {
	// Workflows are the newest first.
	Workflows []Workflow `json:"workflows"`
}

// Workflow is a batch of jobs that hang together.
type Workflow struct {
	// Batch is its id.
	Batch job.BatchID `json:"batch"`
	// Source is where the jobs came from.
	Source string `json:"source"`
	// CreatedAt is when they were submitted.
	CreatedAt time.Time `json:"created_at"`
	// Jobs is how many there are, parts included.
	Jobs int `json:"jobs"`
	// States is how many are in which state.
	States map[string]int `json:"states"`
	// Teams are the names of its teams.
	Teams []job.Name `json:"teams,omitempty"`
	// Pipelines are the names of its pipelines.
	Pipelines []job.Name `json:"pipelines,omitempty"`
}

// Graph is a workflow and its jobs as the nodes of a graph.
type Graph struct {
	Workflow
	// Nodes are its jobs.
	Nodes []Node `json:"nodes"`
}

// Node is one job of a graph.
type Node struct {
	// ID is the job's.
	ID job.ID `json:"id"`
	// Name is the job's.
	Name job.Name `json:"name"`
	// Kind is job, for_each, loop, merge or stage.
	Kind string `json:"kind"`
	// State is the one that people are shown.
	State string `json:"state"`
	// Level is the length of the longest path to it from a job that needs none, from 0.
	Level int `json:"level"`
	// Critical is set if it is on the longest path of all.
	Critical bool `json:"critical,omitempty"`
	// Needs are the jobs that it waits for.
	Needs []job.Name `json:"needs,omitempty"`
	// Of is the job that it is a part of.
	Of job.Name `json:"of,omitempty"`
	// If is its condition.
	If string `json:"if,omitempty"`
	// Worker is the kind of worker that it runs on.
	Worker job.WorkerKind `json:"worker"`
	// Attempts is how many have begun.
	Attempts int `json:"attempts"`
	// Note says why it is where it is.
	Note string `json:"note,omitempty"`
	// StartedAt is when it was last given to a core.
	StartedAt *time.Time `json:"started_at,omitempty"`
	// EndedAt is when it ended.
	EndedAt *time.Time `json:"ended_at,omitempty"`
}

// Pipelines are those that were asked for.
type Pipelines struct {
	// Pipelines are the newest first.
	Pipelines []Pipeline `json:"pipelines"`
}

// Pipeline is how a pipeline stands.
type Pipeline struct {
	// ID is its name, unique within its batch.
	ID job.Name `json:"id"`
	// Batch is the batch that it is in.
	Batch job.BatchID `json:"batch"`
	// Created is when the batch was submitted.
	Created time.Time `json:"created_at"`
	// Replays is what it replays of an earlier run. Absent of one that was submitted.
	Replays *job.Replay `json:"replays,omitempty"`
	// Stages are in order.
	Stages []PipelineStage `json:"stages"`
	// Letters are the events that a stage could not handle, and that no replay has
	// mended.
	Letters []PipelineLetter `json:"dead_letters,omitempty"`
}

// PipelineStage is how a stage stands, and which types of events it takes and
// gives. Events are named by their sequence numbers.
type PipelineStage struct {
	// Stage is its name.
	Stage job.Name `json:"stage"`
	// Acked says that every input up to this one is acknowledged.
	Acked int64 `json:"acked"`
	// Beyond are further ones that are.
	Beyond []int64 `json:"beyond,omitempty"`
	// Answered says that the outputs for every input up to this one are in the log,
	// although they may be given again.
	Answered int64 `json:"answered,omitempty"`
	// AnsweredBeyond are further ones whose outputs are.
	AnsweredBeyond []int64 `json:"answered_beyond,omitempty"`
	// Partial is how many outputs an input has that is not acknowledged yet.
	Partial *PipelinePartial `json:"partial,omitempty"`
	// Alone are inputs that are given one at a time, since several with them have failed.
	Alone []int64 `json:"alone,omitempty"`
	// Tries is how often a stream's worker died of an input.
	Tries map[int64]int `json:"tries,omitempty"`
	// Given is how many parts there ever were.
	Given int `json:"given,omitempty"`
	// Units are the parts that are not done with.
	Units []PipelineUnit `json:"units,omitempty"`
	// Stale are the numbers of parts whose answer is not wanted any more.
	Stale []int `json:"stale,omitempty"`
	// Published counts the events that the stage has published.
	Published int64 `json:"published,omitempty"`
	// EndAcked is set when a stage that keeps a state has been told of the end.
	EndAcked bool `json:"end_acked,omitempty"`
	// Ended is set when the stage has done all.
	Ended bool `json:"ended,omitempty"`
	// Failed says why it has not.
	Failed string `json:"failed,omitempty"`
	// Backlog is how many events wait for it or are at work.
	Backlog int `json:"backlog"`
	// Dead is how many of its dead letters no replay has mended.
	Dead int `json:"dead"`

	// Subscribes are the types of events that it takes.
	Subscribes []job.EventType `json:"subscribes,omitempty"`
	// Publishes are the types of events that it gives.
	Publishes []job.EventType `json:"publishes,omitempty"`
}

// PipelineUnit is what one part of a stage is given.
type PipelineUnit struct {
	// Part is its number.
	Part int `json:"part"`
	// Events are its inputs.
	Events []int64 `json:"events,omitempty"`
	// End is set of the last input of a stage that keeps a state.
	End bool `json:"end,omitempty"`
}

// PipelinePartial is how far the outputs for an input are in the log.
type PipelinePartial struct {
	// Seq is the input.
	Seq int64 `json:"seq"`
	// Count is how many outputs there are.
	Count int `json:"count"`
	// Skip is how many of those to come are there already.
	Skip int `json:"skip,omitempty"`
}

// PipelineLetter is an input that its stage could not handle.
type PipelineLetter struct {
	// Stage is the stage's name.
	Stage job.Name `json:"stage"`
	// Event is the input.
	Event PipelineEvent `json:"event"`
	// Class is that of the last failure.
	Class job.ErrorClass `json:"class"`
	// Message is why the last attempt failed.
	Message string `json:"message"`
	// Job is the name of the job that was the last to try.
	Job job.Name `json:"job"`
	// Attempts is how many there were.
	Attempts int `json:"attempts"`
	// At is when it was given up.
	At time.Time `json:"at"`
	// MendedAt is when a replay has handled it after all.
	MendedAt *time.Time `json:"mended_at,omitempty"`
}

// PipelineEvents is a part of a pipeline's log.
type PipelineEvents struct {
	// Events are in order.
	Events []PipelineEvent `json:"events"`
}

// PipelineEvent is one entry of a pipeline's log. It never changes.
type PipelineEvent struct {
	// ID is unique for ever: BATCH/PIPELINE/SEQ.
	ID string `json:"id"`
	// Pipeline is the pipeline's name.
	Pipeline job.Name `json:"pipeline"`
	// Stage is the stage that published it. Absent of what the first stage is given.
	Stage job.Name `json:"stage,omitempty"`
	// Type is what sort of event it is.
	Type job.EventType `json:"type"`
	// Data is what it says.
	Data json.RawMessage `json:"data,omitempty"`
	// Time is when it was published.
	Time time.Time `json:"time"`
	// Seq counts the events of the pipeline: 1, 2, 3, … without a gap.
	Seq int64 `json:"seq"`
	// For are the inputs that it was published for.
	For []int64 `json:"for,omitempty"`
	// Replays is the ID of the event of an earlier run that it repeats, of the first
	// one if that was repeated, too.
	Replays string `json:"replays,omitempty"`
}

// Rewind is which events a stage is given again.
type Rewind struct {
	// Stage is the stage's name.
	Stage job.Name `json:"stage"`
	// From is the sequence number of the first event.
	From int64 `json:"from"`
	// Again has what the stage publishes for them published a second time.
	Again bool `json:"again,omitempty"`
}

// Rewound is where a stage begins again.
type Rewound struct {
	// First is the sequence number of the first event that is given again.
	First int64 `json:"first"`
}

// Replay is which recorded events of a pipeline are to be given to its stages again,
// by a new run. What is left out selects all.
type Replay struct {
	// Stage is the first stage that runs again: it and those behind it are given
	// what the stages before it have published. Left out, it is the first one that
	// takes one of Types.
	Stage job.Name `json:"stage,omitempty"`
	// Types are the types of events that are given.
	Types []job.EventType `json:"types,omitempty"`
	// From is the sequence number of the first event.
	From int64 `json:"from,omitempty"`
	// To is the sequence number of the last event.
	To int64 `json:"to,omitempty"`
	// Since selects events that were published then or later.
	Since *time.Time `json:"since,omitempty"`
	// Until selects events that were published before then.
	Until *time.Time `json:"until,omitempty"`
}

// Replayed is a new run that replays an earlier one.
type Replayed struct {
	// Batch is the batch of the new run.
	Batch job.BatchID `json:"batch"`
	// Pipeline is the pipeline's name.
	Pipeline job.Name `json:"pipeline"`
	// Replays is what it replays.
	Replays job.Replay `json:"replays"`
	// Events is how many recorded events that is.
	Events int `json:"events"`
}
