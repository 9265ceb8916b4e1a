package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/agentsched/agentsched/client"
)

// TestGuide does what docs/guide.md tells a user to do, command by command, in the
// order of the page, and compares what is printed with what the page shows.
//
// In its blocks marked "console" a line that begins with "$ " is a command for sh:
// one that ends in "# exit N" must exit with N, all others with 0. What follows is
// its output, standard error too: all of it and in this order, where "…" stands for
// anything within a line, and alone on a line for any lines. Blank lines and the
// width of gaps do not count. "$ scheduler serve" has a terminal of its own, in
// which "^C" is a key; its output is that of standard error. A command that only
// looks is looked at again until it shows what it should, as a person would.
//
// A block marked "FORMAT NAME" shows the file examples/guide/NAME.
func TestGuide(t *testing.T) {
	text, err := os.ReadFile("../../docs/guide.md")
	if err != nil {
		t.Fatal(err)
	}
	port := strconv.Itoa(freePort(t))
	guide, err := readGuide(strings.ReplaceAll(string(text), "7433", port))
	if err != nil {
		t.Fatal(err)
	}
	if len(guide.commands) < 45 {
		t.Errorf("the guide has %d commands: a day has more", len(guide.commands))
	}
	for name, shown := range guide.files {
		file, err := os.ReadFile(filepath.Join("../../examples/guide", name))
		if err != nil {
			t.Error(err)
		} else if strings.ReplaceAll(string(file), "7433", port) != shown {
			t.Errorf("docs/guide.md shows another %s than examples/guide has:\n%s", name, shown)
		}
	}
	for _, program := range []string{"sh", "git", "curl"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("the guide needs %s: %v", program, err)
		}
	}

	// A socket's path must be short for curl, which t.TempDir() is not on macOS.
	root, err := os.MkdirTemp("/tmp", "guide")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(root); err != nil {
			t.Error(err)
		}
	})
	file := filepath.Join(t.TempDir(), "day.txtar")
	if err := os.WriteFile(file, []byte(guide.script()), 0o600); err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Files: []string{file}, WorkdirRoot: root,
		Setup: func(env *testscript.Env) error { return setUpGuide(env, port) },
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"type": guide.typed, "shows": guide.shows, "ready": scriptReady,
		},
	})
}

// setUpGuide puts the user into a copy of the repository, with nothing configured.
func setUpGuide(env *testscript.Env, port string) error {
	if err := setUpScript(env); err != nil {
		return err
	}
	state := filepath.Join(env.Getenv("HOME"), ".local", "state")
	env.Setenv("XDG_STATE_HOME", state)
	env.Setenv("AGENTSCHED_SANDBOX__WRITE", env.WorkDir)
	env.Setenv("STATE", filepath.Join(state, "agentsched"))
	examples := filepath.Join(env.WorkDir, "examples", "guide")
	if err := os.CopyFS(examples, os.DirFS("../../examples/guide")); err != nil {
		return err
	}
	config := filepath.Join(examples, "config.yaml")
	text, err := os.ReadFile(config)
	if err != nil {
		return err
	}
	return os.WriteFile(config, []byte(strings.ReplaceAll(string(text), "7433", port)), 0o600)
}

// freePort finds a TCP port that nobody listens on, below those that systems hand
// out by themselves: it has to stay free until the server has it.
func freePort(t *testing.T) int {
	t.Helper()
	for i := range 1000 {
		port := 20000 + (os.Getpid()+i)%10000
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		return port
	}
	t.Fatal("no port is free")
	return 0
}

// guide is what docs/guide.md says.
type guide struct {
	files    map[string]string // by name
	commands []guideCommand    // in the order of the page
}

// guideCommand is a command of the guide and what it leads to.
type guideCommand struct {
	line   int    // of the page
	text   string // for sh
	code   int    // the exit code
	output []string
}

// serveLine has a terminal of its own; interrupt is the key that ends it.
const (
	serveLine = "scheduler serve"
	interrupt = "^C"
)

// looks are commands that change nothing.
var looks = regexp.MustCompile(`^(scheduler( --\S+ \S+)* (ls|show|logs|diff|status|tenants|workers|approvals (ls|show)|dlq (ls|show)|replay|usage|audit tail)|curl .*/metrics)( |$)`)

func readGuide(text string) (*guide, error) {
	g := &guide{files: map[string]string{}}
	block := "" // of what the line is: "", "console", "other" or a file's name
	for n, line := range strings.Split(text, "\n") {
		mark, fence := strings.CutPrefix(line, "```")
		switch words := strings.Fields(mark); {
		case fence && block != "":
			block = ""
		case fence && len(words) == 2:
			block = words[1]
		case fence && len(words) == 1 && words[0] == "console":
			block = "console"
		case fence:
			block = "other"
		case block == "console" && (line == interrupt || strings.HasPrefix(line, "$ ")):
			command, code, hasCode := strings.Cut(strings.TrimPrefix(line, "$ "), " # exit ")
			c := guideCommand{line: n + 1, text: command}
			if hasCode {
				var err error
				if c.code, err = strconv.Atoi(code); err != nil {
					return nil, fmt.Errorf("docs/guide.md:%d: the exit code is no number: %s", n+1, line)
				}
			}
			g.commands = append(g.commands, c)
		case block == "console" && len(g.commands) == 0:
			return nil, fmt.Errorf("docs/guide.md:%d: output without a command: %s", n+1, line)
		case block == "console":
			last := &g.commands[len(g.commands)-1]
			last.output = append(last.output, line)
		case block != "" && block != "other":
			g.files[block] += line + "\n"
		}
	}
	if block != "" {
		return nil, errors.New("docs/guide.md: the last block has no end")
	}
	return g, nil
}

