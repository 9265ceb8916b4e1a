package terminal

import (
	"strings"
	"time"

	"github.com/agentsched/agentsched/job"
)

// EventLine returns an event as one line of a log, with its local time.
func EventLine(e *job.Event) string {
	nested := ""
	if e.Parent != "" { // of a subagent
		nested = "  "
	}
	line := e.Time.Local().Format(time.TimeOnly) + "  " + nested + string(e.Kind)
	text := eventText(e)
	switch e.Kind {
	case job.EventState:
		text = strings.TrimSpace(string(e.State) + " " + text)
	case job.EventSession:
		text = Clean(e.Session)
	case job.EventUsage:
		if e.Usage != nil {
			text = tokensText(*e.Usage) + " tokens, " + Cost(*e.Usage)
		}
	}
	if text != "" {
		line += "  " + text
	}
	return line
}
