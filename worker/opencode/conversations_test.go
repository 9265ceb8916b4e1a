package opencode

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// conversations are those that are recorded, in their order: some go on with the session of an earlier one.
var conversations = []struct {
	name  string
	after string // the conversation whose folders it has
	conversation
}{
	{name: "plain", conversation: conversation{
		turns: []turn{bash("printf hello > made.txt && echo done"), say("All done.")},
		caps:  []job.Capability{job.CanRead, job.CanEdit, job.CanRunCommands},
		check: func(t *testing.T, c *conversation) {
			u := c.outcome.Usage
			if c.outcome.Answer != "All done." || u.InputTokens != 200 || u.OutputTokens != 40 || u.Steps != 2 || len(c.outcome.Denied) > 0 {
				t.Error("not as it was")
			}
			if _, ok := c.find(running); !ok {
				t.Error("the command was not shown while it ran")
			}
		},
	}},
	{name: "resume", after: "plain", conversation: conversation{
		turns: []turn{{}, {}, say("I know.")},
		check: func(t *testing.T, c *conversation) {
			if c.outcome.Answer != "I know." || c.outcome.Usage.Steps != 1 {
				t.Error("not resumed")
			}
		},
	}},
	{name: "fork", after: "plain", conversation: conversation{
		turns: []turn{{}, {}, {}, say("In the copy.")},
		check: func(t *testing.T, c *conversation) {
			if c.outcome.Answer != "In the copy." || c.outcome.Usage.Steps != 1 || c.outcome.Commands != nil {
				t.Error("no copy")
			}
		},
	}},
	{name: "ask-yes", conversation: conversation{
		turns: []turn{
			bash("make deploy > log; echo deployed"), {calls: []toolCall{{"write", map[string]any{"filePath": "a.txt", "content": "one\n"}}}},
			{calls: []toolCall{{"read", map[string]any{"filePath": "/etc/hostname"}}}}, {calls: []toolCall{{"webfetch", map[string]any{"url": "http://127.0.0.1:1/x", "format": "text"}}}}, say("All done."),
		},
		caps: []job.Capability{job.CanRead}, on: answering(func(worker.Question) worker.Answer { return worker.Answer{Decision: worker.Allow} }),
		check: func(t *testing.T, c *conversation) {
			var got []string
			for _, a := range c.told {
				if q, ok := question(a); ok {
					got = append(got, fmt.Sprintf("%s %s%s%s %v", q.Kind, q.Command, q.Path, q.Host, q.Diff != ""))
				}
			}
			want := []string{"command make deploy > log; echo deployed false", "write a.txt true", "read /etc/hostname false", "host 127.0.0.1 false"}
			if !slices.Equal(got, want) || c.outcome.Answer != "All done." || len(c.outcome.Denied) > 0 {
				t.Errorf("asked %q", got)
			}
		},
	}},
	{name: "ask-no", conversation: conversation{
		turns: []turn{{calls: []toolCall{bash("make deploy").calls[0], bash("make test").calls[0], {"write", map[string]any{"filePath": "a.txt", "content": "one\n"}}}}, say("Then not.")},
		on: answering(func(q worker.Question) worker.Answer {
			if q.Command == "make test" {
				return worker.Answer{Decision: worker.AllowInRun}
			}
			return worker.Answer{Text: "never on a Friday"}
		}),
		check: func(t *testing.T, c *conversation) {
			if c.outcome.Answer != "Then not." || !slices.Contains(c.outcome.Denied, "bash(make deploy)") || len(c.outcome.Commands) == 0 {
				t.Error("not refused")
			}
			ran, _ := c.find(func(e job.Event) bool {
				return e.Kind == job.EventCommand && e.Command == "make test" && e.ExitCode != nil
			})
			if ran.ExitCode == nil || *ran.ExitCode != 2 {
				t.Error("what was allowed did not run")
			}
			if !slices.ContainsFunc(c.model.heard, func(m string) bool { return strings.Contains(m, "never on a Friday") }) && !strings.Contains(fmt.Sprint(c.events), "never on a Friday") {
				t.Error("nobody said why")
			}
		},
	}},
	{name: "steer", conversation: conversation{
		turns: []turn{bash("while [ ! -e told ]; do sleep 0.1; done"), say("As you wish.")},
		caps:  []job.Capability{job.CanRunCommands},
		on: func(c *conversation, e job.Event, a worker.Action) []worker.Input {
			if s, ok := a.(worker.Settle); ok && s.State == worker.MessageDelivered {
				_ = os.WriteFile(filepath.Join(c.work, "told"), nil, 0o600)
			}
			if running(e) {
				return c.once(worker.Message{ID: "m1", From: "ann", Text: "skip the docs"})
			}
			return nil
		},
		check: func(t *testing.T, c *conversation) {
			if !slices.Equal(c.settled("m1"), []worker.MessageState{worker.MessageDelivered, worker.MessageFolded}) || c.outcome.Usage.Steps != 2 {
				t.Errorf("settled as %q", c.settled("m1"))
			}
			if last := c.model.heard[len(c.model.heard)-1]; !strings.Contains(last, "skip the docs") || c.outcome.Answer != "As you wish." {
				t.Errorf("the model heard %q", last)
			}
		},
	}},
	{name: "message-after-turn", conversation: conversation{
		turns: []turn{say("All done."), say("That, too.")},
		on: func(c *conversation, e job.Event, _ worker.Action) []worker.Input {
			if e.Kind == job.EventText {
				return c.once(worker.Message{ID: "m1", Text: "and this"}, worker.Message{ID: "m2", Text: "and that"})
			}
			return nil
		},
		check: func(t *testing.T, c *conversation) {
			for _, id := range []string{"m1", "m2"} {
				if states := c.settled(id); len(states) == 0 || states[len(states)-1] == worker.MessageDelivered {
					t.Errorf("%s settled as %q", id, states)
				}
			}
			if c.outcome.Class != job.NoError {
				t.Error("failed")
			}
		},
	}},
	{name: "interrupt", conversation: conversation{
		turns: []turn{bash("sleep 300"), say("No.")},
		caps:  []job.Capability{job.CanRunCommands},
		on: func(c *conversation, e job.Event, _ worker.Action) []worker.Input {
			if running(e) {
				return c.once(worker.Interrupt{Reason: "ann interrupted it"})
			}
			return nil
		},
		check: func(t *testing.T, c *conversation) {
			if c.outcome.State != job.Checkpointed || c.outcome.Message != "interrupted" || len(c.outcome.LeftBehind) > 0 {
				t.Error("not interrupted")
			}
		},
	}},
	{name: "interrupt-message", conversation: conversation{
		turns: []turn{bash("sleep 300"), say("Something else, then.")},
		caps:  []job.Capability{job.CanRunCommands},
		on: func(c *conversation, e job.Event, _ worker.Action) []worker.Input {
			if running(e) {
				return c.once(worker.Message{ID: "m1", Text: "before"}, worker.Interrupt{}, worker.Message{ID: "m2", Text: "do something else"})
			}
			return nil
		},
		check: func(t *testing.T, c *conversation) {
			if s1, s2 := c.settled("m1"), c.settled("m2"); c.outcome.Answer != "Something else, then." || s1[len(s1)-1] != worker.MessageFolded || s2[len(s2)-1] != worker.MessageFolded {
				t.Error("no other turn")
			}
		},
	}},
	{name: "subagent", conversation: conversation{
		turns: []turn{{calls: []toolCall{{"task", map[string]any{"description": "look around", "prompt": "SUB look", "subagent_type": "explore"}}}}, say("All done.")},
		sub:   []turn{bash("ls"), {calls: []toolCall{{"write", map[string]any{"filePath": "x", "content": "y"}}}}, say("Nothing there.")},
		caps:  []job.Capability{job.CanRead, job.CanEdit}, on: answering(func(worker.Question) worker.Answer { return worker.Answer{Decision: worker.Allow} }),
		check: func(t *testing.T, c *conversation) {
			if c.outcome.Answer != "All done." || c.outcome.Usage.InputTokens != 500 {
				t.Error("not charged")
			}
			ls, ok := c.find(func(e job.Event) bool { return e.Command == "ls" })
			if !ok || ls.Parent != "call_0_0" {
				t.Errorf("the subagent's command: %+v", ls)
			}
			if !slices.ContainsFunc(c.told, func(a worker.Action) bool { q, _ := question(a); return q.Command == "ls" }) {
				t.Error("the subagent was not asked about its command")
			}
			if _, err := os.Stat(filepath.Join(c.work, "x")); err == nil {
				t.Error("a subagent that only looks has written")
			}
		},
	}},
	{name: "question", conversation: conversation{
		turns: []turn{{calls: []toolCall{{"question", map[string]any{"questions": []any{map[string]any{"question": "Which colour?", "header": "Colour",
			"options": []any{map[string]any{"label": "red", "description": "like a fire"}, map[string]any{"label": "blue", "description": "like the sea"}}}}}}}}, say("Blue it is.")},
		on: answering(func(q worker.Question) worker.Answer {
			if q.Kind != worker.AboutWords || !strings.Contains(q.Text, "- blue: like the sea") {
				return worker.Answer{}
			}
			return worker.Answer{Decision: worker.Allow, Text: "blue"}
		}),
		check: func(t *testing.T, c *conversation) {
			if last := c.model.heard[len(c.model.heard)-1]; !strings.Contains(last, `"blue"`) {
				t.Errorf("the model heard %q", last)
			}
		},
	}},
	{name: "long-command", conversation: conversation{
		turns: []turn{bash("sleep 300"), say("No.")},
		caps:  []job.Capability{job.CanRunCommands}, limit: time.Second,
		check: func(t *testing.T, c *conversation) {
			if c.outcome.Class != job.Budget || !strings.Contains(c.outcome.Message, "max_command_time") {
				t.Error("the command was not bounded")
			}
		},
	}},
	{name: "fails-401", conversation: conversation{turns: []turn{{status: 401, text: "bad key"}}, check: fails(job.Auth, "bad key")}},
	{name: "fails-429", conversation: conversation{turns: []turn{{status: 429, text: "slow down", retryAfter: "7000"}}, check: fails(job.RateLimit, "slow down")}},
	{name: "fails-500", conversation: conversation{turns: []turn{{status: 500, text: "oh"}}, check: fails(job.Server, "3 requests")}},
	{name: "fails-context", conversation: conversation{turns: []turn{{status: 400, text: "This model's maximum context length is 1000 tokens"}}, check: fails(job.ResourceExhausted, "maximum context")}},
	{name: "fails-broken", conversation: conversation{turns: []turn{{text: "half an", broken: cut}}, check: fails(job.Server, "same step 3 times")}},
	{name: "fails-malformed", conversation: conversation{turns: []turn{{text: "half an", broken: `{"id":"c1","cho`}}, check: fails(job.Server, "")}},
	{name: "fails-quota", conversation: conversation{turns: []turn{{status: 429, text: "You exceeded your current quota"}}, check: fails(job.ResourceExhausted, "quota")}},
}

func fails(class job.ErrorClass, says string) func(*testing.T, *conversation) {
	return func(t *testing.T, c *conversation) {
		if c.outcome.Class != class || !strings.Contains(c.outcome.Message, says) {
			t.Errorf("%s: %s; want %s: %s", c.outcome.Class, c.outcome.Message, class, says)
		}
		if class == job.RateLimit && c.outcome.RetryAt == nil {
			t.Error("it is not said when to come back")
		}
	}
}
