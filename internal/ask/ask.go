package ask

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/agentsched/agentsched/internal/commands"
	"github.com/agentsched/agentsched/job"
)

// Request is what a program asks whether it may. The field that Kind names decides.
type Request struct {
	Kind    Kind
	Tool    string // as the program calls it, e.g. "Bash"; may be set beside the others
	Command string // the whole command line
	Path    string // a file or folder, absolute or within the workspace
	Host    string // of the network, with a port or without
}

// Kind is what a request is about: the words of worker.QuestionKind.
type Kind string

// The kinds.
const (
	Command Kind = "command"
	Write   Kind = "write"
	Read    Kind = "read"
	Host    Kind = "host"
	Tool    Kind = "tool"
	Words   Kind = "words"
)

// Verdict is the answer to a Request. Unless it is job.AskPerson, it is final.
type Verdict struct {
	Answer  job.AskAnswer
	Rule    string // what decided, for people, e.g. "ask.rules[1] (command: git push *)"
	Because string // why not, for the agent and for people; "" if it is allowed
}

// Config is what a Policy goes by.
type Config struct {
	Spec *job.Spec
	// Dir is the folder in which the run works, absolute. Relative paths are within it.
	Dir string
	// Read and Write are files and folders beside it that the run was given, to read or
	// also to change: absolute and clean paths, with all that lies below.
	Read, Write []string
	// Presets are the hosts of each preset of job.NetworkPresets.
	Presets map[string][]string
	// Standing are the answers that people gave for more than once. They count after
	// what the job grants.
	Standing []job.AskRule
}

// Policy decides about the requests of one run. It does not change, and may be used by
// several goroutines.
type Policy struct {
	Config
	rules, standing []rule
	anyCommand      bool
	patterns        []granted
}

// rule is an AskRule that was read.
type rule struct {
	job.AskRule
	about   job.AskFor
	pattern string
	command commands.Pattern // of a rule about commands
	name    string           // for people
}

// granted is a pattern of commands, and what of the job grants it.
type granted struct {
	by      string
	pattern commands.Pattern
}

// New returns the policy of a run. Rules that job.AskRule.Validate refuses match nothing.
func New(c Config) *Policy {
	p := &Policy{Config: c, anyCommand: c.Spec.Can(job.CanRunCommands) && len(c.Spec.AllowCommands) == 0}
	for i, r := range c.Spec.Ask.Rules {
		p.rules = append(p.rules, read(r, fmt.Sprintf("ask.rules[%d] (%s)", i, r)))
	}
	for _, r := range c.Standing {
		p.standing = append(p.standing, read(r, fmt.Sprintf("answered before (%s)", r)))
	}
	grant := func(by string, texts []string) {
		for _, pattern := range commands.Patterns(texts...) {
			p.anyCommand = p.anyCommand || pattern.Everything()
			p.patterns = append(p.patterns, granted{by, pattern})
		}
	}
	grant("allow_commands", c.Spec.AllowCommands)
	if c.Spec.Can(job.CanRunTests) {
		grant(string(job.CanRunTests), job.TestCommands())
	}
	return p
}

func read(r job.AskRule, name string) rule {
	out := rule{AskRule: r, name: name}
	if len(r.Validate()) > 0 {
		return out
	}
	out.about, out.pattern = r.Subject()
	if out.about == job.AskCommands {
		out.command = commands.Patterns(out.pattern)[0]
	}
	return out
}

// Decide answers a request. A command line is looked at in its parts, and the
// strictest answer to one of them is that to all.
func (p *Policy) Decide(r Request) Verdict {
	var all Verdict
	for _, n := range p.needs(r) {
		v := p.decide(&n)
		switch {
		case strictness(v) > strictness(all):
			all = v
		case v.Answer == job.AllowAsked && all.Answer == job.AllowAsked && len(all.Rule) < maxText && !strings.Contains(all.Rule, v.Rule):
			all.Rule = strings.TrimPrefix(all.Rule+", "+v.Rule, ", ")
		}
	}
	if r, hides := unseen(r.Command + r.Path + r.Host + r.Tool); hides && all.Answer == job.AskPerson {
		all = Verdict{Answer: job.DenyAsked, Because: fmt.Sprintf("a person would have to be asked, who would not see all of it: it has the character %U; write it without", r)}
	}
	all.Rule, _ = job.Cut(all.Rule, maxText)
	all.Because, _ = job.Cut(all.Because, maxText)
	return all
}

// unseen returns a character of a text that a page or a terminal does not show, or that hides what stands beside it there. Those that
// join letters and emoji (U+200C, U+200D) are none.
func unseen(text string) (rune, bool) {
	i := strings.IndexFunc(text, func(r rune) bool {
		return !strings.ContainsRune("\n\t\u200c\u200d", r) && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
	})
	if i < 0 {
		return 0, false
	}
	r, _ := utf8.DecodeRuneInString(text[i:])
	return r, true
}

