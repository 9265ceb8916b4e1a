package agentcore

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/agentsched/agentsched/internal/jsoncheck"
)

// maxMistakes bounds how many mistakes of an answer are told.
const maxMistakes = 10

// checkOutput returns why the answer does not satisfy the schema; nil without one.
// The error is for the agent too, which is to do better, e.g. "at /events/0/type:
// value must be 'num'".
func checkOutput(text json.RawMessage, answer string) error {
	if len(text) == 0 {
		return nil
	}
	mistakes, err := jsoncheck.Check(text, []byte(bareJSON(answer)))
	if errors.Is(err, jsoncheck.ErrNotJSON) {
		return fmt.Errorf("the answer is %w", err)
	}
	if err != nil || len(mistakes) == 0 {
		return err
	}
	var said []string
	for _, m := range mistakes[:min(len(mistakes), maxMistakes)] {
		if len(m.At) > 0 {
			m.Why = fmt.Sprintf("at /%s: %s", strings.Join(m.At, "/"), m.Why)
		}
		said = append(said, m.Why)
	}
	if more := len(mistakes) - maxMistakes; more > 0 {
		said = append(said, fmt.Sprintf("and %d more", more))
	}
	return errors.New(strings.Join(said, "; "))
}

// bareJSON strips the Markdown fence that models like to put around JSON.
func bareJSON(answer string) string {
	text := strings.TrimSpace(answer)
	body, fenced := strings.CutPrefix(text, "```")
	if !fenced {
		return text
	}
	_, body, _ = strings.Cut(body, "\n")
	return strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(body), "```"))
}
