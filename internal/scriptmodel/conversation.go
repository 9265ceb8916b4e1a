package scriptmodel

import (
	"encoding/json"
	"strings"
)

// conversation is what a request asks, in the terms that the three APIs share.
type conversation struct {
	model   string
	stream  bool
	tools   []tool
	schema  json.RawMessage // JSON Schema that the answer must have, or nil
	entries []entry
}

// entry is one thing that was said or done, oldest first.
type entry struct {
	kind   entryKind
	text   string // of a text or a result
	callID string // of a call or a result
	name   string // tool that a call names
}

type entryKind int

const (
	userText entryKind = iota
	modelText
	toolCall
	toolResult
	lostCall // a call that the CLI lost with its process and left out
)

// What Claude Code 2.1 puts into a session whose process was killed, in the user's name and in the model's.
const (
	claudeLostCall = "Continue from where you left off."
	claudeNoAnswer = "No response requested."
)

func (c *conversation) add(e entry) { c.entries = append(c.entries, e) }

// say records a user's text, unless a CLI put it there on its own account.
func (c *conversation) say(text string) {
	text = strings.TrimSpace(text)
	if text == "" {
		return
	}
	if text == claudeLostCall {
		c.add(entry{kind: lostCall})
		return
	}
	for _, prefix := range contextPrefixes() {
		if strings.HasPrefix(text, prefix) {
			return
		}
	}
	c.add(entry{kind: userText, text: text})
}

// reply records a text of the model, unless a CLI put it there.
func (c *conversation) reply(text string) {
	if text != "" && text != claudeNoAnswer {
		c.add(entry{kind: modelText, text: text})
	}
}

// contextPrefixes start the messages that CLIs send in the user's name: the environment, instructions found in files, notes about
// an interruption. Seen in Codex 0.169 and Claude Code 2.1.
func contextPrefixes() []string {
	return []string{
		"<environment_context>", "<user_instructions>", "# AGENTS.md instructions", "<skill", "<turn_aborted>",
		"<system-reminder>", "<local-command", "<command-", "[Request interrupted",
	}
}

// prompt is what the user said first.
func (c *conversation) prompt() string {
	for _, e := range c.entries {
		if e.kind == userText {
			return e.text
		}
	}
	return ""
}
