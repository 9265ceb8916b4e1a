package ask

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/agentsched/agentsched/internal/commands/commandstest"
	"github.com/agentsched/agentsched/job"
)

func TestPattern(t *testing.T) {
	command := func(line string) Request { return Request{Kind: Command, Command: line} }
	for _, tt := range []struct {
		r    Request
		want string // the rule, or a part of the error
	}{
		{command("npm test -- --watch"), "command: npm test -- --watch"},
		{command("/bin/bash -lc 'npm ci'"), "command: npm ci"},
		{command("cd sub && 'npm' ci; echo done"), "command: npm ci"},
		{command("npm ci; npm ci"), "command: npm ci"},
		{command("npm ci 2>/dev/null"), "command: npm ci"},
		{command("npm ci && npm test"), `it runs 2 commands, and each needs a rule of its own; choose of ["npm ci" "npm test"]`},
		{command("npm ci > log"), "writes a file"},
		{command("CI=1 npm ci"), "sets a variable"},
		{command("npm ci $X"), "only known when it runs"},
		{command("npm ci $(x)"), "only known when it runs"},
		{command("npm $X"), "only known when it runs"},
		{command("$X"), "only known when it runs"},
		{command("git commit -m 'a b'"), `has the argument "a b"`},
		{command("find . -name '*.go'"), `has the argument "*.go"`},
		{command("find . -name ''"), `has the argument ""`},
		{command("echo a"), "nothing that needs a rule"},
		{command("x '&&' y"), "it can be allowed once"},
		{command("x " + strings.Repeat("y", 1024)), "it can be allowed once"},
		{command(""), "names no command"},
		{command("if"), "cannot be read"},
		{Request{Kind: Write, Path: dir + "/docs/a.md"}, "write: docs/a.md"},
		{Request{Kind: Write, Path: "docs/[a]*?.md"}, `write: docs/\[a]\*\?.md`},
		{Request{Kind: Write, Path: ".git/config"}, "write: .git/config"},
		{Request{Kind: Read, Path: "../x"}, "read: /work/x"},
		{Request{Kind: Read, Path: "."}, "not the path of one file"},
		{Request{Kind: Read, Path: "~/x"}, "not the path of one file"},
		{Request{Kind: Read, Path: "a\nb"}, "it can be allowed once"},
		{Request{Kind: Host, Host: "Example.com:8443"}, "host: example.com:8443"},
		{Request{Kind: Host, Host: "::1"}, "host: [::1]"},
		{Request{Kind: Host, Host: "a/b"}, "it can be allowed once"},
		{Request{Kind: Tool, Tool: "mcp__x__y"}, "tool: mcp__x__y"},
		{Request{Kind: Tool, Tool: "x*"}, "stands for any text"},
		{Request{Kind: Tool}, "it can be allowed once"},
		{Request{Kind: Words}, "answer each question"},
	} {
		rule, err := Pattern(tt.r, dir)
		if err != nil {
			if strings.HasPrefix(tt.want, string(tt.r.Kind)+": ") || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%+v: %v, want %s", tt.r, err, tt.want)
			}
			continue
		}
		if rule.String() != tt.want {
			t.Errorf("%+v: %s, want %s", tt.r, rule, tt.want)
		}
		if got := New(Config{Spec: &job.Spec{}, Dir: dir, Standing: []job.AskRule{rule}}).Decide(tt.r); got.Answer != job.AllowAsked {
			t.Errorf("%+v: the rule %s does not allow it: %+v", tt.r, rule, got)
		}
	}
}

// TestPatternIsNarrow: what a rule for one request allows is that request.
func TestPatternIsNarrow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringMatching(`[a-c.*\[/-]{1,3}`)
		commandLine := rapid.Custom(func(t *rapid.T) string {
			return "x " + strings.Join(rapid.SliceOfN(rapid.StringMatching(`[ab-]{1,2}`), 0, 3).Draw(t, "words"), " ")
		})
		kind := rapid.SampledFrom([]Kind{Command, Write, Read, Host, Tool}).Draw(t, "kind")
		draw := func(name string) Request {
			switch kind {
			case Command:
				return Request{Kind: kind, Command: commandLine.Draw(t, name)}
			case Host:
				return Request{Kind: kind, Host: rapid.StringMatching(`[ab]\.[ab]\.com(:(80|81))?`).Draw(t, name)}
			case Tool:
				return Request{Kind: kind, Tool: word.Draw(t, name)}
			}
			return Request{Kind: kind, Path: word.Draw(t, name)}
		}
		one, other := draw("one"), draw("other")
		rule, err := Pattern(one, dir)
		if err != nil {
			t.Skip(err)
		}
		p := New(Config{Spec: &job.Spec{}, Dir: dir, Standing: []job.AskRule{rule}})
		if got := p.Decide(one); got.Answer != job.AllowAsked {
			t.Fatalf("%s does not allow %+v: %+v", rule, one, got)
		}
		same := strings.Join(strings.Fields(one.Command), " ") == strings.Join(strings.Fields(other.Command), " ") &&
			resolve(dir, one.Path) == resolve(dir, other.Path) && one.Tool == other.Tool &&
			(one.Host == other.Host || one.Host == strings.TrimSuffix(other.Host, ":80"))
		if got := p.Decide(other); got.Answer == job.AllowAsked && !same {
			t.Fatalf("%s, made for %+v, allows %+v", rule, one, other)
		}
	})
}