// maxText bounds the texts of a Verdict, in bytes.
const maxText = 2 << 10

func strictness(v Verdict) int {
	if v.Answer == job.DenyAsked && v.Rule != "" { // it says more than that nothing allows it
		return 4
	}
	return slices.Index([]job.AskAnswer{"", job.AllowAsked, job.AskPerson, job.DenyAsked}, v.Answer)
}

// need is one thing that a request needs to be allowed.
type need struct {
	about job.AskFor
	tool  string         // the request's
	part  *commands.Part // of a command line; else nil
	path  string         // absolute and clean; "" if it is not known
	host  host
	text  string // what it is, for people
}

// needs returns at least one need.
func (p *Policy) needs(r Request) []need {
	n := need{tool: r.Tool}
	switch r.Kind {
	case Command:
		var all []need
		for _, part := range parts(r.Command, p.Dir) {
			n := need{about: job.AskCommands, tool: r.Tool, part: &part, text: cmp.Or(part.Text, "the command")}
			if part.Kind == commands.Write {
				n.about, n.path = job.AskWrites, part.Path
			}
			all = append(all, n)
		}
		return all
	case Write, Read:
		n.about, n.path, n.text = job.AskWrites, resolve(p.Dir, r.Path), r.Path
		if r.Kind == Read {
			n.about = job.AskReads
		}
	case Host:
		n.about, n.host, n.text = job.AskHosts, parseHost(r.Host), r.Host
	case Tool:
		n.about, n.text = job.AskTools, r.Tool
	case Words:
		n.about, n.text = job.AskWords, "the agent's question"
	}
	return []need{n}
}

func (p *Policy) decide(n *need) Verdict {
	if v, ok := p.answer(p.rules, n); ok {
		return v
	}
	if by, ok := p.grants(n); ok {
		return Verdict{Answer: job.AllowAsked, Rule: by}
	}
	if v, ok := p.answer(p.standing, n); ok {
		return v
	}
	for _, about := range p.Spec.Ask.For {
		// What a command line writes is asked about with the command line.
		if about == n.about || n.part != nil && about == job.AskCommands {
			return Verdict{Answer: job.AskPerson, Rule: "ask.for " + string(about), Because: p.missing(n)}
		}
	}
	return Verdict{Answer: job.DenyAsked, Because: p.missing(n) + "; " + p.remedy(n)}
}

// answer returns what the first rule answers that hits the need.
func (p *Policy) answer(rules []rule, n *need) (Verdict, bool) {
	for i := range rules {
		r := &rules[i]
		if !p.hits(r, n) {
			continue
		}
		v := Verdict{Answer: r.Answer, Rule: r.name}
		if r.Answer != job.AllowAsked {
			v.Because = cmp.Or(r.Because, fmt.Sprintf("%q: a rule of the job says %s (%s)", clip(n.text), r.Answer, r))
		}
		return v, true
	}
	return Verdict{}, false
}

// hits reports whether a rule is about the need: one that allows, only if it covers
// the need for certain; another one, if it may be meant.
func (p *Policy) hits(r *rule, n *need) bool {
	allow := r.Answer == job.AllowAsked
	switch r.about {
	case job.AskCommands:
		switch {
		case n.part == nil:
			return false
		case r.command.Everything():
			return true
		case allow:
			return allows(r.command, n.part)
		case n.part.Kind != commands.Call:
			return false
		}
		return slices.ContainsFunc(runs(n.part.Words), r.command.MayMatch)
	case job.AskWrites, job.AskReads:
		return r.about == n.about && n.path != "" && matchPath(r.pattern, p.Dir, n.path) &&
			(!allow || !inGit(n.path) || inGit(r.pattern) || r.about == job.AskReads)
	case job.AskHosts:
		return r.about == n.about && n.host.matches(r.pattern, allow, webPorts)
	case job.AskTools:
		return n.tool != "" && commands.Glob(r.pattern, n.tool) && (!allow || n.about == job.AskTools)
	}
	return false
}

func allows(p commands.Pattern, part *commands.Part) bool {
	return part.Kind == commands.Call && cannotMatch(part) == "" && p.Matches(part.Words)
}

