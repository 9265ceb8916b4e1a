package cli

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/rs/zerolog"
	_ "modernc.org/sqlite" // to look into a store behind its back

	"github.com/agentsched/agentsched/internal/agentcore"
	"github.com/agentsched/agentsched/internal/proc"
	"github.com/agentsched/agentsched/internal/testrun"
)

// TestMain lets the test binary be the program too: a script's `scheduler` is
// this binary under that name, and so is the core that it re-executes.
func TestMain(m *testing.M) {
	if strings.HasPrefix(os.Args[0], proc.CoreName("")) || os.Args[0] == agentcore.FuseCommand { // what the scheduler calls its core, and that its fuse
		runProgram()
		return
	}
	if filepath.Base(os.Args[0]) != "scheduler" { // what testscript calls this binary where it is the program
		if _, err := testrun.Keep(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	testscript.Main(m, map[string]func(){"scheduler": runProgram})
}

func runProgram() { os.Exit(Run(Options{})) }

// TestScripts plays what a user does, with real processes: one script a story.
//
// Beside testscript's own, the verbs are:
//
//	code N PROGRAM ARGS...  runs the program, which must exit with code N
//	repo DIR                makes DIR a git repository with all its files committed
//	jsonlines FILE          FILE (or stdout) must be JSON objects, one a line, at least one
//	jsondoc FILE            FILE (or stdout) must be one JSON value
//	sql DATABASE STATEMENT  executes a statement on a SQLite file
//	serve NAME              serves "served" by HTTP on a loopback address that is put into the variable NAME
//	noproc                  no process of any state directory below $WORK may be alive
//	onterminal PROGRAM ...  runs the program with a terminal for its output, of which
//	                        stdout is what came to the screen; on Linux, as what follows
//	terminal NAME ARGS...   starts the scheduler's program on a terminal of that name
//	press NAME KEYS         types keys on it, written as in a string of Go
//	shown NAME TEXT         waits until the text stands in one line of its screen
//	hangup NAME             takes it away
//	left NAME CODE          waits until the program has ended with that exit code; stdout
//	                        is all that came to the screen
//
// The condition [limits] holds where this host can enforce limits on runs.
//
// gobuild FILE PACKAGE builds a program of this module, such as ./examples/workers/chat.
//
// The state directory is $STATE; $EXAMPLES is the folder examples; $SCHEDULER_DIR holds the program and nothing
// else. At the end of every script there must be no
// process left, as with noproc.
func TestScripts(t *testing.T) {
	verbs := terminalVerbs(t)
	maps.Copy(verbs, map[string]func(*testscript.TestScript, bool, []string){
		"code": scriptCode, "repo": scriptRepo, "jsonlines": scriptJSONLines, "jsondoc": scriptJSONDoc,
		"sql": scriptSQL, "noproc": scriptNoProc, "gobuild": scriptGoBuild, "serve": scriptServe,
	})
	testscript.Run(t, testscript.Params{
		Dir:   "../../testdata/script",
		Setup: setUpScript,
		Condition: func(name string) (bool, error) {
			if name != "limits" {
				return false, fmt.Errorf("unknown condition %q", name)
			}
			return canLimit()
		},
		Cmds: verbs,
	})
}

// canLimit reports whether this host can enforce limits on runs.
var canLimit = sync.OnceValues(func() (bool, error) {
	host, err := proc.NewHost(proc.Config{Cgroup: "agentsched-test", Log: zerolog.Nop()})
	if err != nil {
		return false, err
	}
	_, why := host.Enforces()
	return why == nil, host.Close()
})

// variablesKey and seatsKey are the keys of a script's values: the names of its variables, and its seats.
type (
	variablesKey struct{}
	seatsKey     struct{}
)

func setUpScript(env *testscript.Env) error {
	home := filepath.Join(env.WorkDir, "home")
	xdg := filepath.Join(env.WorkDir, "xdg")
	env.Setenv("HOME", home)
	env.Setenv("XDG_CONFIG_HOME", filepath.Join(home, ".config"))
	env.Setenv("XDG_STATE_HOME", xdg)
	switch strings.TrimPrefix(filepath.Base(env.WorkDir), "script-") {
	case "config", "sandbox", "sandbox-exec", "doctor-sandbox", "report": // are about what a configuration grants
	default:
		env.Setenv("AGENTSCHED_SANDBOX__WRITE", env.WorkDir) // by files there jobs tell where they are
	}
	env.Setenv("STATE", filepath.Join(xdg, "agentsched"))
	// A program with the race detector would sleep for a second at its end.
	env.Setenv("GORACE", strings.TrimSpace(os.Getenv("GORACE")+" atexit_sleep_ms=0"))
	program, err := exec.LookPath("scheduler")
	if err != nil {
		return err
	}
	env.Setenv("SCHEDULER_DIR", filepath.Dir(program))
	examples, err := filepath.Abs("../../examples")
	if err != nil {
		return err
	}
	env.Setenv("EXAMPLES", examples)
	if err := os.MkdirAll(home, 0o700); err != nil {
		return err
	}
	env.Defer(func() {
		left, err := processesBelow(env.WorkDir)
		if err != nil || len(left) > 0 {
			env.T().Fatal("processes were left: ", left, err)
		}
	})
	names := make([]string, len(env.Vars))
	for i, v := range env.Vars {
		names[i], _, _ = strings.Cut(v, "=")
	}
	env.Values[variablesKey{}], env.Values[seatsKey{}] = names, seats{}
	identity := "[user]\n\tname = script\n\temail = script@localhost\n[commit]\n\tgpgsign = false\n"
	return os.WriteFile(filepath.Join(home, ".gitconfig"), []byte(identity), 0o600)
}

// processesBelow names the living processes of each state directory below dir.
func processesBelow(dir string) (string, error) {
	var left string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			return nil
		}
		if err != nil || d.Name() != "instance.json" {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var in struct{ Instance string }
		if json.Unmarshal(data, &in) != nil || in.Instance == "" {
			return nil
		}
		alive, err := proc.Alive(in.Instance)
		for _, p := range alive {
			left += p.String() + " "
		}
		return err
	})
	return left, err
}

