package pipeline

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// Cursor is where a stage stands: one record, written in the same transaction
// as what it is about.
type Cursor struct {
	Stage job.Name `json:"stage"`
	// Acked: every input up to this sequence number is acknowledged; Beyond are
	// further ones that are, which only a stage with MaxParallel > 1 has.
	Acked  int64   `json:"acked"`
	Beyond []int64 `json:"beyond,omitempty"`
	// Answered and AnsweredBeyond are inputs whose outputs are in the log although
	// they may be given again, after a Replay: what is published for them then is
	// dropped. An open dead letter is not among them, whatever its number.
	Answered       int64   `json:"answered,omitempty"`
	AnsweredBeyond []int64 `json:"answered_beyond,omitempty"`
	// Partial is how many outputs an input has that is not acknowledged yet.
	Partial *Partial `json:"partial,omitempty"`
	// Alone are inputs that are given one at a time, since several at once with
	// them have failed. Tries counts how often a stream's worker died of one.
	Alone []int64       `json:"alone,omitempty"`
	Tries map[int64]int `json:"tries,omitempty"`
	// Given is how many parts there ever were, Units are those that are not done
	// with, Stale the numbers of those whose answer is not wanted any more.
	Given int    `json:"given,omitempty"`
	Units []Unit `json:"units,omitempty"`
	Stale []int  `json:"stale,omitempty"`
	// Published counts the events that the stage has published.
	Published int64 `json:"published,omitempty"`
	// EndAcked is set when a stage that keeps a state has been told of the end;
	// Ended, when the stage has done all; Failed says why it did not.
	EndAcked bool   `json:"end_acked,omitempty"`
	Ended    bool   `json:"ended,omitempty"`
	Failed   string `json:"failed,omitempty"`
}

// Unit is what one part is given.
type Unit struct {
	Part   int     `json:"part"`
	Events []int64 `json:"events,omitempty"`
	End    bool    `json:"end,omitempty"`
}

// Partial says that Count outputs for the input Seq are in the log, and of what
// is published for it the first Skip are those again.
type Partial struct {
	Seq   int64 `json:"seq"`
	Count int   `json:"count"`
	Skip  int   `json:"skip,omitempty"`
}

// Over reports whether the stage is given nothing any more.
func (c *Cursor) Over() bool { return c.Ended || c.Failed != "" }

// kept is a stage's state as a record holds it.
type kept struct {
	Seq   int64           `json:"seq"` // it is the state after the inputs up to this one
	State json.RawMessage `json:"state,omitempty"`
	// Void is set when a replay from before it has made it wrong.
	Void bool `json:"void,omitempty"`
}

// DeadLetter is an input that its stage could not handle.
type DeadLetter struct {
	Stage    job.Name       `json:"stage"`
	Event    Event          `json:"event"`
	Class    job.ErrorClass `json:"class"`
	Message  string         `json:"message"` // why the last attempt failed
	Job      job.Name       `json:"job"`     // that was the last to try
	Attempts int            `json:"attempts"`
	At       time.Time      `json:"at"`
	// MendedAt is when a replay has handled it after all.
	MendedAt *time.Time `json:"mended_at,omitempty"`
}

// The spaces of a pipeline's records. All are forgotten with the batch.
func (b *book) logSpace() string {
	return queue.BatchSpace(b.batch, "pipeline/"+string(b.line.ID)+"/log")
}
func (b *book) cursorSpace() string {
	return queue.BatchSpace(b.batch, "pipeline/"+string(b.line.ID)+"/stage")
}
func (b *book) stateSpace(s *stage) string {
	return queue.BatchSpace(b.batch, "pipeline/"+string(b.line.ID)+"/state/"+string(s.ID))
}
func (b *book) deadSpace(s *stage) string {
	return queue.BatchSpace(b.batch, "pipeline/"+string(b.line.ID)+"/dead/"+string(s.ID))
}

func (b *book) copySpace() string {
	return queue.BatchSpace(b.batch, "pipeline/"+string(b.line.ID)+"/replay")
}

// stateNow is the key of a stage's current state. It sorts behind those of the
// states that are kept for a replay, which are sequence numbers.
const stateNow = "now"

// seqKey writes a sequence number so that its bytes sort like it.
func seqKey(seq int64) string { return fmt.Sprintf("%016d", seq) }
