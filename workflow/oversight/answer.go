package oversight

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/agentsched/agentsched/job"
)

// answerAsks returns why an agent's answer asks for a person. It does by fields of
// the JSON object that it is; other text asks nothing:
//
//	"confidence": 0.4        below the job's min_confidence
//	"needs_approval": true
//	"ask": "may I drop the old table?"
//
// Who fills such a field with something else has something to say: that asks, too.
func answerAsks(ov *job.Oversight, answer string) []string {
	var fields map[string]json.RawMessage
	if json.Unmarshal([]byte(unfenced(answer)), &fields) != nil {
		return nil
	}
	var whys []string
	if raw, ok := fields["confidence"]; ok && ov.MinConfidence > 0 {
		if why := unsure(raw, ov.MinConfidence); why != "" {
			whys = append(whys, why)
		}
	}
	if raw, ok := fields["needs_approval"]; ok && !says(raw, "false") {
		whys = append(whys, "the agent asks for approval")
	}
	if raw, ok := fields["ask"]; ok && !says(raw, "false") && !says(raw, `""`) {
		question := string(raw)
		var text string
		if json.Unmarshal(raw, &text) == nil {
			question = text
		}
		whys = append(whys, "the agent asks: "+brief(question))
	}
	return whys
}

// unsure returns why a stated confidence is not enough; "" if it is.
func unsure(raw json.RawMessage, least float64) string {
	var c *float64
	if err := json.Unmarshal(raw, &c); err != nil || c == nil || *c < 0 || *c > 1 {
		return fmt.Sprintf("its confidence is %s, which is no number from 0 to 1", brief(string(raw)))
	}
	if *c < least {
		return fmt.Sprintf("its confidence is %g, below %g", *c, least)
	}
	return ""
}

// says reports whether a value is null or the given one.
func says(raw json.RawMessage, value string) bool {
	text := strings.TrimSpace(string(raw))
	return text == "null" || text == value
}

// unfenced returns the text within a Markdown fence, if that is all there is:
// models like to wrap JSON so.
func unfenced(answer string) string {
	text := strings.TrimSpace(answer)
	first, rest, more := strings.Cut(text, "\n")
	inner, closed := strings.CutSuffix(rest, "```")
	if more && closed && (first == "```" || first == "```json") {
		return inner
	}
	return text
}
