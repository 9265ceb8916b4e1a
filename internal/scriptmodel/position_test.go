package scriptmodel

import (
	"fmt"
	"testing"
)

// TestLocate lists conversations as the CLIs send them: u user, m model's text, c call, r result, x aborted result, p poll,
// R result of a command that still runs, l lost call.
func TestLocate(t *testing.T) {
	for _, tc := range []struct {
		about    string
		said     string
		onResume bool
		want     position
	}{
		{"a new session", "u", true, position{turn: 0}},
		{"one result", "ucr", true, position{turn: 1}},
		{"two results, with words between", "umcrmcr", true, position{turn: 2}},
		{"two calls in one answer", "uccrr", false, position{turn: 2}},
		{"a command that runs on", "ucR", false, position{turn: 1, waiting: 7}},
		{"still running after a poll", "ucRpR", false, position{turn: 1, waiting: 7}},
		{"ended while polled", "ucRpRpr", false, position{turn: 1}},
		{"resumed after a cut, script for it", "ucx" + "u", true, position{turn: 0, resumed: true}},
		{"and one command later", "ucx" + "ucr", true, position{turn: 1, resumed: true}},
		{"resumed after a cut, no script for it", "ucrcx" + "u", false, position{turn: 2}},
		{"and one command later", "ucrcx" + "ucr", false, position{turn: 3}},
		{"cut twice", "ucx" + "ucx" + "u", false, position{turn: 2}},
		{"a call that was dropped", "ucrl" + "u", false, position{turn: 2}},
		{"a call without result", "ucrc" + "u", false, position{turn: 2}},
		{"cut between a result and the next answer", "ucr" + "u", false, position{turn: 1}},
		{"spoken to again after the end", "ucrm" + "u", false, position{turn: 0}},
		{"cut, resumed to the end, spoken to again", "ucx" + "um" + "u", false, position{turn: 0}},
		{"no user at all", "", false, position{turn: 0}},
	} {
		t.Run(tc.about+" "+tc.said, func(t *testing.T) {
			if tc.want.waiting == 0 {
				tc.want.waiting = -1
			}
			if got := locate(talk(tc.said), tc.onResume); got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

func talk(letters string) conversation {
	var c conversation
	var calls []string // without result
	for i, l := range letters {
		id := fmt.Sprint("call", i)
		result := func(text string) {
			c.add(entry{kind: toolResult, callID: calls[0], text: text})
			calls = calls[1:]
		}
		switch l {
		case 'u':
			c.say("do it")
		case 'm':
			c.reply("I will")
		case 'c', 'p':
			c.add(entry{kind: toolCall, callID: id, name: map[rune]string{'c': "exec_command", 'p': pollTool}[l]})
			calls = append(calls, id)
		case 'r':
			result("Process exited with code 0")
		case 'x':
			result("aborted")
		case 'R':
			result("Chunk ID: 1\nProcess running with session ID 7\nOutput:\n")
		case 'l':
			c.say(claudeLostCall)
			c.reply(claudeNoAnswer)
		}
	}
	return c
}

// TestHistories reads conversations that the three CLIs sent after they were killed in the middle of a command and resumed.
func TestHistories(t *testing.T) {
	const codex = `{"model": "m", "input": [
		{"role": "user", "content": [{"type": "input_text", "text": "<environment_context>x</environment_context>"}]},
		{"role": "user", "content": [{"type": "input_text", "text": "Do it"}]},
		{"type": "function_call", "name": "exec_command", "arguments": "{}", "call_id": "c1"},
		{"type": "function_call_output", "call_id": "c1", "output": "Wall time: 3.6 seconds\naborted by user"},
		{"role": "user", "content": [{"type": "input_text", "text": "<turn_aborted>\nThe user interrupted</turn_aborted>"}]},
		{"role": "user", "content": [{"type": "input_text", "text": "Go on"}]}]}`
	const claudeKilled = `{"model": "m", "messages": [
		{"role": "user", "content": [{"type": "text", "text": "<system-reminder>x</system-reminder>"},
			{"type": "text", "text": "Do it\n\n"}, {"type": "text", "text": "Continue from where you left off."}]},
		{"role": "assistant", "content": [{"type": "text", "text": "No response requested."}]},
		{"role": "user", "content": [{"type": "text", "text": "Go on"}]}]}`
	const claudeInterrupted = `{"model": "m", "messages": [
		{"role": "user", "content": "Do it"},
		{"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "Bash", "input": {}}]},
		{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "is_error": true, "content": "The user doesn't want to proceed"},
			{"type": "text", "text": "[Request interrupted by user for tool use]"}]},
		{"role": "assistant", "content": [{"type": "text", "text": "No response requested."}]},
		{"role": "user", "content": [{"type": "text", "text": "Go on"}]}]}`
	const opencode = `{"model": "m", "messages": [
		{"role": "system", "content": "You are"}, {"role": "user", "content": "Do it"},
		{"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "function": {"name": "bash", "arguments": "{}"}}]},
		{"role": "tool", "tool_call_id": "c1", "content": "[Tool execution was interrupted]"},
		{"role": "user", "content": "Go on"}]}`
	for name, tc := range map[string]struct {
		d    dialect
		body string
	}{
		"codex": {responsesAPI{}, codex}, "claude killed": {messagesAPI{}, claudeKilled},
		"claude interrupted": {messagesAPI{}, claudeInterrupted}, "opencode": {chatAPI{}, opencode},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := tc.d.parse([]byte(tc.body))
			if err != nil {
				t.Fatal(err)
			}
			if got, want := locate(c, false), (position{turn: 1, waiting: -1}); got != want {
				t.Errorf("without OnResume: got %+v, want %+v", got, want)
			}
			if got, want := locate(c, true), (position{resumed: true, waiting: -1}); got != want {
				t.Errorf("with OnResume: got %+v, want %+v", got, want)
			}
			if got := c.prompt(); got != "Do it" {
				t.Errorf("prompt %q", got)
			}
		})
	}
}
