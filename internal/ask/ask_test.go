package ask

import (
	"strings"
	"testing"

	"github.com/agentsched/agentsched/job"
)

const dir = "/work/space"

// policy returns one of a job with these capabilities and a change.
func policy(change func(*Config), capabilities ...job.Capability) *Policy {
	c := Config{Spec: &job.Spec{Capabilities: capabilities}, Dir: dir}
	if change != nil {
		change(&c)
	}
	return New(c)
}

func rules(r ...job.AskRule) func(*Config) {
	return func(c *Config) { c.Spec.Ask.Rules = r }
}

func allow(command string) job.AskRule {
	return job.AskRule{Command: command, Answer: job.AllowAsked}
}

func deny(command string) job.AskRule {
	return job.AskRule{Command: command, Answer: job.DenyAsked}
}

// TestOrder: rules, what the job grants, what people have said, people, no.
func TestOrder(t *testing.T) {
	r := Request{Kind: Command, Command: "make deploy"}
	everything := Config{
		Spec: &job.Spec{
			Capabilities: []job.Capability{job.CanRunCommands}, AllowCommands: []string{"make *"},
			Ask: job.Ask{For: []job.AskFor{job.AskCommands}, Rules: []job.AskRule{
				{Command: "make deploy", Answer: job.DenyAsked, Because: "it is Friday"}, allow("make *"),
			}},
		},
		Dir: dir, Standing: []job.AskRule{allow("make deploy")},
	}
	for _, step := range []struct {
		want   Verdict
		remove func()
	}{
		{Verdict{job.DenyAsked, "ask.rules[0] (command: make deploy)", "it is Friday"}, func() { everything.Spec.Ask.Rules = everything.Spec.Ask.Rules[1:] }},
		{Verdict{job.AllowAsked, "ask.rules[0] (command: make *)", ""}, func() { everything.Spec.Ask.Rules = nil }},
		{Verdict{job.AllowAsked, "allow_commands (make *)", ""}, func() { everything.Spec.AllowCommands = []string{"go *"} }},
		{Verdict{job.AllowAsked, "answered before (command: make deploy)", ""}, func() { everything.Standing = nil }},
		{Verdict{job.AskPerson, "ask.for commands", `the job does not grant the command "make deploy"`}, func() { everything.Spec.Ask.For = nil }},
		{Verdict{job.DenyAsked, "", `the job does not grant the command "make deploy"; a pattern in allow_commands or ask.rules would allow it, or a person, with commands in ask.for`},
			func() { everything.Spec.AllowCommands = nil }},
		{Verdict{job.AllowAsked, "run_commands", ""}, nil},
	} {
		if got := New(everything).Decide(r); got != step.want {
			t.Errorf("got %+v\nwant %+v", got, step.want)
		}
		if step.remove != nil {
			step.remove()
		}
	}
}

// TestUnseen: nobody is asked about what they would not see. What is decided without them is decided all the same.
func TestUnseen(t *testing.T) {
	p := policy(func(c *Config) {
		c.Spec.Ask = job.Ask{For: []job.AskFor{job.AskCommands, job.AskWrites, job.AskHosts, job.AskTools}, Rules: []job.AskRule{allow("printf *")}}
	})
	for _, c := range []struct {
		r    Request
		want job.AskAnswer
	}{
		{Request{Kind: Command, Command: "make"}, job.AskPerson},
		{Request{Kind: Command, Command: "make\n\tgit commit -m '\U0001f468\u200d\U0001f4bb'"}, job.AskPerson},
		{Request{Kind: Command, Command: "make \x1b]0; rm -rf / ;\x07"}, job.DenyAsked},
		{Request{Kind: Command, Command: "make \u009b8m; rm -rf /"}, job.DenyAsked},
		{Request{Kind: Command, Command: "make\rrm -rf /"}, job.DenyAsked},
		{Request{Kind: Command, Command: "make \u202e/ fr- mr ;"}, job.DenyAsked},
		{Request{Kind: Command, Command: "printf '\x1b[31m'"}, job.AllowAsked},
		{Request{Kind: Write, Path: "docs/a\x1b]0;/../../.bashrc\x07"}, job.DenyAsked},
		{Request{Kind: Host, Host: "example.com\u2066.evil.example"}, job.DenyAsked},
		{Request{Kind: Tool, Tool: "look\U000e0041"}, job.DenyAsked},
	} {
		if got := p.Decide(c.r); got.Answer != c.want || (got.Answer == job.DenyAsked) != strings.Contains(got.Because, "would not see") {
			t.Errorf("%+q: %+v, want %s", c.r, got, c.want)
		}
	}
}

