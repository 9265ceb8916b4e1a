package commands

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/internal/commands/commandstest"
)

func TestCheck(t *testing.T) {
	goTests := []string{"go test *", "go vet *", "make test"}
	tests := []struct {
		name     string
		patterns []string // nil: goTests
		script   string
		want     string // a part of the refusal; "" allowed
	}{
		// What the patterns name.
		{"bare", nil, "go test", ""},
		{"with arguments", nil, "go test -race ./...", ""},
		{"several lines", nil, "go vet ./...\n\n# then\ngo test ./...\n", ""},
		{"another subcommand", nil, "go run .", `line 1: "go run ." is not allowed`},
		{"exact pattern", nil, "make test", ""},
		{"exact pattern with more", nil, "make test install", "is not allowed"},
		{"prefix of a word", nil, "go testify", "is not allowed"},
		{"another program of the name", nil, "./go test", "is not allowed"},
		{"absolute path", nil, "/usr/bin/go test", "is not allowed"},
		{"star inside a word", []string{"npm run test:*"}, "npm run test:unit", ""},
		{"star inside the name", []string{"./scripts/*"}, "./scripts/lint", ""},
		{"star in the name stops at a slash", []string{"./scripts/*"}, "./scripts/../../bin/rm", "is not allowed"},
		{"star in the middle is one word", []string{"cp * dest"}, "cp a b dest", "is not allowed"},
		{"star in the middle", []string{"cp * dest"}, "cp a dest", ""},
		{"pattern for everything", []string{"*"}, "eval \"$X\"; $CMD", ""},
		{"empty script", nil, "", ""},
		{"only a comment", nil, "# rm -rf x", ""},

		// Where commands can stand.
		{"and list", nil, "go test ./... && rm -rf x", `"rm -rf x" is not allowed`},
		{"or list", nil, "go test || rm x", `"rm x"`},
		{"sequence", nil, "go test; rm x", `"rm x"`},
		{"second line", nil, "go test\nrm x", "line 2"},
		{"pipe", nil, "go test 2>&1 | tee log", `"tee log`},
		{"pipe of allowed ones", nil, "go test | go vet", ""},
		{"background", nil, "go test &", ""},
		{"background of another", nil, "go test & rm x", `"rm x"`},
		{"subshell", nil, "(cd sub && go test ./...)", ""},
		{"another in a subshell", nil, "(cd sub && rm x)", `"rm x"`},
		{"block", nil, "{ go test; rm x; }", `"rm x"`},
		{"negated", nil, "! rm x", `"rm x"`},
		{"substitution as a command", nil, "$(rm x)", "rm x"},
		{"substitution as an argument", nil, "go test $(rm x)", `"rm x"`},
		{"backquotes", nil, "go test `rm x`", `"rm x"`},
		{"substitution in double quotes", nil, `go test "$(rm x)"`, `"rm x"`},
		{"substitution in single quotes is text", nil, `go test -run '$(rm x)'`, ""},
		{"substitution in a substitution", nil, "echo $(echo $(rm x))", `"rm x"`},
		{"substitution of an allowed one", nil, "out=$(go test ./...)\necho \"$out\"", ""},
		{"substitution in an assignment", nil, "FOO=$(rm x)", `"rm x"`},
		{"substitution in a default", nil, "echo ${FOO:-$(rm x)}", `"rm x"`},
		{"substitution in arithmetic", nil, "echo $(( $(rm x) + 1 ))", "arithmetic"},
		{"substitution in a redirection", nil, "go test > $(rm x)", `"rm x"`},
		{"substitution in a here-document", nil, "go test <<E\n$(rm x)\nE\n", `"rm x"`},
		{"quoted here-document is text", nil, "go test <<'E'\n$(rm x)\nE\n", ""},
		{"here-document as a script", nil, "sh <<E\nrm x\nE\n", "is not allowed"},
		{"after a here-document", nil, "go test <<E\ntext\nE\nrm x\n", "line 4"},
		{"if condition", nil, "if rm x; then go test; fi", `"rm x"`},
		{"else", nil, "if go vet ./...; then go test; else rm x; fi", `"rm x"`},
		{"if of allowed ones", nil, "if [ -f go.mod ]; then go test ./...; else echo none; fi", ""},
		{"for", nil, "for d in a b; do (cd \"$d\" && go test ./...); done", ""},
		{"in a for list", nil, "for d in $(ls); do go test; done", `"ls"`},
		{"while", nil, "while rm x; do :; done", `"rm x"`},
		{"while read", nil, "while IFS= read -r line; do echo \"$line\"; done < list", ""},
		{"case", nil, "case $1 in a) rm x;; esac", `"rm x"`},
		{"substitution in a case pattern", nil, "case a in $(rm x)) :;; esac", `"rm x"`},

		// Redirections and assignments.
		{"redirection to a file", nil, "go test > log.txt 2>&1", ""},
		{"only a redirection", nil, "> log.txt", ""},
		{"assignment before", nil, "FOO=bar go test", ""},
		{"assignment before another", nil, "FOO=bar rm x", `"FOO=bar rm x" is not allowed`},
		{"PATH", nil, "PATH=. go test", "decides which programs"},
		{"PATH for good", nil, "export PATH=.\ngo test", "decides which programs"},
		{"PATH in quotes", nil, `export "PATH=$PWD"`, "decides which programs"},
		{"PATH by read", nil, "read PATH < f", "decides which programs"},
		{"PATH by for", nil, "for PATH in a; do go test; done", "decides which programs"},
		{"PATH by default", nil, ": ${PATH:=.}", "decides which programs"},
		{"loader", nil, "LD_PRELOAD=./x.so go test", "decides which programs"},
		{"prompt of set -x", nil, "PS4='$(rm x)'; set -x; :", "decides which programs"},
		{"variable by a variable's name", nil, `export "$X"`, "plainly"},
		{"export", nil, "export CGO_ENABLED=0 GOOS=linux; go test", ""},

		// The name of the command.
		{"escaped name", nil, `\rm x`, "is not allowed"},
		{"quoted name", nil, `r""m x`, "is not allowed"},
		{"escaped allowed name", nil, `\go test`, ""},
		{"quoted allowed name", nil, `"go" 'test' ./...`, ""},
		{"name with a space", nil, `"go test" x`, "is not allowed"},
		{"name of two lines", nil, "r\\\nm x", "is not allowed"},
		{"variable name", nil, "$CMD x", "only known when it runs"},
		{"part of a name", nil, "r${X}m x", "only known when it runs"},
		{"name by file name expansion", nil, "/bin/r? x", "only known when it runs"},
		{"name by braces", nil, "{rm,x}", "only known when it runs"},
		{"ansi quotes", nil, `$'\x72m' x`, "is not allowed"},
		{"ansi quotes hide a command", nil, `go test $'\''; rm x #'`, `"rm x`},
		{"variable in place of the subcommand", nil, "go $X ./...", "is not allowed"},
		{"variable as an argument", nil, "go test $X", ""},
		{"variable where the pattern is exact", []string{"rm ./tmp"}, "rm $X", "is not allowed"},
		{"expansion where the pattern is exact", []string{"rm ./tmp"}, "rm ./*", "is not allowed"},

		// Commands that run others.
		{"command", nil, "command rm x", "is not allowed"},
		{"command -v", nil, "command -v go >/dev/null && go test", ""},
		{"eval", nil, "eval 'rm x'", "is not allowed"},
		{"exec", nil, "exec rm x", "is not allowed"},
		{"exec for redirection", nil, "exec > log 2>&1\ngo test", ""},
		{"dot", nil, ". ./x.sh", "is not allowed"},
		{"source", nil, "source x.sh", "is not allowed"},
		{"sh -c", nil, "sh -c 'rm x'", "is not allowed"},
		{"env", nil, "env rm x", "is not allowed"},
		{"xargs", nil, "echo x | xargs rm", "is not allowed"},
		{"trap", nil, "trap 'rm x' EXIT", "is not allowed"},
		{"alias", nil, "alias go=rm\ngo test", "is not allowed"},
		{"time", nil, "time rm x", "is not allowed"},
		{"eval that a pattern allows", []string{"eval *"}, "eval 'rm x'", ""},
		{"xargs that a pattern allows", []string{"xargs go vet *", "echo *"}, "echo x | xargs go vet", ""},

		// Functions.
		{"function", nil, "check() { go test ./...; }\ncheck\n", ""},
		{"another in a function", nil, "check() { rm x; }\ncheck\n", `"rm x"`},
		{"function named as an allowed command", nil, "go() { rm x; }\ngo test\n", `"rm x"`},
		{"function before its definition", nil, "rm x\nrm() { :; }\n", "before its definition"},
		{"function of a branch", nil, "false && rm() { :; }\nrm x\n", "is not allowed"},
		{"function of a subshell", nil, "(rm() { :; })\nrm x\n", "is not allowed"},
		{"function that is unset", nil, "rm() { :; }\nunset -f rm\nrm x\n", "unsets a function"},
		{"recursive function", nil, "again() { go test || again; }\nagain\n", ""},

		{"function named as a path", nil, "/bin/rm() { :; }\n/bin/rm x\n", "cannot be read"},
		{"function named as a builtin", nil, "eval() { :; }\neval 'rm x'\n", "name of a builtin"},

		// What shells read differently.
		{"redirection of both", nil, "go test &> f rm x", "cannot be read"},
		{"double parentheses", nil, "((rm x))", `"rm x"`},
		{"single quotes in a default in double quotes", nil, `echo "${X:-'$(rm x)'}"`, "different ways"},
		{"single quotes in a default in a here-document", nil, "go test <<E\n${X:-'$(rm x)'}\nE\n", "different ways"},
		{"single quotes in a default", nil, `echo "${X:-'none'}"`, ""},
		{"brace in a default in double quotes", nil, `echo "${X:-'}$(rm x)'}"`, "different ways"},
		{"old arithmetic", nil, "echo $[ $(rm x) ]", "rm x"},
		{"line after a comment with a backslash", nil, "go test # x \\\nrm x\n", "ends in a backslash"},
		{"here-document after a comment", nil, "go test # <<E\nrm x\nE\n", `"rm x"`},
		{"quoted delimiter", nil, "go test <<\\E\n$(rm x)\nE\nrm x\n", "line 4"},
		{"indented here-document", nil, "go test <<-E\n\ttext\n\tE\nrm x\n", "line 4"},
		{"backslash in backquotes", nil, "go test `echo \\\\'; rm x #'`", "backslash in backquotes"},
		{"backquotes in backquotes", nil, "echo `echo \\`rm x\\``", "backslash in backquotes"},
		{"process substitution", nil, "go test <(rm x)", "cannot be read"},
		{"double brackets", nil, "[[ -f x ]] && go test", "is not allowed"},
		{"arithmetic on numbers", nil, "exit $((1 + 2))", ""},
		{"arithmetic on a count", nil, "exit $(($# + ${#X} + $?))", ""},
		{"arithmetic on a variable", nil, "x='a[$(rm x)]'; echo $((x))", "arithmetic"},
		{"subscript of test", nil, "[ -v 'a[$(rm x)]' ]", "not plain sh"},
		{"subscript of read", nil, "read 'a[$(rm x)]'", "plainly"},
		{"indirection", nil, "echo ${!X}", "cannot be read"},
		{"unfinished", nil, "if go test", "cannot be read"},
		{"carriage return", nil, "go test\r\nrm x\r\n", "line 1 ends in a carriage return"},
		{"too long to check", nil, strings.Repeat("#", MaxBytes+1), "bytes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.patterns == nil {
				tt.patterns = goTests
			}
			r := Check(tt.script, Patterns(tt.patterns...), Writing{true, "/work/space"})
			switch {
			case tt.want == "" && r != nil:
				t.Errorf("refused: %v", r)
			case tt.want != "" && r == nil:
				t.Errorf("allowed, want a refusal with %q", tt.want)
			case tt.want != "" && !strings.Contains(r.Error(), tt.want):
				t.Errorf("refused with %q, want %q in it", r, tt.want)
			}
		})
	}
}

