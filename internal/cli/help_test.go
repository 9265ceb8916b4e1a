package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// say runs a command line and returns its exit code and all that it printed.
func say(t *testing.T, args ...string) (code int, said string) {
	t.Helper()
	return sayIn(t, newTestMain(t, nil), args...)
}

// sayIn is say in the state directory of m.
func sayIn(t *testing.T, m *Main, args ...string) (code int, said string) {
	t.Helper()
	var out bytes.Buffer
	m.con.stdout, m.con.stderr = &out, &out
	return m.run(append([]string{"--state", m.local.stateDir}, args...)), out.String()
}

// The help of every command can be read: flags name their values, no quoting of
// Markdown is left, and files that its examples name exist.
func TestHelp(t *testing.T) {
	root := newTestMain(t, nil).rootCommand()
	for cmd := range commands(root) {
		name := commandName(cmd)
		code, help := say(t, append(strings.Fields(name), "--help")...)
		if code != exitOK || !strings.Contains(help, "Usage:") {
			t.Errorf("%q --help: exit code %d:\n%s", name, code, help)
		}
		if strings.Contains(help, "`") {
			t.Errorf("%q: its help has a backquote:\n%s", name, help)
		}
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			value, _ := pflag.UnquoteUsage(f)
			if strings.Contains(value, " ") || strings.Count(f.Usage, "`")%2 != 0 || strings.Count(f.Usage, "`") > 2 {
				t.Errorf("%q: the value of --%s is called %q: %s", name, f.Name, value, f.Usage)
			}
		})
		for _, word := range strings.Fields(cmd.Example) {
			if !strings.HasPrefix(word, "examples/") {
				continue
			}
			if _, err := os.Stat(filepath.Join("../..", word)); err != nil {
				t.Errorf("%q: its example names a file that is not there: %v", name, err)
			}
		}
		if cmd.HasParent() && cmd.Parent() == root && !cmd.Hidden && cmd.GroupID == "" {
			t.Errorf("%q is in no group of the help", name)
		}
	}
	_, help := say(t, "--help")
	for _, g := range groups {
		if !strings.Contains(help, "\n"+g.title+":\n") {
			t.Errorf("the help has no heading %s:\n%s", g.title, help)
		}
		for _, name := range g.commands {
			if cmd, _, err := root.Find([]string{name}); err != nil || cmd.Name() != name {
				t.Errorf("heading %s names %q, which is no command", g.title, name)
			}
		}
	}
}

// Whatever is wrong with a command line is said in words, with what is wanted, and
// nothing is done.
func TestMisuse(t *testing.T) {
	raw := []string{"arg(s)", "strconv", "Go struct", "Go value", "pflag", "flags in the group", "invalid argument", "unknown shorthand"}
	plain := func(line string, said string, code int) {
		t.Helper()
		first, rest, _ := strings.Cut(said, "\n")
		if code != exitUsage || !strings.HasPrefix(first, "scheduler: ") || !strings.Contains(rest, "hint: ") ||
			slices.ContainsFunc(raw, func(s string) bool { return strings.Contains(said, s) }) {
			t.Errorf("%s: exit code %d:\n%s", line, code, said)
		}
	}
	checked := 0
	for cmd := range commands(newTestMain(t, nil).rootCommand()) {
		name := commandName(cmd)
		if cmd.Hidden || !cmd.Runnable() || isGroup(cmd) || name == "" || name == "help" {
			continue
		}
		path := strings.Fields(name)
		code, said := say(t, append(path, "--no-such-flag")...)
		plain(name+" --no-such-flag", said, code)
		for _, n := range []int{0, 1, 2, 9} {
			args := slices.Repeat([]string{"much"}, n)
			if cmd.Args == nil || cmd.Args(cmd, args) == nil {
				continue
			}
			checked++
			code, said := say(t, append(path, args...)...)
			plain(name+" "+strings.Join(args, " "), said, code)
		}
	}
	if checked < 60 {
		t.Errorf("%d commands refused a number of arguments, want more", checked)
	}
	code, said := say(t, "show", "")
	plain("show ''", said, code)
	if want := "scheduler: scheduler show takes JOB, and an empty argument was given\n"; !strings.HasPrefix(said, want) {
		t.Errorf("show '': %q, want %q", said, want)
	}
	for line, want := range map[string]string{
		"show":                         "scheduler: scheduler show needs JOB, and none was given",
		"show a b":                     `scheduler: scheduler show takes JOB, and "b" is too many`,
		"ls x":                         `scheduler: scheduler ls takes no arguments, and was given "x"`,
		"ls --limit many":              `scheduler: invalid --limit "many": use a whole number`,
		"ls --limit":                   "scheduler: --limit has no value: give a whole number",
		"wait a --timeout 5":           `scheduler: invalid --timeout "5": use a length of time such as 90s or 30m`,
		"evaluate a --quality good":    `scheduler: invalid --quality "good": use a number`,
		"ls --json=perhaps":            `scheduler: invalid --json "perhaps": use true or false`,
		"upgrade --checkpoint --drain": "scheduler: --checkpoint and --drain exclude each other: give one of them",
		"ls -z":                        "scheduler: unknown flag -z",
	} {
		code, said := say(t, strings.Fields(line)...)
		plain(line, said, code)
		if first, _, _ := strings.Cut(said, "\n"); first != want {
			t.Errorf("%s: %q, want %q", line, first, want)
		}
	}
}
