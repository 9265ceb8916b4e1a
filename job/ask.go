package job

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/agentsched/agentsched/internal/fields"
)

// Ask is the third answer to what a job's run wants to do, beside what the job was
// granted and what it was not: a rule answers, or a person. The zero value asks nobody.
type Ask struct {
	// What of the run a person is asked about, where the job does not grant it: `commands` it wants to run; files it wants
	// to change (`writes`) or to read (`reads`); `hosts` it wants to reach; other `tools`; `words`, that is what the agent asks
	// by itself.
	For []AskFor `json:"for,omitempty" yaml:"for,omitempty" otherwise:"required without rules"`
	// How long a person may take while the run waits.
	Wait Duration `json:"wait,omitempty" yaml:"wait,omitempty" above:"0s" want:"a duration such as 10m" otherwise:"10m"`
	// Answers that no person has to give: that of the first rule which matches, at most 256. They come before what the job
	// was granted.
	Rules []AskRule `json:"rules,omitempty" yaml:"rules,omitempty"`
}

// DefaultAskWait is how long a person may take where Ask.Wait is zero.
const DefaultAskWait = Duration(10 * time.Minute)

// WaitOrDefault returns how long a person may take.
func (a *Ask) WaitOrDefault() time.Duration {
	if a.Wait > 0 {
		return a.Wait.Std()
	}
	return DefaultAskWait.Std()
}

// IsZero reports whether nothing was said, and so nobody is asked.
func (a Ask) IsZero() bool { return a.For == nil && a.Rules == nil && a.Wait == 0 }

// Asks reports whether people or rules answer anything.
func (a *Ask) Asks() bool { return len(a.For) > 0 || len(a.Rules) > 0 }

// AskFor is something of a run that a person may be asked about.
type AskFor string

// What there is.
const (
	AskCommands AskFor = "commands"
	AskWrites   AskFor = "writes"
	AskReads    AskFor = "reads"
	AskHosts    AskFor = "hosts"
	AskTools    AskFor = "tools"
	AskWords    AskFor = "words"
)

// AskFors lists all of them.
func AskFors() []AskFor {
	return []AskFor{AskCommands, AskWrites, AskReads, AskHosts, AskTools, AskWords}
}

// AskRule answers for what its pattern covers. Exactly one of the fields before Answer
// is set.
type AskRule struct {
	// Commands, as in `allow_commands`: `go test *`.
	Command string `json:"command,omitempty" yaml:"command,omitempty" match:"\\S" is:"a pattern" want:"a pattern such as 'go test *'"`
	// Files that are changed, within the workspace or by absolute paths: `*` stands for any text within a part of the path, a
	// part `**` for any number of parts: `docs/**`, `**/*.md`. What lies in a `.git` is only allowed by a pattern that names it.
	Write string `json:"write,omitempty" yaml:"write,omitempty"`
	// Files that are read, likewise.
	Read string `json:"read,omitempty" yaml:"read,omitempty"`
	// Hosts, as in `network`, or `*` for any: `*.example.com`, `example.com:8443`.
	Host string `json:"host,omitempty" yaml:"host,omitempty"`
	// Tools, as the agent's program calls them: `WebSearch`, `mcp__github__*`. Tools that run a command, change or read a file
	// or reach a host can be denied, and are allowed by what they do.
	Tool string `json:"tool,omitempty" yaml:"tool,omitempty"`
	// `allow`, `deny`, or `ask`: a person is asked although the job grants it.
	Answer AskAnswer `json:"answer" yaml:"answer" need:"one of allow, deny, ask"`
	// Why: the agent is told.
	Because string `json:"because,omitempty" yaml:"because,omitempty"`
}

// AskAnswer is what a rule answers.
type AskAnswer string

// The answers.
const (
	AllowAsked AskAnswer = "allow"
	DenyAsked  AskAnswer = "deny"
	AskPerson  AskAnswer = "ask"
)

// AskAnswers lists every answer.
func AskAnswers() []AskAnswer { return []AskAnswer{AllowAsked, DenyAsked, AskPerson} }

// Subject returns what r is about and its pattern; "" if that is not said once.
func (r AskRule) Subject() (about AskFor, pattern string) {
	for _, f := range r.subjects() {
		switch {
		case f.pattern == "":
		case about != "":
			return "", ""
		default:
			about, pattern = f.about, f.pattern
		}
	}
	return about, pattern
}

type askSubject struct {
	about          AskFor
	field, pattern string
}

func (r AskRule) subjects() []askSubject {
	return []askSubject{
		{AskCommands, "command", r.Command}, {AskWrites, "write", r.Write}, {AskReads, "read", r.Read},
		{AskHosts, "host", r.Host}, {AskTools, "tool", r.Tool},
	}
}

// String returns the rule's subject as a file writes it, e.g. "command: go test *".
func (r AskRule) String() string {
	for _, f := range r.subjects() {
		if f.pattern != "" {
			return f.field + ": " + f.pattern
		}
	}
	return "a rule about nothing"
}

const (
	maxAskRules = 256
	maxAskText  = 1 << 10 // of a pattern and a reason, in bytes
)