// Who may not edit writes no file by a redirection, and who may writes none that is
// plainly outside of the workspace.
func TestCheckRedirections(t *testing.T) {
	const none, out, left = "needs the capability edit", "outside of the workspace", "left the workspace"
	for _, tt := range []struct {
		script        string
		without, with string // a part of the refusal without and with edit; "" allowed
	}{
		{"echo a >> ~/.profile", none, out},
		{"echo a > x", none, ""},
		{"echo a >> sub/x", none, ""},
		{"echo a >| x", none, ""},
		{"echo a 1<> x", none, ""},
		{"exec > log", none, ""},
		{"> x", none, ""},
		{"{ echo a; echo b; } > x", none, ""},
		{"for i in a; do echo $i; done > x", none, ""},
		{"f() { echo a; } > x", none, ""},
		{"echo $(echo a > x)", none, ""},
		{"echo `echo a > x`", none, ""},
		{"echo \"$(echo a > /etc/x)\"", none, out},
		{"cat <<E\n$(echo a > x)\nE\n", none, ""},
		{"cat > x <<E\na\nE\n", none, ""},
		{"cat <<E > /tmp/x\na\nE\n", none, out},
		{"echo a > /work/space/x", none, ""},
		{"echo a > /work/space/../x", none, out},
		{"echo a > /work/spaces", none, out},
		{"echo a > ../x", none, out},
		{"echo a > sub/../../x", none, out},
		{"echo a > '../x'", none, out},
		{"echo a > \"$HOME/x\"", none, out},
		{"echo a > ${HOME}/x", none, out},
		{"echo a > \"$OUT\"", none, ""},
		{"echo a > ../$OUT", none, out},
		{"echo a > x-$OUT", none, ""},
		{"echo a >&$FD", none, ""},
		{"echo a 2> /dev/null", "", ""},
		{"echo a > /dev/stderr", "", ""},
		{"echo a >&2 2>&1", "", ""},
		{"exec 3>&-", "", ""},
		{"cat < x <<E\na\nE\n", "", ""},
		{"cd ..; echo a > x", none, left},
		{"cd; echo a > x", none, left},
		{"cd -; echo a > x", none, left},
		{"cd /etc && echo a > /work/space/x", none, ""},
		{"cd -P sub && echo a > x", none, ""},
		{"cd \"$d\" && echo a > x", none, ""},
	} {
		for may, want := range map[bool]string{false: tt.without, true: tt.with} {
			r := Check(tt.script, Patterns("echo *", "cat *"), Writing{may, "/work/space"})
			if want == "" && r != nil || want != "" && (r == nil || !strings.Contains(r.Error(), want)) {
				t.Errorf("edit %v: %q: refused with %v, want %q", may, tt.script, r, want)
			}
		}
	}
}

