package claude

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// TestSubagents: the program is told of subagents as JSON, and none has a tool that the job has not.
func TestSubagents(t *testing.T) {
	tk := &worker.Task{Capabilities: []job.Capability{job.CanRead, job.CanRunCommands}, AllowCommands: []string{"cat *"}, Settings: job.WorkerSettings{Subagents: map[string]job.Subagent{
		"finder":   {When: "finds things", Instructions: "Look.", Capabilities: []job.Capability{job.CanRead, job.CanEdit, job.CanUseNetwork}},
		"reviewer": {When: "reviews -- \"all\""}, "thinker": {When: "thinks", Capabilities: []job.Capability{}},
	}}}
	g, err := grantOf(tk)
	if err != nil {
		t.Fatal(err)
	}
	if g.agents, err = subagents(tk); err != nil {
		t.Fatal(err)
	}
	args := strings.Join(arguments(tk, g, home{}, ""), "\n")
	_, text, ok := strings.Cut(args, "--agents=")
	text, _, _ = strings.Cut(text, "\n")
	var got map[string]subagent
	if err := json.Unmarshal([]byte(text), &got); !ok || err != nil {
		t.Fatalf("%s: %v", args, err)
	}
	want := map[string]subagent{
		"finder":   {"finds things", "Look.", []string{"Read", "Glob", "Grep"}},
		"reviewer": {"reviews -- \"all\"", "reviews -- \"all\"", []string{"Read", "Glob", "Grep", "Bash"}}, "thinker": {"thinks", "thinks", []string{}},
	}
	if !reflect.DeepEqual(got, want) || !strings.Contains(args, "--tools=Read,Glob,Grep,Bash,Task") {
		t.Errorf("%+v, want %+v\n%s", got, want, args)
	}
}

// TestSubagentsAreNested: what a subagent says and does belongs to the call that started it, and is no answer of the agent's.
func TestSubagentsAreNested(t *testing.T) {
	s := testSession(t).(*session)
	var events []job.Event
	for _, a := range only[worker.Emit](talked(s, out(begins),
		out(`{"type":"assistant","message":{"id":"1","content":[{"type":"text","text":"I ask."},{"type":"tool_use","id":"c","name":"Agent","input":{"description":"review it","subagent_type":"reviewer"}}]},"parent_tool_use_id":null}`),
		out(`{"type":"assistant","message":{"id":"2","content":[{"type":"text","text":"I look."},{"type":"tool_use","id":"d","name":"Bash","input":{"command":"ls"}}]},"parent_tool_use_id":"c"}`),
		out(`{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"d","content":"a"}]},"parent_tool_use_id":"c"}`),
		out(`{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"c","content":[{"type":"text","text":"It is fine."},{"type":"text","text":"agentId: 1"}]}]},"parent_tool_use_id":null}`),
	)) {
		events = append(events, a.Event)
	}
	said := ""
	for _, e := range events {
		if e.Kind != job.EventStep && e.Kind != job.EventSession {
			said += e.Parent + ">" + string(e.Kind) + " " + e.Tool + e.Command + e.Text + "|"
		}
	}
	if want := ">text I ask.|>tool Agentreviewer: review it|c>text I look.|c>command ls|c>command lsa|c>text It is fine.|"; said != want {
		t.Errorf("%s, want %s", said, want)
	}
	if s.answer != "I ask." {
		t.Errorf("the answer is %q", s.answer)
	}
}

// TestSubagentsAreCounted: messages of subagents at work side by side come in turns, a block each, and each counts once.
func TestSubagentsAreCounted(t *testing.T) {
	s := testSession(t).(*session)
	says := func(id, parent string) line {
		return line{Type: "assistant", Parent: parent, Message: message{ID: id, Usage: tokens{Input: 100}}}
	}
	for _, l := range []line{says("1", ""), says("2", "c"), says("3", "d"), says("2", "c"), says("3", "d"), says("1", ""), says("4", "c")} {
		s.assistant(l)
	}
	if s.told.InputTokens != 400 {
		t.Errorf("%d tokens were counted, want those of 4 messages of 100 each", s.told.InputTokens)
	}
}