// Validate returns what is wrong with r.
func (r AskRule) Validate() []*FieldError { return append(fields.Check(&r, nil), r.faults()...) }

// faults returns what the tags of the fields do not say.
func (r AskRule) faults() []*FieldError {
	var errs []*FieldError
	bad := func(field, format string, args ...any) {
		errs = append(errs, &FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
	}
	var given []string
	for _, f := range r.subjects() {
		if f.pattern != "" {
			given = append(given, f.field)
			if err := validAskPattern(f.about, f.pattern); err != nil {
				bad(f.field, "%v", err)
			}
		}
	}
	switch {
	case len(given) == 0:
		bad("", "says not what it is about, want one of command, write, read, host, tool")
	case len(given) > 1:
		bad(given[1], "stands beside %s, and a rule is about one of them; write a rule for each", given[0])
	}
	if len(r.Because) > maxAskText {
		bad("because", "has %d bytes, at most %d are allowed", len(r.Because), maxAskText)
	} else if !OneLine(r.Because) {
		bad("because", "%q is not one line of text", r.Because)
	}
	return errs
}

func validAskPattern(about AskFor, pattern string) error {
	switch {
	case len(pattern) > maxAskText:
		return fmt.Errorf("has %d bytes, at most %d are allowed", len(pattern), maxAskText)
	case !OneLine(pattern):
		return fmt.Errorf("%q is not a pattern in one line", pattern)
	case strings.TrimSpace(pattern) == "" && about != AskCommands: // whose tag says so
		return fmt.Errorf("is blank, want a pattern")
	}
	switch about {
	case AskCommands:
		for _, operator := range []string{"&&", "||", "|", ";", "&"} {
			if slices.Contains(strings.Fields(pattern), operator) {
				return fmt.Errorf("%q is several commands, and each is looked at by itself; write a rule for each", pattern)
			}
		}
	case AskWrites, AskReads:
		return validPathPattern(pattern)
	case AskHosts:
		preset := slices.Contains(NetworkPresets(), pattern)
		if preset || pattern != "*" && ValidNetworkEntry(pattern) != nil {
			return fmt.Errorf("%q is not a host, want one such as example.com, *.example.com or example.com:8443, or * for any", pattern)
		}
	case AskTools:
		if strings.ContainsAny(pattern, " \t") {
			return fmt.Errorf("%q is not the name of a tool, want one such as WebSearch or mcp__github__*", pattern)
		}
	}
	return nil
}

// validPathPattern says why a pattern of paths matches none or not what it seems to.
func validPathPattern(pattern string) error {
	if pattern[0] == '~' {
		return fmt.Errorf("%q begins with a tilde, which stands for no folder here; write an absolute path", pattern)
	}
	parts := strings.Split(strings.TrimPrefix(pattern, "/"), "/")
	for i, part := range parts {
		switch {
		case part == "" && i == len(parts)-1 && i > 0:
			return fmt.Errorf("%q ends in a slash, want %s** for all that lies below", pattern, pattern)
		case part == "" || part == "." || part == "..":
			return fmt.Errorf("%q has a part %q, which no path has after it was made plain; leave it out", pattern, part)
		case part != "**" && strings.Contains(part, "**"):
			return fmt.Errorf("%q has ** beside other text, want it as a part of its own, such as docs/**/*.md", pattern)
		}
		if _, err := path.Match(part, ""); err != nil {
			return fmt.Errorf("%q is not a pattern: %q has a bracket or a backslash that is not closed; write \\ before a character that stands for itself", pattern, part)
		}
	}
	return nil
}

// validateAsk looks at what is asked, and of whom.
func (s *Spec) validateAsk(bad func(string, string, ...any)) {
	a := &s.Ask
	if a.IsZero() {
		return
	}
	switch {
	case s.Type.Command():
		bad("ask", "is not for a job of type %s, whose script runs as it is written and asks nobody; say in allow_commands what it may run", s.Type)
	case s.Worker == ShellWorker:
		bad("ask", "is not for the worker shell, which runs its script as it is written and asks nobody; say in allow_commands what it may run")
	case s.Type == LLM:
		bad("ask", "is not for a job of type LLM, which has no tools and so nothing to ask; leave it out")
	case s.Type == External:
		bad("ask", "is not for a job of type EXTERNAL, which is run by whoever claims it; leave it out")
	case len(a.For) == 0 && len(a.Rules) == 0:
		bad("ask.for", "is missing, want what a person is asked about, such as [commands, writes], or rules that answer instead")
	}
	for i, about := range a.For {
		if slices.Index(a.For, about) < i {
			bad(fmt.Sprintf("ask.for[%d]", i), "%q is listed twice; remove one", about)
		}
	}
	if len(a.Rules) > maxAskRules {
		bad("ask.rules", "has %d entries, at most %d are allowed", len(a.Rules), maxAskRules)
		return
	}
	for i, r := range a.Rules {
		for _, e := range r.faults() {
			at := fmt.Sprintf("ask.rules[%d]", i)
			if e.Field != "" {
				at += "." + e.Field
			}
			bad(at, "%s", e.Message)
		}
	}
}