// script makes a script of the guide's commands.
func (g *guide) script() string {
	var b strings.Builder
	serve := 0
	for i, c := range g.commands {
		fmt.Fprintf(&b, "# docs/guide.md:%d $ %s\n", c.line, c.text)
		dir, isCD := strings.CutPrefix(c.text, "cd ")
		switch {
		case c.text == serveLine:
			serve = i
			fmt.Fprintf(&b, "exec scheduler serve &serve&\nready\n")
		case c.text == interrupt:
			// What the server has printed all day stands in two places of the page.
			g.commands[i].output = slices.Concat(g.commands[serve].output, c.output)
			fmt.Fprintf(&b, "kill -INT serve\nwait serve\nshows %d\n", i)
		case isCD:
			fmt.Fprintf(&b, "cd %s\n", strings.Replace(dir, "~", "$HOME", 1))
		default:
			fmt.Fprintf(&b, "type %d\n", i)
		}
	}
	return b.String()
}

// guidePatience is how long something may take that takes no time on an idle host.
const guidePatience = time.Minute

// typed has a shell do a command and compares what it leads to.
func (g *guide) typed(ts *testscript.TestScript, neg bool, args []string) {
	c := g.command(ts, neg, args)
	giveUp := time.Now().Add(guidePatience)
	for pause := 50 * time.Millisecond; ; pause *= 2 {
		code := 0
		var exit *exec.ExitError
		if err := ts.Exec("sh", "-c", "exec 2>&1; "+c.text); errors.As(err, &exit) {
			code = exit.ExitCode()
		} else if err != nil {
			ts.Fatalf("$ %s\n%v", c.text, err)
		}
		got := ts.ReadFile("stdout")
		if code == c.code && c.matches(got) {
			return
		}
		if !looks.MatchString(c.text) || time.Now().After(giveUp) {
			ts.Fatalf("docs/guide.md:%d: $ %s\nexit code %d, want %d; it printed\n%swant\n%s\n",
				c.line, c.text, code, c.code, got, strings.Join(c.output, "\n"))
		}
		<-time.After(pause) // as a person does before looking again
	}
}

// shows compares what a program printed that has ended.
func (g *guide) shows(ts *testscript.TestScript, neg bool, args []string) {
	c := g.command(ts, neg, args)
	if got := ts.ReadFile("stderr"); !c.matches(got) {
		ts.Fatalf("docs/guide.md:%d: it printed\n%swant\n%s", c.line, got, strings.Join(c.output, "\n"))
	}
}

// command returns the command whose number is the verb's one argument.
func (g *guide) command(ts *testscript.TestScript, neg bool, args []string) guideCommand {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: VERB N")
	}
	n, err := strconv.Atoi(args[0])
	ts.Check(err)
	return g.commands[n]
}

// matches tells whether output is what the guide shows.
func (c guideCommand) matches(output string) bool {
	var want strings.Builder
	want.WriteString("^")
	for _, line := range c.output {
		switch words := strings.Fields(line); {
		case len(words) == 0:
		case len(words) == 1 && words[0] == "…":
			want.WriteString(`(.*\n)*?`)
		default:
			text := regexp.QuoteMeta(strings.Join(words, " "))
			want.WriteString(strings.ReplaceAll(text, "…", ".*") + `\n`)
		}
	}
	want.WriteString("$")
	var got strings.Builder
	for line := range strings.Lines(output) {
		if words := strings.Fields(line); len(words) > 0 {
			got.WriteString(strings.Join(words, " ") + "\n")
		}
	}
	return regexp.MustCompile(want.String()).MatchString(got.String())
}

// What the guide shows is compared line by line.
func TestGuideMatches(t *testing.T) {
	for _, test := range []struct {
		shown, output string
		want          bool
	}{
		{"", "", true},
		{"", "something\n", false},
		{"a  b", "a b\n", true},
		{"a b", "a b c\n", false},
		{"a … c", "a b b c\n", true},
		{"a…", "a\n", true},
		{"a\nc", "a\nb\nc\n", false},
		{"a\n…\nc", "a\nb\n\nb\nc\n", true},
		{"a\n…\nc", "a\nc\n", true},
		{"c\n…\na", "a\nb\nc\n", false},
		{"…\nb", "a\nb\nc\n", false},
		{"a.c", "abc\n", false},
	} {
		c := guideCommand{output: strings.Split(test.shown, "\n")}
		if got := c.matches(test.output); got != test.want {
			t.Errorf("shown %q, printed %q: %v, want %v", test.shown, test.output, got, test.want)
		}
	}
}

// scriptReady waits until a server answers on the state directory.
func scriptReady(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: ready")
	}
	ctx, cancel := context.WithTimeout(context.Background(), guidePatience)
	defer cancel()
	c := client.New(filepath.Join(ts.Getenv("STATE"), "scheduler.sock"))
	defer c.Close()
	for {
		_, err := c.Status(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			ts.Fatalf("no server within %v: %v", guidePatience, err)
		case <-time.After(20 * time.Millisecond): // nobody tells a stranger of a socket
		}
	}
}
