package terminal

import (
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
)

// name is what a card is called on screen.
func (c *card) name() string {
	if c.Name != "" {
		return Clean(c.Name)
	}
	return Clean(c.ID)
}

// doing says in one line what a card is about: the last thing that its worker
// did, why it waits, or how it ended.
func (c *card) doing() string {
	if c.phase.live() && c.last != nil {
		return eventText(c.last)
	}
	return Clean(c.why)
}

// eventText says in one line what happened.
func eventText(e *job.Event) string {
	text := Clean(e.Text)
	switch e.Kind {
	case job.EventCommand:
		line := "$ " + Clean(e.Command)
		if e.ExitCode == nil {
			return line
		}
		line = Cut(line, 160)
		if e.Millis > 0 {
			return fmt.Sprintf("%s → exit %d, %s", line, *e.ExitCode, timeText(time.Duration(e.Millis)*time.Millisecond))
		}
		return fmt.Sprintf("%s → exit %d", line, *e.ExitCode)
	case job.EventFile:
		if e.Change == "" {
			return "changed " + Clean(e.Path)
		}
		return Clean(e.Change) + " " + Clean(e.Path)
	case job.EventTool:
		if text == "" {
			return "tool " + Clean(e.Tool)
		}
		return "tool " + Clean(e.Tool) + ": " + text
	case job.EventStep:
		switch e.Kept {
		case job.KeptBefore:
			return "step " + Clean(e.Step) + " (from the store)"
		case job.KeptRefused:
			return "step " + Clean(e.Step) + " was refused: " + text
		}
		return "step " + Clean(e.Step)
	case job.EventNetwork:
		return connectionText(e.Connection)
	case job.EventRetry, job.EventWarning, job.EventError:
		return string(e.Kind) + ": " + text
	}
	return text
}

// connectionText says in one line what became of a connection.
func connectionText(c *job.Connection) string {
	if c == nil {
		return ""
	}
	what := Clean(c.Host)
	if c.Port != 0 {
		what = net.JoinHostPort(what, strconv.Itoa(c.Port))
	}
	if c.More > 0 {
		what = fmt.Sprintf("%d more connections", c.More)
	}
	if !c.Allowed {
		return fmt.Sprintf("network: refused %s: %s", what, Clean(c.Reason))
	}
	text := fmt.Sprintf("network: %s, %d bytes sent, %d received", what, c.Sent, c.Received)
	if c.Reason != "" {
		text += ": " + Clean(c.Reason)
	}
	return text
}

// notice is a line that stays: a log line of Plain, or one above a Live view.
type notice struct {
	at     time.Time
	who    string // a job's name, or the part of the program
	worker string
	text   string
	style  style
	// lasting is set where the line is worth keeping on screen above a view
	// that shows the rest.
	lasting bool
	// bare is set where text is the whole line.
	bare bool
	// whole is set where the end of the text says what to do: a log does not cut it.
	whole bool
}

// noticeOf says what an update means, given its card after and before; ok is
// false if it is not worth a line.
func noticeOf(u api.Update, c *card, before card) (n notice, ok bool) {
	n = notice{at: u.Time}
	switch u.Kind {
	case api.UpdateCore:
		n.who, n.text, n.style, n.lasting = "agentcore", Clean(u.Text), yellow, true
		return n, true
	case api.UpdateCircuit:
		n.who, n.text, n.style, n.lasting = "circuit", Clean(u.Text), yellow, true
		return n, true
	case api.UpdateEscalation:
		n.who, n.text, n.style, n.lasting, n.whole = "ESCALATION", Clean(u.Text), red, true, true
		if u.Escalation == nil { // one is over
			n.who, n.style = "isolation", green
		}
		return n, true
	case api.UpdateGap:
		n.who, n.text, n.style = "progress", plural(u.Missed, "update was", "updates were")+" left out here", faint
		return n, true
	}
	if c == nil || u.Kind == api.UpdateEvent && before.phase.ended() {
		return n, false
	}
	n.who, n.worker = c.name(), Clean(c.Worker)
	if u.Kind == api.UpdateEvent {
		return eventNotice(n, u.Event)
	}
	return n.ofMove(c, before)
}

// ofMove says what a change of state means.
func (n notice) ofMove(c *card, before card) (notice, bool) {
	why := Clean(c.why)
	if c.phase == before.phase && c.attempt == before.attempt && c.why == before.why {
		return n, false
	}
	n.style = c.phase.style()
	switch c.phase {
	case waiting:
		if before.phase.live() {
			n.text, n.style, n.lasting = fmt.Sprintf("attempt %d ended: %s", c.attempt, orSay(why, "waits")), yellow, true
			return n, true
		}
		n.text = why
		w, _ := job.ParseWaiting(why)
		return n, why != "" && w.Reason != job.WaitSlot // that is what all of them wait for that do not run
	case starting:
		n.text = fmt.Sprintf("attempt %d starts", c.attempt)
		if why != "" { // not as the job asked for it
			n.text, n.style, n.lasting = n.text+": "+why, yellow, true
		}
		return n, before.phase != starting || before.attempt != c.attempt
	case done:
		n.text = fmt.Sprintf("completed after %s, %s, %s tokens, %s", timeText(c.elapsed(n.at)), plural(c.attempt, "attempt", "attempts"), tokensText(c.usage), Cost(c.usage))
	case failed:
		n.text, n.lasting = fmt.Sprintf("failed after %s: %s", plural(c.attempt, "attempt", "attempts"), orSay(why, "no reason was given")), true
		if c.attempt == 0 {
			n.text = "failed: " + orSay(why, "it never began")
		}
	case approval:
		n.text, n.lasting = orSay(why, "waiting for approval"), true
	case cancelled, skipped:
		n.text = c.phase.String()
		if why != "" {
			n.text += ": " + why
		}
	default:
		n.text = c.phase.String()
	}
	return n, c.phase != before.phase
}

// eventNotice picks the events that make a readable log: what was done, with
// its result, and what went wrong. Starts of commands, tool calls (mostly
// reading), raw log lines and counters are left to the run's own log.
func eventNotice(n notice, e *job.Event) (notice, bool) {
	if e == nil {
		return n, false
	}
	switch e.Kind {
	case job.EventCommand:
		if e.ExitCode == nil {
			return n, false
		}
		if *e.ExitCode != 0 {
			n.style = yellow
		}
	case job.EventStep:
		if e.Step == "" {
			return n, false
		}
	case job.EventText, job.EventFile:
	case job.EventNetwork:
		if e.Connection != nil && !e.Connection.Allowed {
			n.style = yellow
		}
	case job.EventRetry, job.EventWarning:
		if e.Refusal != nil { // of interest when all runs are looked at together, as `doctor --sandbox` does
			return n, false
		}
		n.style = yellow
	case job.EventError:
		n.style = red
	default:
		return n, false
	}
	n.text = eventText(e)
	return n, n.text != ""
}

func orSay(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}
