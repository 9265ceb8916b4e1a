package pipeline

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/agentsched/agentsched/job"
)

// SeedType is the type of the events that the first stage is given. No stage may
// publish it.
const SeedType job.EventType = "seed"

// Event is one entry of a pipeline's log. It never changes.
type Event struct {
	// ID is unique for ever: BATCH/PIPELINE/SEQ.
	ID       string          `json:"id"`
	Pipeline job.Name        `json:"pipeline"`
	Stage    job.Name        `json:"stage,omitempty"` // that published it; "" for a seed
	Type     job.EventType   `json:"type"`
	Data     json.RawMessage `json:"data,omitempty"` // any JSON, at most MaxData bytes
	Time     time.Time       `json:"time"`
	// Seq counts the events of the pipeline: 1, 2, 3, … without a gap.
	Seq int64 `json:"seq"`
	// For are the inputs that it was published for.
	For []int64 `json:"for,omitempty"`
	// Replays is the ID of the event of an earlier run that it repeats, of the first
	// one if that was repeated, too; "" if it was published in this run.
	Replays string `json:"replays,omitempty"`
}

func eventID(batch job.BatchID, pipeline job.Name, seq int64) string {
	return fmt.Sprintf("%s/%s/%d", batch, pipeline, seq)
}

// Bounds of what a stage may say.
const (
	MaxData    = 256 << 10 // bytes of one event's data
	MaxState   = 256 << 10 // bytes of a stage's state
	MaxInput   = 512 << 10 // bytes of the events that one part is given, if they are more than one
	MaxOutputs = 10_000    // events that are published for one input
)

// Output is an event to publish.
type Output struct {
	Type job.EventType   `json:"type"`
	Data json.RawMessage `json:"data,omitempty"`
}

// Input is what a one-shot stage is given: the Resolved.Input of its part.
type Input struct {
	Pipeline job.Name `json:"pipeline"`
	Stage    job.Name `json:"stage"`
	Events   []Event  `json:"events"`
	// State is what the stage kept last, null if nothing.
	State json.RawMessage `json:"state"`
	// Again is set if what is published for the events is in the log already: they
	// are only given to rebuild the state.
	Again bool `json:"again,omitempty"`
	// End is set on the last input of a stage that keeps a state. It has no events.
	End bool `json:"end,omitempty"`
}

// Answer is what a one-shot stage answers, as a JSON object.
type Answer struct {
	Events []Output `json:"events"`
	// State is kept for the stage's next input; absent: what was kept stays.
	State json.RawMessage `json:"state,omitempty"`
}

// ReadAnswer reads the answer of a one-shot stage. Text around the object is
// allowed if that is a fenced block, as agents like to write it.
func ReadAnswer(text string) (Answer, error) {
	text = strings.TrimSpace(text)
	if _, fenced, ok := strings.Cut(text, "```json\n"); ok {
		text, _, _ = strings.Cut(fenced, "\n```")
	}
	var a Answer
	if !strings.HasPrefix(text, "{") {
		return a, fmt.Errorf("the answer %q is no JSON object, want {\"events\": [{\"type\": …, \"data\": …}]}", shorten(text))
	}
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		return a, fmt.Errorf("read the answer %q as {\"events\": [{\"type\": …, \"data\": …}]}: %w", shorten(text), err)
	}
	return a, nil
}

// AnswerSchema returns the JSON schema of what a one-shot stage answers. With it
// as the job's output schema, a wrong answer is retried with the reason.
func AnswerSchema(s *job.Stage) json.RawMessage {
	types := s.Publishes
	if types == nil {
		types = []job.EventType{}
	}
	event := map[string]any{
		"type": "object", "required": []string{"type"},
		"properties": map[string]any{"type": map[string]any{"enum": types}, "data": map[string]any{}},
	}
	events := map[string]any{"type": "array", "items": event}
	if len(types) == 0 {
		events = map[string]any{"type": "array", "maxItems": 0} // an enum of nothing is no schema
	}
	schema, err := json.Marshal(map[string]any{
		"type": "object", "required": []string{"events"},
		"properties": map[string]any{"events": events, "state": map[string]any{}},
	})
	if err != nil {
		panic(err) // of texts alone
	}
	return schema
}

// UnauthorizedPublish is the code of a PublishError.
const UnauthorizedPublish = "unauthorized_publish"

// PublishError says that a stage wanted to publish what it did not declare.
type PublishError struct {
	Stage job.Name
	Type  job.EventType
	May   []job.EventType // what it may publish
}

// Error names the stage, the type, and what it may publish.
func (e *PublishError) Error() string {
	may := "nothing"
	if len(e.May) > 0 {
		may = "only " + list(e.May)
	}
	return fmt.Sprintf("%s: stage %q may not publish %q; it may publish %s", UnauthorizedPublish, e.Stage, e.Type, may)
}

// checkOutputs says why a stage may not publish these events, or nil.
func checkOutputs(s *job.Stage, outs []Output) error {
	if len(outs) > MaxOutputs {
		return fmt.Errorf("stage %q publishes %d events at once, at most %d are allowed", s.ID, len(outs), MaxOutputs)
	}
	for i, o := range outs {
		if !slices.Contains(s.Publishes, o.Type) {
			return &PublishError{Stage: s.ID, Type: o.Type, May: s.Publishes}
		}
		if len(o.Data) > MaxData {
			return fmt.Errorf("event %d of stage %q, a %s, has %d bytes of data, at most %d are allowed; publish the path of a file", i+1, s.ID, o.Type, len(o.Data), MaxData)
		}
		if len(o.Data) > 0 && !json.Valid(o.Data) {
			return fmt.Errorf("event %d of stage %q, a %s: its data %q is no JSON", i+1, s.ID, o.Type, shorten(string(o.Data)))
		}
	}
	return nil
}

// checkState says why a stage may not keep this, or nil.
func checkState(s *job.Stage, state json.RawMessage) error {
	switch {
	case state == nil:
		return nil
	case s.MaxParallel > 1:
		return fmt.Errorf("stage %q keeps a state, which takes max_parallel 1: it has %d", s.ID, s.MaxParallel)
	case len(state) > MaxState:
		return fmt.Errorf("the state of stage %q has %d bytes, at most %d are allowed; keep the path of a file", s.ID, len(state), MaxState)
	case !json.Valid(state):
		return fmt.Errorf("the state of stage %q, %q, is no JSON", s.ID, shorten(string(state)))
	}
	return nil
}

func list[T ~string](all []T) string {
	texts := make([]string, len(all))
	for i, t := range all {
		texts[i] = string(t)
	}
	return strings.Join(texts, ", ")
}

// shorten cuts a text for an error message.
func shorten(text string) string {
	const most = 200
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
