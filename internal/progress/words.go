package progress

import (
	"strings"
	"time"

	"github.com/agentsched/agentsched/job"
)

// Clean returns text that came from a worker or a file as one line that is
// safe to print on a terminal: without control characters, escape sequences and
// marks that turn the direction of writing.
func Clean(text string) string { return clean(text) }

// Cost returns what a usage cost, e.g. "$0.0123", "?" if that is not known, or
// "-" if nothing was used.
func Cost(u job.Usage) string { return costText(u) }

// EventLine returns an event as one line of a log, with its local time.
func EventLine(e *job.Event) string {
	line := e.Time.Local().Format(time.TimeOnly) + "  " + string(e.Kind)
	text := eventText(e)
	switch e.Kind {
	case job.EventState:
		text = strings.TrimSpace(string(e.State) + " " + text)
	case job.EventSession:
		text = clean(e.Session)
	case job.EventUsage:
		if e.Usage != nil {
			text = tokensText(*e.Usage) + " tokens, " + costText(*e.Usage)
		}
	}
	if text != "" {
		line += "  " + text
	}
	return line
}