func scriptNoProc(ts *testscript.TestScript, neg bool, _ []string) {
	left, err := processesBelow(ts.Getenv("WORK"))
	ts.Check(err)
	if (left == "") == neg {
		ts.Fatalf("processes alive: %q", left)
	}
}

// scriptServe serves at 127.0.0.2: clients ask a proxy for it, in contrast to 127.0.0.1.
func scriptServe(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: serve NAME")
	}
	l, err := net.Listen("tcp", "127.0.0.2:0")
	ts.Check(err)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "served") })}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l)
	}()
	ts.Defer(func() {
		_ = server.Close()
		<-done
	})
	ts.Setenv(args[0], l.Addr().String())
}

func scriptGoBuild(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: gobuild FILE PACKAGE")
	}
	cmd := exec.Command("go", "build", "-o", ts.MkAbs(args[0]), args[1])
	cmd.Dir = filepath.Join("..", "..")
	if out, err := cmd.CombinedOutput(); err != nil {
		ts.Fatalf("build %s: %v\n%s", args[1], err, out)
	}
}

func scriptCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N PROGRAM ARGS...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	var exit *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("run %s: %v", args[1], err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

func scriptRepo(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: repo DIR")
	}
	for _, a := range [][]string{{"init", "-q", "-b", "main"}, {"add", "-A"}, {"commit", "-q", "--allow-empty", "-m", "start"}} {
		ts.Check(ts.Exec("git", append([]string{"-C", ts.MkAbs(args[0])}, a...)...))
	}
}

func scriptJSONLines(ts *testscript.TestScript, neg bool, args []string) {
	text := scriptFile(ts, neg, args)
	lines := bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"))
	for i, line := range lines {
		var object map[string]any
		if err := json.Unmarshal(line, &object); err != nil {
			ts.Fatalf("line %d is no JSON object: %v: %q", i+1, err, line)
		}
	}
}

func scriptJSONDoc(ts *testscript.TestScript, neg bool, args []string) {
	if text := scriptFile(ts, neg, args); !json.Valid(text) {
		ts.Fatalf("not one JSON value: %q", text)
	}
}

func scriptFile(ts *testscript.TestScript, neg bool, args []string) []byte {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: VERB FILE")
	}
	return []byte(ts.ReadFile(args[0]))
}

func scriptSQL(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: sql DATABASE STATEMENT")
	}
	db, err := sql.Open("sqlite", ts.MkAbs(args[0]))
	ts.Check(err)
	_, err = db.Exec(args[1])
	ts.Check(errors.Join(err, db.Close()))
}