// TestCommands is of commands that a job may run by a pattern, or may not for the
// reason that is a part of what it is told.
func TestCommands(t *testing.T) {
	const no = "does not grant the command"
	p := policy(func(c *Config) {
		c.Spec.Ask.Rules = []job.AskRule{
			allow("go test *"), allow("npm ci"), allow("./scripts/*"), deny("git push *"), deny("git -C * push *"),
			{Write: "out/**", Answer: job.AllowAsked}, {Write: "out/secret", Answer: job.AllowAsked},
		}
	})
	for _, tt := range []struct{ line, want string }{
		{"go test", ""},
		{"go test ./... -run 'X|Y'", ""},
		{"go test ./... && npm ci", ""},
		{"cd sub && go test ./... 2>&1; echo \"$?\"", ""},
		{"set -euo pipefail\n[ -f go.mod ] && go test $PKG", ""},
		{"(go test) | go test & wait", ""},
		{"go test 2>/dev/null", ""},
		{"./scripts/lint", ""},
		{"/bin/bash -lc 'go test ./...'", ""},
		{"bash -c \"go test\"", ""},
		{"zsh -lc 'bash -c \"go test; npm ci\"'", ""},
		{"go test > out/log", ""},
		{"bash -lc 'go test > out/log'", ""},
		{"go test >" + dir + "/out/log", ""},

		{"", "names no command"},
		{"# rm", "names no command"},
		{"rm -rf x", no},
		{"go run .", no},
		{"go testify", no},
		{"npm ci --unsafe", no},
		{"./go test", no},
		{"./scripts/../../bin/sh", no},
		{"go test && rm x", no},
		{"go test | sh", no},
		{"go test & rm x", no},
		{"go test\nrm x", no},
		{"go test; (rm x)", no},
		{"if go test; then rm x; fi", no},
		{"go test $(rm x)", "puts in what another command prints"},
		{"go test $(go test)", "puts in what another command prints"},
		{"go test `go test`", "puts in what another command prints"},
		{"go test \"$(go test)\"", "puts in what another command prints"},
		{"go test <<E\n$(go test)\nE", "puts in what another command prints"},
		{"echo ${x:-$(go test)}", "puts in what another command prints"},
		{"go test <(go test)", "cannot be read"},
		{"$X", "only known when it runs"},
		{"${X} test", "only known when it runs"},
		{"g? test", "only known when it runs"},
		{"go $X", no},
		{"eval go test", no},
		{". ./x", no},
		{"source x", no},
		{"exec rm", no},
		{"command rm", no},
		{"trap 'rm x' EXIT", no},
		{"alias go=rm; go test", no},
		{"go() { rm x; }; go test", "defines a function"},
		{"cd() { go test; }; cd x", "defines a function"},
		{"FOO=1 go test", "sets a variable"},
		{"PATH=. go test", "sets a variable"},
		{"LD_PRELOAD=./x.so go test", "sets a variable"},
		{"GIT_DIR=x; go test", "sets a variable"},
		{"export GOFLAGS=-toolexec=./x; go test", no},
		{"for GOFLAGS in -toolexec=./x; do go test; done", "sets a variable"},
		{"read GOFLAGS <f; go test", no},
		{": ${GOFLAGS:=-toolexec=./x}; go test", "sets a variable"},
		{"sudo go test", no},
		{"env go test", no},
		{"echo x | xargs go test", no},
		{"timeout 5 go test", no},
		{"set -a; go test", no},
		{"bash -c 'rm x'", no},
		{"bash -lc 'bash -lc \"rm x\"'", no},
		{"bash -c \"$X\"", no},
		{"bash -c 'go test' x", no},
		{"bash -x -c 'go test'", no},
		{"./bash -c 'go test'", no},
		{"/tmp/bash -c 'go test'", no},
		{"bash script", no},
		{"bash -c ''", "names no command"},
		{"go test }", "zsh"},
		{"test -v 'a[$(rm x)]'", no},
		{"[ 'a[$(rm x)]' -eq 0 ]", no},
		{"printf %d 'a[$(rm x)]'", no},
		{"echo $((x))", "arithmetic"},
		{"go test \\\n# \\\nrm x", "hides the next line"},
		{"go test\r\n", "carriage return"},
		{"if go test", "cannot be read"},
		{"[[ -f x ]] && go test", no},
		{"go test &> x", "cannot be read"},
		{strings.Repeat("go test;", 10_000), "bytes"},

		{"go test > log", "does not grant to change"},
		{"go test > /etc/passwd", "outside of the workspace"},
		{"go test > out/../../x", "outside of the workspace"},
		{"go test >> ~/.profile", "not known before"},
		{"go test > \"$X\"", "not known before"},
		{"go test > out/$X", "not known before"},
		{"cd x && go test > out/log", "not known before"},
		{"cd x && bash -c 'go test > out/log'", "not known before"},
		{"go test >! out/log", "not known before"},
		{"go test > out/.git/hooks/pre-commit", ".git"},
		{"go test 3<> x", "does not grant to change"},
		{"{ go test; } > x", "does not grant to change"},
		{"> x", "does not grant to change"},

		{"git push", "a rule of the job says deny"},
		{"go test && git push origin", "a rule of the job says deny"},
		{"/usr/bin/git push", "a rule of the job says deny"},
		{"git $X", "a rule of the job says deny"},
		{"git -C x push", "a rule of the job says deny"},
		{"sudo -u ann git push", "a rule of the job says deny"},
		{"env X=1 git push", "a rule of the job says deny"},
		{"bash -lc 'timeout 5 git push'", "a rule of the job says deny"},
		{"X=$(git push)", "a rule of the job says deny"},
		{"[[ -f x ]] && git push", "a rule of the job says deny"},
		{"diff <(git push) x", "a rule of the job says deny"},
		{"rm x; git push", "a rule of the job says deny"},
	} {
		got := p.Decide(Request{Kind: Command, Command: tt.line})
		line, _ := job.Cut(tt.line, 100)
		switch {
		case tt.want == "" && got.Answer != job.AllowAsked:
			t.Errorf("%q: %+v", line, got)
		case tt.want == "" && got.Because != "":
			t.Errorf("%q is allowed because %s", line, got.Because)
		case tt.want != "" && (got.Answer != job.DenyAsked || !strings.Contains(got.Because, tt.want)):
			t.Errorf("%q: %+v, want %q", line, got, tt.want)
		}
	}
}

