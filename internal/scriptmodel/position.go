package scriptmodel

import (
	"regexp"
	"strconv"
)

// position is the place in a script at which a conversation stands.
type position struct {
	turn    int  // index into Turns, or into OnResume if resumed
	resumed bool // play OnResume
	waiting int  // session number of a command that still runs and must be polled, or -1
}

// locate reads the position from the conversation alone. Commands count once, when their first result is there; polling does not.
//
// What the model did in answer to one message of the user is cut if it does not end with a text of the model: then the next
// message goes on from there, past the command that was cut. CLIs put a made-up result in the place of one that was lost
// (Codex "aborted", OpenCode "[Tool execution was interrupted]"), or drop the call and say so (Claude Code, see lostCall), so a
// command without result counts like one with.
func locate(c conversation, hasOnResume bool) position {
	spoken, carried, done := 0, 0, 0
	open := make(map[string]bool) // calls without a result yet
	last := modelText
	for _, e := range c.entries {
		switch e.kind {
		case userText:
			spoken++
			carried += done + len(open)
			if last == modelText {
				carried = 0 // the earlier message was answered
			}
			done = 0
			clear(open)
		case toolCall:
			if e.name != pollTool {
				open[e.callID] = true
			}
		case toolResult:
			if open[e.callID] {
				delete(open, e.callID)
				done++
			}
		case lostCall:
			done++
		}
		last = e.kind
	}
	p := position{turn: carried + done, waiting: -1}
	if spoken > 1 && hasOnResume {
		p.resumed, p.turn = true, done
	}
	if n := len(c.entries); n > 0 && last == toolResult {
		p.waiting = runningSession(c.entries[n-1].text)
	}
	return p
}

var stillRunning = regexp.MustCompile(`Process running with session ID (\d+)`)

// runningSession finds the number by which Codex lets a model wait for a command that outlasted its call, or -1.
func runningSession(result string) int {
	const header = 400 // the note stands before the output
	if len(result) > header {
		result = result[:header]
	}
	m := stillRunning.FindStringSubmatch(result)
	if m == nil {
		return -1
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		return -1
	}
	return n
}
