package job

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestValidateAsk(t *testing.T) {
	rules := func(r ...AskRule) Ask { return Ask{Rules: r} }
	for name, c := range map[string]struct {
		ask  Ask
		want string // the field and a part of the message; "" for none
	}{
		"nothing":      {Ask{}, ""},
		"everything":   {Ask{For: AskFors(), Wait: 1, Rules: []AskRule{{Command: "go test *", Answer: AllowAsked, Because: "it is harmless"}}}, ""},
		"rules alone":  {rules(AskRule{Tool: "mcp__*", Answer: DenyAsked}), ""},
		"neither":      {Ask{Wait: 1}, "ask.for: is missing, want what"},
		"empty":        {Ask{For: []AskFor{}}, "ask.for: is missing, want what"},
		"unknown":      {Ask{For: []AskFor{"command"}}, `ask.for[0]: "command" is unknown; did you mean commands?`},
		"twice":        {Ask{For: []AskFor{AskHosts, AskHosts}}, `ask.for[1]: "hosts" is listed twice`},
		"no answer":    {rules(AskRule{Tool: "x"}), "ask.rules[0].answer: is missing, want one of allow, deny, ask"},
		"odd answer":   {rules(AskRule{Tool: "x", Answer: "maybe"}), `ask.rules[0].answer: "maybe" is unknown, want allow, deny or ask`},
		"no subject":   {rules(AskRule{Answer: DenyAsked}), "ask.rules[0]: says not what it is about, want one of command, write, read, host, tool"},
		"two subjects": {rules(AskRule{Write: "a", Host: "example.com", Answer: DenyAsked}), "ask.rules[0].host: stands beside write"},
		"blank":        {rules(AskRule{Command: " ", Answer: DenyAsked}), `ask.rules[0].command: " " is not a pattern`},
		"two lines":    {rules(AskRule{Command: "a\nb", Answer: DenyAsked}), "not a pattern in one line"},
		"two commands": {rules(AskRule{Command: "go vet && go test", Answer: DenyAsked}), "write a rule for each"},
		"long":         {rules(AskRule{Command: strings.Repeat("x", 1025), Answer: DenyAsked}), "has 1025 bytes, at most 1024 are allowed"},
		"longest":      {rules(AskRule{Command: strings.Repeat("x", 1024), Answer: DenyAsked}), ""},
		"long reason":  {rules(AskRule{Tool: "x", Answer: DenyAsked, Because: strings.Repeat("x", 1025)}), "ask.rules[0].because: has 1025 bytes"},
		"odd reason":   {rules(AskRule{Tool: "x", Answer: DenyAsked, Because: "a\x1b[2J"}), "ask.rules[0].because"},
		"many":         {rules(slices.Repeat([]AskRule{{Tool: "x", Answer: DenyAsked}}, 257)...), "ask.rules: has 257 entries, at most 256 are allowed"},
		"paths":        {rules(AskRule{Write: "docs/**", Answer: AllowAsked}, AskRule{Read: "/srv/*.md", Answer: AllowAsked}, AskRule{Read: "**", Answer: AllowAsked}), ""},
		"tilde":        {rules(AskRule{Read: "~/x", Answer: AllowAsked}), "write an absolute path"},
		"above":        {rules(AskRule{Write: "../x", Answer: AllowAsked}), `has a part ".."`},
		"twice slash":  {rules(AskRule{Write: "a//b", Answer: AllowAsked}), `has a part ""`},
		"root":         {rules(AskRule{Write: "/", Answer: AllowAsked}), `has a part ""`},
		"folder":       {rules(AskRule{Write: "docs/", Answer: AllowAsked}), "want docs/** for all that lies below"},
		"stars":        {rules(AskRule{Write: "docs/**.md", Answer: AllowAsked}), "want it as a part of its own"},
		"bracket":      {rules(AskRule{Write: "docs/[a", Answer: AllowAsked}), "a bracket or a backslash"},
		"hosts":        {rules(AskRule{Host: "*", Answer: AllowAsked}, AskRule{Host: "*.example.com", Answer: DenyAsked}, AskRule{Host: "[::1]:80", Answer: DenyAsked}), ""},
		"host":         {rules(AskRule{Host: "https://example.com/", Answer: AllowAsked}), "is not a host"},
		"preset":       {rules(AskRule{Host: "npm", Answer: AllowAsked}), `"npm" is not a host, want one such as`},
		"tool":         {rules(AskRule{Tool: "Web Search", Answer: AllowAsked}), "is not the name of a tool"},
	} {
		s := validSpec()
		s.Ask = c.ask
		errs := s.Validate()
		switch {
		case c.want == "" && len(errs) > 0:
			t.Errorf("%s: %v", name, errs[0])
		case c.want != "" && (len(errs) != 1 || !strings.Contains(errs[0].Error(), c.want)):
			t.Errorf("%s: %v, want %q", name, errs, c.want)
		}
	}
}

// TestAskOfType: only an agent has something to ask.
func TestAskOfType(t *testing.T) {
	for _, c := range []struct {
		s    Spec
		want string
	}{
		{Spec{Type: Tool, Worker: ShellWorker, Instructions: "true"}, "asks nobody"},
		{Spec{Type: PluginEvent, Worker: ShellWorker, Instructions: "true"}, "asks nobody"},
		{Spec{Type: LLM, Worker: "codex", Instructions: "x"}, "no tools"},
		{Spec{Type: External}, "whoever claims it"},
	} {
		c.s.Name, c.s.Workspace, c.s.Ask = "a", Workspace{Isolation: NoWorkspace}, Ask{For: []AskFor{AskCommands}}
		if errs := c.s.Validate(); len(errs) != 1 || errs[0].Field != "ask" || !strings.Contains(errs[0].Message, c.want) {
			t.Errorf("%s: %v, want %q", c.s.Type, errs, c.want)
		}
	}
}

func TestAskWait(t *testing.T) {
	if got := (&Ask{}).WaitOrDefault(); got != 10*time.Minute {
		t.Errorf("waits %v", got)
	}
	if got := (&Ask{Wait: Duration(time.Hour)}).WaitOrDefault(); got != time.Hour {
		t.Errorf("waits %v", got)
	}
}

func TestAskRuleSubject(t *testing.T) {
	for _, r := range []AskRule{{}, {Command: "a", Tool: "b"}} {
		if about, pattern := r.Subject(); about != "" || pattern != "" {
			t.Errorf("%v is about %s %s", r, about, pattern)
		}
	}
	r := AskRule{Write: "docs/**", Answer: AllowAsked}
	if about, pattern := r.Subject(); about != AskWrites || pattern != "docs/**" || r.String() != "write: docs/**" {
		t.Errorf("%v is about %s %s", r, about, pattern)
	}
	if text, err := json.Marshal(validSpec()); err != nil || strings.Contains(string(text), `"ask"`) {
		t.Errorf("a job that asks nobody is written as %s, %v", text, err)
	}
}
