package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// ask asks what a line says, and says the answer.
func (c *chat) ask(line string) error {
	q, err := question(line)
	if err != nil {
		return err
	}
	a, err := c.answer(q)
	if a == nil {
		return err
	}
	return c.report(line, a)
}

// write writes a file, as far as the job may do that.
func (c *chat) write(rest string) error {
	name, text, _ := strings.Cut(rest, " ")
	if !filepath.IsLocal(name) {
		return failed("CONFIG", fmt.Sprintf("write %q: want a file within the workspace", name))
	}
	text += "\n"
	if what := "write " + name; !slices.Contains(c.task.Capabilities, "edit") {
		if !c.task.Asked {
			return c.say(what + ": not granted")
		}
		a, err := c.answer(message{
			Kind: "write", Text: what + "?", Tool: "write", Path: name, Diff: "+" + text,
			Input: map[string]string{"path": name, "text": text},
		})
		if a == nil {
			return err
		}
		if a.Decision != "allow" && a.Decision != "allow_in_run" {
			return c.report(what, a)
		}
	}
	path, change := filepath.Join(c.task.Dir, name), "added"
	if _, err := os.Stat(path); err == nil {
		change = "modified"
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return err
	}
	if err := c.pass(); err != nil {
		return err
	}
	return c.print(message{Type: "file", Path: name, Change: change})
}

// question makes the question of a line. It has the same input each time.
func question(line string) (message, error) {
	verb, what, _ := strings.Cut(line, " ")
	if words := strings.Fields(what); verb == "choose" && len(words) > 0 {
		return message{Kind: "words", Text: strings.Join(words, " or ") + "?", Schema: map[string][]string{"enum": words}}, nil
	}
	kind, value, _ := strings.Cut(what, " ")
	value = strings.TrimSpace(value)
	q := message{Kind: kind, Tool: kind, Text: kind + " " + value + "?", Input: map[string]string{kind: value}}
	switch {
	case verb == "choose", value == "":
		q.Kind = ""
	case kind == "run":
		q.Kind, q.Command, q.Input = "command", value, map[string]string{"command": value}
	case kind == "read", kind == "write":
		q.Path = value
	case kind == "host":
		q.Host = value
	case kind == "tool":
		q.Tool, q.Text = value, "use "+value+"?"
	case kind == "words":
		return message{Kind: "words", Text: value}, nil
	default:
		q.Kind = ""
	}
	if q.Kind == "" {
		return q, failed("CONFIG", fmt.Sprintf("%q asks nothing that is known", line))
	}
	return q, nil
}

// answer asks a question and waits for its answer. It is nil if the run was interrupted
// or is to end, which the error says: then the line is done again.
func (c *chat) answer(q message) (*message, error) {
	// The same line asks by the same id in each attempt.
	q.Type, q.ID = "question", fmt.Sprintf("q%d", c.Next+1)
	if c.asks[c.Next]++; c.asks[c.Next] > 1 {
		q.ID += fmt.Sprintf(".%d", c.asks[c.Next])
	}
	if q.Kind != "words" {
		q.Decisions = []string{"allow", "allow_in_run", "deny", "deny_and_stop"}
	}
	if err := c.print(q); err != nil {
		return nil, err
	}
	for {
		m, open := <-c.in
		if m.Type == "answer" && m.Question == q.ID {
			return &m, nil
		}
		err := c.take(m, open)
		if err == nil && m.Type != "interrupt" {
			continue
		}
		if err := c.print(message{Type: "withdraw", Question: q.ID}); err != nil {
			return nil, err
		}
		return nil, err // an interrupt is in the inbox
	}
}

// report says an answer, and ends the run if that is the answer.
func (c *chat) report(line string, a *message) error {
	said := []string{line}
	switch {
	case a.Decision != "":
		said = append(said, a.Decision)
	case len(a.Value) == 0:
		said = append(said, "unanswered")
	}
	if a.Text != "" {
		said = append(said, a.Text)
	}
	if len(a.Value) > 0 {
		said = append(said, string(a.Value))
	}
	if err := c.say(strings.Join(said, ": ")); err != nil {
		return err
	}
	if a.Decision == "deny_and_stop" {
		return &end{message{Type: "result", Status: "completed"}}
	}
	return nil
}
