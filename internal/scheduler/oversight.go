package scheduler

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/agentsched/agentsched/job"
)

// reviewReason returns why a person must look at what an attempt made before anything
// is built on it; "" if nobody need. It is a pure function, so that a replay decides
// the same. last is set if no attempt follows the one that failed, rejected if a person
// has rejected an earlier one. drawn is the number in [0, 1) of the attempt (see draw);
// only a spot check looks at it.
//
// What autonomous_escalation asks, spot_check asks too, and what that asks,
// supervised does. Without oversight nothing is asked. Only work that is there to
// be looked at is asked about: that of an attempt that succeeded, and of the last
// one if it failed its check, or was denied something.
func reviewReason(spec *job.Spec, o *job.Outcome, last, rejected bool, drawn float64) string {
	ov := spec.Flow.Oversight
	if ov == nil || !reviewable(o, last) {
		return ""
	}
	if why := agentAsks(ov, o, rejected); why != "" {
		return why
	}
	switch ov.Mode {
	case job.Supervised:
		return "supervised: a person looks at everything that the job makes"
	case job.SpotCheck:
		if p := probability(ov); drawn < p {
			return fmt.Sprintf("a spot check: drew %s, below the probability of %g", digitsBelow(drawn, p), p)
		}
	}
	return ""
}

// reviewable reports whether an attempt left work that may be accepted.
func reviewable(o *job.Outcome, last bool) bool {
	switch o.State {
	case job.RunCompleted:
		return true
	case job.RunFailed:
		return last && (o.Class == job.VerifyFailed || len(o.Denied) > 0)
	}
	return false
}

// agentAsks returns why the agent asks, or has to; "" if it does not.
func agentAsks(ov *job.Oversight, o *job.Outcome, rejected bool) string {
	var whys []string
	if !o.Succeeded() && o.Class == job.VerifyFailed {
		whys = append(whys, "its check keeps failing and no attempt is left: "+brief(o.Message))
	}
	if n := len(o.Denied); n > 0 {
		whys = append(whys, fmt.Sprintf("%s not allowed: %s", count(n, "tool call was", "tool calls were"), brief(strings.Join(slices.Compact(slices.Sorted(slices.Values(o.Denied))), ", "))))
	}
	if rejected {
		whys = append(whys, "it was rejected before and has been done again")
	}
	return strings.Join(append(whys, answerAsks(ov, o.Answer)...), "; ")
}

// digitsBelow writes a number below p with as many digits as it takes to look below p.
func digitsBelow(drawn, p float64) string {
	for digits := 3; ; digits++ {
		text := strconv.FormatFloat(drawn, 'f', digits, 64)
		if v, err := strconv.ParseFloat(text, 64); err != nil || v < p || v == drawn {
			return text
		}
	}
}

func probability(ov *job.Oversight) float64 {
	if ov.Probability == nil {
		return job.DefaultSpotCheck
	}
	return *ov.Probability
}

func count(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

// maxBrief bounds, in bytes, what a reason quotes: the whole stands in the outcome.
const maxBrief = 300

// brief returns the first line of a text, and with one that only announces what
// comes ("…:") the next one, too.
func brief(text string) string {
	line, rest, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if strings.HasSuffix(strings.TrimSpace(line), ":") {
		next, _, _ := strings.Cut(strings.TrimSpace(rest), "\n")
		line = strings.TrimSpace(strings.TrimSpace(line) + " " + next)
	}
	cut, _ := job.Cut(line, maxBrief)
	return strings.ReplaceAll(cut, "\n", " ")
}

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

// draw returns the number in [0, 1) by which the spot check of an attempt is
// decided. It is the first 53 bits of SHA-256 over the seed and the attempt's
// number, 8 bytes each, big-endian, and the job's id, divided by 2^53: the same for
// ever, on every machine, and independent from one attempt to the next.
func draw(id job.ID, attempt int, seed uint64) float64 {
	text := binary.BigEndian.AppendUint64(nil, seed)
	text = binary.BigEndian.AppendUint64(text, uint64(attempt))
	sum := sha256.Sum256(append(text, id...))
	return float64(binary.BigEndian.Uint64(sum[:8])>>11) / (1 << 53)
}
