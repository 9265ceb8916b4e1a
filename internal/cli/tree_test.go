package cli

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// newTestMain returns a program that has no terminal and an environment of its own.
func newTestMain(t *testing.T, out io.Writer) *Main {
	t.Helper()
	m := newMain()
	m.con.stdin, m.con.stdout, m.con.stderr = nil, out, io.Discard
	m.con.environ, m.con.getenv = nil, func(string) string { return "" }
	m.local.stateDir = filepath.Join(t.TempDir(), "state")
	return m
}

// Every command says what it does, shows how, prints JSON where it prints data, and
// lets the shell complete the jobs that it takes.
func TestCommandTree(t *testing.T) {
	m := newTestMain(t, io.Discard)
	root := m.rootCommand()
	n := 0
	for cmd := range commands(root) {
		name := commandName(cmd)
		if cmd.Hidden || name == "help" {
			continue
		}
		n++
		if cmd.Short == "" || strings.HasSuffix(cmd.Short, ".") || len(cmd.Short) > 110 {
			t.Errorf("%q: short help is %q, want a line without a full stop", name, cmd.Short)
		}
		if cmd.Long == "" {
			t.Errorf("%q has no long help", name)
		}
		if cmd.Example == "" && !isGroup(cmd) {
			t.Errorf("%q has no example", name)
		}
		for line := range strings.Lines(cmd.Long) {
			if len([]rune(line)) > 121 {
				t.Errorf("%q: a line of its help is %d long: %s", name, len([]rune(line)), line)
			}
		}
		if !isGroup(cmd) && cmd.Runnable() && cmd.HasParent() && !slices.Contains(printsNoData, name) && cmd.Flags().Lookup("json") == nil {
			t.Errorf("%q has no --json", name)
		}
		cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			// restart-core means a core that runs, and starts none itself.
			if cmd != root && root.PersistentFlags().Lookup(f.Name) != nil && name != "restart-core" {
				t.Errorf("%q: its flag --%s hides that of all commands", name, f.Name)
			}
		})
		if strings.Contains(cmd.Use, "JOB") && cmd.ValidArgsFunction == nil {
			t.Errorf("%q takes jobs, and no shell completes them", name)
		}
		if slices.Contains(hostCommands, name) && slices.Contains(placeless, name) {
			t.Errorf("%q cannot be both of one host and of none", name)
		}
	}
	if n < 40 {
		t.Errorf("the tree has %d commands, want all of them", n)
	}
	for _, name := range slices.Concat(hostCommands, placeless) {
		if cmd, _, err := root.Find(strings.Fields(name)); err != nil || commandName(cmd) != name {
			t.Errorf("there is no command %q", name)
		}
	}
}

// docs/cli.md names every command.
func TestCommandsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	for cmd := range commands(newTestMain(t, io.Discard).rootCommand()) {
		name := commandName(cmd)
		if cmd.Hidden || isGroup(cmd) || name == "" || name == "help" || strings.HasPrefix(name, "completion ") {
			continue
		}
		if !strings.Contains(string(text), "| `"+name) {
			t.Errorf("docs/cli.md has no line for %q", name)
		}
	}
}

func TestMeant(t *testing.T) {
	for line, want := range map[string]string{
		"lss":                  "did you mean `scheduler ls`?",
		"stat":                 "did you mean `scheduler status`?",
		"dlq requeu":           "did you mean `scheduler dlq requeue`?",
		"approvals lst":        "did you mean `scheduler approvals ls`?",
		"ls --limt 3":          "did you mean --limit?",
		"ls --jsn":             "did you mean --json?",
		"status --colour":      "did you mean --color?",
		"xyzzy":                "",
		"ls --xyzzy":           "the flag --help lists those that there are",
		"submit --idempotency": "did you mean --idempotency-key?",
	} {
		var said bytes.Buffer
		m := newTestMain(t, io.Discard)
		m.con.stderr = &said
		if code := m.run(strings.Fields(line)); code != exitUsage {
			t.Errorf("%s: exit code %d, want %d", line, code, exitUsage)
		}
		_, hint, _ := strings.Cut(said.String(), "hint: ")
		if got := strings.TrimSpace(hint); got != want {
			t.Errorf("%s: hint %q, want %q; all of it: %s", line, got, want, said.String())
		}
	}
}

// A command that works here only says so before it does anything.
func TestElsewhere(t *testing.T) {
	m := newTestMain(t, io.Discard)
	for cmd := range commands(m.rootCommand()) {
		name := commandName(cmd)
		if !cmd.Runnable() || isGroup(cmd) || cmd.Hidden {
			continue
		}
		m.at.server = "http://127.0.0.1:1"
		refused := m.at.checkPlace(cmd) != nil
		if want := slices.Contains(hostCommands, name); refused != want {
			t.Errorf("%q with --server is refused: %v, want %v", name, refused, want)
		}
	}
}

func TestCompletionsAreSilent(t *testing.T) {
	m := newTestMain(t, io.Discard)
	for cmd := range commands(m.rootCommand()) {
		if cmd.ValidArgsFunction == nil || cmd.Name() == "help" {
			continue
		}
		var out bytes.Buffer
		cmd.SetErr(&out)
		words, directive := cmd.ValidArgsFunction(cmd, nil, "")
		if out.Len() > 0 || directive&cobra.ShellCompDirectiveError != 0 {
			t.Errorf("%q: without a state directory it says %q, with %v %v", commandName(cmd), &out, words, directive)
		}
	}
	if _, err := os.Stat(m.local.stateDir); err == nil {
		t.Error("completing has made a state directory")
	}
}
