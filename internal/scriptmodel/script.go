package scriptmodel

import (
	"fmt"
	"maps"
	"path"
	"strings"
	"time"
)

// Script is what one model answers. Turn n is played when the conversation holds n tool results since the user last spoke,
// and after the last turn the model says that it is done.
type Script struct {
	Turns []Turn

	// OnResume is played in place of Turns, from its start, once the user has spoken more than once, which is what
	// resuming a session looks like. Without it a conversation that was cut in the middle of a command goes on with the turn
	// after that command, and one that had come to its end plays Turns again.
	OnResume []Turn

	// Parts are played to the subagents of the CLI, each by the words with which it was started.
	Parts map[string][]Turn

	// FailFirst requests of a conversation are answered with Fault before the turns are played. A conversation is known by its
	// model and first user message, so that a retry in a fresh session counts as the same one.
	FailFirst int
	Fault     Fault
}

// Play is the script of these turns.
func Play(turns ...Turn) Script { return Script{Turns: turns} }

// Always is the script that never gets past the fault.
func Always(f Fault) Script { return Play(Turn{Fault: f}) }

// Resuming returns the script with turns for a resumed session.
func (s Script) Resuming(turns ...Turn) Script {
	s.OnResume = turns
	return s
}

// Delegating returns the script with turns for the subagent that is started with these words.
func (s Script) Delegating(words string, turns ...Turn) Script {
	s.Parts = maps.Clone(s.Parts)
	if s.Parts == nil {
		s.Parts = map[string][]Turn{}
	}
	s.Parts[words] = turns
	return s
}

// FailingFirst returns the script that heals after n requests.
func (s Script) FailingFirst(n int, f Fault) Script {
	s.FailFirst, s.Fault = n, f
	return s
}

// Turn is one answer of the model: a text, a text and a command to run or a tool to call, or a fault.
type Turn struct {
	Text    string
	Command string // shell command, asked for through whichever shell tool the CLI declares
	Tool    string // another tool, by its name or, of a server's that a CLI has put its own name before, the end of that
	Args    string // of Tool, a JSON object

	// JSON answers with an object that has the shape of the schema in the request, or {"answer": Text} if it has none.
	JSON bool

	// Chunks is into how many pieces a streamed text is cut (0 means 1), Interval the pause before each but the first.
	Chunks   int
	Interval time.Duration

	Usage Usage // zero means defaultUsage
	Fault Fault
}

// Usage is what an answer is said to have cost, in tokens. Input includes Cached, as in OpenAI's APIs.
type Usage struct {
	Input, Cached, Output int
}

var defaultUsage = Usage{Input: 120, Cached: 20, Output: 30}

// Say answers and ends the run.
func Say(text string) Turn { return Turn{Text: text} }

// Run asks for a shell command.
func Run(command string) Turn { return Turn{Command: command} }

// Call asks for a tool, with a JSON object.
func Call(tool, args string) Turn { return Turn{Tool: tool, Args: args} }

// Edit asks for a command that writes a file, making its folder. The name is relative to the CLI's working directory.
func Edit(name, content string) Turn {
	write := fmt.Sprintf("printf %%s %s > %s", quote(content), quote(name))
	if dir := path.Dir(name); dir != "." {
		write = fmt.Sprintf("mkdir -p %s && %s", quote(dir), write)
	}
	return Run(write + " && echo wrote " + quote(name))
}

// Sleep asks for a command that does nothing for d, in whole seconds.
func Sleep(d time.Duration) Turn { return Run(fmt.Sprintf("sleep %d", int(d.Seconds()))) }

// Daemonise asks for a command that leaves a process behind, in a session of its own and with no pipe to its parent.
func Daemonise(d time.Duration) Turn {
	return Run(fmt.Sprintf("setsid sleep %d >/dev/null 2>&1 & echo started", int(d.Seconds())))
}

// Print asks for a command that prints n bytes in lines of 80.
func Print(n int) Turn { return Run(fmt.Sprintf("yes %s | head -c %d", strings.Repeat("x", 79), n)) }

// Slow answers in pieces.
func Slow(text string, chunks int, interval time.Duration) Turn {
	return Turn{Text: text, Chunks: chunks, Interval: interval}
}

// Structured answers with a JSON object.
func Structured() Turn { return Turn{JSON: true, Text: "scripted"} }

// Costing returns the turn with the usage that it reports.
func (t Turn) Costing(u Usage) Turn {
	t.Usage = u
	return t
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