// TestAnyCommand: a job that may run any command may run those that nobody can read,
// unless a rule keeps something back that they could be.
func TestAnyCommand(t *testing.T) {
	free := policy(nil, job.CanRunCommands)
	star := policy(func(c *Config) { c.Spec.AllowCommands = []string{"*"} }, job.CanRunCommands)
	ruled := policy(rules(deny("git push *"), job.AskRule{Write: "**/.env", Answer: job.DenyAsked}), job.CanRunCommands)
	for _, tt := range []struct {
		line  string
		ruled job.AskAnswer
	}{
		{"rm -rf x > /etc/y", job.AllowAsked},
		{"FOO=1 make | (cd x; y)", job.AllowAsked},
		{"[[ -f x ]] && make $(z)", job.AllowAsked},
		{"find . -name *.go", job.AllowAsked},
		{"sudo make", job.AllowAsked},
		{"find . -name x -exec grep y {} +", job.AllowAsked},
		{"sh x.sh", job.AllowAsked},
		{"$X push", job.DenyAsked},
		{"sudo $X", job.DenyAsked},
		{"eval \"$X\"", job.DenyAsked},
		{"bash -c \"$X\"", job.DenyAsked},
		{"sudo bash -c 'git push'", job.DenyAsked},
		{". ./x", job.DenyAsked},
		{"if", job.DenyAsked},
		{"echo x > .env", job.DenyAsked},
		{"echo x > a/.env", job.DenyAsked},
		{"echo x > $X", job.DenyAsked},
		{"echo x > y", job.AllowAsked},
	} {
		r := Request{Kind: Command, Command: tt.line}
		for _, p := range []*Policy{free, star} {
			if got := p.Decide(r); got.Answer != job.AllowAsked {
				t.Errorf("%q: %+v", tt.line, got)
			}
		}
		if got := ruled.Decide(r); got.Answer != tt.ruled {
			t.Errorf("%q with rules: %+v", tt.line, got)
		}
	}
}

// TestStrictest: of a command line's parts, the strictest answer counts.
func TestStrictest(t *testing.T) {
	p := policy(func(c *Config) {
		c.Spec.Ask = job.Ask{For: []job.AskFor{job.AskCommands}, Rules: []job.AskRule{
			allow("a"), deny("b"), {Command: "c", Answer: job.AskPerson, Because: "it is dear"},
		}}
	}, job.CanRunTests)
	for line, want := range map[string]Verdict{
		"a && go vet": {job.AllowAsked, "ask.rules[0] (command: a), run_tests (go vet *)", ""},
		"a; c; a":     {job.AskPerson, "ask.rules[2] (command: c)", "it is dear"},
		"c; b":        {job.DenyAsked, "ask.rules[1] (command: b)", `"b": a rule of the job says deny (command: b)`},
		"x; a":        {job.AskPerson, "ask.for commands", `the job does not grant the command "x"`},
		"a > x":       {job.AskPerson, "ask.for commands", `the job does not grant to change "> x"`},
		"echo":        {job.AllowAsked, "", ""},
	} {
		if got := p.Decide(Request{Kind: Command, Command: line}); got != want {
			t.Errorf("%q:\ngot  %+v\nwant %+v", line, got, want)
		}
	}
}