// grants says what of the job grants the need.
func (p *Policy) grants(n *need) (by string, ok bool) {
	if n.part != nil {
		if by, ok := p.grantsPart(n); ok {
			return by, ok
		}
	}
	switch n.about {
	case job.AskWrites:
		switch {
		case n.path == "" || inGit(n.path):
		case p.Spec.Can(job.CanEdit) && within(p.Dir, n.path):
			return string(job.CanEdit), true
		case withinAny(p.Write, n.path):
			return "sandbox.write", true
		}
	case job.AskReads:
		switch {
		case n.path == "":
		case p.Spec.Can(job.CanRead) && within(p.Dir, n.path):
			return string(job.CanRead), true
		case withinAny(p.Read, n.path) || withinAny(p.Write, n.path):
			return "sandbox.read", true
		}
	case job.AskHosts:
		return p.grantsHost(n.host)
	}
	return "", false
}

// grantsPart is grants for a part of a command line. Where rules keep something back,
// what hides what it runs or writes is not granted by the right to run any command.
func (p *Policy) grantsPart(n *need) (by string, ok bool) {
	hides := n.part.Kind == commands.Write && n.path == "" || hidden(n.part)
	if p.anyCommand && !(hides && p.keepsBack(n.about)) {
		return string(job.CanRunCommands), true
	}
	if harmless(n.part) {
		return "", true
	}
	for _, g := range p.patterns {
		if allows(g.pattern, n.part) {
			return fmt.Sprintf("%s (%s)", g.by, strings.Join(g.pattern, " ")), true
		}
	}
	return "", false
}

// keepsBack reports whether a rule about such needs does not allow.
func (p *Policy) keepsBack(about job.AskFor) bool {
	return slices.ContainsFunc(p.rules, func(r rule) bool { return r.about == about && r.Answer != job.AllowAsked })
}

func (p *Policy) grantsHost(h host) (by string, ok bool) {
	if p.Spec.HasFullNetwork() {
		ok := h.name != "" || !p.keepsBack(job.AskHosts)
		return "network: full", ok
	}
	for _, entry := range p.Spec.NetworkHosts() {
		hosts, ports := []string{entry}, webPorts
		if slices.Contains(job.NetworkPresets(), entry) {
			hosts, ports = p.Presets[entry], httpsPort
		}
		for _, of := range hosts {
			if h.matches(of, true, ports) {
				return "network: " + entry, true
			}
		}
	}
	return "", false
}

// missing says why the need is not met.
func (p *Policy) missing(n *need) string {
	text := clip(n.text)
	switch n.about {
	case job.AskCommands:
		if why := cannotMatch(n.part); why != "" {
			return fmt.Sprintf("%q %s, so that no pattern allows it", text, why)
		}
		return fmt.Sprintf("the job does not grant the command %q", text)
	case job.AskWrites:
		switch {
		case n.path == "":
			return fmt.Sprintf("%q writes a file that is not known before", text)
		case inGit(n.path):
			return fmt.Sprintf("%q changes what lies in .git, which edit does not grant", text)
		case !within(p.Dir, n.path):
			return fmt.Sprintf("%q changes a file outside of the workspace", text)
		}
		return fmt.Sprintf("the job does not grant to change %q", text)
	case job.AskReads:
		return fmt.Sprintf("the job does not grant to read %q", text)
	case job.AskHosts:
		return fmt.Sprintf("the job does not grant the host %q", text)
	case job.AskTools:
		return fmt.Sprintf("no rule of the job allows the tool %q", text)
	case job.AskWords:
		return "nobody answers questions of this job's agent"
	}
	return "the request is of a kind that is not known"
}

// remedy says what would allow the need.
func (p *Policy) remedy(n *need) string {
	switch n.about {
	case job.AskCommands:
		switch {
		case cannotMatch(n.part) != "":
			return "write it without that, or a person would allow it, with commands in ask.for"
		case p.Spec.Can(job.CanRunCommands):
			return "a pattern in allow_commands or ask.rules would allow it, or a person, with commands in ask.for"
		}
		return "the capability run_commands would allow it, a rule in ask.rules, or a person, with commands in ask.for"
	case job.AskWrites:
		if within(p.Dir, n.path) && !inGit(n.path) {
			return "the capability edit would allow it, a rule in ask.rules, or a person, with writes in ask.for"
		}
	case job.AskReads:
		if within(p.Dir, n.path) {
			return "the capability read would allow it, a rule in ask.rules, or a person, with reads in ask.for"
		}
	case job.AskHosts:
		return "an entry in network would allow it, a rule in ask.rules, or a person, with hosts in ask.for"
	case job.AskWords:
		return "with words in ask.for, a person would"
	}
	return fmt.Sprintf("a rule in ask.rules would allow it, or a person, with %s in ask.for", n.about)
}

// clip returns a request's text as a message shows it.
func clip(text string) string {
	text, _ = job.Cut(strings.ToValidUTF8(text, "\uFFFD"), 200)
	return text
}
