package shell

import (
	"bytes"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// callID joins the events of the one command that a shell run is.
const callID = "script"

// session is one run of one script.
type session struct {
	command worker.Command
	script  string // path
	title   string

	tail    []byte // the end of standard output, at least its last job.MaxEventText bytes
	dropped bool   // something stood before tail
}

func (s *session) Command() worker.Command { return s.command }

// Step tells the script's output as text, and that it runs: it is the run's one
// command.
func (s *session) Step(_ time.Time, in worker.Input) []worker.Action {
	switch in := in.(type) {
	case worker.Started:
		return worker.Events(job.Event{Kind: job.EventCommand, Command: s.title, CallID: callID})
	case worker.Output:
		return worker.Events(s.line(in.Line)...)
	case worker.ErrorOutput:
		return worker.Log(in.Line)
	case worker.Ended:
		code := in.Code
		return []worker.Action{
			worker.Emit{Event: job.Event{Kind: job.EventCommand, Command: s.title, CallID: callID, ExitCode: &code}},
			worker.Finish{Result: s.result(in.Exit)},
		}
	}
	return nil
}

// Close frees the script.
func (s *session) Close() error {
	for _, f := range s.command.Files {
		f.Close()
	}
	return nil
}

// line reports a line of the script's output as text.
func (s *session) line(line []byte) []job.Event {
	s.remember(line)
	if len(line) == 0 {
		return nil
	}
	text, cut := job.Cut(string(line), job.MaxEventText)
	// A byte that is no UTF-8 becomes a longer mark, hence the second cut.
	text, more := job.Cut(strings.ToValidUTF8(text, "\uFFFD"), job.MaxEventText)
	return []job.Event{{Kind: job.EventText, Text: text, Truncated: cut + more}}
}

// remember keeps the end of the output, moving bytes only once per
// MaxEventText of them.
func (s *session) remember(line []byte) {
	const keep = job.MaxEventText
	if len(line) > keep {
		line, s.dropped = line[len(line)-keep:], true
	}
	s.tail = append(append(s.tail, line...), '\n')
	if excess := len(s.tail) - keep; excess > keep {
		s.tail = append(s.tail[:0], s.tail[excess:]...)
		s.dropped = true
	}
}

func (s *session) result(e worker.Exit) worker.Result {
	r := worker.Result{Answer: s.answer()}
	if e.Code == 0 && e.Signal == "" && !e.Stopped {
		return r
	}
	stderr := s.lastWords(e.Stderr)
	switch {
	case e.Stopped:
		r.Class, r.Message = job.CancelledClass, "the script was stopped"
		return r
	case e.Signal != "":
		r.Class, r.Message = job.Crash, "the script was ended by a signal: "+e.Signal
		if e.Signal == "killed" {
			r.Hint = "if no person killed it, the system may have run out of memory"
		}
	case e.Code == 126 || e.Code == 127:
		r.Class, r.Message = job.Config, fmt.Sprintf("the script ended with status %d: a program was not found or cannot be executed", e.Code)
		r.Hint = "install the program, or add its folder to the PATH of the scheduler"
	case e.Code > 128:
		r.Class, r.Message = job.Unknown, fmt.Sprintf("the script ended with status %d, which usually means that signal %d ended a command", e.Code, e.Code-128)
	default:
		r.Class, r.Message = job.Unknown, fmt.Sprintf("the script ended with status %d", e.Code)
	}
	if stderr != "" {
		r.Message += ": " + stderr
	}
	return r
}

// answer returns the end of standard output, whole lines where it was cut.
func (s *session) answer() string {
	tail, cut := s.tail, s.dropped
	if excess := len(tail) - job.MaxEventText; excess > 0 {
		tail, cut = tail[excess:], true
	}
	if _, rest, ok := bytes.Cut(tail, []byte("\n")); cut && ok && len(rest) > 0 {
		tail = rest
	}
	for cut && len(tail) > 0 && !utf8.RuneStart(tail[0]) {
		tail = tail[1:]
	}
	answer, _ := job.Cut(strings.ToValidUTF8(strings.TrimRight(string(tail), "\n"), "\uFFFD"), job.MaxEventText)
	return answer
}

// lastWords returns the last lines of standard error, naming the script
// "script" rather than by its long path.
func (s *session) lastWords(stderr string) string {
	const lines, size = 5, 1 << 10
	text := strings.TrimSpace(strings.ReplaceAll(strings.ToValidUTF8(stderr, "\uFFFD"), s.script, "script"))
	if all := strings.Split(text, "\n"); len(all) > lines {
		text = strings.Join(all[len(all)-lines:], "\n")
	}
	text, _ = job.Cut(text, size)
	return text
}