// TestMatchParts compares with the plain meaning of a pattern.
func TestMatchParts(t *testing.T) {
	var plain func(pattern, name []string) bool
	plain = func(pattern, name []string) bool {
		switch {
		case len(pattern) == 0:
			return len(name) == 0
		case pattern[0] == "**":
			return plain(pattern[1:], name) || len(name) > 0 && plain(pattern, name[1:])
		}
		ok := len(name) > 0
		if ok {
			ok, _ = filepath.Match(pattern[0], name[0])
		}
		return ok && plain(pattern[1:], name[1:])
	}
	rapid.Check(t, func(t *rapid.T) {
		pattern := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "*", "**", "a*"}), 0, 5).Draw(t, "pattern")
		name := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "ab"}), 0, 5).Draw(t, "name")
		if got, want := matchParts(pattern, name), plain(pattern, name); got != want {
			t.Fatalf("%v matches %v: %v", pattern, name, got)
		}
	})
	if matchParts(split(strings.Repeat("**/", 340)+"x"), split(strings.Repeat("a/", 2000))) {
		t.Error("the end of the pattern is not looked at")
	}
}

func TestKey(t *testing.T) {
	key := func(session, tool, input string) string { return Key(session, tool, json.RawMessage(input)) }
	one := key("s", "Bash", `{"command":"make","timeout":1.0,"nested":{"b":[1,2],"a":null}}`)
	if len(one) != 64 || one != key("s", "Bash", "{ \"nested\": {\"a\":null,\"b\":[1,2]},\n\"timeout\":1.0, \"command\":\"\\u006dake\"}\n") {
		t.Errorf("the order of fields counts: %s", one)
	}
	all := []string{one}
	for _, k := range []string{
		key("s", "Bash", `{"command":"make","timeout":1,"nested":{"b":[1,2],"a":null}}`),
		key("s", "Bash", `{"command":"make","timeout":1.0,"nested":{"b":[2,1],"a":null}}`),
		key("sB", "ash", `{"command":"make","timeout":1.0,"nested":{"b":[1,2],"a":null}}`),
		key("t", "Bash", `{"command":"make","timeout":1.0,"nested":{"b":[1,2],"a":null}}`),
		key("s", "Bash", ``), key("s", "Bash", `null`), key("s", "Bash", `"null"`), key("s", "Bash", `{`), key("s", "Bash", `{}`), key("s", "Bash", `{} {}`),
		key("s", "Bash", "\"\xff\""), key("s", "Bash", "\"\xfe\""), key("s", "Bash", `12345678901234567890`), key("s", "Bash", `12345678901234567891`),
	} {
		if slices.Contains(all, k) {
			t.Errorf("two questions have the key %s", k)
		}
		all = append(all, k)
	}
}

// FuzzDecide runs what rules allow with the shells of this host, in an empty folder
// with nothing but a canary on PATH under the name that it must not reach.
func FuzzDecide(f *testing.F) {
	for _, seed := range []string{
		"ok a", "ok && canary", "ok $(canary)", "f() { canary; }; f", "ok <<E\n`canary`\nE\n", "bash -c 'ok; canary'", "bash -lc \"ok 'a'\"",
		"zsh -c 'ok =(canary)'", "ok *(e:canary:)", "{ ok } canary", "{ ok } always { canary; }", "for x (a) canary", "ok &! canary", "repeat 1 canary", "if ok { canary }",
		"printf %d 'a[$(canary)]'", "[ 'a[$(canary)]' -eq 0 ]", "ok ${(e)x} canary", "while ok { canary }", "ok ${x:-'canary'}", "set -e; ok }; canary",
		"test 'a[`canary`]' -gt 1", "ok ~[canary]", "ok >! canary", "ok |& canary", "ok {a,b} canary", "case x { x) canary;; }", "ok x=<(canary)",
	} {
		f.Add(seed)
	}
	shells := commandstest.Shells("dash", "bash", "zsh")
	p := policy(rules(allow("ok *"), job.AskRule{Write: "**", Answer: job.AllowAsked}))
	f.Fuzz(func(t *testing.T, line string) {
		if p.Decide(Request{Kind: Command, Command: line}).Answer != job.AllowAsked || !strings.Contains(line, "canary") || !commandstest.Safe(line) {
			return
		}
		for _, shell := range shells {
			if commandstest.RunsCanary(t, shell, line) {
				t.Errorf("%s ran canary, though only ok is allowed:\n%s", filepath.Base(shell), line)
			}
		}
	})
}