func TestFiles(t *testing.T) {
	all := []job.AskRule{
		{Write: "docs/**", Answer: job.AllowAsked}, {Write: "*.md", Answer: job.AllowAsked}, {Write: "/srv/**/log", Answer: job.AllowAsked},
		{Write: ".git/info/*", Answer: job.AllowAsked}, {Read: "**/.env", Answer: job.DenyAsked}, {Read: "/etc/hosts", Answer: job.AllowAsked},
	}
	ruled, editor, given := policy(rules(all...)), policy(nil, job.CanEdit, job.CanRead), policy(func(c *Config) { c.Read, c.Write = []string{"/data"}, []string{"/cache"} })
	for _, tt := range []struct {
		kind                 Kind
		path                 string
		ruled, editor, given bool
	}{
		{Write, "docs/a/b.txt", true, true, false},
		{Write, dir + "/docs/a", true, true, false},
		{Write, "docs", true, true, false},
		{Write, "docs/../docs/./a", true, true, false},
		{Write, "README.md", true, true, false},
		{Write, "a/README.md", false, true, false},
		{Write, "DOCS/a", false, true, false},
		{Write, "docsy/a", false, true, false},
		{Write, "docs/../x", false, true, false},
		{Write, "docs/../../x", false, false, false},
		{Write, "../space/docs/a", true, true, false},
		{Write, "../spaces/docs/a", false, false, false},
		{Write, "/docs/a", false, false, false},
		{Write, "docs/.git/hooks/x", false, false, false},
		{Write, "docs/.GIT/config", false, false, false},
		{Write, ".git", false, false, false},
		{Write, ".git/info/exclude", true, false, false},
		{Write, ".git/config", false, false, false},
		{Write, ".github/x", false, true, false},
		{Write, "/srv/a/b/log", true, false, false},
		{Write, "/srv/log", true, false, false},
		{Write, "/srv/a/../../log", false, false, false},
		{Write, "~/docs", false, false, false},
		{Write, "", false, false, false},
		{Write, "docs/a\x00b", false, false, false},
		{Write, "docs/" + strings.Repeat("a", maxPath), false, false, false},
		{Write, "/cache/x", false, false, true},
		{Write, "/cache/.git/x", false, false, false},
		{Write, "/data/x", false, false, false},
		{Read, "/data/x", false, false, true},
		{Read, "/cache", false, false, true},
		{Read, "/database", false, false, false},
		{Read, "x", false, true, false},
		{Read, ".git/config", false, true, false},
		{Read, "a/.env", false, true, false},
		{Read, "/etc/hosts", true, false, false},
		{Read, "/etc/hosts/../passwd", false, false, false},
	} {
		for _, c := range []struct {
			name string
			*Policy
			want bool
		}{{"rules", ruled, tt.ruled}, {"editor", editor, tt.editor}, {"given", given, tt.given}} {
			got := c.Decide(Request{Kind: tt.kind, Path: tt.path})
			if (got.Answer == job.AllowAsked) != c.want || !c.want && (got.Answer != job.DenyAsked || got.Because == "") {
				t.Errorf("%s: %s %.60q: %+v", c.name, tt.kind, tt.path, got)
			}
		}
	}
	// The capability lets an editor read what no rule denies, not more.
	if got := policy(rules(all...), job.CanRead).Decide(Request{Kind: Read, Path: "sub/.env"}); got.Answer != job.DenyAsked {
		t.Errorf("a rule does not come before the capability: %+v", got)
	}
}