// A parser that recurses must not exhaust its stack, which nothing recovers:
// neither where a script is cut off nor where all is closed again.
func TestDeepNesting(t *testing.T) {
	tests := []struct{ open, close string }{
		{"(", ")"}, {"$(", ")"}, {"x=$(", ")"}, {"\"$(", ")\""}, {"`", ""}, {"{ ", ";}"}, {"${x:-", "}"},
		{"$((", "))"}, {"$((1+", "))"}, {"if rm;then ", ";fi"}, {"! ", ""}, {"x()", ""}, {"case x in x) ", ";;esac"},
		{"rm|", ""}, {"rm&&", ""}, {"<<E ", ""},
	}
	for _, tt := range tests {
		n := MaxBytes / (len(tt.open) + len(tt.close) + 1)
		for _, script := range []string{
			strings.Repeat(tt.open, MaxBytes/len(tt.open)),
			strings.Repeat(tt.open, n) + "rm" + strings.Repeat(tt.close, n),
		} {
			if r := Check(script, Patterns("go test *"), Writing{}); r == nil {
				t.Errorf("%q nested was allowed", tt.open)
			}
		}
	}
}

// FuzzCheck runs what was allowed with the shells of this host, in an
// empty folder with nothing but a canary on PATH under the name that the
// script must not reach.
func FuzzCheck(f *testing.F) {
	for _, seed := range []string{
		"ok a", "ok && canary", "x=$(canary)", "f() { canary; }; f", "ok <<E\n`canary`\nE\n", "ok $'\\''; canary #'",
		"\\ok", "r\"\"m", "case x in x) ok;; esac", "for i in 1 2; do ok; done", "ok \\\n b", "exec >x", "unset f; f",
		"ok # \\\ncanary", "echo \"${X:-'$(canary)'}\"", "ok `echo \\\\'; canary #'`", "ok &> f canary", "((canary))",
		"ok 'a''b' \"c\\\"d\" # e", "! ok | ok & wait", "echo ${x-canary} ${x:=y}", "if ok; then canary; fi",
	} {
		f.Add(seed)
	}
	shells := commandstest.Shells("dash", "bash")
	patterns := Patterns("ok *")
	f.Fuzz(func(t *testing.T, script string) {
		if r := Check(script, patterns, Writing{true, "/work/space"}); r != nil {
			_ = r.Error()
			return
		}
		if !strings.Contains(script, "canary") || !commandstest.Safe(script) {
			return
		}
		for _, shell := range shells {
			if commandstest.RunsCanary(t, shell, script) {
				t.Errorf("%s ran canary, though only ok is allowed:\n%s", filepath.Base(shell), script)
			}
		}
	})
}
