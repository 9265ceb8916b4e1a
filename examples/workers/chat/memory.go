package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// memory is what a session keeps in the task's home, in a file of its name.
type memory struct {
	Session string   `json:"session"`
	Job     string   `json:"job"` // whose script it is
	Script  []string `json:"script"`
	Next    int      `json:"next"` // the line that is done next
	Had     []string `json:"had"`  // ids of the messages that were said
}

// remember resumes the task's session, or begins one. A session of the same job goes on
// with its script, whatever the instructions are now; one of another job gets them as its
// script, and still knows which messages it has had.
func (c *chat) remember() error {
	own := "chat-" + c.task.Job
	if c.Session = c.task.Session; c.Session != "" {
		if !filepath.IsLocal(c.Session) || filepath.Base(c.Session) != c.Session {
			return failed("CONFIG", fmt.Sprintf("%q is no session of mine", c.Session))
		}
		text, err := os.ReadFile(c.file())
		if errors.Is(err, fs.ErrNotExist) {
			return failed("UNKNOWN", "there is no session "+c.Session+" in my home")
		}
		if err == nil {
			err = json.Unmarshal(text, &c.memory)
		}
		if err != nil {
			return fmt.Errorf("read the session %s: %w", c.task.Session, err)
		}
	}
	if c.Session == "" || c.task.Fork {
		c.Session = own
	}
	if c.Job != c.task.Job {
		c.Job, c.Next = c.task.Job, 0
		c.Script = script(c.task.Instructions, c.task.Session != "")
	}
	return c.save()
}

// What stands before the task of a job that goes on from another one, and before what it was told.
const (
	theTask = "The task was:"
	said    = "Since then you were told, in this order:"
)

// script returns the lines that a job asks for: those of its task, unless the session that goes on has done them, and
// those of what it was told before it began, whoever has said that.
func script(instructions string, goesOn bool) (lines []string) {
	task, told, _ := strings.Cut(instructions, said)
	if _, after, ok := strings.Cut(task, theTask); ok {
		task = after
	}
	if !goesOn {
		lines = strings.Split(strings.TrimSpace(task), "\n")
	}
	for _, paragraph := range strings.Split(strings.TrimSpace(told), "\n\n") {
		if paragraph == "" {
			break
		}
		if from, text, ok := strings.Cut(paragraph, ": "); ok && !strings.Contains(from, " ") {
			paragraph = text
		}
		for _, line := range strings.Split(paragraph, "\n") {
			if !known(strings.TrimSpace(line)) {
				line = "say told: " + line
			}
			lines = append(lines, line)
		}
	}
	return lines
}

func (c *chat) file() string { return filepath.Join(c.task.Home, c.Session+".json") }

// pass says that the next line is done.
func (c *chat) pass() error {
	c.Next++
	return c.save()
}

// save keeps the memory as it is now: a process that is killed leaves the old one or
// this.
func (c *chat) save() error {
	text, err := json.Marshal(c.memory)
	if err != nil {
		return err
	}
	if err := os.WriteFile(c.file()+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(c.file()+".new", c.file())
}
