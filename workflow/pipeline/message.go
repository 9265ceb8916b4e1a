package pipeline

import (
	"encoding/json"
	"time"

	"github.com/agentsched/agentsched/job"
)

// The lines that a worker which streams gets on its standard input after its
// task, beside the worker protocol's own. docs/pipelines.md specifies them.

// OpenLine comes first, once.
type OpenLine struct {
	Type      string          `json:"type"` // "open"
	Pipeline  job.Name        `json:"pipeline"`
	Stage     job.Name        `json:"stage"`
	Publishes []job.EventType `json:"publishes"`
	Acked     int64           `json:"acked"`  // it goes on after this event
	State     json.RawMessage `json:"state"`  // what the stage kept last; null if nothing
	Window    int             `json:"window"` // how many events it may have without an ack
}

// EventLine gives an event.
type EventLine struct {
	Type     string          `json:"type"` // "event"
	Seq      int64           `json:"seq"`
	ID       string          `json:"id"`
	Pipeline job.Name        `json:"pipeline"`
	Stage    job.Name        `json:"stage,omitempty"` // that published it
	Event    job.EventType   `json:"event"`
	Data     json.RawMessage `json:"data,omitempty"`
	Time     time.Time       `json:"time"`
	Replays  string          `json:"replays,omitempty"` // the ID of the event of an earlier run that it repeats
	// Again is set if what is published for it is in the log already: it is only
	// given to rebuild the state.
	Again bool `json:"again,omitempty"`
}

// EndLine says that no event follows. It is acknowledged like an event, by its
// Seq, which is 0.
type EndLine struct {
	Type string `json:"type"` // "end"
	Seq  int64  `json:"seq"`  // 0
}

// RefusedLine says that a line of the worker's had no effect.
type RefusedLine struct {
	Type    string        `json:"type"`  // "refused"
	Error   string        `json:"error"` // one of the codes
	Message string        `json:"message"`
	Seq     int64         `json:"seq"` // the For or Seq of the line
	Event   job.EventType `json:"event,omitempty"`
}

// Codes of a RefusedLine, beside UnauthorizedPublish.
const (
	UnknownInput = "unknown_input" // that event is not with the worker
	OutOfOrder   = "out_of_order"  // an earlier one is not acknowledged, and max_parallel is 1
	InvalidData  = "invalid"       // the line's fields, data or state
)

// The types of the lines that such a worker prints, beside the worker protocol's.
const (
	typePublish    = "publish"
	typeCheckpoint = "checkpoint"
	typeAck        = "ack"
)

// PublishLine publishes an event, when For is acknowledged or checkpointed.
type PublishLine struct {
	Type  string          `json:"type"` // "publish"
	Event job.EventType   `json:"event"`
	Data  json.RawMessage `json:"data,omitempty"`
	For   int64           `json:"for"` // the input's Seq
}

// AckLine says that an input is done with: it and what was published for it are
// made durable at once. As a checkpoint, what was published for it so far, with
// the state from which the worker goes on with it.
type AckLine struct {
	Type string `json:"type"` // "ack" or "checkpoint"
	Seq  int64  `json:"seq"`
	// State is what the stage has to know after it; absent: what was kept stays. A
	// checkpoint must have it.
	State json.RawMessage `json:"state,omitempty"`
}