func TestHosts(t *testing.T) {
	ruled := policy(rules(
		job.AskRule{Host: "bad.example.com", Answer: job.DenyAsked}, job.AskRule{Host: "*.example.com", Answer: job.AllowAsked},
		job.AskRule{Host: "example.org:8443", Answer: job.AllowAsked}, job.AskRule{Host: "[fd00::1]:80", Answer: job.AllowAsked},
	))
	network := policy(func(c *Config) {
		c.Spec.Network, c.Presets = []string{"go", "example.net"}, map[string][]string{"go": {"proxy.golang.org", "*.golang.org"}}
	})
	for _, tt := range []struct {
		host           string
		ruled, network bool
	}{
		{"a.example.com", true, false},
		{"A.B.Example.COM.", true, false},
		{"a.example.com:443", true, false},
		{"a.example.com:22", false, false},
		{"example.com", false, false},
		{"bad.example.com", false, false},
		{"bad.example.com:8443", false, false},
		{"evilexample.com", false, false},
		{"a.example.com.evil.org", false, false},
		{"a.example.com@evil.org", false, false},
		{"evil.org/.example.com", false, false},
		{"evil.org#.example.com", false, false},
		{"example.org:8443", true, false},
		{"example.org", false, false},
		{"[fd00::1]:80", true, false},
		{"[fd00:0:0::1]:80", true, false},
		{"[fd00::1]:443", false, false},
		{"", false, false},
		{"a.example.com:0", false, false},
		{"a.example.com:99999", false, false},
		{"example.net:80", false, true},
		{"proxy.golang.org:443", false, true},
		{"sum.golang.org", false, true},
		{"proxy.golang.org:80", false, false},
		{"go", false, false},
	} {
		r := Request{Kind: Host, Host: tt.host}
		if got := ruled.Decide(r); (got.Answer == job.AllowAsked) != tt.ruled {
			t.Errorf("by rules %q: %+v", tt.host, got)
		}
		if got := network.Decide(r); (got.Answer == job.AllowAsked) != tt.network {
			t.Errorf("by network %q: %+v", tt.host, got)
		}
		if got := policy(nil, job.CanUseNetwork).Decide(r); got.Answer != job.AllowAsked {
			t.Errorf("with any network %q: %+v", tt.host, got)
		}
	}
	local := policy(rules(job.AskRule{Host: "127.0.0.1", Answer: job.DenyAsked}), job.CanUseNetwork)
	for _, h := range []string{"127.0.0.1:22", "127.1", "0x7f000001", "[::ffff:127.0.0.1]:80"} {
		if got := local.Decide(Request{Kind: Host, Host: h}); got.Answer != job.DenyAsked {
			t.Errorf("%s: %+v", h, got)
		}
	}
}

func TestTools(t *testing.T) {
	p := policy(func(c *Config) {
		c.Spec.Ask = job.Ask{For: []job.AskFor{job.AskTools}, Rules: []job.AskRule{
			{Tool: "mcp__x__*", Answer: job.AllowAsked}, {Tool: "Bash", Answer: job.AllowAsked}, {Tool: "WebFetch", Answer: job.DenyAsked},
		}}
	}, job.CanUseNetwork)
	for _, tt := range []struct {
		r    Request
		want job.AskAnswer
	}{
		{Request{Kind: Tool, Tool: "mcp__x__read"}, job.AllowAsked},
		{Request{Kind: Tool, Tool: "mcp__y__read"}, job.AskPerson},
		{Request{Kind: Tool}, job.AskPerson},
		{Request{Kind: Host, Tool: "WebFetch", Host: "example.com"}, job.DenyAsked},
		{Request{Kind: Host, Tool: "curl", Host: "example.com"}, job.AllowAsked},
		{Request{Kind: Command, Tool: "Bash", Command: "rm x"}, job.DenyAsked},
		{Request{Kind: Words}, job.DenyAsked},
		{Request{Kind: "else"}, job.DenyAsked},
	} {
		if got := p.Decide(tt.r); got.Answer != tt.want || got.Answer != job.AllowAsked && got.Because == "" {
			t.Errorf("%+v: %+v, want %s", tt.r, got, tt.want)
		}
	}
	words := policy(func(c *Config) { c.Spec.Ask.For = []job.AskFor{job.AskWords} })
	if got := words.Decide(Request{Kind: Words}); got.Answer != job.AskPerson {
		t.Errorf("words: %+v", got)
	}
}

// A rule that Validate refuses matches nothing, and breaks nothing.
func TestBrokenRules(t *testing.T) {
	p := policy(func(c *Config) {
		c.Standing = []job.AskRule{{}, {Command: " ", Answer: job.AllowAsked}, {Command: "*", Tool: "*", Answer: job.AllowAsked}, {Write: "[", Answer: job.AllowAsked}}
	})
	for _, r := range []Request{{Kind: Command, Command: "x"}, {Kind: Write, Path: "x"}, {Kind: Tool, Tool: "x"}} {
		if got := p.Decide(r); got.Answer != job.DenyAsked {
			t.Errorf("%+v: %+v", r, got)
		}
	}
}
