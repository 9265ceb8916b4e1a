package agentcore

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/agentsched/agentsched/internal/workspace"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// resolved returns r with the words in its Spec that the attempt runs with.
func resolved(r ipc.SubmitJob) ipc.SubmitJob {
	with := r.Resolved
	if with == nil {
		return r
	}
	for _, word := range []struct{ own, other *string }{
		{&r.Spec.Instructions, &with.Instructions}, {&r.Spec.SystemPrompt, &with.SystemPrompt}, {&r.Spec.Verify, &with.Verify},
	} {
		if *word.other != "" {
			*word.own = *word.other
		}
	}
	return r
}

// Variables by which a script is told what a model reads in its instructions.
const (
	inputFileVariable = "AGENTSCHED_INPUT"     // path of a file with the job's input, JSON
	eventFileVariable = "AGENTSCHED_EVENT"     // path of a file with the event of a PLUGIN_EVENT job, JSON
	feedbackVariable  = "AGENTSCHED_FEEDBACK"  // why the last attempt was not accepted
	clashesVariable   = "AGENTSCHED_CONFLICTS" // the files in which patches do not fit, one a line
)

// maxFeedback is how much of the feedback a script is told, in bytes: a
// variable's size is bounded.
const maxFeedback = 32 << 10

// words returns what the worker is told: the job's own words, its input, what
// there is to resolve, and why the last attempt was not good enough. The shell
// worker's instructions are a script and stay one: it is told by variables.
func (e *execution) words(ws *workspace.Workspace) (text string, env []string, err error) {
	text = e.submit.Spec.Instructions
	var input json.RawMessage
	if r := e.submit.Resolved; r != nil && e.stream == nil { // a run that streams gets it as events
		input = r.Input
	}
	if a, err := e.adapter(); err != nil || !worker.TraitsOf(a).Script {
		if e.submit.Left != nil {
			return goingOn(text+inputBlock(input)+clashBlock(ws), &e.submit) + e.movedBlock(ws), nil, nil
		}
		return instructions(text+inputBlock(input)+clashBlock(ws)+e.movedBlock(ws), e.submit.Session, e.submit.Feedback), nil, nil
	}
	for _, file := range []struct {
		variable, name string
		json           json.RawMessage
	}{{inputFileVariable, "input.json", input}, {eventFileVariable, "event.json", e.submit.Spec.Payload}} {
		if len(file.json) == 0 {
			continue
		}
		path := filepath.Join(e.temp, file.name) // which the run sees however it is held
		if err = os.WriteFile(path, file.json, 0o600); err != nil {
			return "", nil, fmt.Errorf("write %s of the job: %w", file.name, err)
		}
		env = append(env, file.variable+"="+path)
	}
	if f := e.submit.Feedback; f != "" {
		f, _ = job.Cut(strings.ReplaceAll(f, "\x00", ""), maxFeedback)
		env = append(env, feedbackVariable+"="+f)
	}
	if len(ws.Clashes) > 0 {
		env = append(env, clashesVariable+"="+strings.Join(clashFiles(ws, ws.Clashes), "\n"))
	}
	return text, env, nil
}

// instructions returns a job's words, with why the last attempt was not good
// enough, or that it was interrupted.
func instructions(text, session, feedback string) string {
	switch {
	case feedback != "":
		return text + "\n\nYour previous attempt was not accepted:\n" + feedback
	case session != "":
		return "You were interrupted before this task was done. Look at what is there already and finish it. The task:\n\n" + text
	default:
		return text
	}
}

// goingOn returns the words of a job that goes on from another one, before what people have said since. Whoever has the
// session knows the task.
func goingOn(text string, r *ipc.SubmitJob) string {
	var b strings.Builder
	switch {
	case r.Session == "":
		b.WriteString("This task was worked on before. Look at what is there already: the folder holds what came of it. Then do what you are told at the end. The task was:\n\n" + text)
	case r.Attempt > 1 && r.Fork == "":
		b.WriteString("You were interrupted. Look at what is there already, and finish what you were told.")
	default:
		b.WriteString("You have ended your work on this task. The folder holds what you left, unless others have changed it since.")
	}
	if r.Feedback != "" {
		b.WriteString("\n\nYour previous attempt was not accepted:\n" + r.Feedback)
	}
	return b.String()
}

// answeredBlock returns what to add to the instructions of an agent whose questions were answered when it was gone.
func answeredBlock(list []ipc.Answered) string {
	if len(list) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("\n\nWhat you asked before you were interrupted was answered since:")
	for _, a := range list {
		answer := "no"
		switch {
		case a.Decision == "" && a.Text == "":
			answer = string(a.Value)
		case a.Decision == "":
			answer = a.Text
		case worker.Decision(a.Decision).Allows():
			answer = "yes; do it again if you still need it"
		}
		if a.Decision != "" && a.Text != "" {
			answer += ". " + a.Text
		}
		fmt.Fprintf(&b, "\n\nYou asked: %s\nThe answer is: %s", a.Question, answer)
	}
	return b.String()
}

// saidBlock returns what to add to the instructions of an agent that people have told something
// before it began.
func saidBlock(said []ipc.Message) string {
	if len(said) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("\n\nSince then you were told, in this order:")
	for _, m := range said {
		from := ""
		if m.From != "" {
			from = m.From + ": "
		}
		b.WriteString("\n\n" + from + m.Text)
	}
	return b.String()
}

// movedBlock returns what to add to the instructions of an agent whose session knows another folder.
func (e *execution) movedBlock(ws *workspace.Workspace) string {
	from := e.moved(ws)
	if from == "" {
		return ""
	}
	if e.submit.Fork != "" {
		return "\n\nYou go on in a copy: your folder, with all that you had changed, is now " + ws.Dir + " instead of " + from + "."
	}
	return "\n\nYou go on on another host: your folder, with all that you had changed, is now " + ws.Dir + " instead of " + from + "."
}

// inputBlock returns what to add to the instructions of a job with an input.
func inputBlock(input json.RawMessage) string {
	if len(input) == 0 {
		return ""
	}
	var b bytes.Buffer
	if json.Indent(&b, input, "", "  ") != nil {
		b.Reset()
		b.Write(input)
	}
	return "\n\nInput:\n```json\n" + b.String() + "\n```"
}

// clashBlock returns what to add to the instructions of a job that begins with
// conflicts.
func clashBlock(ws *workspace.Workspace) string {
	if len(ws.Clashes) == 0 {
		return ""
	}
	var marked, other []workspace.Clash
	for _, c := range ws.Clashes {
		if c.Marked {
			marked = append(marked, c)
		} else {
			other = append(other, c)
		}
	}
	var b strings.Builder
	b.WriteString("\n\nThe changes of other jobs were merged into the files that you find, and some of them do not fit together. " +
		"Resolve that first, so that what each of these jobs meant is kept.")
	if len(marked) > 0 {
		fmt.Fprintf(&b, "\nThese files hold both versions between the marks <<<<<<<, ======= and >>>>>>>, which name the jobs. Leave no mark behind:\n%s", clashList(ws, marked))
	}
	if len(other) > 0 {
		fmt.Fprintf(&b, "\nIn these there are no marks; only one side's version is there, since they are binary, or were removed or renamed by one side:\n%s", clashList(ws, other))
	}
	return b.String()
}

// maxListed is how many files with conflicts the instructions name.
const maxListed = 100

func clashList(ws *workspace.Workspace, clashes []workspace.Clash) string {
	var b strings.Builder
	for i, file := range clashFiles(ws, clashes) {
		if i == maxListed {
			fmt.Fprintf(&b, "- and %d more\n", len(clashes)-i)
			break
		}
		c := clashes[i]
		with := "what was there"
		if len(c.With) > 0 {
			with = "the changes of " + names(c.With)
		}
		fmt.Fprintf(&b, "- %s: the changes of %s meet %s\n", file, c.Job, with)
	}
	return b.String()
}

func names(jobs []job.Name) string {
	words := make([]string, len(jobs))
	for i, j := range jobs {
		words[i] = string(j)
	}
	return strings.Join(words, " and ")
}

// clashFiles returns the paths of clashes as seen from where the worker starts.
func clashFiles(ws *workspace.Workspace, clashes []workspace.Clash) (files []string) {
	for _, c := range clashes {
		path := filepath.Join(ws.Root, c.Path)
		if rel, err := filepath.Rel(ws.Dir, path); err == nil {
			path = rel
		}
		files = append(files, path)
	}
	return files
}

// marksLeft is the outcome of a worker that did not resolve all conflicts.
func marksLeft(o job.Outcome, left []workspace.Clash, err error) job.Outcome {
	o.State, o.Class = job.RunFailed, job.ConflictClass
	if err != nil {
		o.Message = err.Error()
		return o
	}
	o.Message = "conflict marks (lines that begin with <<<<<<< or >>>>>>>) are left: " + workspace.DescribeClashes(left)
	return o
}
